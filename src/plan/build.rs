//! Plans made in code.

use super::{Case, CaseSpecError, Plan, PlanError};

impl Plan {
    /// A plan that measures each case once and stops at the first failure.
    ///
    /// # Errors
    ///
    /// Fails without cases.
    pub fn new(cases: Vec<Case>) -> Result<Plan, PlanError> {
        if cases.is_empty() {
            return Err(PlanError::Empty);
        }
        Ok(Plan { title: None, repeat: 1, keep_going: false, cases })
    }

    /// The same plan, measured this many times.
    ///
    /// # Errors
    ///
    /// Fails with zero.
    pub fn repeated(self, repeat: u32) -> Result<Plan, PlanError> {
        if repeat == 0 {
            let error = CaseSpecError::new("repeat", "repeat must be at least 1");
            return Err(PlanError::Case { case: 1, error });
        }
        Ok(Plan { repeat, ..self })
    }

    /// The same plan with a title for the run. A blank title is none.
    pub fn titled(self, title: Option<String>) -> Plan {
        Plan { title: title.filter(|title| !title.trim().is_empty()), ..self }
    }
}
