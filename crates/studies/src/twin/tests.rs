//! Tests of how well the twins predict the published figures: repeatable to the last digit.

use std::path::Path;

use super::*;
use crate::study::{CaseOutcome, StudyLength};
use linkgauge_model::metric::Metric;

/// Compares all figures of the cases with the file `figures/NAME.txt`: the virtual clock gives the same to the last digit. After
/// an intended change, replace the file by the one that the failure names.
fn check_figures(name: &str, report: &TwinReport) {
    let line = |(index, case): (usize, &CaseResult)| {
        // A result has the name of its first case.
        let rank = |name: &&(String, String)| report.rows.iter().position(|row| row.case == name.1);
        let of_result = report.results.iter().filter(|(_, result)| **result == index).map(|(name, _)| name);
        let (twin, name) = of_result.min_by_key(rank).unwrap();
        let all = Metric::all_of_case(case).into_iter().filter(|(_, value)| *value != 0.0);
        let figures = all.map(|(metric, value)| format!(" {}={value}", metric.name()));
        format!("{twin} {name} elapsed_ns={}{}\n", case.elapsed_ns, figures.collect::<String>())
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
    let score = |score: &DeviationScore| {
        let (median, worst) =
            (score.median_percent.unwrap_or(f64::NAN), score.worst_percent.unwrap_or(f64::NAN));
        format!(
            "{}: median {median:.3} %, worst {worst:+.3} %, {} within 15 %",
            score.figures, score.within_15_percent
        )
    };
    let TwinSummary { fitted, checked, informative, trivial_checked, trivial_informative, .. } =
        &report.summary;
    format!(
        "{fitted} fitted; checked {}; trivial {}; informative {}; trivial {}",
        score(checked),
        score(trivial_checked),
        score(informative),
        score(trivial_informative)
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
    let repeats = study.twin_rows().unwrap();
    assert!(repeats.len() >= study.twin_figures().unwrap().len());
}

#[test]
fn the_twin_of_the_logger_predicts_its_downloads() {
    insta::assert_snapshot!(summary("loggernet", &[]), @"5 fitted; checked 5: median 2.488 %, worst -4.837 %, 5 within 15 %; trivial 5: median 13.503 %, worst +107.097 %, 3 within 15 %; informative 4: median 2.874 %, worst -4.837 %, 4 within 15 %; trivial 4: median 18.870 %, worst +107.097 %, 2 within 15 %");
}

#[test]
fn the_twin_of_the_board_predicts_its_rates() {
    insta::assert_snapshot!(summary("netio", &[]), @"9 fitted; checked 9: median 1.020 %, worst -15.012 %, 8 within 15 %; trivial 9: median 1.339 %, worst -13.343 %, 9 within 15 %; informative 3: median 11.081 %, worst -15.012 %, 2 within 15 %; trivial 3: median 8.374 %, worst -13.343 %, 3 within 15 %");
}

#[test]
fn the_twins_of_the_nodes_predict_times_and_rates() {
    insta::assert_snapshot!(summary("linx", &[]), @"32 fitted; checked 34: median 3.285 %, worst +18.629 %, 32 within 15 %; trivial 34: median 18.066 %, worst +104.237 %, 15 within 15 %; informative 30: median 3.285 %, worst +18.629 %, 28 within 15 %; trivial 30: median 20.491 %, worst +104.237 %, 11 within 15 %");
}

#[test]
fn the_twins_of_the_radio_links_predict_their_distribution() {
    insta::assert_snapshot!(summary("wireless", &[]), @"30 fitted; checked 45: median 1.255 %, worst +362.000 %, 41 within 15 %; trivial 45: median 3.849 %, worst +inf %, 33 within 15 %; informative 22: median 2.634 %, worst +362.000 %, 18 within 15 %; trivial 22: median 17.427 %, worst +inf %, 10 within 15 %");
}

#[test]
fn the_twins_of_the_device_servers_predict_throughput() {
    insta::assert_snapshot!(summary("sena", &["8"]), @"8 fitted; checked 8: median 0.075 %, worst +3.592 %, 8 within 15 %; trivial 8: median 0.085 %, worst +390.594 %, 6 within 15 %; informative 2: median 3.487 %, worst +3.592 %, 2 within 15 %; trivial 2: median 233.013 %, worst +390.594 %, 0 within 15 %");
}

#[test]
fn the_twins_of_the_device_servers_predict_latency() {
    insta::assert_snapshot!(summary("sena", &["5", "6", "7"]), @"9 fitted; checked 26: median 1.477 %, worst -24.645 %, 25 within 15 %; trivial 26: median 92.171 %, worst -99.081 %, 0 within 15 %; informative 26: median 1.477 %, worst -24.645 %, 25 within 15 %; trivial 26: median 92.171 %, worst -99.081 %, 0 within 15 %");
}

/// The values of the formulas beside those of the simulation, in percent.
fn formula_deviations(name: &str, tables: &[&str]) -> Vec<f64> {
    let mut study = Study::by_name(name).unwrap();
    study.select_tables(&tables.iter().map(|&table| table.to_owned()).collect::<Vec<_>>()).unwrap();
    let report = compare(&study).unwrap();
    let figures = study.twin_figures().unwrap();
    let deviation = |(figure, row): (&TwinFigure, &TwinRow)| {
        let value = formula::value(&figure.twin.model().unwrap(), figure);
        let value = value.unwrap_or_else(|| panic!("{}: {}", figure.twin.name, figure.statistic()));
        (row.value != Some(0.0)).then(|| (100.0 * (value / row.value.unwrap() - 1.0), format!("{row:?}")))
    };
    let mut all: Vec<(f64, String)> = figures.iter().zip(&report.rows).filter_map(deviation).collect();
    all.sort_by(|one, other| one.0.abs().total_cmp(&other.0.abs()));
    let worst = all.last().unwrap();
    assert!(worst.0.abs() < 13.0, "{worst:?}");
    all.into_iter().map(|(percent, _)| percent.abs()).collect()
}

#[test]
fn formulas_agree_with_the_simulation() {
    for (name, tables) in [
        ("loggernet", &["1", "2"][..]),
        ("netio", &[]),
        ("linx", &[]),
        ("wireless", &[]),
        ("sena", &["5", "6", "7", "8"]),
    ] {
        let deviations = formula_deviations(name, tables);
        assert!(stats::median(&deviations).unwrap() < 1.0, "{name}: {deviations:?}");
    }
}

#[test]
fn a_profile_shows_what_figures_determine() {
    let mut study = Study::by_name("loggernet").unwrap();
    study.select_tables(&["1".to_owned()]).unwrap();
    let profiles = profile(&study).unwrap();
    let of = |name: &str| profiles[0].values.iter().find(|value| value.name == name).unwrap();
    let ProfileInterval::Between { low: Some(low), high: Some(high), has_gaps: false, has_value: true } =
        &of("chunk").interval
    else {
        panic!("{:?}", of("chunk"))
    };
    assert!(of("chunk").fitted && (600..=673).contains(&low.parse().unwrap()), "{low}");
    assert!((660..760).contains(&high.parse().unwrap()), "{high}");
    assert_eq!((of("burst").interval.clone(), of("burst").fitted), (ProfileInterval::Any, false));
    assert!(of("burst").source.contains("tbf"));
}
