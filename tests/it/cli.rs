//! The command line as users see it: help, version, and one clear line for each error.
//!
//! `TRYCMD=overwrite cargo test --test it cli` writes the current output of the program into the files.

#[test]
fn help_and_errors() {
    // The user's shell may have another width.
    trycmd::TestCases::new().env("COLUMNS", "100").env("LINKGAUGE_STORE", "").case("tests/cli/*.trycmd");
}
