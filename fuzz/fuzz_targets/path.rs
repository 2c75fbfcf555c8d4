#![cfg_attr(feature = "fuzzer", no_main)]

linkgauge_fuzz::target!(path);
