//! The fuzz targets, for the programs in `fuzz_targets`.

pub mod targets;

#[cfg(feature = "fuzzer")]
pub use libfuzzer_sys;

/// The program of one target, made for cargo-fuzz.
#[cfg(feature = "fuzzer")]
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| $crate::targets::$name(data));
    };
}

/// The program of one target, which runs it on the files named.
#[cfg(not(feature = "fuzzer"))]
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        fn main() -> std::io::Result<()> {
            for file in std::env::args_os().skip(1) {
                $crate::targets::$name(&std::fs::read(file)?);
            }
            Ok(())
        }
    };
}
