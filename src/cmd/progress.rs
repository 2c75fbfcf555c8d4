//! Progress of a measurement: a bar with live values on a terminal, lines on request, and the events file.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, IsTerminal, LineWriter, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use linkgauge::report::{escape_json, measures_rate, printable, sparkline_glyphs};
use linkgauge::schedule::{LiveValues, Observer, RunEvent};
use linkgauge::units::{format_bit_rate, format_bytes, format_count, format_nanoseconds};

use super::output::{Messages, is_dash, is_reader_gone, print_error, print_message, supports_unicode};

/// Steps of the bar for one run of one case.
const STEPS_PER_CASE: u64 = 100;
/// Shorter measurements need no remaining time.
const MIN_ESTIMATE: Duration = Duration::from_secs(5);
/// Intervals in the small chart.
const CHART_INTERVALS: usize = 20;

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ProgressMode {
    /// A bar on a terminal, nothing elsewhere
    #[default]
    Auto,
    /// A line per interval
    Lines,
    /// Nothing
    Off,
}

/// The events file, one JSON object a line. A failed write or a closed reader does not stop the measurement.
struct EventWriter {
    out: Box<dyn Write + Send>,
    name: String,
    /// The first failed write. No event is written after it.
    error: Option<io::Error>,
}

impl EventWriter {
    fn create(path: &Path) -> Result<EventWriter> {
        let name = path.display().to_string();
        let to: Box<dyn Write + Send> = match is_dash(path) {
            true => Box::new(LineWriter::new(io::stdout())),
            false => {
                let file = File::create(path).with_context(|| format!("{name}: cannot be written"))?;
                Box::new(LineWriter::new(file))
            }
        };
        Ok(EventWriter { out: to, name, error: None })
    }

    fn write(&mut self, event: &RunEvent) {
        if self.error.is_some() {
            return;
        }
        let line = serde_json::to_string(event).map_err(io::Error::from);
        self.error = line.and_then(|line| writeln!(self.out, "{}", escape_json(&line))).err();
    }

    fn finish(&mut self) -> Result<()> {
        match self.error.take() {
            Some(error) if !is_reader_gone(&error) => Err(error)
                .with_context(|| format!("{}: events could not be written, some are missing", self.name)),
            _ => Ok(()),
        }
    }
}

/// The values of the current case.
#[derive(Default)]
struct LiveCase {
    /// `latency tcp://gw:7100 14 B`
    name: String,
    measures_rate: bool,
    /// Cases of the run, and those before this one with repetitions.
    cases: u64,
    done: u64,
    /// Duration of the run by its plan, and of the drains of earlier cases.
    estimate: Option<Duration>,
    /// Expected drain of this case.
    drain: Duration,
    is_draining: bool,
    /// The last bytes, and when they had arrived, since the first of them where that is known.
    arrived_ns: u64,
    bytes: u64,
    /// Rate of each interval, in bit/s.
    rates_bps: Vec<f64>,
}

impl LiveCase {
    /// Adds an interval, and describes the values.
    fn update(&mut self, values: &LiveValues) -> String {
        let &LiveValues { messages, bytes, lost, p50_ns, p99_ns, drain_left_ns, .. } = values;
        let time = |name: &str, time: Option<u64>| {
            time.map_or(String::new(), |time| format!(", {name} {}", format_nanoseconds(time as f64)))
        };
        let arrived_ns = values.receiving_ns.or(values.bytes_at_ns).unwrap_or(values.elapsed_ns);
        let interval_ns = arrived_ns.saturating_sub(self.arrived_ns);
        if interval_ns > 0 {
            self.rates_bps.push(bytes.saturating_sub(self.bytes) as f64 * 8e9 / interval_ns as f64);
            (self.arrived_ns, self.bytes) = (arrived_ns, bytes);
        }
        match self.rates_bps.last() {
            Some(rate) if self.measures_rate => {
                let round_trip = time("RTT", p50_ns);
                let drain = drain_left_ns.filter(|left_ns| *left_ns > 0).map_or(String::new(), |left_ns| {
                    format!(", the queue drains for about {} s", left_ns.div_ceil(1_000_000_000))
                });
                format!("{}, {}{round_trip}{drain}", format_bit_rate(*rate), format_bytes(bytes))
            }
            _ => {
                let times = time("p50", p50_ns) + &time("p99", p99_ns);
                format!("{} replies{times}, {} lost", format_count(messages), format_count(lost))
            }
        }
    }

