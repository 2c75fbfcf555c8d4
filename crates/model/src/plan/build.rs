//! Plans made in code.

use super::expand::may_run_together;
use super::{Case, CaseSpecError, Plan, PlanError};

/// Maximum number of repetitions; more are a typing error.
const MAX_REPEAT: u32 = 100_000;

impl Plan {
    /// A plan that measures each case once and stops at the first failure.
    ///
    /// # Errors
    ///
    /// Fails without cases, and with too many.
    pub fn new(cases: Vec<Case>) -> Result<Plan, PlanError> {
        if cases.is_empty() {
            return Err(PlanError::Empty);
        }
        if !may_run_together(&cases) {
            return Err(PlanError::TooMany);
        }
        Ok(Plan { title: None, repeat: 1, keep_going: false, cases })
    }

    /// Returns the plan with this number of repetitions.
    ///
    /// # Errors
    ///
    /// Fails with zero, and with too many.
    pub fn repeated(self, repeat: u32) -> Result<Plan, PlanError> {
        if !(1..=MAX_REPEAT).contains(&repeat) {
            let error = CaseSpecError::new("repeat", format!("repeat = {repeat}: use 1 to {MAX_REPEAT}"));
            return Err(PlanError::Case { case: 1, error });
        }
        Ok(Plan { repeat, ..self })
    }

    /// Returns the plan with a title for the run. A blank title is none.
    pub fn titled(self, title: Option<String>) -> Plan {
        Plan { title: title.filter(|title| !title.trim().is_empty()), ..self }
    }
}
