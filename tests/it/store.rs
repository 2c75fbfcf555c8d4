//! The store from the command line: runs are saved by default and found again, many processes share it, and a kill
//! leaves it intact.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use linkgauge::run::Run;
use linkgauge::store::{Filter, SaveOutcome, Store};
use rustix::process::Signal;

use crate::program::{Ended, Running, command, run, wait_until};

/// A directory for a store of the test's own.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn store(&self) -> String {
        self.path("runs.sqlite")
    }

    /// Runs a command with this store.
    fn run(&self, arguments: &[&str]) -> Ended {
        run(&[arguments, &["--store", &self.store()]].concat())
    }

    /// A small run on a link of the program's own lab.
    fn document(&self, id: &str) -> Run {
        let text = include_str!("../data/run-v1-latency.json");
        Run { id: id.to_owned(), ..Run::from_json(text).unwrap() }
    }

    fn kept(&self, ids: &[&str]) {
        let mut store = Store::open(Path::new(&self.store())).unwrap();
        for id in ids {
            assert_eq!(store.save(&self.document(id)).unwrap(), SaveOutcome::Saved);
        }
    }
}

/// The output of the program without a store in its arguments or environment.
fn at_home(home: &Path, arguments: &[&str]) -> Ended {
    let mut command = command(arguments);
    command.env_remove("LINKGAUGE_STORE").env_remove("XDG_DATA_HOME").env("HOME", home);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A case that needs no server.
const QUICK: [&str; 6] = ["latency", "--count", "20", "--warm-up", "0", "--protocol"];

/// A server of the test, and the arguments of a run against it.
fn against(server: &crate::program::Serving) -> Vec<String> {
    let mut arguments: Vec<String> = QUICK.map(str::to_owned).to_vec();
    arguments.extend(["echo".to_owned(), server.tcp.to_string()]);
    arguments
}

#[test]
fn a_missing_home_directory_is_not_created() {
    let place = tempfile::tempdir().unwrap();
    let (home, server) = (place.path().join("nonexistent"), crate::program::Serving::start(&[]));
    let arguments = against(&server);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = at_home(&home, &arguments);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let reason = format!("{}: the home directory does not exist", home.display());
    assert!(ended.stderr.contains(&reason), "{}", ended.stderr);
    assert!(!home.exists());
}

#[test]
fn every_run_is_saved_and_found_again() {
    let home = tempfile::tempdir().unwrap();
    let server = crate::program::Serving::start(&[]);
    let arguments = against(&server);
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    arguments.extend(["--tag", "night,office"]);
    let ended = at_home(home.path(), &arguments);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let store = home.path().join(".local/share/linkgauge/runs.sqlite");
    let mode = store.parent().unwrap().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let (_, id) = ended.stderr.split_once("Next: linkgauge show ").expect(&ended.stderr);
    let (id, _) = id.split_once(" --html").expect(&ended.stderr);

    let listed = at_home(home.path(), &["history"]);
    assert!(listed.stdout.contains(id.trim()) && listed.stdout.contains("night office"), "{}", listed.stdout);
    assert!(listed.stdout.lines().skip(1).all(|line| line.chars().count() <= 80), "{}", listed.stdout);
    let shown = at_home(home.path(), &["show", id.trim()]);
    assert_eq!(shown.stdout, ended.stdout, "the same table as when it was measured");
    let again = at_home(home.path(), &["report", "tag:night", "--format", "json"]);
    assert_eq!(Run::from_json(&again.stdout).unwrap().cases[0].figures.counts.sent, 20);
    let trend = at_home(home.path(), &["history", "--metric", "p50"]);
    assert!(trend.stdout.lines().skip(1).all(|line| line.chars().count() <= 80), "{}", trend.stdout);
    assert!(
        trend.stdout.starts_with("p50 of tcp://127.0.0.1:") && trend.stdout.contains('█'),
        "{}",
        trend.stdout
    );

    let page = at_home(home.path(), &["history", "--metric", "p50", "--html", "-"]);
    assert!(
        page.stdout.starts_with("<!doctype html>") && page.stdout.contains("p50 over time"),
        "{}",
        page.stderr
    );
    assert!(page.stdout.contains("Cases with fewer than 3 runs"));

    arguments.truncate(arguments.len() - 2);
    for silent in [&["--no-store"][..], &["--quiet"]] {
        let ended = at_home(home.path(), &[&arguments, silent].concat());
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{silent:?}");
    }
    assert_eq!(Store::open_existing(&store).unwrap().runs(&Filter::default()).unwrap().entries.len(), 2);
}

#[test]
fn an_unwritable_store_is_one_line_and_loses_no_result() {
    let server = crate::program::Serving::start(&[]);
    let arguments = against(&server);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // A file where a directory is needed refuses even the superuser.
    let file = tempfile::NamedTempFile::new().unwrap();
    let ended = at_home(&file.path().join("home"), &arguments);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("round trip"), "{}", ended.stdout);
    assert!(
        ended.stderr.starts_with("warning: the run was not saved: ") && ended.stderr.lines().count() == 1
    );

    // A store that was asked for has to be there, before anything is measured.
    for (store, complaint) in [
        (file.path().join("x.sqlite"), "the store cannot be opened: "),
        (PathBuf::from("/nonexistent/x.sqlite"), "the store cannot be opened: "),
        (PathBuf::from("/dev/full"), "/dev/full: "),
    ] {
        let ended = run(&[&arguments[..], &["--store", store.to_str().unwrap()]].concat());
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{}", ended.stderr);
        assert!(ended.stderr.contains(complaint) && ended.stderr.lines().count() == 1, "{}", ended.stderr);
    }
}

