//! The studies themselves and the join: each row has a counterpart, no row is missing, no figure is invented.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::line_statistics::line_bps_per_port;
use super::*;
use linkgauge_model::clock::Time;
use linkgauge_model::run::{Delivery, Figures, Run};
use linkgauge_model::sample::{RecordedTimes, Recorder, Sample};

#[path = "../../../model/src/run/sample_runs.rs"]
mod sample_runs;

fn sena() -> Study {
    Study::by_name("sena").unwrap()
}

#[test]
fn every_study_parses_and_has_cases() {
    for texts in STUDIES {
        let study = Study::by_name(texts.name).unwrap();
        assert_eq!(study.name, texts.name);
        for length in [StudyLength::Full, StudyLength::Quick] {
            // Fails if a row names a case or a statistic that does not exist.
            let paper =
                study.join_results(length, &|_| CaseOutcome::NotMeasured("not now".to_owned())).unwrap();
            let rows: usize = paper.tables.iter().map(|table| table.rows.len()).sum();
            assert_eq!(rows, study.rows.len(), "a row of no table");
            assert_eq!(paper.shortened.is_some(), length.is_quick());
            for case in study.all_cases(length).unwrap() {
                let endpoint = |port| format!("unix:///run/port{port}").parse().unwrap();
                let endpoints: Vec<Endpoint> = (0..case.point.ports).map(endpoint).collect();
                let cases = case.expand(&endpoints).unwrap();
                assert_eq!(cases.len(), 1 + usize::from(case.preparation.is_some()), "{}", case.name);
                assert!(cases.iter().all(|case| case.endpoints == endpoints));
                assert!(!case.min_duration().is_zero(), "{}", case.name);
            }
        }
        for cell in &study.cells {
            assert!(cell.lab.is_some() != cell.not_in_lab.is_some(), "{}", cell.name);
            assert_eq!(cell.guest.is_some(), study.guest_for(cell).is_some(), "{}", cell.name);
        }
    }
}

/// Number of figures as counted in the study's own tables: rows × columns × figures per cell.
#[test]
fn no_published_figure_is_missing() {
    let counted = [
        ("5", 4),
        ("6", 9 * 2 * 4),
        ("7", 4 * 4),
        ("8", 15 * 2 * 2),
        ("9", 15 * 4),
        ("10", 15 * 3 * 2),
        ("11", 15 * 6),
        ("12", 15 * 4 * 2),
        ("13", 15 * 8),
        ("14", 15 * 4 * 2),
    ];
    let mut found = BTreeMap::<String, usize>::new();
    for row in sena().rows {
        *found.entry(row.table).or_default() += 1;
    }
    let counted: BTreeMap<String, usize> =
        counted.map(|(table, rows)| (table.to_owned(), rows)).into_iter().collect();
    assert_eq!(found, counted);
}

#[test]
fn unpublished_cells_keep_the_words_of_the_study() {
    let mut words = BTreeMap::<String, usize>::new();
    for row in sena().rows {
        if row.published.parse::<f64>().is_err() {
            *words.entry(row.published).or_default() += 1;
        }
    }
    let known = [("N/A", 48), ("Not Available", 107), ("Not Conducted", 6)];
    assert_eq!(words, known.map(|(word, rows)| (word.to_owned(), rows)).into());
}

/// Flags only a share of the line rate that contradicts the bit/s beside it.
#[test]
fn shares_match_their_rates() {
    let study = sena();
    let mut rates = BTreeMap::new();
    for row in study.rows.iter().filter(|row| row.unit == "bit/s") {
        let product = row.column.split(',').next().unwrap();
        rates.insert((product, row.case.as_str()), row.published.parse::<f64>());
    }
    let mut errors = Vec::new();
    for row in study.rows.iter().filter(|row| row.unit == "%") {
        let product = row.column.split(',').next().unwrap();
        let Some(Ok(rate)) = rates.get(&(product, row.case.as_str())) else { continue };
        let (_, baud) = row.case.rsplit_once('@').unwrap();
        let baud: f64 = baud.parse().unwrap();
        let share: f64 = row.published.parse().unwrap();
        // Both are rounded to two decimals.
        let rounding = 0.005 + 100.0 * 0.005 / baud + 1e-9;
        let error = (100.0 * rate / baud - share).abs() > rounding;
        assert_eq!(
            error,
            row.note.starts_with("inconsistent:"),
            "table {} {} {}",
            row.table,
            row.row,
            row.column
        );
        if error {
            errors.push((row.table.as_str(), row.row.as_str(), product));
        }
    }
    assert_eq!(errors, [("8", "115200", "LS100"), ("9", "115200", "LS100")]);
}

