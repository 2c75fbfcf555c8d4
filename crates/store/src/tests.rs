//! The store on temporary files: save, find, identify, damage.

use std::os::unix::fs::PermissionsExt;

use super::*;

#[path = "../../model/src/run/sample_runs.rs"]
mod sample_runs;

fn temporary_store() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.sqlite");
    (directory, path)
}

/// A run with its own id that started `seconds` later.
fn run_at(id: &str, seconds: i64) -> Run {
    let run = sample_runs::full();
    Run { id: id.to_owned(), started: run.started + jiff::SignedDuration::from_secs(seconds), ..run }
}

fn entry_ids(entries: &[RunEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.id.as_str()).collect()
}

#[test]
fn saved_runs_load_unchanged() {
    let (_directory, path) = temporary_store();
    let mut store = Store::open(&path).unwrap();
    for (run, number) in sample_runs::all_samples().into_iter().zip(0..) {
        let run = Run { id: format!("run-{number}"), ..run };
        assert_eq!(store.save(&run).unwrap(), SaveOutcome::Saved);
        assert_eq!(store.save(&run).unwrap(), SaveOutcome::AlreadySaved);
        assert_eq!(Store::open_existing(&path).unwrap().load(&run.id).unwrap(), run);
    }
}

#[test]
fn different_run_with_the_same_id_is_refused() {
    let (_directory, path) = temporary_store();
    let mut store = Store::open(&path).unwrap();
    store.save(&run_at("a", 0)).unwrap();
    let other = Run { title: Some("other".to_owned()), ..run_at("a", 0) };
    assert!(matches!(store.save(&other), Err(StoreError::ConflictingRun(_))));
    assert_eq!(store.load("a").unwrap(), run_at("a", 0));
}

#[test]
fn a_run_whose_id_is_none_is_refused() {
    let (_directory, path) = temporary_store();
    let mut store = Store::open(&path).unwrap();
    for id in ["", "../x", "-x", "last", "a b", "a\n", &"x".repeat(201)] {
        let error = store.save(&run_at(id, 0)).unwrap_err();
        assert!(matches!(error, StoreError::InvalidId(_)) && error.to_string().len() < 200, "{error}");
    }
    assert!(store.runs(&Filter::default()).unwrap().entries.is_empty());
}

#[test]
fn planted_files_beside_the_store_are_refused() {
    use std::os::unix::fs::symlink;
    let (directory, path) = temporary_store();
    let target = directory.path().join("target");
    std::fs::write(&target, "precious").unwrap();
    for exists in [false, true] {
        if exists {
            Store::open(&path).unwrap().save(&run_at("a", 0)).unwrap();
        }
        let saved = std::fs::read(&path).ok();
        for suffix in ["-journal", "-wal", "-shm"] {
            let planted = PathBuf::from(format!("{}{suffix}", path.display()));
            symlink(&target, &planted).unwrap();
            let error = Store::open(&path).unwrap_err();
            assert!(matches!(&error, StoreError::PlantedFile(at) if *at == planted), "{error}");
            if exists {
                assert!(matches!(Store::open_existing(&path), Err(StoreError::PlantedFile(_))));
            }
            std::fs::remove_file(&planted).unwrap();
            // Of the same inode as a file elsewhere.
            std::fs::hard_link(&target, &planted).unwrap();
            assert!(matches!(Store::open(&path), Err(StoreError::PlantedFile(_))));
            std::fs::remove_file(&planted).unwrap();
            if linkgauge_system::effective_user() == 0 {
                std::fs::write(&planted, "foreign").unwrap();
                std::os::unix::fs::chown(&planted, Some(65_534), None).unwrap();
                assert!(matches!(Store::open(&path), Err(StoreError::PlantedFile(_))));
                std::fs::remove_file(&planted).unwrap();
            }
        }
        assert_eq!(std::fs::read(&path).ok(), saved);
    }
    assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    // One of this user, as a killed process leaves it, is no reason.
    std::fs::write(format!("{}-journal", path.display()), "").unwrap();
    Store::open(&path).unwrap();
    // So is a link to the store, unless another user has made it.
    let link = directory.path().join("link");
    symlink(&path, &link).unwrap();
    Store::open(&link).unwrap();
    if linkgauge_system::effective_user() == 0 {
        std::os::unix::fs::lchown(&link, Some(65_534), None).unwrap();
        let error = Store::open(&link).unwrap_err();
        assert!(matches!(&error, StoreError::PlantedFile(at) if *at == link), "{error}");
    }
}