/// The file may not grow, as on a full disk.
#[test]
fn a_full_disk_is_one_line_and_leaves_the_store_intact() {
    let place = Place::new();
    place.kept(&["a"]);
    let server = crate::program::Serving::start(&[]);
    let size = std::fs::metadata(place.store()).unwrap().len();
    let sizes: Vec<String> = (1..=60).map(|size| size.to_string()).collect();
    let mut shell = Command::new("sh");
    // Blocks of 512 bytes; what would grow beyond is refused.
    let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", size / 512);
    let ended = shell
        .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_linkgauge")])
        .args(against(&server))
        // A document that needs room of its own.
        .args(["--size", &sizes.join(","), "--store", &place.store()])
        .output()
        .unwrap();
    let message = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success() && message.starts_with("warning: the run was not saved: "), "{message}");
    assert!(String::from_utf8(ended.stdout).unwrap().contains("Latency"));
    let store = Store::open_existing(Path::new(&place.store())).unwrap();
    assert_eq!(store.load("a").unwrap(), place.document("a"));
    assert_eq!(store.runs(&Filter::default()).unwrap().entries.len(), 1);
}

/// On a disk of its own, in a namespace that is gone with the process: full, then for reading only.
#[test]
fn a_full_or_read_only_disk_is_one_line_and_loses_no_result() {
    let place = Place::new();
    let server = crate::program::Serving::start(&[]);
    let stored = place.path("stored.json");
    std::fs::write(&stored, serde_json::to_string(&place.document("a")).unwrap()).unwrap();
    let script = r#"
        disk=$PLACE/disk; mkdir "$disk"; mount -t tmpfs -o size=256k none "$disk"
        "$LG" import run --quiet --store "$disk/runs.sqlite" "$PLACE/stored.json"
        before=$(sha256sum <"$disk/runs.sqlite")
        export LINKGAUGE_STORE="$disk/runs.sqlite"
        for state in full read-only; do
            if [ $state = full ]; then head -c 1M /dev/zero >"$disk/fill" || :; else
                rm "$disk/fill"; mount -o remount,ro "$disk"; fi 2>&-
            "$LG" "$@" --json "$PLACE/$state.json" --quiet
            "$LG" tag a night && exit 1
            "$LG" history
            [ "$before" = "$(sha256sum <"$disk/runs.sqlite")" ]
        done
    "#;
    let ended = Command::new("timeout")
        .args(["60", "unshare", "--map-root-user", "--mount", "sh", "-ec", script, "sh"])
        .args(against(&server))
        .args(["--size", &(1..=60).map(|size| size.to_string()).collect::<Vec<_>>().join(",")])
        .env("LG", env!("CARGO_BIN_EXE_linkgauge"))
        .env("PLACE", place.directory.path())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (table, message) = (text(ended.stdout), text(ended.stderr));
    assert!(ended.status.success(), "{message}");
    // Twice the answer and a row.
    assert_eq!(
        [table.matches("1 saved run of 2026-").count(), table.matches("latency  p50").count()],
        [2, 2],
        "{table}"
    );
    let message: Vec<&str> =
        message.lines().map(|line| line.split(&place.path("")).last().unwrap()).collect();
    insta::assert_snapshot!(message.join("\n"), @r"
    disk/runs.sqlite: the store cannot be written: database or disk is full. Try --store FILE for another file, or --no-store
    disk/runs.sqlite: the store cannot be written: database or disk is full
    disk/runs.sqlite: the store cannot be written: attempt to write a readonly database. Try --store FILE for another file, or --no-store
    disk/runs.sqlite: the store cannot be written: attempt to write a readonly database
    ");
    for state in ["full", "read-only"] {
        let json = std::fs::read_to_string(place.path(&format!("{state}.json"))).unwrap();
        assert_eq!(Run::from_json(&json).unwrap().cases.len(), 60);
    }
}

#[test]
fn eight_processes_at_once_lose_nothing() {
    const EACH: usize = 6;
    let place = Place::new();
    let documents = place.path("documents");
    std::fs::create_dir(&documents).unwrap();
    let file = |process: usize, number: usize| format!("{documents}/{process}-{number}.json");
    let all = || (0..8).flat_map(|process| (0..EACH).map(move |number| (process, number)));
    for (process, number) in all() {
        let run = place.document(&format!("run-{process}-{number}"));
        std::fs::write(file(process, number), serde_json::to_string(&run).unwrap()).unwrap();
    }
    let start = |process: usize| {
        let files: Vec<String> = (0..EACH).map(|number| file(process, number)).collect();
        let mut command = command(&["import", "run"]);
        command.args(files).args(["--store", &place.store(), "--quiet"]);
        Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let running: Vec<Running> = (0..8).map(start).collect();
    for process in running {
        let ended = process.ended();
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    }
    let store = Store::open_existing(Path::new(&place.store())).unwrap();
    for (process, number) in all() {
        let id = format!("run-{process}-{number}");
        assert_eq!(store.load(&id).unwrap(), place.document(&id));
    }
    assert_eq!(store.runs(&Filter::default()).unwrap().entries.len(), 8 * EACH);
}

#[test]
fn a_kill_while_saving_leaves_the_store_intact() {
    let place = Place::new();
    place.kept(&["before"]);
    let files: Vec<String> = (0..400)
        .map(|number| {
            let path = place.path(&format!("{number}.json"));
            let run = place.document(&format!("run-{number}"));
            std::fs::write(&path, serde_json::to_string(&run).unwrap()).unwrap();
            path
        })
        .collect();
    let store = || Store::open_existing(Path::new(&place.store())).unwrap();
    let stored = || store().runs(&Filter::default()).unwrap().entries;
    let mut seen = 1;
    // Each of these dies in the midst of its work, wherever it happens to be.
    for round in 0..5 {
        let mut command = command(&["import", "run", "--quiet", "--store", &place.store()]);
        let mut process = Running(command.args(&files[seen - 1..]).spawn().unwrap());
        wait_until("more runs", || (stored().len() > seen + 3 * round).then_some(()));
        process.signal(Signal::KILL);
        process.wait();
        let now = stored();
        assert!(now.len() > seen);
        for entry in &now {
            assert_eq!(store().load(&entry.id).unwrap(), place.document(&entry.id));
        }
        seen = now.len();
    }
    assert!(seen < 401, "none of them was killed in time");
    assert_eq!(store().save(&place.document("after")).unwrap(), SaveOutcome::Saved);
}

#[test]
fn exported_runs_are_imported_again() {
    let place = Place::new();
    place.kept(&["20261101T100000Z-aaaa", "20261102T100000Z-bbbb"]);
    let files = place.path("files");
    let ended = place.run(&["export", &files]);
    assert_eq!(
        (ended.status, ended.stderr.as_str()),
        (Some(0), format!("2 runs written to {files}\n").as_str())
    );
    assert_eq!(place.run(&["export", &files, "last"]).status, Some(0), "the same file may be there");
    let one = format!("{files}/20261101T100000Z-aaaa.json");
    assert_eq!(
        Run::from_json(&std::fs::read_to_string(&one).unwrap()).unwrap(),
        place.document("20261101T100000Z-aaaa")
    );

    std::fs::write(&one, serde_json::to_string(&place.document("other")).unwrap()).unwrap();
    let ended = place.run(&["export", &files]);
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.contains("the file holds another run and was not changed"), "{}", ended.stderr);

    // One that has no name for a file keeps no other from it.
    let unnamed = place.path("unnamed.json");
    std::fs::write(&unnamed, serde_json::to_string(&place.document("../x")).unwrap()).unwrap();
    let more = place.path("more");
    let ended = place.run(&["export", &more, "aaaa", "bbbb", &unnamed]);
    assert_eq!(ended.status, Some(2));
    assert_eq!(
        ended.stderr,
        format!("2 runs written to {more}\nerror: run '../x': this id is not usable as a file name\n")
    );
    assert_eq!(std::fs::read_dir(&more).unwrap().count(), 2);

    let other = Place::new();
    let two = format!("{files}/20261102T100000Z-bbbb.json");
    assert_eq!(other.run(&["import", "run", &one, &two, "--tag", "back"]).status, Some(0));
    assert_eq!(other.run(&["show", "tag:back"]).status, Some(0));
}

#[test]
fn pruning_spares_tagged_runs() {
    let place = Place::new();
    place.kept(&["20261101T100000Z-aaaa", "20261102T100000Z-bbbb", "20261103T100000Z-cccc"]);
    assert_eq!(place.run(&["tag", "aaaa", "keep", "base"]).status, Some(0));
    assert_eq!(
        place.run(&["prune", "--keep", "1", "--dry-run"]).stdout,
        "1 run would be deleted\n  20261102T100000Z-bbbb\n"
    );
    assert_eq!(place.run(&["prune", "--keep", "1"]).stdout, "1 run deleted\n  20261102T100000Z-bbbb\n");
    assert_eq!(place.run(&["tag", "aaaa", "base", "--remove"]).status, Some(0));
    assert_eq!(place.run(&["prune", "--before", "0d", "--tagged"]).stdout.lines().count(), 3);
    let ended = place.run(&["history"]);
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(0), ""));
    assert_eq!(ended.stderr, "No saved run matches.\n");
}

