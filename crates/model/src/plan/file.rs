//! Plan files: a plan in TOML.

use serde::Deserialize;

use super::expand::may_run_together;
use super::{CaseSpec, CaseSpecError, Plan, PlanError, toml_text};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PlanFile {
    title: Option<String>,
    repeat: Option<u32>,
    keep_going: Option<bool>,
    defaults: CaseSpec,
    case: Vec<CaseSpec>,
}

impl Plan {
    /// Reads a plan file.
    ///
    /// # Errors
    ///
    /// Fails if the text is no valid TOML, names an unknown field, or has no valid case.
    pub fn from_toml(text: &str) -> Result<Plan, PlanError> {
        let file: PlanFile =
            toml::from_str(text).map_err(|error| PlanError::Toml(toml_text::describe(&error, text)))?;
        let mut cases = Vec::new();
        for (index, spec) in file.case.iter().enumerate() {
            let spec = spec.with_defaults(&file.defaults);
            let wrong = |error: CaseSpecError| {
                let line = toml_text::line_of_entry(text, "case", index + 1, Some(error.field));
                PlanError::Case { case: index + 1, error }.at(line)
            };
            cases.extend(spec.expand().map_err(wrong)?);
            if !may_run_together(&cases) {
                return Err(PlanError::TooMany);
            }
        }
        let plan = Plan::new(cases)?.titled(file.title).repeated(file.repeat.unwrap_or(1));
        let plan = plan.map_err(|error| error.at(toml_text::line_of(text, &["repeat"])))?;
        Ok(Plan { keep_going: file.keep_going.unwrap_or(false), ..plan })
    }

    /// The line of the entry of a plan file that a case is made from. `case` is its number in the plan, from 1.
    pub fn line_of_case(text: &str, case: usize) -> Option<usize> {
        let file: PlanFile = toml::from_str(text).ok()?;
        let mut cases = 0;
        let entry = file.case.iter().position(|spec| {
            cases += spec.with_defaults(&file.defaults).expand().map_or(0, |cases| cases.len());
            cases >= case
        });
        toml_text::line_of_entry(text, "case", entry? + 1, None)
    }
}