#[test]
fn runs_are_found_by_filters() {
    let (_directory, path) = temporary_store();
    let mut store = Store::open(&path).unwrap();
    for (id, seconds) in
        [("20261120T100000Z-aa11", 0), ("20261120T100100Z-bb22", 60), ("20261121T100000Z-aa33", 86_400)]
    {
        store.save(&run_at(id, seconds)).unwrap();
    }
    store.tag("20261120T100000Z-aa11", &["night".to_owned(), "office".to_owned()]).unwrap();
    store.tag("20261120T100000Z-aa11", &["night".to_owned()]).unwrap();
    let found = |filter: Filter| store.runs(&filter).unwrap().entries;
    let all = found(Filter::default());
    assert_eq!(entry_ids(&all), ["20261121T100000Z-aa33", "20261120T100100Z-bb22", "20261120T100000Z-aa11"]);
    assert_eq!(all[2].tags, ["night", "office"]);
    assert_eq!(all[0].headline, Some(("p50".to_owned(), Some(13_823.0))));
    let text = |text: &str| Some(text.to_owned());
    for (filter, count) in [
        (Filter { endpoint: text("moxa-5610"), ..Filter::default() }, 3),
        (Filter { endpoint: text("moxa%"), ..Filter::default() }, 0),
        (Filter { tag: text("night"), ..Filter::default() }, 1),
        (Filter { workload: text("latency"), limit: Some(2), ..Filter::default() }, 2),
        (Filter { workload: text("download"), ..Filter::default() }, 0),
        (Filter { host: text("no such host"), ..Filter::default() }, 0),
        (Filter { since: Some(all[1].started), until: Some(all[0].started), ..Filter::default() }, 1),
    ] {
        assert_eq!(found(filter.clone()).len(), count, "{filter:?}");
    }
    assert_eq!(store.resolve_id("last").unwrap(), "20261121T100000Z-aa33");
    assert_eq!(store.resolve_id("bb").unwrap(), "20261120T100100Z-bb22");
    assert_eq!(store.resolve_id("20261121").unwrap(), "20261121T100000Z-aa33");
    assert!(matches!(store.resolve_id("aa"), Err(StoreError::Ambiguous { count: 2, .. })));
    assert!(matches!(store.resolve_id("%"), Err(StoreError::Unknown(_))));
    assert!(matches!(store.resolve_id(""), Err(StoreError::Unknown(_))));
    assert_eq!(store.ids_with_tag("office").unwrap(), ["20261120T100000Z-aa11"]);
    store.untag("20261120T100000Z-aa11", &["office".to_owned()]).unwrap();
    assert!(matches!(store.ids_with_tag("office"), Err(StoreError::UnknownTag(_))));
}

#[test]
fn a_trend_is_one_case_over_time() {
    let (_directory, path) = temporary_store();
    let mut store = Store::open(&path).unwrap();
    for (id, seconds) in [("b", 60), ("a", 0)] {
        store.save(&run_at(id, seconds)).unwrap();
    }
    let trends = store.trends(&Filter::default(), &"p99".parse().unwrap()).unwrap().entries;
    let first = trends.iter().find(|trend| trend.endpoint == "tcp://127.0.0.1:7100").unwrap();
    let points: Vec<(&str, f64)> =
        first.points.iter().map(|point| (point.id.as_str(), point.value)).collect();
    assert_eq!(points, [("a", 23_439.0), ("b", 23_439.0)]);
    // A percentile that falls among the lost exists and was not reached.
    assert!(trends.iter().any(|trend| trend.points.iter().all(|point| point.value == f64::INFINITY)));
    let filter = Filter { endpoint: Some("moxa".to_owned()), limit: Some(1), ..Filter::default() };
    let trends = store.trends(&filter, &"p50".parse().unwrap()).unwrap().entries;
    assert!(!trends.is_empty() && trends.iter().all(|t| t.endpoint.contains("moxa") && t.points.len() == 1));
    assert!(store.trends(&Filter::default(), &"p33".parse().unwrap()).unwrap().entries.is_empty());
}

