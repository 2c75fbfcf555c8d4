//! The twins of the studies: few parameters, and every name in them exists.

use std::collections::BTreeSet;

use super::super::STUDIES;
use super::*;

/// Parameters of one twin at most, and the share of its figures that they may be at most.
const MOST_PARAMETERS: usize = 4;

#[test]
fn a_twin_has_few_parameters_and_explains_many_figures() {
    for files in STUDIES {
        let study = Study::by_name(files.name).unwrap();
        let figures = study.twin_figures().unwrap();
        let fitted = figures.iter().filter(|figure| figure.is_fitted).count();
        assert!(2 * fitted <= figures.len(), "{}: {fitted} of {} are fitted", files.name, figures.len());
        for twin in study.twins() {
            assert!(twin.parameters.len() <= MOST_PARAMETERS, "{}", twin.name);
            assert!(twin.parameters.keys().all(|name| !twin.known.contains_key(name)), "{}", twin.name);
            let own = study.twin_rows().unwrap().iter().filter(|row| row.twin.name == twin.name).count();
            assert!(own > 0, "{}/{} has no figure", files.name, twin.name);
        }
    }
}

#[test]
fn each_name_in_a_twin_is_a_case_or_a_row_of_its_figures() {
    for files in STUDIES {
        let study = Study::by_name(files.name).unwrap();
        let names: BTreeSet<&str> = study.twins().iter().map(|twin| twin.name.as_str()).collect();
        assert_eq!(names.len(), study.twins().len(), "{}: a name occurs twice", files.name);
        for twin in study.twins() {
            let own: Vec<&PublishedFigure> = study.rows.iter().filter(|row| twin.owns(row)).collect();
            let misses = twin.misses.iter().flat_map(|miss| &miss.of);
            for name in twin.fit.iter().chain(misses) {
                let is_known = own.iter().any(|figure| names_figure(std::slice::from_ref(name), figure));
                assert!(is_known, "{}/{}: {name}", files.name, twin.name);
            }
            for selector in &twin.figures {
                let selected = own.iter().filter(|figure| figure.table == selector.table).count();
                assert!(selected > 0, "{}/{}: {selector:?}", files.name, twin.name);
            }
        }
    }
}

#[test]
fn every_value_that_is_not_fitted_has_a_source() {
    for files in STUDIES {
        let study = Study::by_name(files.name).unwrap();
        for twin in study.twins() {
            for name in twin.known.keys() {
                assert!(study.source_of(twin, name).is_some(), "{}/{}: {name}", files.name, twin.name);
            }
        }
    }
}

#[test]
fn a_curve_leads_through_the_fitted_figures() {
    let study = Study::by_name("linx").unwrap();
    let figures = study.twin_figures().unwrap();
    let latencies: Vec<&TwinFigure> =
        figures.iter().filter(|figure| figure.twin.name == "linx-inter" && figure.table() == "1").collect();
    let trivial: Vec<f64> = latencies.iter().map(|figure| figure.trivial.unwrap().round()).collect();
    // 256, 4096 and 65 536 bytes are fitted: 53, 183 and 1935 µs.
    assert_eq!(trivial, [53.0, 53.0, 98.0, 183.0, 595.0, 1935.0]);
}

#[test]
fn wrong_parameters_are_named() {
    let parse = |parameters: &str| {
        let text = format!(
            "[trivial]\nis = \"none\"\nfrom = \"limit\"\n[[twin]]\nname = \"box\"\nis = \"a box\"\nlab = \"uart\"\nfigures = []\nfit = []\nderivation = \"\"\n[twin.parameters]\n{parameters}"
        );
        TwinFile::parse(&text)
            .map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())
    };
    assert!(parse("trigger = 8\nidle_characters = 4").is_ok());
    assert_eq!(parse("trigger = 8").unwrap_err(), "twins of the study: box: missing field `idle_characters`");
    let unknown = parse("trigger = 8\nidle_characters = 4\nspeed = 1").unwrap_err();
    assert!(unknown.starts_with("twins of the study: box: unknown field `speed`"), "{unknown}");
}
