//! Results that OB-UDPST 9.0.0 wrote, through a token bucket of 50 Mbit/s.

use std::io::Cursor;

use super::*;
use crate::import::{ImportOptions, read};
use linkgauge_model::run::Run;

const UPLOAD: &str = include_str!("upload.json");
const DOWNLOAD: &str = include_str!("download.json");

fn imported(text: &str) -> Result<Run, String> {
    let about = ImportOptions { file_name: "a.json".to_owned(), ..ImportOptions::default() };
    read(&FORMAT, &mut Cursor::new(text.as_bytes()), &about).map_err(|error| error.to_string())
}

#[test]
fn a_test_has_the_figures_that_the_program_prints() {
    let run = imported(&format!("{UPLOAD}\n{DOWNLOAD}")).unwrap();
    assert_eq!(run.cases.len(), 2);
    let (upload, download) = (&run.cases[0], &run.cases[1]);
    assert_eq!(upload.endpoint, "udp://10.77.0.2:24601");
    assert_eq!(
        (upload.workload.as_str(), upload.direction, upload.parallel),
        ("capacity", Direction::Send, 1)
    );
    assert_eq!(upload.figures.delivery.capacity_bps, Some(49.45e6));
    assert_eq!(upload.figures.delivery.throughput_bps, None);
    assert_eq!(upload.effective["lost_datagrams"], 599.0);
    assert_eq!(upload.effective["round_trip_variation_max_ns"], 53e6);
    assert_eq!(upload.effective["algorithm"], "B");
    assert_eq!(upload.elapsed_ns, 5_510_188_000);
    assert_eq!(upload.method, "capacity/imported/udpst");
    assert!(upload.complete && run.warnings[0].text.contains("OB-UDPST 9.0.0"), "{:?}", run.warnings);
    assert_eq!((download.direction, download.parallel), (Direction::Receive, 2));
    assert_eq!(run.started.to_string(), "2026-11-28T09:25:49.034412Z");
}

#[test]
fn tests_without_a_result_say_why() {
    let failed = r#"{"IPLayerCapSupported": {"SoftwareVersion": "9.0.0"}, "ErrorStatus": 200,
        "ErrorMessage": "ERROR: Minimum required connections (1) unavailable"}"#;
    let error = imported(failed).unwrap_err();
    assert!(error.contains("Minimum required connections"), "{error}");
    let run = imported(&format!("{UPLOAD}{failed}")).unwrap();
    assert!(
        run.warnings.iter().any(|warning| warning.text.starts_with("1 of 2 tests")),
        "{:?}",
        run.warnings
    );
    for (text, what) in [
        ("", "the file is empty"),
        ("{}", "it has no 'Output'"),
        ("{\"a\"", "not a result of udpst"),
        (&UPLOAD.replace("\"Sender\"", "7"), "no direction"),
        (&UPLOAD.replace("49.45", "1e300"), "no highest rate"),
        (&UPLOAD.replace("49.45", "-1"), "no highest rate"),
    ] {
        let error = imported(text).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
    let run = imported(&UPLOAD.replace("\"Complete\"", "\"Error\"")).unwrap();
    assert!(!run.cases[0].complete);
}