#[test]
fn tags_are_set_and_removed_by_every_name_of_a_run() {
    let place = Place::new();
    place.kept(&["20261101T100000Z-aaaa", "20261102T100000Z-bbbb", "20261103T100000Z-cccc"]);
    let tags = || {
        let Ended { stdout, .. } = place.run(&["history"]);
        ["aaaa", "bbbb", "cccc"].map(|id| {
            let line = stdout.lines().find(|line| line.contains(id)).unwrap_or_default();
            ["one", "two"].map(|tag| line.contains(tag))
        })
    };
    let change = |words: &[&str]| {
        let ended = place.run(words);
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{words:?}");
        tags()
    };
    assert_eq!(change(&["tag", "aaaa,bbbb", "one"]), [[true, false], [true, false], [false; 2]]);
    assert_eq!(change(&["tag", "tag:one,last", "two"]), [[true; 2], [true; 2], [false, true]]);
    assert_eq!(change(&["tag", "--remove", "last"]), [[true; 2], [true; 2], [false; 2]], "all names");
    assert_eq!(change(&["tag", "one", "two", "--remove"]), [[true, false], [true, false], [false; 2]]);
    let refused = place.run(&["tag", "last"]);
    assert_eq!(refused.status, Some(2));
    assert!(refused.stderr.contains("<NAME>"), "{}", refused.stderr);
}

