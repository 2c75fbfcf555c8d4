//! The report of a mesh on a terminal and as a page.

use crate::explain::FindingBlock;
use crate::explain::mesh::explain_pair;
use crate::lists::report_format;
use crate::report::{Detail, ReportOptions, sample_runs};
use linkgauge_model::run::{MeshPair, Run};

fn render(format: &str, run: &Run, options: ReportOptions) -> String {
    let mut out = Vec::new();
    (report_format(format).unwrap().write)(run, &options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_answer_names_the_worst_pair_and_what_explains_it() {
    let options = ReportOptions { width: 300, ..ReportOptions::default() };
    let text = render("text", &sample_runs::mesh(), options);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "two sites: 5 hosts, 20 pairs: 1 pair without a complete result; of the others the worst is a → c, 46.10 \
         Mbit/s (typical 94.10 Mbit/s), 2.128 ms median round trip (typical 2.128 ms); host c slows each of its 8 \
         pairs to 0.49 ± 0.01 of the usual rate."
    );
    assert_eq!(
        lines[2].split_whitespace().collect::<Vec<_>>(),
        ["worst", "pairs", "p50", "p99", "loss", "rate"]
    );
    assert!(lines[3].starts_with("  d → b  ") && lines[4].ends_with("46.1 Mbit/s"), "{text}");
    assert_eq!(
        lines[lines.len() - 7..],
        [
            "  1 pair failed: d → b: tcp://b.example:7100: connection refused",
            "  * measured while throughput tests ran on these hosts.",
            "  the upload of host a slows each of its 4 pairs to 0.67 ± 0.01 of the usual rate.",
            "  5 further notes: --notes",
            "  why a → c? On c: linkgauge serve tcp://0.0.0.0; on a: linkgauge explain tcp://c.example",
            "",
            "incomplete: part of the plan was not measured",
        ],
        "{text}"
    );
}

/// The first line of the report.
fn answer(run: &Run) -> String {
    let text = render("text", run, ReportOptions { width: 1000, ..ReportOptions::default() });
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_host_without_any_result_is_the_answer() {
    let mut run = sample_runs::mesh();
    let pairs = &mut run.mesh.as_mut().unwrap().pairs;
    for pair in pairs.iter_mut().filter(|pair| pair.from == 1 || pair.to == 1) {
        *pair = MeshPair {
            from: pair.from,
            to: pair.to,
            failure: Some("no answer".into()),
            ..MeshPair::default()
        };
    }
    let answered = answer(&run);
    let expected = "two sites: 5 hosts, 20 pairs: host b does not answer: 8 of 8 pairs without a complete result; \
                    8 pairs without a complete result in all; of the others the worst is";
    assert!(answered.starts_with(expected), "{answered}");
}

#[test]
fn differences_without_an_explanation_are_reported_as_such() {
    let mut run = sample_runs::mesh();
    let mesh = run.mesh.as_mut().unwrap();
    mesh.throughput_blame.clear();
    mesh.latency_blame.clear();
    mesh.hosts.iter_mut().for_each(|host| host.group = None);
    let answered = answer(&run);
    assert!(
        answered.contains("the pairs differ, and no single host, uplink or pair explains it"),
        "{answered}"
    );
}

#[test]
fn the_whole_report_has_the_matrices() {
    let options = ReportOptions { detail: Detail::Full, ..ReportOptions::default() };
    let text = render("text", &sample_runs::mesh(), options);
    for title in ["rate in Mbit/s", "median round trip in ms", "p99 of the round trip in ms"] {
        assert!(text.contains(&format!("\n{title}\n")), "{text}");
    }
    let rates = text.split("\nrate in Mbit/s\n").nth(1).unwrap();
    let first: Vec<&str> = rates.lines().nth(2).unwrap().split_whitespace().collect();
    // The slow host stands first.
    assert_eq!(first, ["c", "–", "46.1", "46.1", "46.1", "46.1"], "{text}");
    assert!(text.contains("the uplink of group south adds 1.800 ms ± 10.00 µs"), "{text}");
    assert!(
        text.contains("Logs of the servers: 18 throughput tests, 0 overlapped on a host or a shared\n    resource. 1 test in no log."),
        "{text}"
    );
}

#[test]
fn round_trips_under_load_stand_by_themselves() {
    let text = render(
        "text",
        &sample_runs::mesh(),
        ReportOptions { detail: Detail::Full, ..ReportOptions::default() },
    );
    let cells = |title: &str| {
        let table = text.split(&format!("\n{title}\n")).nth(1).unwrap_or_else(|| panic!("{title}: {text}"));
        let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with("  ")).collect();
        rows.iter().flat_map(|row| row.split_whitespace().skip(1)).filter(|cell| *cell != "–").count()
    };
    assert_eq!(cells("median round trip in ms"), 19);
    assert_eq!(cells("median round trip while other tests ran in µs"), 1);
}

#[test]
fn a_pair_is_explained_as_the_sum_of_its_parts() {
    let run = sample_runs::mesh();
    let finding = explain_pair(&run, ["c", "d"]).unwrap();
    let texts: Vec<&str> = finding
        .blocks
        .iter()
        .map(|block| match block {
            FindingBlock::Heading(text) | FindingBlock::Text(text) => text.as_str(),
            _ => "",
        })
        .collect();
    assert_eq!(
        texts[..4],
        [
            "c → d: 46.10 Mbit/s (typical 94.10 Mbit/s), 212.7 µs median round trip (typical 2.128 ms)",
            "rate: 94.11 Mbit/s is usual for such pairs, × 0.49 by host c, × 1.00 by the pair itself.",
            "median round trip: 212.7 µs is usual for such pairs, + 0 ns by the pair itself.",
            "case 21 has its round trips, case 22 has its rate.",
        ]
    );
    assert!(texts[4].starts_with("d → c: 46.10 Mbit/s"), "{}", texts[4]);
    assert_eq!(texts[8], "Both directions have about the same rate (ratio 1.00).");
    assert!(explain_pair(&run, ["c", "z"]).unwrap_err().to_string().contains("a, b, c, d, e"));
    let plain = Run { mesh: None, ..sample_runs::mesh() };
    assert!(explain_pair(&plain, ["a", "b"]).unwrap_err().to_string().contains("not a run of"));
    assert!(explain_pair(&sample_runs::hostile_mesh(), ["b", "c"]).is_ok());
}

#[test]
fn overlaps_that_should_not_be_are_reported_first() {
    let mut run = sample_runs::mesh();
    let served = run.mesh.as_mut().and_then(|mesh| mesh.served.as_mut()).unwrap();
    served.overlapping = 2;
    let text = render("text", &run, ReportOptions { width: 200, ..ReportOptions::default() });
    assert!(text.contains("\n  2 throughput tests began before another one ended"), "{text}");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [40, 80, 160] {
        for detail in [Detail::Summary, Detail::Full] {
            let options = ReportOptions { width, detail, ..ReportOptions::default() };
            let text = render("text", &sample_runs::mesh(), options);
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= width.max(60), "{width}: {text}");
        }
    }
}

