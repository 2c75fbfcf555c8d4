//! Statements of a study besides its figures: machines, versions, parameters and set-ups; and its charts that combine tables.

use serde::Deserialize;

use super::StudyError;
use linkgauge_model::run::{StudyChart, StudyFact};

/// The facts of a study.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FactFile {
    #[serde(rename = "fact")]
    pub(super) facts: Vec<StudyFact>,
    #[serde(default, rename = "chart")]
    charts: Vec<StudyChart>,
}

impl FactFile {
    pub(super) fn parse(text: &str) -> Result<FactFile, StudyError> {
        toml::from_str(text).map_err(|error| StudyError::Facts(error.to_string()))
    }

    /// Whether a fact or a chart is that item of the study.
    pub(super) fn shows(&self, of: &str) -> bool {
        self.facts.iter().any(|fact| fact.of == of) || self.charts.iter().any(|chart| chart.of == of)
    }

    /// The charts whose tables are all among these.
    pub(super) fn charts_of(&self, tables: &[&str]) -> Vec<StudyChart> {
        let is_complete =
            |chart: &&StudyChart| chart.tables.iter().all(|number| tables.contains(&number.as_str()));
        self.charts.iter().filter(is_complete).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{STUDIES, Study};

    /// Characters of a line that fits beside its indent on a terminal of 80 columns.
    const MOST_CHARACTERS: usize = 76;

    #[test]
    fn facts_are_whole_tables_or_drawings_that_fit() {
        for files in STUDIES {
            let study = Study::by_name(files.name).unwrap();
            assert!(!study.facts.facts.is_empty(), "{}", files.name);
            for fact in &study.facts.facts {
                let name = format!("{}: {}", files.name, fact.of);
                assert_ne!(fact.rows.is_empty(), fact.drawing.is_empty(), "{name}");
                assert!(fact.rows.iter().all(|row| row.len() == fact.head.len()), "{name}");
                let fits = |line: &str| line.is_ascii() && line.len() <= MOST_CHARACTERS;
                assert!(fact.drawing.lines().all(fits), "{name}");
            }
            for chart in &study.facts.charts {
                let numbers = study.table_numbers();
                assert!(chart.tables.iter().all(|number| numbers.contains(&number.as_str())), "{}", chart.of);
            }
        }
    }

    #[test]
    fn the_volumes_of_the_plan_are_those_of_the_study() {
        let study = Study::by_name("sena").unwrap();
        let table = study.facts.facts.iter().find(|fact| fact.of == "Table 3").unwrap();
        let printed: BTreeMap<String, u64> =
            table.rows.iter().map(|row| (row[0].clone(), row[1].parse::<u64>().unwrap() * 1000)).collect();
        let planned = study.measures.iter().find(|measure| !measure.volume.is_empty()).unwrap();
        assert_eq!(
            planned.volume.iter().map(|(baud, volume)| (baud.clone(), volume.0)).collect::<BTreeMap<_, _>>(),
            printed
        );
    }

    #[test]
    fn a_chart_needs_all_its_tables() {
        let mut study = Study::by_name("sena").unwrap();
        assert_eq!(study.facts.charts_of(&study.table_numbers())[0].of, "Figure 4");
        study.select_tables(&["5".to_owned(), "6".to_owned()]).unwrap();
        assert!(study.facts.charts_of(&study.table_numbers()).is_empty());
    }
}
