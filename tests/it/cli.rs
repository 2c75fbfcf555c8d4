//! The command line as people meet it: help, version, and one clear line for each slip.
//!
//! `TRYCMD=overwrite cargo test --test it cli` writes what the program says now into the files.

#[test]
fn help_and_errors() {
    // Whoever runs the tests has a terminal of another width, perhaps, and wants colours.
    trycmd::TestCases::new().env("COLUMNS", "100").env("CLICOLOR_FORCE", "0").case("tests/cli/*.trycmd");
}
