//! The items of a study: each table, figure, sentence and footnote with its counterpart, or the reason why it has none; and the
//! sentences about figures, which measured ones can contradict.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::twin::FigureSelector;
use super::{PublishedFigure, Study, StudyError};
use linkgauge_model::run::{StudyResult, StudyRow, StudyStatement};

/// The items of a study and its sentences about figures.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ItemFile {
    #[serde(rename = "item")]
    items: Vec<Item>,
    #[serde(default, rename = "statement")]
    statements: Vec<StatementSpec>,
}

/// A table, figure, sentence or footnote of a study.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// The place in the study: `Table 5`, `Footnote`.
    pub of: String,
    /// Its content, in our words.
    pub is: String,
    /// Its figures in our tables.
    #[serde(default)]
    figures: Vec<FigureSelector>,
    /// Reason why nothing of it can be measured.
    pub none: Option<String>,
}

/// The counterparts of an item.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counterparts {
    /// Published figures and words about figures.
    pub figures: usize,
    /// Those that a twin has.
    pub twin: usize,
    /// Those that the lab measures.
    pub lab: usize,
    /// Cells that hardware can replace (`--on`).
    pub hardware: Vec<String>,
    /// Whether the page shows it as a table, drawing or chart of facts.
    pub on_page: bool,
}

/// A sentence about figures.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatementSpec {
    of: String,
    says: String,
    figure: RowSelector,
    /// Divides the figure.
    over: Option<RowSelector>,
    /// Is subtracted from the figure.
    minus: Option<RowSelector>,
    least: Option<f64>,
    most: Option<f64>,
}

/// Rows of a table by their exact names; all if absent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowSelector {
    table: String,
    row: Option<String>,
    column: Option<String>,
}

impl RowSelector {
    fn selects(&self, row: &StudyRow) -> bool {
        self.row.as_ref().is_none_or(|name| *name == row.row)
            && self.column.as_ref().is_none_or(|name| *name == row.column)
    }

    /// The selected rows with a value.
    fn measured<'a>(&self, result: &'a StudyResult) -> Vec<(&'a StudyRow, f64)> {
        let tables = result.tables.iter().filter(|table| table.number == self.table);
        let rows = tables.flat_map(|table| &table.rows).filter(|row| self.selects(row));
        rows.filter_map(|row| Some((row, row.measured?))).collect()
    }

    /// The value beside a row: that of the same row, unless a row is named.
    fn beside(&self, row: &StudyRow, result: &StudyResult) -> Option<f64> {
        let mut all = self.measured(result).into_iter();
        all.find(|(other, _)| self.row.is_some() || other.row == row.row).map(|(_, value)| value)
    }
}

impl ItemFile {
    pub(super) fn parse(text: &str) -> Result<ItemFile, StudyError> {
        toml::from_str(text).map_err(|error| StudyError::Items(error.to_string()))
    }
}

impl StatementSpec {
    fn judge(&self, result: &StudyResult) -> Option<StudyStatement> {
        let rows = self.figure.measured(result);
        let values: Vec<f64> = rows
            .iter()
            .filter_map(|(row, value)| match (&self.over, &self.minus) {
                (Some(over), _) => {
                    over.beside(row, result).filter(|other| *other != 0.0).map(|other| value / other)
                }
                (None, Some(minus)) => Some(value - minus.beside(row, result)?),
                (None, None) => Some(*value),
            })
            .collect();
        // How far a value is inside its bounds; the smallest is the least favourable one.
        let margin = |value: f64| {
            let above = self.least.map_or(f64::INFINITY, |least| value - least);
            above.min(self.most.map_or(f64::INFINITY, |most| most - value))
        };
        let value = values.into_iter().min_by(|one, other| margin(*one).total_cmp(&margin(*other)))?;
        Some(StudyStatement {
            of: self.of.clone(),
            says: self.says.clone(),
            value,
            unit: if self.over.is_some() { "times".to_owned() } else { rows.first()?.0.unit.clone() },
            least: self.least,
            most: self.most,
            holds: margin(value) >= 0.0,
            fitted: rows.iter().all(|(row, _)| row.fitted),
        })
    }
}

/// Words of the studies for a figure that does not exist.
fn is_absent(published: &str) -> bool {
    ["–", "N/A"].contains(&published) || published.starts_with("Not ")
}

