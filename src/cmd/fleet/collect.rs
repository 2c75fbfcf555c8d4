//! `linkgauge fleet collect`: saves results until Ctrl-C or SIGTERM, and serves metrics of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;
use linkgauge::fleet::{
    Backoff, Collected, CollectedTest, CollectorMetrics, Connections, HubError, Receipt, TestOutcome,
    confirm, give_back, next_results,
};
use linkgauge::monitor::{METRICS_PATH, Site, SiteServer};
use linkgauge::report::printable;
use linkgauge::units::format_plural;

use super::CollectFlags;
use super::commands::Operator;
use super::destination::Destination;
use crate::cmd::measure::read_token;
use crate::cmd::output::print_message;
use crate::cmd::signals::interrupt_flag;
use crate::cmd::status::Status;

/// Wait for a result before the next look at the interrupt flag, and time between two updates of the metrics.
const WAIT: Duration = Duration::from_secs(1);

/// Longest pause after a database has failed.
const MAX_PAUSE: Duration = Duration::from_secs(30);

pub fn collect(flags: &CollectFlags) -> Result<Status> {
    let cancel = interrupt_flag()?;
    let destination = Destination::open(flags)?;
    let exporter = flags.metrics.map(|address| Exporter::start(address, flags)).transpose()?;
    let operator = Operator::connect(&flags.hub)?;
    let metrics = CollectorMetrics::new(&operator.fleet.list);
    let mut collector =
        Collector { operator, destination, metrics, exporter, cancel, is_saving: true, saved: 0, failed: 0 };
    collector.show();
    let (mut shown, mut printed) = (Instant::now(), String::new());
    while !collector.cancel.load(Relaxed) {
        if shown.elapsed() >= WAIT {
            shown = Instant::now();
            collector.show();
        }
        match collector.receive() {
            Ok(results) if results.is_empty() && flags.once => break,
            Ok(results) => collector.take(&results, flags)?,
            Err(error) if flags.once => return Err(error.into()),
            Err(error) => {
                // A hub that is away returns; each reason is printed once.
                if printed != error.to_string() {
                    printed = error.to_string();
                    print_message(format_args!("{printed}. Trying again"));
                }
                std::thread::sleep(WAIT);
            }
        }
    }
    let failed = collector.failed;
    let failures = if failed > 0 {
        format!(", {} without a result", format_plural(failed, "test"))
    } else {
        String::new()
    };
    print_message(format_args!("{} saved{failures}", format_plural(collector.saved, "result")));
    // A service that collects for ever ends as it should.
    Ok(if flags.once && failed > 0 { Status::Incomplete } else { Status::Complete })
}

struct Collector {
    operator: Operator,
    destination: Destination,
    metrics: CollectorMetrics,
    exporter: Option<Exporter>,
    cancel: Arc<AtomicBool>,
    /// False from the first failure of a database until it saves again.
    is_saving: bool,
    /// Results that were not saved before.
    saved: u64,
    /// Tests that failed, so that there is nothing to save.
    failed: u64,
}

impl Collector {
    fn receive(&self) -> Result<Vec<Collected>, HubError> {
        next_results(&self.operator.hub, &self.operator.fleet.list, self.destination.batch(), WAIT)
    }

    /// Saves results and confirms them.
    fn take(&mut self, results: &[Collected], flags: &CollectFlags) -> Result<()> {
        let tests: Vec<&CollectedTest> =
            results.iter().filter_map(|result| result.test.as_ref().ok()).collect();
        let saved = self.save(&tests, flags);
        if !matches!(saved, Ok(Some(_))) {
            let _ = give_back(&self.operator.hub, results);
        }
        let Some(receipts) = saved? else { return Ok(()) };
        for (test, receipt) in tests.iter().zip(receipts) {
            print_receipt(test, receipt);
            self.saved += u64::from(receipt == Receipt::Saved);
            self.failed += u64::from(receipt == Receipt::Failed);
            self.metrics.on_result(test, receipt, Timestamp::now());
        }
        for why in results.iter().filter_map(|result| result.test.as_ref().err()) {
            self.metrics.on_unreadable();
            print_message(format_args!("warning: a result was dropped: {}", printable(&why.to_string())));
        }
        // Without the confirmation they arrive again, and are saved already.
        let _ = confirm(&self.operator.hub, results);
        Ok(())
    }

    /// Saves results, as soon as a database takes them. `None`: interrupted before.
    fn save(&mut self, tests: &[&CollectedTest], flags: &CollectFlags) -> Result<Option<Vec<Receipt>>> {
        let mut backoff = Backoff::default();
        loop {
            match self.destination.save(tests, flags.save.tags()) {
                Ok(receipts) => {
                    if !self.is_saving {
                        self.is_saving = true;
                        print_message("the database saves results again");
                    }
                    return Ok(Some(receipts));
                }
                Err(_) if self.cancel.load(Relaxed) => return Ok(None),
                Err(error) if flags.once || !self.destination.is_remote() => return Err(error),
                Err(error) => {
                    if self.is_saving {
                        self.is_saving = false;
                        print_message(format_args!("{}. Trying again", printable(&error.to_string())));
                    }
                    self.pause(backoff.on_failure(fastrand::f64()).min(MAX_PAUSE));
                }
            }
        }
    }

    /// Waits, but not for longer than the interrupt flag allows.
    fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        self.show();
        while Instant::now() < until && !self.cancel.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Brings the metrics up to date.
    fn show(&self) {
        if let Some(exporter) = &self.exporter {
            let hub = self.operator.hub.is_connected();
            let database = self.destination.is_remote().then_some(self.is_saving);
            exporter.site.set_metrics(self.metrics.snapshot(Connections { hub, database }));
        }
    }
}

/// Prints what a user should know of a result that was not saved.
fn print_receipt(test: &CollectedTest, receipt: Receipt) {
    match (&test.outcome, receipt) {
        (TestOutcome::Failed(why), _) => {
            print_message(format_args!("{}: {}", printable(&test.pair), printable(why)));
        }
        (TestOutcome::Measured(run), Receipt::Conflicting) => print_message(format_args!(
            "warning: another run {} was saved before: a result was dropped",
            printable(&run.id)
        )),
        _ => {}
    }
}

/// Serves the metrics while it exists.
struct Exporter {
    site: Arc<Site>,
    _server: SiteServer,
}

impl Exporter {
    fn start(address: SocketAddr, flags: &CollectFlags) -> Result<Exporter> {
        let token =
            flags.page_token_file.as_deref().map(|file| read_token(Some(file))).transpose()?.flatten();
        let site = Arc::new(Site::of_metrics());
        let server = SiteServer::start(address, token, site.clone());
        let server = server.with_context(|| format!("{address}: the metrics cannot be served"))?;
        print_message(format_args!("metrics: http://{}{METRICS_PATH}", server.address()));
        Ok(Exporter { site, _server: server })
    }
}
