//! The wireless study run again: its statistics over links of the lab.

use super::program::{Serving, run};
use crate::study::{column, is_sound, placement, reproduced, words};

#[test]
#[ignore = "long"]
fn every_figure_of_the_study_has_a_measured_counterpart() {
    let (run, ended) = reproduced("wireless", &["--table", "1,2", "--cell", "tcp,udp-ad-hoc"]);
    for (link, hops) in [("TCP", 4), ("UDP ad-hoc", 1)] {
        let times = column(&run, "1", link);
        assert_eq!(placement(&run, times[0]).hops, Some(hops));
        assert_eq!(placement(&run, times[0]).stand_in.as_deref(), Some("link of the twin: no radio"));
        let deciles: Vec<f64> = times[1..].iter().map(|row| row.measured.unwrap()).collect();
        assert_eq!(deciles.len(), 9);
        assert!(deciles.is_sorted() && times.iter().all(|row| is_sound(row)), "{times:?}");
        let late = column(&run, "2", link);
        let shares: Vec<f64> = late.iter().map(|row| row.measured.unwrap()).collect();
        // Lost requests took longer than any of the limits.
        assert!(shares.iter().rev().is_sorted() && shares.len() == 5, "{late:?}");
        let figures = &run.cases[late[4].case.unwrap() - 1].figures;
        assert_eq!((figures.counts.sent, shares[4]), (400, 100.0 * figures.counts.lost as f64 / 400.0));
    }
    let words = words(&ended);
    assert!(words.contains("(link of the twin: no radio)"), "{}", ended.stdout);
    assert!(words.contains("over 100 ms TCP, 1.7 %: impossible: above the share over 50 ms."));
}

#[test]
fn conclusions_of_the_study_stand_beside_figures() {
    let (run, ended) = reproduced("wireless", &["--table", "C", "--cell", "tcp"]);
    let longest = column(&run, "C", "TCP")[0];
    assert_eq!(longest.published, "about 300");
    assert!(longest.measured.is_some() && ended.stdout.contains("about 300"), "{}", ended.stdout);
    assert!(column(&run, "C", "UDP ad-hoc").iter().all(|row| row.measured.is_none()));
}

#[test]
#[ignore = "long"]
fn links_named_by_on_are_measured_in_their_columns() {
    let server = Serving::start(&[]);
    let on = format!("tcp={}", server.tcp);
    let (run, _) = reproduced("wireless", &["--table", "1,4", "--on", &on]);
    assert_eq!(run.cases.len(), 2);
    let missed = column(&run, "4", "TCP");
    assert!(missed.iter().all(|row| row.measured.is_some() && !row.stand_in), "{missed:?}");
    assert_eq!(placement(&run, missed[0]).stand_in, None);
    assert!(column(&run, "1", "RFCOMM").iter().all(|row| row.measured.is_none()));
}

#[test]
fn cells_that_the_lab_lacks_are_reported_with_a_remedy() {
    let ended = run(&["reproduce", "wireless", "--quick", "--cell", "rfcomm"]);
    let remedy =
        ". Try --vm, which measures it in a guest. Use --on CELL=URL for hardware; --list prints the cells\n";
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.ends_with(remedy), "{}", ended.stderr);
}
