//! The store on files of its own: kept, found, told apart, damaged.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::report::sample_run;

fn store() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.sqlite");
    (directory, path)
}

/// A run of its own id that began so many seconds later than the others.
fn run(id: &str, seconds: i64) -> Run {
    let run = sample_run::full();
    Run { id: id.to_owned(), started: run.started + jiff::SignedDuration::from_secs(seconds), ..run }
}

fn ids(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.id.as_str()).collect()
}

#[test]
fn what_is_kept_comes_back_whole() {
    let (_directory, path) = store();
    let mut store = Store::open(&path).unwrap();
    for (run, number) in sample_run::all().into_iter().zip(0..) {
        let run = Run { id: format!("run-{number}"), ..run };
        assert_eq!(store.keep(&run).unwrap(), Kept::New);
        assert_eq!(store.keep(&run).unwrap(), Kept::Already);
        assert_eq!(Store::open_existing(&path).unwrap().get(&run.id).unwrap(), run);
    }
}

#[test]
fn another_run_of_the_same_id_is_refused() {
    let (_directory, path) = store();
    let mut store = Store::open(&path).unwrap();
    store.keep(&run("a", 0)).unwrap();
    let other = Run { title: Some("other".to_owned()), ..run("a", 0) };
    assert!(matches!(store.keep(&other), Err(StoreError::Different(_))));
    assert_eq!(store.get("a").unwrap(), run("a", 0));
}

#[test]
fn runs_are_found_by_what_is_known_of_them() {
    let (_directory, path) = store();
    let mut store = Store::open(&path).unwrap();
    for (id, seconds) in
        [("20261120T100000Z-aa11", 0), ("20261120T100100Z-bb22", 60), ("20261121T100000Z-aa33", 86_400)]
    {
        store.keep(&run(id, seconds)).unwrap();
    }
    store.tag("20261120T100000Z-aa11", &["night".to_owned(), "office".to_owned()]).unwrap();
    store.tag("20261120T100000Z-aa11", &["night".to_owned()]).unwrap();
    let found = |filter: Filter| store.runs(&filter).unwrap().entries;
    let all = found(Filter::default());
    assert_eq!(ids(&all), ["20261121T100000Z-aa33", "20261120T100100Z-bb22", "20261120T100000Z-aa11"]);
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
    assert_eq!(store.find("last").unwrap(), "20261121T100000Z-aa33");
    assert_eq!(store.find("bb").unwrap(), "20261120T100100Z-bb22");
    assert_eq!(store.find("20261121").unwrap(), "20261121T100000Z-aa33");
    assert!(matches!(store.find("aa"), Err(StoreError::Ambiguous { count: 2, .. })));
    assert!(matches!(store.find("%"), Err(StoreError::Unknown(_))));
    assert!(matches!(store.find(""), Err(StoreError::Unknown(_))));
    assert_eq!(store.tagged("office").unwrap(), ["20261120T100000Z-aa11"]);
    store.untag("20261120T100000Z-aa11", &["office".to_owned()]).unwrap();
    assert!(matches!(store.tagged("office"), Err(StoreError::UnknownTag(_))));
}

#[test]
fn a_trend_is_one_case_over_time() {
    let (_directory, path) = store();
    let mut store = Store::open(&path).unwrap();
    for (id, seconds) in [("b", 60), ("a", 0)] {
        store.keep(&run(id, seconds)).unwrap();
    }
    let trends = store.trends(&Filter::default(), &"p99".parse().unwrap()).unwrap().entries;
    let first = trends.iter().find(|trend| trend.endpoint == "tcp://127.0.0.1:7100").unwrap();
    let points: Vec<(&str, f64)> =
        first.points.iter().map(|point| (point.id.as_str(), point.value)).collect();
    assert_eq!(points, [("a", 23_439.0), ("b", 23_439.0)]);
    // A percentile among the lost is there, and not reached.
    assert!(trends.iter().any(|trend| trend.points.iter().all(|point| point.value == f64::INFINITY)));
    let filter = Filter { endpoint: Some("moxa".to_owned()), limit: Some(1), ..Filter::default() };
    let trends = store.trends(&filter, &"p50".parse().unwrap()).unwrap().entries;
    assert!(!trends.is_empty() && trends.iter().all(|t| t.endpoint.contains("moxa") && t.points.len() == 1));
    assert!(store.trends(&Filter::default(), &"p33".parse().unwrap()).unwrap().entries.is_empty());
}

