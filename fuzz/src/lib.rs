//! What is fuzzed, for the programs in `fuzz_targets`.

pub mod targets;
