//! The command line as people meet it: help, version, and one clear line for each slip.
//!
//! `TRYCMD=overwrite cargo test --test it cli` writes what the program says now into the files.

#[test]
fn help_and_errors() {
    trycmd::TestCases::new().case("tests/cli/*.trycmd");
}
