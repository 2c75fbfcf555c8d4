//! The commands of docs/guide.md run as printed.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::program::run_within;

/// The planned times of all commands add up to less than a minute.
const MAX_DURATION: Duration = Duration::from_secs(240);

/// The guide as one shell script that runs in `folder`. A server that a line starts in the background prints where it
/// listens before the next line runs. Status 1 is a finding (a failed threshold, a slower repetition), not a failure.
fn guide_script(guide: &str, folder: &Path) -> String {
    let blocks = guide.split("\n```sh\n").skip(1).map(|rest| rest.split("\n```").next().unwrap());
    let mut script = "servers=; trap 'kill $servers' EXIT\nip link set lo up\n".to_owned();
    for (index, line) in blocks.flat_map(str::lines).enumerate() {
        let line = line.replace("/tmp/", &format!("{}/", folder.display()));
        match line.strip_suffix(" &") {
            Some(server) => {
                writeln!(script, "{server} >started.{index} &\nservers=\"$servers $!\"").unwrap();
                writeln!(script, "until [ -s started.{index} ]; do sleep 0.02; done").unwrap();
            }
            None => writeln!(script, "{line} || [ $? = 1 ]").unwrap(),
        }
    }
    script
}

/// In a network of its own, so that the default ports are free.
#[test]
#[ignore = "long"]
fn commands_of_the_guide_run_as_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("examples")).unwrap();
    for entry in root.join("examples").read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, place.path().join("examples").join(path.file_name().unwrap())).unwrap();
        }
    }
    let guide = std::fs::read_to_string(root.join("docs/guide.md")).unwrap();
    let script = guide_script(&guide, place.path());
    assert!(script.matches("linkgauge ").count() > 30, "{script}");
    let programs = Path::new(env!("CARGO_BIN_EXE_linkgauge")).parent().unwrap().display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let mut shell = Command::new("timeout");
    shell.args(["240", "unshare", "--map-root-user", "--net", "sh", "-eux", "-c", &script]);
    shell.current_dir(place.path()).env("PATH", path).env("HOME", place.path()).env("LC_ALL", "C.UTF-8");
    shell.env_remove("LINKGAUGE_TOKEN").env("LINKGAUGE_STORE", place.path().join("store"));
    let ended = run_within(MAX_DURATION, &mut shell);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    for file in ["data.dat", "guide.html", "compared.html", "gauge.xml", "study.html"] {
        let length =
            place.path().join(file).metadata().unwrap_or_else(|error| panic!("{file}: {error}")).len();
        assert!(length > 0, "{file}");
    }
}

/// Commands in documents name only files that exist.
#[test]
fn files_named_by_commands_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages: Vec<_> =
        root.join("docs").read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.push(root.join("README.md"));
    let mut missing = Vec::new();
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let text = std::fs::read_to_string(page).unwrap();
        let blocks = text.split("\n```sh").skip(1).map(|rest| rest.split("\n```").next().unwrap());
        for word in blocks.flat_map(str::split_whitespace).filter(|word| word.starts_with("examples/")) {
            if !root.join(word).is_file() {
                missing.push(format!("{}: {word}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