    /// A drain that has ended took its time; one that was only expected does not count.
    fn expect_drain(&mut self, drain_ns: Option<u64>, has_begun: bool) {
        match drain_ns.map(Duration::from_nanos) {
            None if self.is_draining => {}
            drain => self.drain = drain.unwrap_or_default(),
        }
        self.is_draining |= has_begun;
    }

    /// The duration of the run, if that is known: ` of about 10 s`.
    fn total(&self) -> String {
        let total = self.estimate.map(|estimate| estimate + self.drain);
        let total = total.filter(|total| *total >= MIN_ESTIMATE);
        total.map_or(String::new(), |total| format!(" of about {:.0} s", total.as_secs_f64()))
    }

    fn chart(&self) -> String {
        if !self.measures_rate {
            return String::new();
        }
        let first = self.rates_bps.len().saturating_sub(CHART_INTERVALS);
        sparkline_glyphs(&self.rates_bps[first..])
    }
}

/// Shows progress on a terminal and writes events to a file, as far as requested.
pub struct ProgressDisplay {
    bar: ProgressBar,
    events: Option<Mutex<EventWriter>>,
    live: Mutex<LiveCase>,
    /// Errors that were printed. The repetitions of a case often fail alike.
    errors: Mutex<BTreeSet<String>>,
    prints_lines: bool,
}

impl ProgressDisplay {
    pub fn new(messages: Messages, mode: ProgressMode, events: Option<&Path>) -> Result<ProgressDisplay> {
        let is_wanted = messages == Messages::All;
        let shown = is_wanted && mode == ProgressMode::Auto && io::stderr().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style =
            ProgressStyle::with_template("{bar:16} {percent:>3} %  {elapsed:>4}{prefix}  {wide_msg}")?;
        bar.set_style(style.progress_chars(if supports_unicode() { "━╸─" } else { "=> " }));
        let events = events.map(EventWriter::create).transpose()?;
        Ok(ProgressDisplay {
            bar,
            events: events.map(Mutex::new),
            live: Mutex::default(),
            errors: Mutex::default(),
            prints_lines: is_wanted && mode == ProgressMode::Lines,
        })
    }

    /// Ends the display. Fails if events could not be written.
    pub fn finish(&self) -> Result<()> {
        self.bar.finish_and_clear();
        let events = self.events.as_ref().and_then(|events| events.lock().ok());
        events.map_or(Ok(()), |mut events| events.finish())
    }

    fn show_progress(&self, live: &mut LiveCase, values: &LiveValues) {
        if let Some(share) = values.share {
            self.bar.set_position(STEPS_PER_CASE * live.done + (share * STEPS_PER_CASE as f64) as u64);
        }
        live.expect_drain(values.drain_ns, values.drain_left_ns.is_some());
        self.bar.set_prefix(live.total());
        self.show_values(live, values);
    }

    fn show_values(&self, live: &mut LiveCase, values: &LiveValues) {
        let elapsed = format_nanoseconds(values.elapsed_ns as f64);
        let values = live.update(values);
        if self.prints_lines {
            print_message(format_args!("{elapsed:>9}  {values}"));
        }
        let chart = if supports_unicode() { live.chart() } else { String::new() };
        // A narrow terminal cuts the end of the line.
        let chart = if chart.is_empty() { chart } else { format!("  {chart}") };
        self.bar.set_message(format!("{values}{chart}  {}", live.name));
    }
}