#[test]
fn what_is_removed_is_gone_with_all_that_belongs_to_it() {
    let (_directory, path) = store();
    let mut store = Store::open(&path).unwrap();
    for id in ["a", "b"] {
        store.keep(&run(id, 0)).unwrap();
        store.tag(id, &["t".to_owned()]).unwrap();
    }
    store.remove(&["a".to_owned()]).unwrap();
    assert_eq!(ids(&store.runs(&Filter::default()).unwrap().entries), ["b"]);
    for table in ["document", "tag"] {
        let count = format!("SELECT count(*) FROM {table}");
        assert_eq!(store.connection.query_row(&count, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
    }
}

#[test]
fn files_that_are_no_store_are_left_as_they_are() {
    let (directory, path) = store();
    assert!(matches!(Store::open_existing(&path), Err(StoreError::Missing(_))));
    assert!(!path.exists());

    let text = directory.path().join("letter.txt");
    let letter = "Dear reader, this is no database at all. ".repeat(100);
    std::fs::write(&text, &letter).unwrap();
    assert!(matches!(Store::open(&text), Err(StoreError::Foreign(_))));
    assert_eq!(std::fs::read_to_string(&text).unwrap(), letter);

    let other = directory.path().join("other.sqlite");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE bookmark (url TEXT)").unwrap();
    let before = std::fs::read(&other).unwrap();
    assert!(matches!(Store::open(&other), Err(StoreError::Foreign(_))));
    assert_eq!(std::fs::read(&other).unwrap(), before);

    Store::open(&path).unwrap().connection.pragma_update(None, "user_version", VERSION + 1).unwrap();
    let error = Store::open(&path).unwrap_err().to_string();
    assert!(error.ends_with("a store of version 2, this version reads 1: use a newer linkgauge"), "{error}");
}

#[test]
fn a_damaged_document_is_named() {
    let (_directory, path) = store();
    let mut store = Store::open(&path).unwrap();
    store.keep(&run("a", 0)).unwrap();
    store.connection.execute("UPDATE document SET deflated = substr(deflated, 1, 500)", []).unwrap();
    assert!(matches!(store.get("a"), Err(StoreError::Damaged(_))));
    let newer = document::deflated("{\"schema\": \"linkgauge.run.v9\"}");
    store.connection.execute("UPDATE document SET deflated = ?1", [newer]).unwrap();
    assert!(store.get("a").unwrap_err().to_string().contains("use a newer linkgauge"));
}

/// Any byte may be wrong: what is read then is an error or what can still be read, never a panic.
#[test]
fn a_store_cut_short_or_overwritten_is_an_error() {
    let (directory, path) = store();
    let mut store = Store::open(&path).unwrap();
    for number in 0..5 {
        store.keep(&run(&format!("run-{number}"), number)).unwrap();
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
                let _ = store.get(&entry.id);
            }
        }
    }
}

#[test]
fn a_store_that_may_only_be_read_can_be_read() {
    let (directory, path) = store();
    Store::open(&path).unwrap().keep(&run("a", 0)).unwrap();
    let set =
        |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    set(&path, 0o444);
    set(directory.path(), 0o555);
    let read = Store::open_existing(&path).and_then(|store| store.get("a"));
    set(directory.path(), 0o755);
    assert_eq!(read.unwrap().id, "a");
}

/// Changes the file behind the store's back.
fn spoil(path: &Path, statement: &str) {
    let changed = rusqlite::Connection::open(path).unwrap().execute(statement, []).unwrap();
    assert_eq!(changed, 1, "{statement}");
}

#[test]
fn a_damaged_row_hides_no_other() {
    let (_directory, path) = store();
    let mut store = Store::open(&path).unwrap();
    for (id, seconds) in [("a", 0), ("b", 60), ("c", 120)] {
        store.keep(&run(id, seconds)).unwrap();
        store.tag(id, &["all".to_owned()]).unwrap();
    }
    let (filter, p50) = (Filter::default(), "p50".parse().unwrap());
    spoil(&path, "UPDATE measured SET figures = '{' WHERE number = 1 AND run = 2");
    let trends = store.trends(&filter, &p50).unwrap();
    assert_eq!(trends.entries[0].points.len(), 2);
    assert_eq!(trends.damaged.len(), 1);
    assert!(trends.damaged[0].starts_with("run b: "), "{}", trends.damaged[0]);
    assert_eq!(store.runs(&filter).unwrap().entries[1].headline, Some(("p50".to_owned(), None)));

    spoil(&path, "UPDATE run SET started_us = 'yesterday' WHERE id = 'b'");
    let listing = store.runs(&filter).unwrap();
    assert_eq!(ids(&listing.entries), ["c", "a"]);
    assert_eq!(listing.damaged.len(), 1);
    // The documents are whole.
    let mut all = store.ids(&filter).unwrap();
    all.sort();
    assert_eq!((all.join(""), store.tagged("all").unwrap().len()), ("abc".to_owned(), 3));
    assert_eq!(store.get("b").unwrap(), run("b", 60));

    spoil(&path, "UPDATE run SET started_us = 9223372036854775807 WHERE id = 'a'");
    assert_eq!(ids(&store.runs(&filter).unwrap().entries), ["c"]);
    spoil(&path, "DELETE FROM document WHERE run = 3");
    assert!(matches!(store.get("c"), Err(StoreError::Damaged(_))));
}

#[test]
fn a_locked_store_is_waited_for_until_somebody_wants_to_stop() {
    let (_directory, path) = store();
    Store::open(&path).unwrap().keep(&run("a", 0)).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let stop = Arc::new(AtomicBool::new(true));
    let began = Instant::now();
    assert!(matches!(Store::open_until(&path, stop.clone()), Err(StoreError::Locked { .. })));
    // Far less than all of the patience.
    assert!(began.elapsed() < PATIENCE / 3, "{:?}", began.elapsed());
    let seen = stop.clone();
    stop.store(false, Relaxed);
    let opening =
        std::thread::spawn(move || Store::open_until(&path, seen).map(|mut store| store.keep(&run("b", 1))));
    std::thread::sleep(LOOK * 3);
    assert!(!opening.is_finished());
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(opening.join().unwrap().unwrap().unwrap(), Kept::New);
}

#[test]
fn a_commit_waits_for_those_that_read() {
    let (_directory, path) = store();
    Store::open(&path).unwrap().keep(&run("a", 0)).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN; SELECT count(*) FROM run").unwrap();
    let to = path.clone();
    let keeping = std::thread::spawn(move || Store::open(&to).unwrap().keep(&run("b", 1)));
    std::thread::sleep(LOOK * 3);
    assert!(!keeping.is_finished());
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(keeping.join().unwrap().unwrap(), Kept::New);
    assert_eq!(Store::open_existing(&path).unwrap().get("b").unwrap(), run("b", 1));
}
