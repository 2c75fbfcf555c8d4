//! The report of a mesh on a terminal and as a page.

use crate::report::{Detail, ReportOptions, report_format, sample_runs};
use crate::run::Run;

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
        "two sites: 5 hosts, 20 pairs: the worst is a → c, 46.10 Mbit/s (typical 94.10 Mbit/s), 2.128 ms median \
         round trip (typical 2.128 ms); host c slows each of its 8 pairs to 0.49 ± 0.01 of the usual rate. 1 pair \
         without a complete result."
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
    assert_eq!(page.matches("<table class=\"matrix\">").count(), 4, "rate, p50, p99, under load");
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
