//! Comparisons and thresholds from the command line: output, JSON, JUnit, exit status.

use std::path::Path;

use linkgauge::lists::REPORT_FORMATS;
use linkgauge::run::{PartResult, Run};
use serde_json::Value;

use crate::program::{Ended, Serving, run};

/// A run that was stored once, with ten repetitions around this median.
fn document(directory: &Path, name: &str, median_us: f64, change: impl FnOnce(&mut Run)) -> String {
    let mut run = Run::from_json(include_str!("../data/run-v1-latency.json")).unwrap();
    run.id = format!("20261101T100000Z-{name}");
    let case = &mut run.cases[0];
    case.repeats = (0..10)
        .map(|number| {
            let mut figures = case.figures.clone();
            let latency = figures.times.latency_ns.as_mut().unwrap();
            let value = median_us * 1e3 * (1.0 + f64::from(number) * 0.002);
            // The others would be below it.
            latency.percentiles = [("p50".to_owned(), Some(value as u64))].into();
            PartResult::new(case.endpoint.as_str(), 1, figures)
        })
        .collect();
    change(&mut run);
    let path = directory.join(format!("{name}.json"));
    std::fs::write(&path, serde_json::to_string(&run).unwrap()).unwrap();
    path.display().to_string()
}

fn is(ended: &Ended, status: i32) -> &str {
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(status), ""), "{}", ended.stdout);
    &ended.stdout
}

#[test]
fn worse_better_and_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let (base, slow) = (document(path, "base", 100.0, |_| ()), document(path, "slow", 120.0, |_| ()));
    let ended = run(&["compare", &base, &slow]);
    insta::assert_snapshot!(is(&ended, 1), @r"
    WORSE: p50 100.9 µs → 121.1 µs (+20.0 %, 95 % CI +10.0 % to +30.9 %, p < 0.001, n = 10/10)
      tcp://127.0.0.1:33521, latency loop, 1 B
      A: 20261101T100000Z-base
      B: 20261101T100000Z-slow
      Worse and better: p below 0.05, and a change of more than 5 % of A. Unchanged:
      the 95 % interval of the change lies within 5 % of A.
      p: by the intervals of both runs, which hold how much runs differ here, as far
      as earlier runs in the store or the repetitions show it. Four runs on each
      side, or linkgauge ab, show smaller changes.
    ");
    assert!(is(&run(&["compare", &slow, &base]), 0).starts_with("BETTER: p50 121.1 µs → 100.9 µs (-16.7 %"));
    assert!(
        is(&run(&["compare", &base, &base]), 0)
            .starts_with("NOT DECIDABLE: p50 100.9 µs → 100.9 µs (+0.0 %, 95 % CI -")
    );
    assert!(is(&run(&["compare", &base, &base, "--margin", "30%"]), 0).starts_with("UNCHANGED: p50 "));
    assert!(is(&run(&["compare", &base, &slow, "--margin", "30%"]), 0).starts_with("NOT DECIDABLE: p50 "));

    let ended = run(&["compare", &base, &slow, "--json", "--metric", "p50,max"]);
    let json: Value = serde_json::from_str(is(&ended, 1)).unwrap();
    assert_eq!(json["schema"], "linkgauge.compare.v1");
    let verdicts: Vec<&str> =
        json["cases"].as_array().unwrap().iter().map(|case| case["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["worse", "unchanged"]);
    assert_eq!(json["cases"][0]["a"]["repetitions"], 10);
}

#[test]
fn a_set_is_several_runs() {
    let directory = tempfile::tempdir().unwrap();
    let set = |prefix: &str, median: f64| {
        let one = |number: u32| {
            document(directory.path(), &format!("{prefix}{number}"), median + f64::from(number), |run| {
                run.cases[0].repeats.truncate(1);
                run.cases[0].figures.intervals.clear();
            })
        };
        (0..4).map(one).collect::<Vec<_>>().join(",")
    };
    let (a, b) = (set("a", 100.0), set("b", 200.0));
    assert!(
        is(&run(&["compare", &a, &b]), 1).contains("A: 4 runs, 20261101T100000Z-a0 to 20261101T100000Z-a3")
    );
    let few = run(&["compare", &a, b.split_once(',').unwrap().1]);
    assert!(
        is(&few, 0).contains("NOT DECIDABLE") && few.stdout.contains("or 4 repetitions"),
        "{}",
        few.stdout
    );
}

#[test]
fn runs_that_cannot_be_compared_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let base = document(path, "base", 100.0, |_| ());
    let other = document(path, "other", 100.0, |run| run.cases[0].method = "latency/9 closed".to_owned());
    let ended = run(&["compare", &base, &other]);
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""));
    assert!(
        ended.stderr.contains("measured in different ways") && ended.stderr.lines().count() == 1,
        "{}",
        ended.stderr
    );
    let forced = run(&["compare", &base, &other, "--force"]);
    assert!(is(&forced, 0).contains("  note      "), "{}", forced.stdout);
    let elsewhere = document(path, "elsewhere", 100.0, |run| {
        run.environment.client.insert("hostname".to_owned(), "elsewhere".into());
    });
    assert!(is(&run(&["compare", &base, &elsewhere]), 0).contains("  note      hostname differs: "));
    let larger = document(path, "larger", 100.0, |run| run.cases[0].message_bytes = 77);
    let ended = run(&["compare", &base, &larger]);
    assert_eq!(
        ended.stderr,
        "error: no case in common: the most similar cases differ in message size (1 B, 77 B). Try runs of one case: 'linkgauge history' lists them\n"
    );
    assert_eq!(ended.status, Some(2));
}