impl Study {
    /// The items of the study, in its order.
    pub fn items(&self) -> &[Item] {
        &self.items.items
    }

    /// Number of sentences about figures.
    pub fn statement_count(&self) -> usize {
        self.items.statements.len()
    }

    /// The counterparts of an item.
    pub fn counterparts(&self, item: &Item) -> Counterparts {
        let is_of_item = |row: &&PublishedFigure| {
            item.figures.iter().any(|selector| selector.selects(row)) && !is_absent(&row.published)
        };
        let cell_of = |row: &PublishedFigure| {
            let (_, place) = row.case.split_once(':')?;
            self.find_cell(place.split('/').next()?)
        };
        let rows: Vec<&PublishedFigure> = self.rows.iter().filter(is_of_item).collect();
        let cells: BTreeSet<&str> =
            rows.iter().filter_map(|row| cell_of(row)).map(|cell| cell.name.as_str()).collect();
        Counterparts {
            figures: rows.len(),
            twin: rows.iter().filter(|row| self.twins().iter().any(|twin| twin.owns(row))).count(),
            lab: rows.iter().filter(|row| cell_of(row).is_some_and(|cell| cell.lab.is_some())).count(),
            hardware: cells.into_iter().map(str::to_owned).collect(),
            on_page: self.facts.shows(&item.of),
        }
    }

    /// Judges the sentences about figures that have values.
    pub fn judge_statements(&self, result: &mut StudyResult) {
        let judged = self.items.statements.iter().filter_map(|statement| statement.judge(result));
        result.statements = judged.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CaseOutcome, STUDIES, StudyLength};
    use super::*;

    #[test]
    fn every_item_has_a_counterpart_or_a_reason_and_every_published_figure_an_item() {
        for files in STUDIES {
            let study = Study::by_name(files.name).unwrap();
            for item in study.items() {
                let name = format!("{}: {}", study.name, item.of);
                let found = study.counterparts(item);
                assert_eq!(item.none.is_none(), found.figures > 0, "{name}");
                assert_eq!((found.twin, found.lab), (found.figures, found.figures), "{name}");
                for selector in &item.figures {
                    assert!(study.rows.iter().any(|row| selector.selects(row)), "{name}: {selector:?}");
                }
            }
            for row in study.rows.iter().filter(|row| !is_absent(&row.published)) {
                let has_item = study
                    .items()
                    .iter()
                    .any(|item| item.figures.iter().any(|selector| selector.selects(row)));
                assert!(has_item, "{}: table {}, {}, {}", study.name, row.table, row.row, row.column);
            }
            for fact in &study.facts.facts {
                assert!(study.items().iter().any(|item| item.of == fact.of), "{}: {}", study.name, fact.of);
            }
        }
    }

    #[test]
    fn every_statement_belongs_to_an_item_and_finds_its_figures() {
        for files in STUDIES {
            let study = Study::by_name(files.name).unwrap();
            let mut result =
                study.join_results(StudyLength::Full, &|_| CaseOutcome::NotMeasured(String::new())).unwrap();
            assert!(result.statements.is_empty(), "nothing is measured");
            let rows = result.tables.iter_mut().flat_map(|table| &mut table.rows);
            rows.for_each(|row| row.measured = Some(1.0));
            study.judge_statements(&mut result);
            assert_eq!(result.statements.len(), study.statement_count(), "{}", study.name);
            for statement in &result.statements {
                assert!(study.items().iter().any(|item| item.of == statement.of), "{statement:?}");
                assert!(statement.least.is_some() || statement.most.is_some(), "{statement:?}");
            }
        }
    }

    #[test]
    fn the_least_favourable_figure_decides() {
        let study = Study::by_name("wireless").unwrap();
        let mut result =
            study.join_results(StudyLength::Full, &|_| CaseOutcome::NotMeasured(String::new())).unwrap();
        for (row, value) in result.tables[0].rows.iter_mut().zip([2.0, 3.0, 17.0]) {
            row.measured = Some(value);
        }
        let judged = |result: &mut StudyResult| {
            study.judge_statements(result);
            let of_frame = result.statements.iter().find(|statement| statement.says.contains("16"));
            of_frame.map(|statement| (statement.value, statement.holds)).unwrap()
        };
        assert_eq!(judged(&mut result), (17.0, false));
        result.tables[0].rows[2].measured = Some(4.0);
        assert_eq!(judged(&mut result), (4.0, true));
    }
}
