//! `linkgauge fleet collect`: saves results until Ctrl-C or SIGTERM, and serves metrics of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use linkgauge::fleet::{
    Collected, CollectedTest, CollectorMetrics, Receipt, TestOutcome, confirm, next_result,
};
use linkgauge::monitor::{HttpServer, METRICS_PATH, Site};
use linkgauge::report::printable;
use linkgauge::store::{SaveOutcome, Store, StoreError};
use linkgauge::units::format_plural;

use super::CollectFlags;
use super::commands::{Operator, TAG};
use crate::cmd::Status;
use crate::cmd::measure::read_token;
use crate::cmd::output::print_message;
use crate::cmd::signals::interrupt_flag;

/// Wait for a result before the next look at the interrupt flag, and time between two updates of the metrics.
const WAIT: Duration = Duration::from_secs(1);

pub fn collect(flags: &CollectFlags) -> Result<Status> {
    let Some(store) = flags.save.open()? else {
        bail!("results are confirmed when they are saved, and there is no store. Use --store FILE");
    };
    let cancel = interrupt_flag()?;
    let exporter = flags.metrics.map(|address| Exporter::start(address, flags)).transpose()?;
    let operator = Operator::connect(&flags.hub)?;
    let metrics = CollectorMetrics::new(&operator.fleet.list);
    let mut collector = Collector { operator, store, metrics, exporter, saved: 0 };
    collector.show();
    let (mut shown, mut printed) = (Instant::now(), String::new());
    while !cancel.load(Relaxed) {
        if shown.elapsed() >= WAIT {
            shown = Instant::now();
            collector.show();
        }
        match next_result(&collector.operator.hub, &collector.operator.fleet.list, WAIT) {
            Ok(Some(collected)) => collector.take(&collected, flags)?,
            Ok(None) if flags.once => break,
            Ok(None) => {}
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
    print_message(format_args!("{} saved", format_plural(collector.saved, "result")));
    Ok(Status::Complete)
}

struct Collector {
    operator: Operator,
    store: Store,
    metrics: CollectorMetrics,
    exporter: Option<Exporter>,
    /// Results that were not in the store before.
    saved: u64,
}

impl Collector {
    /// Saves a result and confirms it.
    fn take(&mut self, collected: &Collected, flags: &CollectFlags) -> Result<()> {
        match &collected.test {
            Ok(test) => {
                let receipt = self.save(test, flags)?;
                self.saved += u64::from(receipt == Receipt::Saved);
                self.metrics.on_result(test, receipt, Timestamp::now());
            }
            Err(why) => {
                self.metrics.on_unreadable();
                print_message(format_args!("warning: a result was dropped: {}", printable(&why.to_string())));
            }
        }
        // Without the confirmation it arrives again, and is in the store already.
        let _ = confirm(&self.operator.hub, collected);
        Ok(())
    }

    fn save(&mut self, test: &CollectedTest, flags: &CollectFlags) -> Result<Receipt> {
        let run = match &test.outcome {
            TestOutcome::Measured(run) => run,
            TestOutcome::Failed(why) => {
                print_message(format_args!("{}: {}", printable(&test.pair), printable(why)));
                return Ok(Receipt::Failed);
            }
        };
        let outcome = match self.store.save(run) {
            Err(StoreError::ConflictingRun(id)) => {
                print_message(format_args!(
                    "warning: another run {} is in the store: a result was dropped",
                    printable(&id)
                ));
                return Ok(Receipt::Conflicting);
            }
            saved => saved?,
        };
        // Also of a duplicate: the collector that saved it may have ended before this.
        let mut tags = vec![TAG.to_owned(), format!("round-{}", test.round)];
        tags.extend(flags.save.tags().iter().cloned());
        self.store.tag(&run.id, &tags)?;
        Ok(match outcome {
            SaveOutcome::Saved => Receipt::Saved,
            SaveOutcome::AlreadySaved => Receipt::Duplicate,
        })
    }

    /// Brings the metrics up to date.
    fn show(&self) {
        if let Some(exporter) = &self.exporter {
            exporter.site.set_metrics(self.metrics.snapshot(self.operator.hub.is_connected()));
        }
    }
}

/// Serves the metrics while it exists.
struct Exporter {
    site: Arc<Site>,
    _server: HttpServer,
}

impl Exporter {
    fn start(address: SocketAddr, flags: &CollectFlags) -> Result<Exporter> {
        let token =
            flags.page_token_file.as_deref().map(|file| read_token(Some(file))).transpose()?.flatten();
        let site = Arc::new(Site::of_metrics());
        let server = HttpServer::start(address, token, site.clone());
        let server = server.with_context(|| format!("{address}: the metrics cannot be served"))?;
        print_message(format_args!("metrics: http://{}{METRICS_PATH}", server.address()));
        Ok(Exporter { site, _server: server })
    }
}
