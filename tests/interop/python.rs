//! The Python package, installed in a fresh virtual environment from the wheel that `./check --all` has built.

use std::path::Path;
use std::process::Command;

use crate::tools::interpreter;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Python with these arguments in `folder`: what it printed.
fn python(program: &Path, folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(folder).env("LINKGAUGE_STORE", "").output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}: ./check --all installs it"));
    let printed =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success(), "{command:?}: {printed}");
    printed
}

#[test]
fn the_wheel_works_in_a_fresh_environment() {
    let root = Path::new(ROOT);
    let directory = tempfile::tempdir().unwrap();
    let wheels = root.join("target/wheels");
    assert!(wheels.is_dir(), "{}: ./check --all builds it", wheels.display());
    let wheels = wheels.display().to_string();
    python(&interpreter(), root, &["-m", "venv", &directory.path().join("fresh").display().to_string()]);
    let fresh = directory.path().join("fresh/bin/python");
    let install = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--find-links"];
    python(&fresh, root, &[&install, [wheels.as_str(), "linkgauge"].as_slice()].concat());

    // pytest and pandas are those of the tests.
    let packages =
        python(&interpreter(), root, &["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]);
    let site = python(&fresh, root, &["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]);
    std::fs::write(Path::new(site.trim()).join("tests.pth"), packages).unwrap();
    let tests = root.join("python/tests").display().to_string();
    let passed = python(&fresh, directory.path(), &["-m", "pytest", "-q", "-p", "no:cacheprovider", &tests]);
    assert!(passed.contains(" passed") && !passed.contains("skipped"), "{passed}");
}
