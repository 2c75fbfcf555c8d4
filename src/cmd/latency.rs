//! `linkgauge latency`.

use anyhow::Result;
use clap::Args;
use linkgauge::plan::CaseSpec;
use linkgauge::units::{Count, MessageRate, Span};

use super::Status;
use super::measure::{CaseFlags, run_spec};

/// Measure round-trip times, one message at a time or on a schedule
///
/// Without --rate the next message leaves when the answer to the last one is here. With --rate messages leave on a
/// schedule, whatever became of those before; then the response time (from when a message was due) stands beside the
/// service time (from when it was sent), and no stall is hidden.
#[derive(Args)]
pub struct Flags {
    /// Exchanges to measure [default: 10000, unless --time is given]
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<Count>,
    /// Send on a schedule, like 100/s
    #[arg(long, value_name = "RATE")]
    rate: Option<MessageRate>,
    /// With --rate: exponential gaps instead of equal ones
    #[arg(long, requires = "rate")]
    poisson: bool,
    /// Seed of the Poisson schedule
    #[arg(long, value_name = "N", requires = "poisson")]
    seed: Option<u64>,
    /// Count the share of exchanges later than these [default: 50ms,100ms,200ms,300ms]
    #[arg(long, value_name = "TIMES", value_delimiter = ',')]
    late: Vec<Span>,
    // Last: the headings of its groups would take in what follows.
    #[command(flatten)]
    case: CaseFlags,
}

pub fn run(flags: Flags) -> Result<Status> {
    let spec = CaseSpec {
        count: flags.count,
        rate: flags.rate,
        poisson: Some(flags.poisson),
        seed: flags.seed,
        late: (!flags.late.is_empty()).then_some(flags.late),
        ..flags.case.spec("latency")
    };
    run_spec(spec, &flags.case.plan)
}
