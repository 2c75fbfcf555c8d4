//! Studies run again whose links need a kernel of their own: in a guest.

use linkgauge::run::StudyRow;

use crate::guest::CACHE;
use crate::study::{column, is_sound, placement, reproduced, words};

const GUEST: [&str; 4] = ["--vm", "--virtual-time", "--cache", CACHE];

#[test]
fn a_guest_measures_cells_that_this_host_cannot() {
    let cells = ["--table", "1,C", "--cell", "tipc-inter@64,linx-inter@64,tcp@64"];
    let (run, ended) = reproduced("linx", &[&GUEST[..], &cells].concat());
    let rows = run.study.iter().flat_map(|paper| &paper.tables).flat_map(|table| &table.rows);
    let met: Vec<&StudyRow> = rows.filter(|row| row.measured.is_some()).collect();
    assert_eq!((met.len(), run.cases.len()), (3, 3), "{}", ended.stderr);
    for row in met {
        let case = &run.cases[row.case.unwrap() - 1];
        assert!(row.stand_in && case.complete && case.figures.counts.received > 0, "{row:?}");
        let is_here = row.planned_case.contains(":tcp/");
        let place = case.placement.guest.as_deref();
        assert_eq!((row.guest, place.is_some()), (!is_here, !is_here), "{row:?}");
        assert!(place.is_none_or(|place| place.contains("counted in instructions")), "{place:?}");
    }
    assert!(ended.stdout.contains("guest: measured in a guest (Linux "), "{}", ended.stdout);
    assert!(ended.stdout.lines().any(|line| line.contains("TIPC") && line.ends_with("guest")));
}

#[test]
fn bluetooth_is_measured_between_two_controllers() {
    let (run, ended) = reproduced("wireless", &[&GUEST[..], &["--cell", "rfcomm,l2cap"]].concat());
    assert_eq!(run.cases.len(), 4, "{}", ended.stderr);
    for link in ["RFCOMM", "L2CAP"] {
        for table in ["1", "2", "3", "4"] {
            for row in column(&run, table, link) {
                assert!(row.measured.is_some() && row.stand_in, "{row:?}\n{}", ended.stderr);
                assert_eq!(placement(&run, row).stand_in.as_deref(), Some("virtual controller: no radio"));
            }
        }
    }
    assert!(
        run.cases.iter().all(|case| (case.figures.counts.received, case.figures.counts.lost) == (400, 0))
    );
    assert!(words(&ended).contains("(virtual controller: no radio)"), "{}", ended.stdout);
}

#[test]
fn a_bluetooth_adapter_is_a_line_behind_a_channel() {
    let (run, ended) = reproduced("sena", &[&GUEST[..], &["--table", "7", "--cell", "bluetooth/4"]].concat());
    assert_eq!(run.cases.len(), 1, "{}", ended.stderr);
    assert_eq!((run.cases[0].ports, run.cases[0].figures.counts.received), (4, 4 * 400));
    for row in column(&run, "7", "Bluetooth, 4 ports") {
        // A line never gives a character before its time.
        assert!(row.measured >= row.theoretical_limit && is_sound(row) && row.stand_in, "{row:?}");
        assert_eq!(placement(&run, row).stand_in.as_deref(), Some("virtual controller: no radio"));
    }
    assert!(words(&ended).contains("(virtual controller: no radio)"), "{}", ended.stdout);
}
