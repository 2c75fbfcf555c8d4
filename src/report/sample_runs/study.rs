//! Runs of a published study for the tests of the reports.

use super::{HOSTILE_SCRIPT, case, latency_figures, run};
use crate::plan::Direction;
use crate::run::{HostLoad, Run, StudyChart, StudyFact, StudyResult, StudyRow, StudyTable};

/// The same with a prediction, in a guest, with a named stand-in.
pub fn study_with_prediction() -> Run {
    let mut run = study();
    let placement = &mut run.cases[1].placement;
    (placement.network, placement.hops) = (Some("Bluetooth".to_owned()), Some(1));
    placement.host_load = HostLoad {
        other_percent: Some(12.5),
        busiest: Some("rustc".to_owned()),
        steal_percent: Some(0.0),
        pressure_percent: Some(31.0),
        wait_percent: Some(1.5),
    };
    if let Some(paper) = &mut run.study {
        let row = &mut paper.tables[0].rows[0];
        (row.predicted, row.stand_in, row.guest) = (Some(1.2), true, true);
        // A column in which only one row has a figure.
        let sparse = StudyRow { unit: "%".to_owned(), ..row.clone() };
        paper.tables[0].rows.push(sparse);
        paper.tables[0].rows[1].fitted = true;
        paper.twins = Some("the twins predict 3 published figures.".to_owned());
        let [of, title, rows_are] = ["Figure 4", "All latencies", "product"].map(str::to_owned);
        paper.charts = vec![StudyChart { of, title, rows_are, tables: vec!["6".to_owned()] }];
        paper.stand_ins = vec!["emulated box".to_owned()];
        paper.guests = vec!["Linux 6.1, a virtual CPU".to_owned()];
    }
    run
}

/// A published study beside measured figures, from the lab and elsewhere.
pub fn study() -> Run {
    let table = |number: &str, title: &str, rows_are: &str, rows| StudyTable {
        number: number.to_owned(),
        title: title.to_owned(),
        rows_are: rows_are.to_owned(),
        rows,
    };
    let paper = StudyResult {
        name: "study".to_owned(),
        title: "Boxes compared".to_owned(),
        source: "those who sell them, 2007".to_owned(),
        shortened: Some("200 round trips instead of 10 000".to_owned()),
        stand_ins: Vec::new(),
        guests: Vec::new(),
        tables: vec![
            table("6", "Mean latency", "product", study_latencies()),
            table("12", "Throughput", "baud", study_rates()),
        ],
        twins: None,
        charts: Vec::new(),
        facts: study_facts(),
    };
    let case = |endpoint| case(endpoint, "latency", Direction::Loop, 1, latency_figures(1_100_000, 10_000));
    let cases = vec![case("serial:///dev/ttyS0"), case("tcp://127.0.0.1:7001")];
    Run { study: Some(paper), ..run(Some("A study again"), cases) }
}

fn study_facts() -> Vec<StudyFact> {
    let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
    let fact = |of: &str, title: &str| StudyFact {
        of: of.to_owned(),
        title: title.to_owned(),
        ..StudyFact::default()
    };
    let products = StudyFact {
        head: row(["product", "firmware"]),
        rows: vec![row(["STS1600", "1.4.4, the one for sixteen ports"]), row(["LS100", "1.4.4"])],
        ..fact("Table 4", "Products")
    };
    let drawing =
        StudyFact { drawing: "PC -- box -- device\n".to_owned(), ..fact("Figure 1", "A box in use") };
    vec![products, drawing]
}

fn study_row(row: &str, column: &str, published: &str, measured: Option<f64>) -> StudyRow {
    StudyRow {
        row: row.to_owned(),
        column: column.to_owned(),
        published: published.to_owned(),
        unit: "ms".to_owned(),
        planned_case: "latency:tcp/1@9600".to_owned(),
        statistic: "latency_mean_ms".to_owned(),
        measured,
        predicted: None,
        theoretical_limit: Some(1.041_667),
        case: measured.map(|_| 1),
        stand_in: false,
        guest: false,
        fitted: false,
        reason: None,
        note: None,
    }
}

fn study_latencies() -> Vec<StudyRow> {
    let reason = Some("there is no such thing in the lab".to_owned());
    vec![
        study_row("STS1600", "TCP/IP, 1 port", "12.35", Some(1.203_456)),
        StudyRow { reason: reason.clone(), ..study_row("STS1600", "TCP/IP, 16 ports", "112.89", None) },
        StudyRow {
            stand_in: true,
            case: Some(2),
            ..study_row("LS100", "TCP/IP, 1 port", "39.22", Some(1.25))
        },
        StudyRow { reason, ..study_row("LS100", "TCP/IP, 16 ports", "Not Available", None) },
    ]
}

fn study_rates() -> Vec<StudyRow> {
    let rate = |unit: &str, published: &str, measured, limit| StudyRow {
        unit: unit.to_owned(),
        theoretical_limit: Some(limit),
        case: Some(2),
        statistic: "port_line_bps".to_owned(),
        planned_case: "throughput:tcp/1@19200".to_owned(),
        ..study_row("19200", "SS100, 1 port", published, Some(measured))
    };
    let reason = Some("the measurement was stopped before its end".to_owned());
    vec![
        StudyRow {
            note: Some("above what a line of this rate can carry".to_owned()),
            reason: reason.clone(),
            ..rate("bit/s", "19252.38", 19_183.456, 19_200.0)
        },
        StudyRow {
            reason,
            statistic: "port_line_rate_percent".to_owned(),
            ..rate("%", "100.27", 99.9138, 100.0)
        },
    ]
}

/// The same as a study.
pub fn hostile_study() -> Run {
    let script = || format!("{HOSTILE_SCRIPT}\u{1b}[2J\"'&");
    let mut run = study();
    let paper = run.study.as_mut().expect("a study");
    (paper.name, paper.title, paper.source, paper.shortened) = (script(), script(), script(), Some(script()));
    for table in &mut paper.tables {
        (table.number, table.title, table.rows_are) = (script(), script(), script());
        for row in &mut table.rows {
            (row.row, row.column, row.published, row.unit) = (script(), script(), script(), script());
            (row.planned_case, row.statistic) = (script(), script());
            (row.measured, row.theoretical_limit, row.case) =
                (Some(f64::MAX), Some(f64::MIN), Some(usize::MAX));
            (row.reason, row.note) = (Some(script()), Some(script()));
        }
    }
    for fact in &mut paper.facts {
        (fact.of, fact.title, fact.drawing) = (script(), script(), script());
        fact.head.iter_mut().chain(fact.rows.iter_mut().flatten()).for_each(|cell| *cell = script());
    }
    run
}