#[test]
fn a_tag_needs_no_prefix_unless_a_file_has_its_name() {
    let place = Place::new();
    place.kept(&["20261101T100000Z-aaaa", "20261102T100000Z-bbbb"]);
    assert_eq!(place.run(&["tag", "aaaa", "before"]).status, Some(0));
    let tagged = place.run(&["show", "tag:before"]);
    assert_eq!(tagged.status, Some(0), "{}", tagged.stderr);
    assert_eq!(place.run(&["show", "before"]).stdout, tagged.stdout);
    let file = place.path("before");
    assert_eq!(place.run(&["show", "bbbb", "--json", &file]).status, Some(0));
    let named = std::process::Command::new(env!("CARGO_BIN_EXE_linkgauge"))
        .args(["show", "before", "--format", "json", "--store", &place.store()])
        .current_dir(Path::new(&file).parent().unwrap())
        .output()
        .unwrap();
    let message = String::from_utf8(named.stderr).unwrap();
    assert_eq!(message, "before is read from the file. The saved runs with this tag: tag:before\n");
    assert_eq!(
        Run::from_json(&String::from_utf8(named.stdout).unwrap()).unwrap().id,
        "20261102T100000Z-bbbb"
    );
}

#[test]
fn invalid_names_are_refused() {
    let place = Place::new();
    let nothing = place.run(&["history"]);
    assert_eq!(
        nothing.stderr,
        format!(
            "error: {}: no run was saved yet. Measure something, or name another store with --store\n",
            place.store()
        )
    );
    assert_eq!(nothing.status, Some(2));
    assert!(!Path::new(&place.store()).exists());
    place.kept(&["20261101T100000Z-aaaa"]);
    for (arguments, complaint) in [
        (&["show", "missing"][..], "no run or tag 'missing' in the store: 'linkgauge history' lists them"),
        (&["show", "tag:missing"], "no run is tagged 'missing': 'linkgauge history' shows the tags"),
        (&["show", "x.json"], "x.json: cannot be read: No such file or directory (os error 2)"),
        (&["tag", "missing", "name"], "no run or tag 'missing' in the store: 'linkgauge history' lists them"),
        (&["prune"], "no selection. Use --before WHEN, --keep N or --tag NAME"),
    ] {
        let ended = place.run(arguments);
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert_eq!(ended.stderr, format!("error: {complaint}\n"));
    }
    std::fs::write(
        place.path("letter.txt"),
        "not a database, but long enough to be taken for one".repeat(50),
    )
    .unwrap();
    let letter = place.path("letter.txt");
    let ended = run(&["history", "--store", &letter]);
    assert_eq!(
        ended.stderr,
        format!("error: {letter}: this file is no store of linkgauge: name another with --store\n")
    );
    let ended = run(&["history"]);
    assert_eq!(ended.stderr, "error: LINKGAUGE_STORE is empty, so no run is saved. Use --store FILE\n");
}