#[test]
fn rates_beyond_the_line_are_flagged() {
    for row in sena().rows {
        let (_, baud) = row.case.rsplit_once('@').unwrap();
        let limit = match row.unit.as_str() {
            "bit/s" => baud.parse().unwrap(),
            "%" => 100.0,
            _ => f64::MAX,
        };
        let above = row.published.parse::<f64>().is_ok_and(|published| published > limit);
        assert_eq!(
            above,
            row.note.starts_with("more than"),
            "table {} {} {}",
            row.table,
            row.row,
            row.column
        );
    }
}

#[test]
fn tables_that_compare_repeat_the_figures_they_compare() {
    let study = sena();
    for (first, second) in [("8", "9"), ("10", "11"), ("12", "13")] {
        let product = |row: &PublishedFigure| row.column.split(',').next().unwrap_or_default().to_owned();
        let again: Vec<&PublishedFigure> = study.rows.iter().filter(|row| row.table == second).collect();
        for row in study.rows.iter().filter(|row| row.table == first && row.unit == "%") {
            let same = again.iter().find(|other| other.case == row.case && product(other) == product(row));
            assert_eq!(same.unwrap().published, row.published, "table {second} {} {}", row.row, row.column);
        }
    }
}

#[test]
fn products_have_cases_with_their_number_of_ports() {
    let ports = |product: &str| match product {
        "LS100" | "LS110" | "PS110" | "SS100" => "1",
        "PS410" | "STS400" => "4",
        "PS810" | "STS800" => "8",
        "STS1600" => "16",
        product if product.starts_with("Parani") => "1",
        product => panic!("{product}"),
    };
    for row in sena().rows.iter().filter(|row| row.case.starts_with("throughput")) {
        let product = row.column.split(',').next().unwrap();
        let (_, place) = row.case.split_once('/').unwrap();
        assert_eq!(place.split('@').next().unwrap(), ports(product), "table {} {}", row.table, row.column);
        assert!(row.case.ends_with(&format!("@{}", row.row)));
    }
}

