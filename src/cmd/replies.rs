//! `latency --each`: a line for each request while the measurement runs.
//!
//! A thread of its own prints. Where it is slower than the link, it leaves lines out, and says how many.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use linkgauge::report::printable;
use linkgauge::sample::{ReplyEvent, ReplyEventKind, ReplyLog, ReplyLogs};
use linkgauge::schedule::RunContext;
use linkgauge::units::{format_nanoseconds, format_plural};

use super::output::is_reader_gone;

/// Pause before the printer looks for further events.
const PAUSE: Duration = Duration::from_millis(2);

/// How long a reply waits for the stamps of the kernel.
const MAX_STAMP_WAIT: Duration = Duration::from_millis(50);

/// Prints the fate of each request of a run.
pub struct ReplyPrinter {
    thread: JoinHandle<io::Result<()>>,
    should_end: Arc<AtomicBool>,
}

impl ReplyPrinter {
    /// Begins to print what the run of this context does. It ends when the reader of standard output is gone.
    pub fn start(context: &mut RunContext) -> Result<ReplyPrinter> {
        let (logs, should_end) = (Arc::<ReplyLogs>::default(), Arc::<AtomicBool>::default());
        let (source, ends, cancel) = (logs.clone(), should_end.clone(), context.dialer.cancel.clone());
        let print = move || {
            let printed = print_all(&source, &ends, &mut io::stdout());
            if printed.is_err() {
                cancel.store(true, Relaxed);
            }
            printed
        };
        let thread = Builder::new().name("replies".to_owned()).spawn(print)?;
        context.replies = Some(logs);
        Ok(ReplyPrinter { thread, should_end })
    }

    /// Prints the rest.
    pub fn finish(self) -> Result<()> {
        self.should_end.store(true, Relaxed);
        match self.thread.join().map_err(|_| io::Error::other("the printing thread failed")).flatten() {
            Err(error) if !is_reader_gone(&error) => {
                Err(error).context("--each: standard output could not be written")
            }
            _ => Ok(()),
        }
    }
}

/// Prints the events of all logs until the run has ended.
fn print_all(logs: &ReplyLogs, ends: &AtomicBool, out: &mut dyn Write) -> io::Result<()> {
    let (mut flows, mut numbers): (Vec<FlowLines>, _) = (Vec::new(), HashMap::new());
    loop {
        // Read first, so that nothing that was stored before the end is missed.
        let is_last = ends.load(Relaxed);
        flows.extend(logs.take_new().into_iter().map(|log| FlowLines::new(log, &mut numbers)));
        let mut text = String::new();
        for flow in &mut flows {
            flow.add_lines(&mut text, is_last);
            numbers.insert(flow.key(), flow.last);
        }
        flows.retain(|flow| !flow.has_ended());
        // Everything so far is one write, and no line waits for the next one.
        out.write_all(text.as_bytes())?;
        out.flush()?;
        if is_last {
            return Ok(());
        }
        if text.is_empty() {
            std::thread::sleep(PAUSE);
        }
    }
}

/// A case and the connection to an endpoint.
type FlowKey = (usize, String, Option<usize>);

/// The lines of one flow.
struct FlowLines {
    log: Arc<ReplyLog>,
    /// Numbers of an earlier repetition on this connection; the next ones follow.
    earlier: u64,
    /// The highest number so far.
    last: u64,
    /// Lines of replies whose stamps are awaited.
    unstamped: Vec<(Instant, u64, String)>,
}

impl FlowLines {
    fn new(log: Arc<ReplyLog>, numbers: &mut HashMap<FlowKey, u64>) -> FlowLines {
        let mut flow = FlowLines { log, earlier: 0, last: 0, unstamped: Vec::new() };
        flow.earlier = numbers.get(&flow.key()).copied().unwrap_or(0);
        flow.last = flow.earlier;
        flow
    }

    fn key(&self) -> FlowKey {
        let source = self.log.source();
        (source.case, source.endpoint.clone(), source.connection)
    }

    /// Whether the flow is over and all its lines are printed.
    fn has_ended(&self) -> bool {
        Arc::strong_count(&self.log) == 1 && self.unstamped.is_empty()
    }

    /// Adds the lines of all events so far; of `all` replies, also those without their stamps.
    fn add_lines(&mut self, text: &mut String, all: bool) {
        let log = self.log.clone();
        while let Some(event) = log.take() {
            let event = ReplyEvent { number: event.number + self.earlier, ..event };
            self.last = self.last.max(event.number);
            self.add_event(text, &event);
        }
        let now = Instant::now();
        let waits =
            |(since, _, _): &(Instant, u64, String)| !all && now.duration_since(*since) < MAX_STAMP_WAIT;
        let ready = self.unstamped.iter().position(waits).unwrap_or(self.unstamped.len());
        self.unstamped.drain(..ready).for_each(|(_, _, line)| *text += &(line + "\n"));
        match log.take_left_out() {
            0 => {}
            count => {
                *text += &format!(
                    "{} without a line: printing is slower than the link\n",
                    format_plural(count, "request")
                );
            }
        }
    }

    fn add_event(&mut self, text: &mut String, event: &ReplyEvent) {
        if event.kind == ReplyEventKind::Stamped {
            let place = self.unstamped.iter().position(|(_, number, _)| *number == event.number);
            if let Some((_, _, line)) = place.map(|place| self.unstamped.remove(place)) {
                let between = format_nanoseconds(event.time_ns as f64);
                *text += &format!("{line}, kernel {between}\n");
            }
            return;
        }
        let line = self.line_of(event);
        let is_stamped = matches!(event.kind, ReplyEventKind::Reply | ReplyEventKind::CorruptReply);
        match is_stamped && self.log.source().has_stamps {
            true => self.unstamped.push((Instant::now(), event.number, line)),
            false => *text += &(line + "\n"),
        }
    }

    fn line_of(&self, event: &ReplyEvent) -> String {
        let source = self.log.source();
        let (number, time) = (event.number, format_nanoseconds(event.time_ns as f64));
        let on = source.connection.map_or(String::new(), |number| format!(" on connection {number}"));
        let from = printable(&source.endpoint);
        let bytes = format_plural(source.message_bytes.into(), "byte");
        match event.kind {
            ReplyEventKind::Reply | ReplyEventKind::Stamped => {
                format!("reply {number} from {from}{on}: {bytes}, {time}")
            }
            ReplyEventKind::CorruptReply => {
                format!("reply {number} from {from}{on}: {bytes}, {time}, with wrong content")
            }
            ReplyEventKind::Late => {
                format!("reply {number} from {from}{on}: {bytes}, {time}, late: it counts as lost")
            }
            // A bit error in a number makes it that of another request, which has its reply.
            ReplyEventKind::Duplicate => {
                format!(
                    "reply {number} from {from}{on}: {bytes}, {time}, again: a duplicate, or its number was changed"
                )
            }
            ReplyEventKind::CorruptDuplicate => {
                format!("reply {number} from {from}{on}: {bytes}, {time}, again, with wrong content")
            }
            ReplyEventKind::Unknown => format!("reply from {from}{on}: with an unknown number"),
            // The timeout, as people chose it.
            ReplyEventKind::Lost => {
                format!("request {number}{on}: no reply within {}", time.replacen(".000 ", " ", 1))
            }
            ReplyEventKind::Closed => {
                format!("request {number}{on}: no reply before the connection was closed")
            }
        }
    }
}
