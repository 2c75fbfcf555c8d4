//! How a test of a mesh ended.

use serde::{Deserialize, Serialize};

use linkgauge_model::clock::Time;
use linkgauge_model::run::CaseResult;

/// What a test measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestKind {
    /// Round-trip times.
    Latency,
    /// Payload per second.
    Throughput,
}

/// How a test ended.
#[derive(Debug, Clone, PartialEq)]
pub enum PairOutcome {
    /// An agent measured it now; the result may be incomplete.
    Measured(Box<CaseResult>),
    /// An earlier run has measured it.
    Earlier(Box<CaseResult>),
    /// Has no result.
    Failed(String),
}

/// A test of a pair.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TestRecord {
    /// `None`: it is not over.
    pub outcome: Option<PairOutcome>,
    /// When its order was sent, and when it was answered or given up. `None`: no agent was ordered to make it.
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

    /// Why it has no complete result.
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