#[test]
fn cells_of_the_page_lead_to_their_cases() {
    let run = sample_runs::mesh();
    let page = render("html", &run, ReportOptions::default());
    assert_eq!(
        page.matches("<table class=\"matrix\">").count(),
        5,
        "rate; p50 and p99, quiet and under load"
    );
    for case in 1..=run.cases.len() {
        assert!(page.contains(&format!("href=\"#case-{case}\"")), "case {case} is not linked");
        assert!(page.contains(&format!("id=\"case-{case}\"")), "case {case} is not there");
    }
    assert!(page.contains("class=\"worse\""));
}

#[test]
fn hostile_texts_are_no_code() {
    let run = sample_runs::hostile_mesh();
    assert!(!render("html", &run, ReportOptions::default()).contains(sample_runs::HOSTILE_SCRIPT));
    for detail in [Detail::Summary, Detail::Full] {
        let text = render("text", &run, ReportOptions { detail, ..ReportOptions::default() });
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}

#[test]
fn a_mesh_without_results_says_why() {
    let mut run = sample_runs::mesh();
    run.cases.clear();
    let mesh = run.mesh.get_or_insert_default();
    for pair in &mut mesh.pairs {
        (pair.latency_case, pair.throughput_case) = (None, None);
        pair.failure = Some("'c' was lost: its agent ended: ssh: no route to host".to_owned());
    }
    let text = render("text", &run, ReportOptions { width: 160, ..ReportOptions::default() });
    let first = text.lines().next().unwrap();
    assert_eq!(
        first,
        "two sites: 5 hosts, 20 pairs: no result: 'c' was lost: its agent ended: ssh: no route to host."
    );
}
