#![no_main]

use libfuzzer_sys::fuzz_target;
use linkgauge_fuzz::targets;

fuzz_target!(|data: &[u8]| targets::radio(data));
