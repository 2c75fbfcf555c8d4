//! Outcome of a test of a mesh.

use serde::{Deserialize, Serialize};

use linkgauge_model::clock::Time;
use linkgauge_model::run::CaseResult;

/// Quantity that a test measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestKind {
    /// Round-trip times.
    Latency,
    /// Payload per second.
    Throughput,
}

/// Outcome of a test.
#[derive(Debug, Clone, PartialEq)]
pub enum PairOutcome {
    /// Result of an agent that measured it now; the result may be incomplete.
    Measured(Box<CaseResult>),
    /// Result of an earlier run.
    Earlier(Box<CaseResult>),
    /// Reason why the test has no result.
    Failed(String),
}

/// A test of a pair.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TestRecord {
    /// Outcome of the test; `None`: it is not over.
    pub outcome: Option<PairOutcome>,
    /// Times of its order and of the answer, or of giving up. `None`: no agent was ordered to make the test.
    pub interval: Option<(Time, Time)>,
}

impl TestRecord {
    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.outcome.is_some()
    }

    /// The result, if it measured anything.
    pub fn case(&self) -> Option<&CaseResult> {
        match self.outcome.as_ref()? {
            PairOutcome::Measured(case) | PairOutcome::Earlier(case) => {
                Some(case.as_ref()).filter(|case| case.figures.has_measurements())
            }
            PairOutcome::Failed(_) => None,
        }
    }

    /// Reason why it has no complete result.
    pub fn failure(&self) -> Option<&str> {
        match self.outcome.as_ref()? {
            PairOutcome::Measured(case) if !case.complete => {
                Some(case.failures.first().map_or("it ended early", |failure| failure.message.as_str()))
            }
            PairOutcome::Measured(_) | PairOutcome::Earlier(_) => None,
            PairOutcome::Failed(why) => Some(why),
        }
    }
}