impl Observer for ProgressDisplay {
    fn event(&self, event: &RunEvent) {
        if let Some(Ok(mut events)) = self.events.as_ref().map(Mutex::lock) {
            events.write(event);
        }
        let Ok(mut live) = self.live.lock() else { return };
        match event {
            RunEvent::Begins { cases, repeat, estimate_ns } => {
                live.cases = *cases as u64;
                self.bar.set_length(STEPS_PER_CASE * live.cases * u64::from(*repeat));
                live.estimate = estimate_ns.map(Duration::from_nanos);
                self.bar.set_prefix(live.total());
            }
            RunEvent::CaseBegins { case, repetition, endpoint, workload, message_bytes, .. } => {
                let done = u64::from(*repetition) * live.cases + *case as u64;
                let size = format_bytes((*message_bytes).into());
                let name = printable(&format!("{workload} {endpoint} {size}"));
                // Repetitions of a case share a chart, and the last values stand until there are new ones.
                let is_repetition = live.name == name;
                let rates_bps = if is_repetition { std::mem::take(&mut live.rates_bps) } else { Vec::new() };
                *live = LiveCase {
                    rates_bps,
                    name,
                    measures_rate: measures_rate(workload),
                    cases: live.cases,
                    done,
                    estimate: live.estimate.map(|estimate| estimate + live.drain),
                    ..LiveCase::default()
                };
                if self.prints_lines {
                    print_message(&live.name);
                }
                self.bar.set_position(STEPS_PER_CASE * done);
                if !is_repetition {
                    self.bar.set_message(live.name.clone());
                }
                self.bar.enable_steady_tick(Duration::from_millis(200));
            }
            RunEvent::Progress { values, .. } => self.show_progress(&mut live, values),
            RunEvent::Failed { reason, .. } => {
                let is_new =
                    self.errors.lock().map_or(true, |mut errors| errors.insert((*reason).to_owned()));
                if is_new {
                    self.bar.suspend(|| print_error(reason));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announced_time_includes_the_drain() {
        let estimate = Some(Duration::from_secs(6));
        let mut live = LiveCase { estimate, ..LiveCase::default() };
        assert_eq!(live.total(), " of about 6 s");
        live.expect_drain(Some(4_000_000_000), false);
        assert_eq!(live.total(), " of about 10 s");
        live.expect_drain(None, false);
        assert_eq!(live.total(), " of about 6 s", "the expectation was wrong");
        live.expect_drain(Some(5_000_000_000), true);
        live.expect_drain(None, false);
        assert_eq!(live.total(), " of about 11 s", "it has drained");
    }

    #[test]
    fn live_values_are_those_of_the_interval() {
        let mut live = LiveCase { measures_rate: true, ..LiveCase::default() };
        let first =
            LiveValues { elapsed_ns: 1_000_000_000, messages: 10, bytes: 1_000_000, ..LiveValues::default() };
        assert_eq!(live.update(&first), "8.000 Mbit/s, 1.000 MB");
        let probed =
            LiveValues { elapsed_ns: 2_000_000_000, bytes: 3_000_000, p50_ns: Some(160_000_000), ..first };
        assert_eq!(live.update(&probed), "16.00 Mbit/s, 3.000 MB, RTT 160.0 ms");
        assert_eq!(live.chart(), "▄█");
        // The server's last report stands until the next one; its time is that of the bytes.
        assert_eq!(
            live.update(&LiveValues {
                elapsed_ns: 3_000_000_000,
                bytes_at_ns: Some(2_000_000_000),
                ..probed
            }),
            "16.00 Mbit/s, 3.000 MB, RTT 160.0 ms"
        );
        let draining = LiveValues {
            elapsed_ns: 4_000_000_000,
            bytes: 4_000_000,
            bytes_at_ns: Some(3_000_000_000),
            drain_left_ns: Some(1_500_000_000),
            ..LiveValues::default()
        };
        assert_eq!(live.update(&draining), "8.000 Mbit/s, 4.000 MB, the queue drains for about 2 s");
        // The first second had no byte for 0.45 s.
        let mut live = LiveCase { measures_rate: true, ..LiveCase::default() };
        let late = LiveValues {
            elapsed_ns: 1_000_000_000,
            bytes: 3_457_824,
            bytes_at_ns: Some(1_000_211_804),
            receiving_ns: Some(553_000_000),
            ..LiveValues::default()
        };
        assert_eq!(live.update(&late), "50.02 Mbit/s, 3.458 MB");
        let mut live = LiveCase::default();
        let timed = LiveValues {
            elapsed_ns: 1,
            messages: 1_234,
            lost: 2,
            p50_ns: Some(13_000),
            p99_ns: Some(59_000),
            ..LiveValues::default()
        };
        assert_eq!(live.update(&timed), "1 234 replies, p50 13.00 µs, p99 59.00 µs, 2 lost");
        assert_eq!(live.chart(), "");
    }
}