#[test]
fn a_result_unlike_the_earlier_ones_is_unusual() {
    let place = Place::new();
    let server = crate::program::Serving::start(&[]);
    let arguments = against(&server);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(["--expect", "usual"]).collect();
    let first = place.run(&arguments);
    assert_eq!(first.status, Some(0), "{}", first.stderr);
    // Nine earlier results that no real round trip reaches.
    let mut store = Store::open(Path::new(&place.store())).unwrap();
    let id = store.resolve_id("last").unwrap();
    let shown = place.run(&["report", &id, "--format", "json"]);
    for number in 0..9u32 {
        let mut run = Run::from_json(&shown.stdout).unwrap();
        run.id = format!("20200101T10000{number}Z-00000{number}");
        run.started = format!("2020-01-01T10:00:0{number}Z").parse().unwrap();
        let latency = run.cases[0].figures.times.latency_ns.as_mut().unwrap();
        latency.percentiles.insert("p50".to_owned(), Some(100 + u64::from(number % 3)));
        store.save(&run).unwrap();
    }
    store.remove(&[id]).unwrap();
    let second = place.run(&arguments);
    assert_eq!(second.status, Some(1), "{}", second.stderr);
    assert!(second.stdout.contains("usual here: "), "{}", second.stdout);
    assert!(second.stdout.contains("(last 9 runs)"), "{}", second.stdout);
    let unchecked = place.run(&arguments[..arguments.len() - 2]);
    assert_eq!(unchecked.status, Some(0), "{}", unchecked.stderr);
}

#[test]
fn a_named_store_that_cannot_be_written_is_refused_before_the_measurement() {
    let place = Place::new();
    place.kept(&["a"]);
    let script = r#"mount --bind "$PLACE" "$PLACE"; mount -o remount,ro,bind "$PLACE"; exec "$LG" latency 127.0.0.1:9 --store "$PLACE/runs.sqlite""#;
    let ended = Command::new("timeout")
        .args(["60", "unshare", "--map-root-user", "--mount", "sh", "-ec", script])
        .env("LG", env!("CARGO_BIN_EXE_linkgauge"))
        .env("PLACE", place.directory.path())
        .output()
        .unwrap();
    let message = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{message}");
    assert!(message.contains("the store cannot be written"), "{message}");
    assert!(!message.contains("127.0.0.1"), "nothing was measured: {message}");
}