#[test]
fn two_plans_in_turn() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("runs.sqlite").display().to_string();
    let server = Serving::start(&[]);
    let plan = |name: &str, size: u32| {
        let path = directory.path().join(name);
        let text = format!(
            "title = \"{name}\"\n[[case]]\nurl = \"{}\"\nprotocol = \"echo\"\nworkload = \"latency\"\nsize = {size}\ncount = 50\n\
             warm_up_count = 0\n",
            server.tcp
        );
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (a, b) = (plan("a.toml", 14), plan("b.toml", 14));
    let ended = run(&[
        "ab",
        "--a",
        &a,
        "--b",
        &b,
        "--repeat",
        "6",
        "--margin",
        "100%",
        "--store",
        &store,
        "--compare-json",
    ]);
    let json: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
    assert_eq!(json["cases"][0]["a"]["repetitions"], 6);
    assert_eq!(json["cases"][0]["b"]["repetitions"], 6);
    // Six pairs are enough for a verdict.
    assert_eq!(json["cases"][0]["test"], "signed_rank");
    assert!(json["cases"][0]["p"].is_number(), "{json}");
    let kept = run(&["history", "--store", &store, "--json"]);
    let titles: Vec<Value> = serde_json::from_str::<Vec<Value>>(&kept.stdout)
        .unwrap()
        .iter()
        .map(|run| run["title"].clone())
        .collect();
    assert_eq!(titles.len(), 2);
    assert!(titles.contains(&"a.toml".into()) && titles.contains(&"b.toml".into()));
    // The compared runs are the saved ones.
    let ids = [&json["a"][0], &json["b"][0]].map(|id| id.as_str().unwrap().to_owned());
    let again = run(&["compare", &ids[0], &ids[1], "--margin", "100%", "--store", &store, "--json"]);
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(again["cases"][0]["test"], "intervals");
    for side in ["a", "b"] {
        assert_eq!(again["cases"][0][side], json["cases"][0][side]);
    }
}

#[test]
fn thresholds_decide_the_exit_status() {
    let directory = tempfile::tempdir().unwrap();
    let junit = directory.path().join("junit.xml").display().to_string();
    let server = Serving::start(&[]);
    let tcp = server.tcp.to_string();
    let latency = ["latency", &tcp, "--protocol", "echo", "--count", "50", "--junit", &junit, "--threshold"];
    let ended = run(&[&latency[..], &["loss = 0, p50 < 1h"]].concat());
    assert!(is(&ended, 0).contains("PASS      2 thresholds\n"), "{}", ended.stdout);
    let json = directory.path().join("run.json").display().to_string();
    let ended = run(&[&latency[..], &["loss = 0,p50 < 1ns,p99 < 1h", "--json", &json]].concat());
    let table = is(&ended, 1);
    assert!(table.contains("FAIL      p50 < 1 ns, measured "), "{table}");
    assert!(table.contains("FAIL      p99 < 3600 s, not measured\n"), "{table}");
    let xml = std::fs::read_to_string(&junit).unwrap();
    assert!(xml.contains("tests=\"4\" failures=\"1\" errors=\"1\""), "{xml}");
    assert!(xml.contains("name=\"p50 &lt; 1 ns\" time=\"0\"><failure message=\"measured "), "{xml}");
    // The parts of a case and its histogram have no thresholds.
    let has_thresholds = |name: &str| !name.starts_with("csv-") && name != "hdr";
    for format in REPORT_FORMATS.iter().filter(|format| has_thresholds(format.name)) {
        let report = run(&["report", &json, "--format", format.name]).stdout.replace("&lt;", "<");
        assert!(report.contains("p50 < 1 ns"), "{}: {report}", format.name);
    }

    // A missing measurement has priority.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let both = [
        "latency",
        &tcp,
        &format!("tcp://{free}"),
        "--protocol",
        "echo",
        "--count",
        "50",
        "--threshold",
        "p50 < 1ns",
        "--quiet",
    ];
    assert_eq!(run(&both).status, Some(2));
    // A mistake is reported before a link is opened.
    let ended = run(&["latency", "tcp://192.0.2.1", "--threshold", "p99 < 2"]);
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.contains("'p99 < 2': '2' is not a duration with its unit"), "{}", ended.stderr);
}

#[test]
fn a_plan_has_thresholds_and_an_error_shows_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plan.toml");
    let text = "[[case]]\nurl = \"tcp://192.0.2.1\"\nworkload = \"latency\"\nthresholds = [\"p99 < 2ms\", \"latency < 2ms\"]\n";
    std::fs::write(&path, text).unwrap();
    let ended = run(&["run", path.to_str().unwrap()]);
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""));
    assert!(
        ended.stderr.contains("line 4") && ended.stderr.contains("'latency' is not a metric"),
        "{}",
        ended.stderr
    );
}
