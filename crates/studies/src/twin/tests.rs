//! Tests of how well the twins predict the published figures: repeatable to the last digit.

use std::path::Path;

use super::*;
use crate::study::{CaseOutcome, StudyLength};
use linkgauge_model::metric::Metric;

/// Compares all figures of the cases with the file `figures/NAME.txt`: the virtual clock gives the same to the last digit. After
/// an intended change, replace the file by the one that the failure names.
fn check_figures(name: &str, report: &TwinReport) {
    let line = |(index, case): (usize, &CaseResult)| {
        let row = report.rows.iter().find(|row| row.result == index).unwrap();
        let all = Metric::all_of_case(case).into_iter().filter(|(_, value)| *value != 0.0);
        let figures = all.map(|(metric, value)| format!(" {}={value}", metric.name()));
        format!("{} {} elapsed_ns={}{}\n", row.twin, row.case, case.elapsed_ns, figures.collect::<String>())
    };
    let text: String = report.cases.iter().enumerate().map(line).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let expected =
        std::fs::read_to_string(root.join(format!("src/twin/figures/{name}.txt"))).unwrap_or_default();
    if text != expected {
        let actual = root.join(format!("../../target/{name}.txt"));
        std::fs::write(&actual, &text).unwrap();
        let differing = text.lines().zip(expected.lines()).find(|(own, expected)| own != expected);
        panic!("the figures of a twin changed, now {}: {differing:#?}", actual.display());
    }
}

fn summary(study: &str, tables: &[&str]) -> String {
    let mut study = Study::by_name(study).unwrap();
    let tables: Vec<String> = tables.iter().map(|&table| table.to_owned()).collect();
    study.select_tables(&tables).unwrap();
    let report = compare(&study).unwrap();
    check_figures(&format!("{}{}", study.name, tables.concat()), &report);
    let TwinSummary { fitted, checked, median_percent, worst_percent, within_15_percent } = report.summary;
    format!(
        "{fitted} fitted, {checked} checked: median {:.3} %, worst {:+.3} %, {within_15_percent} within 15 %",
        median_percent.unwrap(),
        worst_percent.unwrap()
    )
}

#[test]
fn tables_of_a_study_have_a_figure_of_a_twin_for_each_published_one() {
    let mut study = Study::by_name("sena").unwrap();
    study.select_tables(&["9".to_owned()]).unwrap();
    let report = compare(&study).unwrap();
    let mut result =
        study.join_results(StudyLength::Full, &|_| CaseOutcome::NotMeasured(NO_TWIN.to_owned())).unwrap();
    report.fill(&study, &mut result).unwrap();
    assert_eq!(result.twins, Some(report.summary.sentence()));
    let (mut own, mut fitted) = (0, 0);
    for row in &result.tables[0].rows {
        let is_published = row.published.parse::<f64>().is_ok();
        assert_eq!(row.measured.is_some(), is_published, "{row:?}");
        assert_eq!(row.reason.as_deref() == Some(NO_TWIN), !is_published, "{row:?}");
        (own, fitted) = (own + usize::from(is_published), fitted + usize::from(row.fitted));
        let case = row.case.map(|case| &report.cases[case - 1]);
        let twin = row.column.split(',').next().unwrap();
        assert!(case.is_none_or(|case| case.placement.stand_in == Some(format!("twin {twin}"))), "{row:?}");
    }
    assert_eq!((own, fitted), (32, report.summary.fitted));
    // Figures that are printed a second time count once, but stand in the table.
    let repeats = study.repeated_twin_figures().unwrap();
    assert!(repeats.len() >= study.twin_figures().unwrap().len());
}

#[test]
fn the_twin_of_the_logger_predicts_its_downloads() {
    insta::assert_snapshot!(summary("loggernet", &[]), @"5 fitted, 5 checked: median 2.488 %, worst -4.837 %, 5 within 15 %");
}

#[test]
fn the_twin_of_the_board_predicts_its_rates() {
    insta::assert_snapshot!(summary("netio", &[]), @"9 fitted, 9 checked: median 1.102 %, worst -14.970 %, 9 within 15 %");
}

#[test]
fn the_twins_of_the_nodes_predict_times_and_rates() {
    insta::assert_snapshot!(summary("linx", &[]), @"32 fitted, 34 checked: median 3.303 %, worst +50.000 %, 31 within 15 %");
}

#[test]
fn the_twins_of_the_radio_links_predict_their_distribution() {
    insta::assert_snapshot!(summary("wireless", &[]), @"30 fitted, 45 checked: median 1.255 %, worst +362.000 %, 41 within 15 %");
}

#[test]
fn the_twins_of_the_device_servers_predict_throughput() {
    insta::assert_snapshot!(summary("sena", &["8"]), @"8 fitted, 8 checked: median 0.075 %, worst +3.592 %, 8 within 15 %");
}

#[test]
fn the_twins_of_the_device_servers_predict_latency() {
    insta::assert_snapshot!(summary("sena", &["5", "6", "7"]), @"9 fitted, 26 checked: median 1.477 %, worst -24.645 %, 25 within 15 %");
}
