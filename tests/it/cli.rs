//! The command line as people meet it: help, version, and one clear line for each slip.
//!
//! `TRYCMD=overwrite cargo test --test it cli` writes what the program says now into the files.

#[test]
fn help_and_errors() {
    // The user's shell may have another width.
    trycmd::TestCases::new().env("COLUMNS", "100").env("LINKGAUGE_STORE", "").case("tests/cli/*.trycmd");
}
