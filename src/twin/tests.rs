//! How well the twins predict the published figures: repeatable to the last digit.

use super::*;

fn summary(study: &str, tables: &[&str]) -> String {
    let mut study = Study::by_name(study).unwrap();
    let tables: Vec<String> = tables.iter().map(|&table| table.to_owned()).collect();
    study.select_tables(&tables).unwrap();
    let report = compare(&study).unwrap();
    let TwinSummary { fitted, checked, median_percent, worst_percent, within_15_percent } = report.summary;
    format!(
        "{fitted} fitted, {checked} checked: median {:.3} %, worst {:+.3} %, {within_15_percent} within 15 %",
        median_percent.unwrap(),
        worst_percent.unwrap()
    )
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
