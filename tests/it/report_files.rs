//! Files that results are written to: a file that was there is whole afterwards, the new one or the old one.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::program::run;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/run-v1-latency.json");

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = directory
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A disk of a few blocks, in a namespace that is gone with the process: nothing more fits on it.
#[test]
fn a_full_disk_leaves_old_reports_intact() {
    let place = tempfile::tempdir().unwrap();
    let script = r#"
        cd "$PLACE"; mkdir disk; mount -t tmpfs -o size=64k none disk
        for name in json html csv junit; do printf old >disk/$name; done
        head -c 1M /dev/zero >disk/fill 2>&- || :
        before=$(ls -A disk)
        for name in json html csv junit; do
            "$LG" report "$DOCUMENT" --quiet --$name disk/$name && exit 1
            [ "$(cat disk/$name)" = old ]
        done
        "$LG" compare "$DOCUMENT" "$DOCUMENT" --html disk/html >&- && exit 1
        "$LG" doctor --json disk/json >&- && exit 1
        [ "$(cat disk/html disk/json)" = oldold ]
        [ "$before" = "$(ls -A disk)" ]
    "#;
    let ended = Command::new("timeout")
        .args(["60", "unshare", "--map-root-user", "--mount", "sh", "-ec", script])
        .env("LG", env!("CARGO_BIN_EXE_linkgauge"))
        .env("LINKGAUGE_STORE", "")
        .env("DOCUMENT", DOCUMENT)
        .env("PLACE", place.path())
        .output()
        .unwrap();
    let message = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success(), "{message}");
    assert_eq!(message.matches("could not be written: No space left on device").count(), 6, "{message}");
}

/// Full are the disk of two reports and that of the events; the others are written, and the store has the run.
#[test]
fn a_full_disk_affects_only_its_own_files() {
    let place = tempfile::tempdir().unwrap();
    let script = r#"
        cd "$PLACE"; mkdir disk; mount -t tmpfs -o size=64k none disk
        touch disk/events disk/json disk/raw; head -c 1M /dev/zero >disk/fill 2>&- || :
        ip link set lo up
        "$LG" serve tcp://127.0.0.1:7199 >serving & server=$!
        until [ -s serving ]; do sleep 0.01; done
        "$LG" latency tcp://127.0.0.1:7199 --count 2000 --events disk/events --json disk/json --html html --csv disk/csv \
            --junit junit --raw disk/raw --store store >table && exit 1
        [ $? = 2 ]
        "$LG" report last --store store --csv disk/csv --json copy >table2 && exit 1
        "$LG" explain linx --json disk/json >explained && exit 1
        "$LG" doctor --json disk/json >examined && exit 1
        "$LG" compare copy copy --html disk/html >compared && exit 1
        "$LG" export disk last --store store && exit 1
        kill $server; wait $server || :
        for file in html junit table table2 copy explained examined compared; do [ -s $file ] || exit 1; done
        "$LG" history --store store
    "#;
    let ended = Command::new("timeout")
        .args(["60", "unshare", "--map-root-user", "--mount", "--net", "sh", "-uc", script])
        .env("LG", env!("CARGO_BIN_EXE_linkgauge"))
        .env("LINKGAUGE_STORE", "")
        .env("PLACE", place.path())
        .output()
        .unwrap();
    let message = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success(), "{message}");
    assert!(
        String::from_utf8(ended.stdout).unwrap().contains("tcp://127.0.0.1:7199"),
        "the store has the run"
    );
    for file in ["json", "csv", "events"] {
        assert!(message.contains(&format!("error: disk/{file}: ")), "{message}");
    }
    assert_eq!(message.matches("No space left on device").count(), 8, "{message}");
    let table = fs::read_to_string(place.path().join("table")).unwrap();
    assert!(table.contains("the raw file could not be written"), "{table}");
}

#[test]
fn the_new_file_is_where_the_old_one_was() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::write(path("real"), "old").unwrap();
    fs::set_permissions(path("real"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("real", path("link")).unwrap();
    symlink("later", path("nowhere")).unwrap();
    let before = path("real").metadata().unwrap();
    for name in ["link", "nowhere", "new"] {
        let ended = run(&["report", DOCUMENT, "--quiet", "--csv", path(name).to_str().unwrap()]);
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
        assert!(fs::read_to_string(path(name)).unwrap().contains("p50_ns"), "{name}");
    }
    let after = path("real").metadata().unwrap();
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    assert_ne!(after.ino(), before.ino(), "written beside it");
    assert!(path("link").is_symlink() && path("nowhere").is_symlink());
    assert_eq!(names(place.path()), ["later", "link", "new", "nowhere", "real"]);
}

/// A pipe is opened once, when there is something for it.
#[test]
fn pipes_and_devices_are_written_as_they_are() {
    let place = tempfile::tempdir().unwrap();
    let server = crate::program::Serving::start(&[]);
    let script = r#"
        mkfifo pipe; ln -s later nowhere
        cat pipe >got &
        "$LG" latency "$URL" --count 20 --warm-up 0 --quiet --json pipe --csv /dev/stdout --html /dev/null; wait
        "$LG" latency "$URL" --quiet --json nowhere --raw /nonexistent/x 2>&- || [ $? = 2 ]
        [ -p pipe ] && [ -c /dev/null ] && [ -L nowhere ] && [ ! -e nowhere ]
    "#;
    let ended = Command::new("timeout")
        .args(["60", "sh", "-ec", script])
        .current_dir(place.path())
        .env("LG", env!("CARGO_BIN_EXE_linkgauge"))
        .env("LINKGAUGE_STORE", "")
        .env("URL", server.tcp.to_string())
        .output()
        .unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(String::from_utf8(ended.stdout).unwrap().contains("p50_ns"));
    let got = fs::read_to_string(place.path().join("got")).unwrap();
    assert_eq!(linkgauge::run::Run::from_json(&got).unwrap().cases[0].figures.counts.sent, 20);
    assert_eq!(names(place.path()), ["got", "nowhere", "pipe"]);
}