#[test]
fn cases_are_the_study_as_published_and_shorter_when_quick() {
    let text = |length| {
        let cases = sena().cases(length).unwrap();
        let wanted = ["latency:tcp/4@9600", "throughput:tcp/1@75", "throughput:serialip/16@230400"];
        let line = |name: &str| {
            let case = cases.iter().find(|case| case.name == name).unwrap();
            let one = &case.expand(&["unix:///run/port".parse().unwrap()]).unwrap()[0];
            let (stop, bytes) = (serde_json::to_string(&one.stop).unwrap(), one.message_bytes);
            format!("{name} {stop} {bytes:?} {:?} {:?}", one.timeout, case.min_duration())
        };
        wanted.map(line).join("\n")
    };
    insta::assert_snapshot!(text(StudyLength::Full), @r#"
    latency:tcp/4@9600 {"count":10000} Some(1) Some(10s) 10.416666667s
    throughput:tcp/1@75 {"volume_bytes":2000} Some(64) Some(60s) 266.666666667s
    throughput:serialip/16@230400 {"volume_bytes":6966000} Some(64) Some(60s) 302.34375s
    "#);
    insta::assert_snapshot!(text(StudyLength::Quick), @r#"
    latency:tcp/4@9600 {"count":400} Some(1) Some(10s) 427.083333ms
    throughput:tcp/1@75 {"volume_bytes":12} Some(12) Some(10s) 1.6s
    throughput:serialip/16@230400 {"volume_bytes":34560} Some(64) Some(10s) 1.5s
    "#);
}

#[test]
fn tables_are_chosen_by_number() {
    let mut study = sena();
    study.select_tables(&["7".to_owned(), "5".to_owned()]).unwrap();
    assert_eq!(study.table_numbers(), ["5", "7"]);
    let names: Vec<String> =
        study.cases(StudyLength::Full).unwrap().into_iter().map(|case| case.name).collect();
    assert_eq!(names[0], "latency:native/1@9600");
    assert_eq!(names.len(), 8);
    insta::assert_snapshot!(
        [study.select_tables(&["4".to_owned()]).unwrap_err(), Study::by_name("sana").unwrap_err()].map(|e| e.to_string()).join("\n"),
        @r"
    the study has no table 4 (known: 5, 7)
    there is no study 'sana' (known: sena, loggernet, netio, wireless, linx)
    "
    );
}

#[test]
fn endpoints_get_the_line_settings_of_the_study() {
    let study = sena();
    let on_line = |url: &str| {
        let cell = study.find_cell("native").unwrap();
        cell.configure_endpoint(&url.parse().unwrap(), 9600)
            .map_or_else(|error| error.to_string(), |url| url.to_string())
    };
    assert_eq!(on_line("tcp://box:7001"), "tcp://box:7001?baud=9600&flow=rtscts");
    assert_eq!(on_line("serial:///dev/ttyS0?flow=none"), "serial:///dev/ttyS0?flow=none&baud=9600");
    assert_eq!(on_line("tcp://box:1?baud=300"), "tcp://box:1?baud=300: leave 'baud' out, the study sets it");
}

#[test]
fn published_figures_are_joined_with_measured_ones() {
    let mut study = sena();
    study.select_tables(&["6".to_owned()]).unwrap();
    let full = sample_runs::full();
    let mut lossy = full.cases[1].clone();
    (lossy.figures.counts.lost, lossy.figures.byte_errors.corrupt_bytes) = (3, 0);
    let mut busy = full.cases[1].clone();
    busy.warnings.push(linkgauge_model::run::Warning::new(
        linkgauge_model::run::WarningCode::HostBusy,
        "busy",
        "stop them",
    ));
    let (latency, broken) = (&full.cases[1], &sample_runs::minimal().cases[0]);
    let paper = study
        .join_results(StudyLength::Full, &|case| match (case.point.cell.as_str(), case.point.ports) {
            ("serialip", 1) => {
                CaseOutcome::Measured { number: 1, case: latency, is_stand_in: true, is_guest: true }
            }
            ("serialip", 8) => {
                CaseOutcome::Measured { number: 3, case: &full.cases[0], is_stand_in: false, is_guest: false }
            }
            ("serialip", 16) => {
                CaseOutcome::Measured { number: 4, case: &lossy, is_stand_in: false, is_guest: false }
            }
            ("tcp", 1) => {
                CaseOutcome::Measured { number: 5, case: &busy, is_stand_in: false, is_guest: false }
            }
            ("serialip", 4) => {
                CaseOutcome::Measured { number: 2, case: broken, is_stand_in: false, is_guest: false }
            }
            _ => CaseOutcome::NotMeasured("left out".to_owned()),
        })
        .unwrap();
    let rows = &paper.tables[0].rows;
    let row =
        |row: &str, column: &str| rows.iter().find(|one| one.row == row && one.column == column).unwrap();
    let met = row("STS1600", "Serial/IP, 1 port");
    assert_eq!((met.published.as_str(), met.case, met.stand_in, met.guest), ("12.75", Some(1), true, true));
    let mean = latency.figures.times.latency_ns.as_ref().unwrap().mean;
    assert_eq!((met.measured, &met.reason), (Some(mean / 1e6), &None));
    assert!((met.theoretical_limit.unwrap() - 1.0417).abs() < 1e-4);
    // The same case corresponds to every product with a port.
    assert_eq!(row("LS100", "Serial/IP, 1 port").measured, met.measured);
    let without = row("PS410", "Serial/IP, 4 ports");
    assert_eq!((without.measured, without.stand_in), (None, false));
    assert!(without.reason.is_some());
    let lossy = row("STS1600", "Serial/IP, 16 ports");
    assert_eq!((lossy.measured, lossy.reason.as_deref()), (met.measured, Some("3 of 10000 were lost")));
    let busy = rows.iter().find(|row| row.case == Some(5)).unwrap();
    assert_eq!((busy.measured, busy.reason.as_deref()), (met.measured, Some(HOST_BUSY_NOTE)));
    // 14 µs are impossible on a serial line at 9600 baud.
    assert_eq!(row("PS810", "Serial/IP, 8 ports").reason.as_deref(), Some(BEYOND_LIMIT_NOTE));
    assert_eq!(row("STS800", "TCP/IP, 4 ports").published, "Not Conducted");
    assert_eq!(row("STS800", "TCP/IP, 4 ports").reason.as_deref(), Some("left out"));
}

#[test]
fn rates_are_per_port() {
    let mut case = sample_runs::full().cases[1].clone();
    let figures = |rate: f64| {
        let delivery = Delivery { throughput_bps: Some(rate), ..Delivery::default() };
        Figures { delivery, ..Figures::default() }
    };
    case.figures = figures(24_000.0);
    let line = PhysicalLine { bits_per_second: 9600.0, bits_per_character: 10.0 };
    case.per_port.truncate(2);
    for (part, rate) in case.per_port.iter_mut().zip([7680.0, 3840.0]) {
        part.figures = figures(rate);
    }
    assert_eq!(line_bps_per_port(&case, &line), Some(7200.0));
    let percent = find_statistic("port_line_rate_percent").unwrap();
    let planned = &sena().cases(StudyLength::Full).unwrap()[0];
    assert_eq!((percent.measured)(&case, planned), Some(75.0));
    // A port without a figure must not drop out of the mean.
    case.per_port[1].figures = Figures::default();
    assert_eq!(line_bps_per_port(&case, &line), None);
    case.per_port.clear();
    assert_eq!(line_bps_per_port(&case, &line), Some(30_000.0));
}

fn loggernet() -> Study {
    Study::by_name("loggernet").unwrap()
}

#[test]
fn delays_and_rates_match_the_rows() {
    let mut study = loggernet();
    assert_eq!(study.rows.len(), 10 + 3 + 1);
    study.select_tables(&["1".to_owned()]).unwrap();
    let cases = study.cases(StudyLength::Full).unwrap();
    assert_eq!(cases.len(), 10);
    for (row, case) in study.rows.iter().zip(&cases) {
        assert_eq!(row.case, case.name);
        let kilobytes = |rate: f64| rate / 8e3;
        let described = case.download.unwrap().link.map_or("no shaper".to_owned(), |path| {
            let (from, to) = (kilobytes(path.rate_from), kilobytes(path.rate_to));
            format!("{} ms, {from}/{to}", path.delay.as_millis())
        });
        assert_eq!(row.row, described);
    }
}

/// A download has 37 bytes to the logger, 1018 from it, 79.28 ms of processing each, and the delay twice.
#[test]
fn downloads_are_predicted_from_study_settings() {
    let paper = loggernet()
        .join_results(StudyLength::Full, &|_| CaseOutcome::NotMeasured("left out".to_owned()))
        .unwrap();
    assert_eq!(paper.stand_ins, ["emulated logger"]);
    let row = |name: &str| paper.tables[0].rows.iter().find(|row| row.row == name).unwrap();
    let seconds = |row: &StudyRow| 991.0 / row.predicted.unwrap();
    let half_second = row("500 ms, 10/1000");
    assert!((seconds(half_second) - (1.0 + 37e-6 + 0.1018 + 0.07928)).abs() < 1e-9);
    assert!((half_second.theoretical_limit.unwrap() - 10_000.0 * 991.0 / 1018.0).abs() < 1e-9);
    let direct = row("no shaper");
    assert!((direct.predicted.unwrap() - 12_500.0).abs() < 1e-6 && direct.theoretical_limit.is_none());
}

/// Figures as counted in the study's tables: six sizes, with rate, amount and time of each. The study has no bidirectional
/// figures.
#[test]
fn every_table_of_netio_has_its_sizes() {
    let study = Study::by_name("netio").unwrap();
    for (table, cell) in [("1", "board-to-pc"), ("2", "pc-to-board"), ("3", "localhost")] {
        let rows: Vec<&PublishedFigure> = study.rows.iter().filter(|row| row.table == table).collect();
        assert!(rows.iter().all(|row| row.case.contains(&format!(":{cell}/1@"))));
        let figures = rows.iter().filter(|row| row.published.parse::<f64>().is_ok()).count();
        assert_eq!((rows.len(), figures), (6 * 3 + 6 * 2, 6 * 3), "table {table}");
    }
}

/// Amounts are whole blocks and agree with the rates. The printed times deviate by less than 0.1 %.
#[test]
fn netio_amounts_agree_with_their_rates() {
    let study = Study::by_name("netio").unwrap();
    let cases: BTreeMap<String, PlannedCase> =
        study.cases(StudyLength::Full).unwrap().into_iter().map(|case| (case.name.clone(), case)).collect();
    assert_eq!(cases.len(), 36);
    for three in study.rows.chunks(3).filter(|three| three[0].column == "one way") {
        let [rate, bytes, seconds] = [0, 1, 2].map(|at| three[at].published.parse::<f64>().unwrap());
        let size = f64::from(cases[&three[0].case].point.value);
        assert_eq!(bytes % size, 0.0, "{}", three[0].case);
        assert!((bytes / 1024.0 / seconds / rate - 1.0).abs() < 1e-3, "{}", three[0].case);
    }
}

/// Checks that all sizes of a cell run in sequence at one endpoint, ten seconds each.
#[test]
fn netio_sizes_share_one_group() {
    let mut study = Study::by_name("netio").unwrap();
    study.select_tables(&["3".to_owned()]).unwrap();
    let cases = study.cases(StudyLength::Full).unwrap();
    let runs: Vec<usize> = cases.chunk_by(|a, b| a.group == b.group).map(<[_]>::len).collect();
    assert_eq!(runs, [6, 6]);
    let [first, last] = [&cases[0], &cases[5]];
    assert_eq!(first.min_duration(), Duration::from_secs(10));
    let sizes =
        [first, last].map(|case| case.expand(&["mem://far".parse().unwrap()]).unwrap()[0].message_bytes);
    assert_eq!(sizes, [Some(1024), Some(32_767)]);
    let ours = study.cases(StudyLength::Quick).unwrap();
    assert_eq!(ours[11].min_duration(), Duration::from_secs(2), "one second each way");
    let words =
        |length| study.find_cell("localhost").unwrap().command_words(length).any(|word| word == "--max-time");
    assert!(words(StudyLength::Quick) && !words(StudyLength::Full));
}

#[test]
fn protocol_counters_match_the_counters_of_a_study() {
    let mut case = sample_runs::full().cases[1].clone();
    let planned = &Study::by_name("netio").unwrap().cases(StudyLength::Full).unwrap()[0];
    let of = |case: &CaseResult, name: &str| (find_statistic(name).unwrap().measured)(case, planned);
    assert_eq!(of(&case, "sent_bytes"), None);
    for (name, value) in
        [("tx_bytes", 20_480_000_u64), ("tx_ns", 10_000_000_000), ("rx_bytes", 1024), ("rx_ns", 0)]
    {
        case.effective.insert(name.to_owned(), value.into());
    }
    assert_eq!(of(&case, "sent_kbyte_per_second"), Some(2000.0));
    assert_eq!((of(&case, "sent_bytes"), of(&case, "sent_seconds")), (Some(20_480_000.0), Some(10.0)));
    assert_eq!(of(&case, "received_kbyte_per_second"), None);
}

/// Figures as counted in the study: sizes × protocols, with OSEck LINX alone. The other tables contain unpublished values.
#[test]
fn every_linx_and_tipc_figure_has_a_case_of_its_size() {
    let study = Study::by_name("linx").unwrap();
    let mut found = BTreeMap::<&str, usize>::new();
    for row in &study.rows {
        let published = row.published.parse::<f64>();
        // The study states the CPU once, for all senders.
        let is_figure = row.table.parse::<u32>().is_ok() || row.published == "100";
        assert_eq!(published.is_ok(), is_figure, "table {} {}", row.table, row.row);
        *found.entry(&row.table).or_default() += usize::from(published.is_ok());
        let (_, at) = row.case.split_once('@').unwrap();
        assert_eq!(row.row, format!("{at} B"));
        assert_eq!(row.case.starts_with("latency"), row.statistic == "latency_mean_us");
    }
    let counted = [("1", 12), ("2", 12), ("3", 12), ("4", 12), ("5", 5), ("6", 5), ("7", 4), ("8", 4)];
    let others = [("A", 0), ("B", 0), ("C", 0), ("D", 0), ("E", 0), ("F", 12)];
    assert_eq!(found, counted.into_iter().chain(others).collect());
    for case in study.all_cases(StudyLength::Full).unwrap() {
        let one = &case.expand(&["unix:///run/port".parse().unwrap()]).unwrap()[0];
        assert_eq!(one.message_bytes, Some(case.point.value));
    }
}

/// The study's throughput: the per-byte cost between two sizes, in bytes per microsecond.
#[test]
fn linx_and_tipc_figures_identify_the_line() {
    let study = Study::by_name("linx").unwrap();
    let published = |table: &str, column: &str, size: u32| -> f64 {
        let here = |row: &&PublishedFigure| {
            row.table == table && row.column == column && row.row == format!("{size} B")
        };
        study.rows.iter().find(here).unwrap().published.parse().unwrap()
    };
    let slope = |table: &str, column: &str, small: u32, large: u32| {
        let more = published(table, column, large) - published(table, column, small);
        (f64::from(large - small) / more * 100.0).round() / 100.0
    };
    assert_eq!(slope("2", "LINX", 16_384, 65_536), 89.69);
    assert_eq!(slope("2", "TIPC", 16_384, 65_536), 58.65);
    assert_eq!(slope("6", "LINX", 4096, 16_384), 12.05);
    assert_eq!(slope("8", "LINX", 1024, 4096), 12.09);
    // No figure is better than the link that the lab provides.
    for case in study.cases(StudyLength::Full).unwrap() {
        let rows = study.rows.iter().filter(|row| row.case == case.name);
        for row in rows {
            let limit = (find_statistic(&row.statistic).unwrap().theoretical_limit)(&case);
            let better = limit.is_some_and(|limit| row.published.parse::<f64>().unwrap() < limit);
            assert!(!better, "table {} {}", row.table, row.row);
        }
    }
}

fn wireless() -> Study {
    Study::by_name("wireless").unwrap()
}

/// Figures as counted in the study's tables: a mean and nine deciles, four shares and the timeouts, of five links; and L2CAP,
/// which the study lacks.
#[test]
fn every_link_of_the_wireless_study_has_its_figures() {
    let study = wireless();
    for (table, rows) in [("1", 10), ("2", 5)] {
        for (column, cell) in [
            ("TCP", "tcp"),
            ("UDP", "udp"),
            ("RFCOMM", "rfcomm"),
            ("TCP ad-hoc", "tcp-ad-hoc"),
            ("UDP ad-hoc", "udp-ad-hoc"),
            ("L2CAP", "l2cap"),
        ] {
            let here = || study.rows.iter().filter(|row| row.table == table && row.column == column);
            assert!(here().all(|row| row.case == format!("one-by-one:{cell}/1@32")), "{column}");
            let published = here().filter(|row| row.published.parse::<f64>().is_ok()).count();
            let expected = if cell == "l2cap" { 0 } else { rows };
            assert_eq!((here().count(), published), (rows, expected), "table {table} {column}");
        }
    }
    let case =
        &study.cases(StudyLength::Full).unwrap()[0].expand(&["mem://far".parse().unwrap()]).unwrap()[0];
    assert_eq!((case.message_bytes, case.timeout), (Some(32), Some(Duration::from_secs(1))));
}

#[test]
fn shares_that_grow_with_their_bound_are_flagged() {
    let mut before = BTreeMap::<String, f64>::new();
    let mut flagged = Vec::new();
    for row in wireless().rows.into_iter().filter(|row| row.row.starts_with("over")) {
        let Ok(share) = row.published.parse::<f64>() else { continue };
        let grows = before.insert(row.column.clone(), share).is_some_and(|smaller| share > smaller);
        assert_eq!(grows, row.note.starts_with("impossible"), "{} {}", row.row, row.column);
        flagged.extend(grows.then_some((row.row, row.column)));
    }
    let over = |column: &str| ("over 100 ms".to_owned(), column.to_owned());
    assert_eq!(flagged, ["TCP", "UDP", "UDP ad-hoc"].map(over));
}

/// 1000 requests, 60 of them lost. A lost request is late, has a rank, and does not make loss statistics doubtful.
#[test]
fn lost_requests_count_as_latest() {
    let mut recorder = Recorder::new(RecordedTimes::Service, 1_000_000_000, Arc::default(), None);
    for sequence in 0..940 {
        recorder.counts.sent += 1;
        let received = Time((sequence + 1) * 100_000);
        recorder.record_reply(Sample { sequence, intended: Time(0), sent: Time(0), received }, 0);
    }
    for _ in 0..60 {
        recorder.counts.sent += 1;
        recorder.record_loss(Time(0));
    }
    let mut case = sample_runs::full().cases[1].clone();
    case.figures = recorder.latency_figures(&[50, 100].map(Duration::from_millis));
    let outcome = |_: &PlannedCase| CaseOutcome::Measured {
        number: 1,
        case: &case,
        is_stand_in: false,
        is_guest: false,
    };
    let paper = wireless().join_results(StudyLength::Full, &outcome).unwrap();
    let row = |row: &str| {
        let here = |one: &&StudyRow| one.row == row && one.column == "TCP";
        let one = paper.tables.iter().flat_map(|table| &table.rows).find(here).unwrap();
        (one.measured.map(|value| value.round()), one.reason.as_deref())
    };
    // The 500th of the requests sent; 440 later than 50 ms and 60 lost.
    assert_eq!(row("p50"), (Some(50.0), None));
    assert_eq!((row("over 50 ms"), row("time-out")), ((Some(50.0), None), (Some(6.0), None)));
    assert_eq!(row("fastest 95 %"), (None, Some("60 of 1000 were lost")));
    assert_eq!(row("over 200 ms"), (None, Some("60 of 1000 were lost")));
}

/// The guest of the footnote begins as that of the two nodes, and LINX follows TIPC into its guest.
#[test]
fn guests_extend_each_other_and_take_what_they_are_compared_with() {
    let mut study = Study::by_name("linx").unwrap();
    let [nodes, coalesced] = ["nodes", "coalesced"].map(|name| study.find_guest(name).unwrap().clone());
    assert!(coalesced.before.starts_with(&nodes.before) && coalesced.before.len() > nodes.before.len());
    assert!(coalesced.modules.starts_with(&nodes.modules) && coalesced.tools == nodes.tools);
    let command = |study: &Study, cell: &str| study.find_cell(cell).unwrap().command.clone();
    let outside = ["linx-inter", "linx-intra", "tipc-inter"].map(|cell| command(&study, cell));
    study.enter_guest("messages");
    assert_eq!(["linx-inter", "linx-intra", "tipc-inter"].map(|cell| command(&study, cell)), outside);
    study.enter_guest("nodes");
    assert!(command(&study, "linx-inter").contains("linx+eth://"));
    assert_eq!(["linx-intra", "tipc-inter"].map(|cell| command(&study, cell)), outside[1..]);
}

#[test]
fn what_the_lab_starts_like_a_twin_is_one() {
    for files in STUDIES {
        for cell in Study::by_name(files.name).unwrap().cells {
            let Some(name) = &cell.like else { continue };
            let (study, name) = name.split_once('/').unwrap();
            assert!(
                Study::by_name(study).unwrap().twins().iter().any(|twin| twin.name == name),
                "{}",
                cell.name
            );
        }
    }
}

#[test]
fn network_kind_is_a_fact_of_the_case() {
    let study = wireless();
    let hops = |cell: &str| study.find_cell(cell).unwrap().hops;
    assert_eq!(["tcp", "udp-ad-hoc", "rfcomm"].map(hops), [Some(4), Some(1), Some(1)]);
    assert!(study.cells.iter().all(|cell| cell.network.is_some()));
}
