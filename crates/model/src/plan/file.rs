//! Plan files: a plan in TOML.

use serde::Deserialize;

use super::expand::may_run_together;
use super::{CaseSpec, Plan, PlanError, toml_text};

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
            cases.extend(spec.expand().map_err(|error| PlanError::Case { case: index + 1, error })?);
            if !may_run_together(&cases) {
                return Err(PlanError::TooMany);
            }
        }
        let plan = Plan::new(cases)?.titled(file.title).repeated(file.repeat.unwrap_or(1))?;
        Ok(Plan { keep_going: file.keep_going.unwrap_or(false), ..plan })
    }
}