#[test]
fn removed_runs_leave_no_rows() {
    let (_directory, path) = temporary_store();
    let mut store = Store::open(&path).unwrap();
    for id in ["a", "b"] {
        store.save(&run_at(id, 0)).unwrap();
        store.tag(id, &["t".to_owned()]).unwrap();
    }
    store.remove(&["a".to_owned()]).unwrap();
    assert_eq!(entry_ids(&store.runs(&Filter::default()).unwrap().entries), ["b"]);
    for table in ["document", "tag"] {
        let count = format!("SELECT count(*) FROM {table}");
        assert_eq!(store.connection.query_row(&count, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
    }
}

#[test]
fn other_files_are_left_unchanged() {
    let (directory, path) = temporary_store();
    assert!(matches!(Store::open_existing(&path), Err(StoreError::Missing(_))));
    assert!(!path.exists());

    let text = directory.path().join("letter.txt");
    let letter = "Dear reader, this is no database at all. ".repeat(100);
    std::fs::write(&text, &letter).unwrap();
    assert!(matches!(Store::open(&text), Err(StoreError::NotAStore(_))));
    assert_eq!(std::fs::read_to_string(&text).unwrap(), letter);

    let other = directory.path().join("other.sqlite");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE bookmark (url TEXT)").unwrap();
    let before = std::fs::read(&other).unwrap();
    assert!(matches!(Store::open(&other), Err(StoreError::NotAStore(_))));
    assert_eq!(std::fs::read(&other).unwrap(), before);

    Store::open(&path).unwrap().connection.pragma_update(None, "user_version", VERSION + 1).unwrap();
    let error = Store::open(&path).unwrap_err().to_string();
    assert!(
        error.ends_with("a store of version 4, this linkgauge reads 3: use the version that wrote it"),
        "{error}"
    );
}

#[test]
fn a_damaged_document_is_named() {
    let (_directory, path) = temporary_store();
    let mut store = Store::open(&path).unwrap();
    store.save(&run_at("a", 0)).unwrap();
    store.connection.execute("UPDATE document SET deflated = substr(deflated, 1, 500)", []).unwrap();
    assert!(matches!(store.load("a"), Err(StoreError::Damaged(_))));
    let newer = document::deflate("{\"schema\": \"linkgauge.run.v9\"}");
    store.connection.execute("UPDATE document SET deflated = ?1", [newer]).unwrap();
    assert!(store.load("a").unwrap_err().to_string().contains("use a newer linkgauge"));
}

/// Any byte may be corrupt. Reading returns an error or the readable part, and never panics.
#[test]
fn a_store_cut_short_or_overwritten_is_an_error() {
    let (directory, path) = temporary_store();
    let mut store = Store::open(&path).unwrap();
    for number in 0..5 {
        store.save(&run_at(&format!("run-{number}"), number)).unwrap();
    }
    drop(store);
    let good = std::fs::read(&path).unwrap();
    let bad = directory.path().join("bad.sqlite");
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..200 {
        let mut bytes = good.clone();
        match round % 2 {
            0 => bytes.truncate(random.usize(1..good.len())),
            _ => (0..20).for_each(|_| bytes[random.usize(100..good.len())] = random.u8(..)),
        }
        std::fs::write(&bad, &bytes).unwrap();
        if let Ok(store) = Store::open_existing(&bad) {
            let _ = store.trends(&Filter::default(), &"p50".parse().unwrap());
            for entry in store.runs(&Filter::default()).unwrap_or_default().entries {
                let _ = store.load(&entry.id);
            }
        }
    }
}

#[test]
fn read_only_store_can_be_read() {
    let (directory, path) = temporary_store();
    Store::open(&path).unwrap().save(&run_at("a", 0)).unwrap();
    let set =
        |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    set(&path, 0o444);
    set(directory.path(), 0o555);
    let read = Store::open_existing(&path).and_then(|store| store.load("a"));
    set(directory.path(), 0o755);
    assert_eq!(read.unwrap().id, "a");
}

/// Changes the file without the store.
fn corrupt(path: &Path, statement: &str) {
    let changed = rusqlite::Connection::open(path).unwrap().execute(statement, []).unwrap();
    assert_eq!(changed, 1, "{statement}");
}

#[test]
fn damaged_rows_hide_no_others() {
    let (_directory, path) = temporary_store();
    let mut store = Store::open(&path).unwrap();
    for (id, seconds) in [("a", 0), ("b", 60), ("c", 120)] {
        store.save(&run_at(id, seconds)).unwrap();
        store.tag(id, &["all".to_owned()]).unwrap();
    }
    let (filter, p50) = (Filter::default(), "p50".parse().unwrap());
    corrupt(&path, "UPDATE measured SET figures = '{' WHERE number = 1 AND run = 2");
    let trends = store.trends(&filter, &p50).unwrap();
    assert_eq!(trends.entries[0].points.len(), 2);
    assert_eq!(trends.damaged.len(), 1);
    assert!(trends.damaged[0].starts_with("run b: "), "{}", trends.damaged[0]);
    assert_eq!(store.runs(&filter).unwrap().entries[1].headline, Some(("p50".to_owned(), None)));

    corrupt(&path, "UPDATE run SET started_us = 'yesterday' WHERE id = 'b'");
    let listing = store.runs(&filter).unwrap();
    assert_eq!(entry_ids(&listing.entries), ["c", "a"]);
    assert_eq!(listing.damaged.len(), 1);
    // The documents are intact.
    let mut all = store.ids(&filter).unwrap();
    all.sort();
    assert_eq!((all.join(""), store.ids_with_tag("all").unwrap().len()), ("abc".to_owned(), 3));
    assert_eq!(store.load("b").unwrap(), run_at("b", 60));

    corrupt(&path, "UPDATE run SET started_us = 9223372036854775807 WHERE id = 'a'");
    assert_eq!(entry_ids(&store.runs(&filter).unwrap().entries), ["c"]);
    corrupt(&path, "DELETE FROM document WHERE run = 3");
    assert!(matches!(store.load("c"), Err(StoreError::Damaged(_))));
}

#[test]
fn locked_store_is_retried_until_stopped() {
    let (_directory, path) = temporary_store();
    Store::open(&path).unwrap().save(&run_at("a", 0)).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let stop = Arc::new(AtomicBool::new(true));
    let began = Instant::now();
    assert!(matches!(Store::open_until(&path, stop.clone()), Err(StoreError::Locked { .. })));
    // Far less than the lock timeout.
    assert!(began.elapsed() < LOCK_TIMEOUT / 3, "{:?}", began.elapsed());
    let seen = stop.clone();
    stop.store(false, Relaxed);
    let opening = std::thread::spawn(move || {
        Store::open_until(&path, seen).map(|mut store| store.save(&run_at("b", 1)))
    });
    std::thread::sleep(POLL_INTERVAL * 3);
    assert!(!opening.is_finished());
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(opening.join().unwrap().unwrap().unwrap(), SaveOutcome::Saved);
}

#[test]
fn commit_waits_for_readers() {
    let (_directory, path) = temporary_store();
    Store::open(&path).unwrap().save(&run_at("a", 0)).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN; SELECT count(*) FROM run").unwrap();
    let to = path.clone();
    let keeping = std::thread::spawn(move || Store::open(&to).unwrap().save(&run_at("b", 1)));
    std::thread::sleep(POLL_INTERVAL * 3);
    assert!(!keeping.is_finished());
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(keeping.join().unwrap().unwrap(), SaveOutcome::Saved);
    assert_eq!(Store::open_existing(&path).unwrap().load("b").unwrap(), run_at("b", 1));
}
