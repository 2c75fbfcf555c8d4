//! Cells that need kernel features that this host lacks. This program measures them inside a guest. The guest prints one
//! document per cell, and their results go into the document here.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use linkgauge::lab::vm::{self, GuestClock};
use linkgauge::report::printable;
use linkgauge::run::{CaseResult, Run};
use linkgauge::schedule::{Observer, RunEvent};
use linkgauge::study::{Cell, GuestSpec, PlannedCase, Study};
use serde_json::Value;

use super::super::lab::vm::{GuestFlags, wait_for_guest};
use super::super::progress::ProgressDisplay;
use super::{MeasuringSite, NOT_SELECTED, StudyRun, min_duration, runnable_cases};

/// Time to start a guest, including the first download of modules.
const START_ALLOWANCE: Duration = Duration::from_secs(600);
/// Factor of the duration on an emulated CPU.
const EMULATION_SLOWDOWN: u32 = 20;
/// Limit of a guest's output.
const MAX_OUTPUT_BYTES: u64 = 1 << 28;
/// Limit of a guest's messages. Only the last line is reported.
const MAX_STDERR_BYTES: u64 = 1 << 16;

/// How this process uses guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestUse<'a> {
    Unwanted,
    Wanted,
    /// Runs in this guest.
    Inside(&'a str),
}

/// The site at which a cell of the lab is measured.
pub fn lab_site(study: &Study, cell: &Cell, guest_use: GuestUse) -> MeasuringSite {
    // What a cell of a guest is compared with goes there as well.
    let beside = cell.beside.as_deref().filter(|_| guest_use != GuestUse::Unwanted);
    if let Some(other) = beside.and_then(|name| study.find_cell(name)) {
        return lab_site(study, other, guest_use);
    }
    let guest = study.guest_for(cell);
    let name = guest.map(|(name, _)| name);
    if let GuestUse::Inside(own) = guest_use {
        return match name == Some(own) {
            true => MeasuringSite::Lab,
            false => MeasuringSite::NotMeasured("not measured in this guest".to_owned()),
        };
    }
    let Some((name, guest)) = guest else { return MeasuringSite::Lab };
    let lacking = vm::missing_modules(study.modules_for(cell));
    if lacking.is_empty() && guest.before.is_empty() {
        return MeasuringSite::Lab;
    }
    if guest_use == GuestUse::Wanted {
        return MeasuringSite::Guest(name.to_owned());
    }
    let what = match lacking.as_slice() {
        [] => "it needs a guest".to_owned(),
        modules => format!("this kernel has not loaded {}", modules.join(", ")),
    };
    MeasuringSite::NotMeasured(format!("{what}. Try --vm, which measures it in a guest"))
}

/// Descriptions of the guests that measured results.
pub fn guest_descriptions(run: &Run) -> Vec<String> {
    let guests = run.cases.iter().filter_map(|case| case.placement.guest.as_deref());
    let mut guests: Vec<String> = guests.map(str::to_owned).collect();
    guests.sort_unstable();
    guests.dedup();
    guests
}

impl StudyRun<'_> {
    /// Measures the cells of the guests, one guest after the other. A failure does not stop the others.
    pub fn measure_in_guests(
        &mut self,
        cases: &[(MeasuringSite, PlannedCase)],
        flags: &GuestFlags,
        screen: &ProgressDisplay,
    ) {
        let mut guests: BTreeMap<&str, Vec<(usize, &PlannedCase)>> = BTreeMap::new();
        for (number, (site, case)) in runnable_cases(cases).enumerate() {
            if let MeasuringSite::Guest(name) = site {
                guests.entry(name).or_default().push((number, case));
            }
        }
        for (name, cases) in guests {
            if self.cancel.load(Relaxed) {
                break;
            }
            if let Err(why) = self.measure_in_guest(name, flags, &cases, screen) {
                let reason = format!("guest {name}: {why:#}");
                screen.event(&RunEvent::Failed { case: cases[0].0, repetition: 0, reason: &reason });
                for (_, case) in cases {
                    if !self.is_recorded(&case.name) {
                        self.failures.insert(case.name.clone(), reason.clone());
                    }
                }
            }
        }
    }

    /// Time limit of a guest, in time of the host.
    fn time_limit(&self, cases: &[(usize, &PlannedCase)]) -> Duration {
        START_ALLOWANCE + EMULATION_SLOWDOWN * min_duration(cases.iter().map(|(_, case)| *case))
    }

    /// The script of the guest: its setup, then the study, cell by cell.
    fn shell_script(&self, name: &str, guest: &GuestSpec, cases: &[(usize, &PlannedCase)]) -> String {
        let mut cells: Vec<(&str, Vec<String>)> = Vec::new();
        for (_, case) in cases {
            let (place, text) = (&case.point, case.point.to_string());
            match cells.iter_mut().find(|(cell, _)| *cell == place.cell) {
                Some((_, places)) if places.contains(&text) => {}
                Some((_, places)) => places.push(text),
                None => cells.push((&place.cell, vec![text])),
            }
        }
        let mut script = format!("set -e\n{}\nset +e\n", guest.before);
        for (_, places) in cells {
            let quick = if self.length.is_quick() { " --quick" } else { "" };
            script += &format!(
                "linkgauge reproduce {}{quick} --in-guest {name} --table {} --cell {} --quiet --no-store --json -\n",
                self.study.name,
                self.study.table_numbers().join(","),
                places.join(","),
            );
        }
        // Each of them has printed its error.
        script + "exit 0\n"
    }

    fn measure_in_guest(
        &mut self,
        name: &str,
        flags: &GuestFlags,
        cases: &[(usize, &PlannedCase)],
        screen: &ProgressDisplay,
    ) -> Result<()> {
        let guest = self.study.find_guest(name).context("unknown guest")?;
        let options = flags.options(&guest.modules, &guest.tools, self.time_limit(cases))?;
        let script = self.shell_script(name, guest, cases);
        let mut process = vm::guest_process(&options, &["sh".to_owned(), "-c".to_owned(), script]);
        process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut guest = process.spawn().context("bash cannot be started")?;
        let (stdout, stderr) = (guest.stdout.take(), guest.stderr.take());
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else { return Err(anyhow!("it has no output")) };
        let cancel = self.cancel;
        let (ended, messages) = thread::scope(|scope| {
            let ended = scope.spawn(|| wait_for_guest(&mut guest, cancel));
            let messages = scope.spawn(|| read_stderr(stderr));
            for run in Run::read_stream(stdout.take(MAX_OUTPUT_BYTES)) {
                self.merge_run(run, options.clock, cases, screen);
            }
            (ended.join(), messages.join())
        });
        let messages = messages.unwrap_or_default();
        let last = messages.lines().rfind(|line| !line.trim().is_empty());
        let last = last.map(|line| printable(line.strip_prefix("error: ").unwrap_or(line)));
        let Some(status) = ended.map_err(|_| anyhow!("the waiting thread ended"))?? else { return Ok(()) };
        let missing = cases.iter().any(|(_, case)| !self.is_recorded(&case.name));
        if !status.success() || missing {
            return Err(anyhow!(last.unwrap_or_else(|| no_output_error(status))));
        }
        Ok(())
    }

    fn is_recorded(&self, case: &str) -> bool {
        self.result_index.contains_key(case) || self.failures.contains_key(case)
    }

    /// Copies the results of these cases from a document.
    fn merge_run(
        &mut self,
        run: Run,
        clock: GuestClock,
        cases: &[(usize, &PlannedCase)],
        screen: &ProgressDisplay,
    ) {
        let guest = describe_guest(&run, clock);
        let begun = self.run.cases.len();
        let count = run.cases.len();
        self.run.cases.extend(run.cases.into_iter().map(|mut case| {
            case.placement.guest = Some(guest.as_str().to_owned());
            case
        }));
        let requested: BTreeMap<&str, usize> =
            cases.iter().map(|(number, case)| (case.name.as_str(), *number)).collect();
        let rows = run.study.into_iter().flat_map(|paper| paper.tables).flat_map(|table| table.rows);
        for row in rows {
            let Some(&number) = requested.get(row.planned_case.as_str()) else { continue };
            let name = row.planned_case;
            if self.is_recorded(&name) {
                continue;
            }
            match (row.case.filter(|case| (1..=count).contains(case)), row.reason) {
                (Some(case), _) => {
                    let index = begun + case - 1;
                    self.result_index.insert(name, index);
                    emit_case_events(&self.run.cases[index], number, screen);
                }
                // The other cases are in other documents.
                (None, Some(reason)) if reason != NOT_SELECTED => {
                    screen.event(&RunEvent::Failed { case: number, repetition: 0, reason: &reason });
                    self.failures.insert(name, reason);
                }
                (None, _) => {}
            }
        }
    }
}

/// Reports the end of a case.
fn emit_case_events(result: &CaseResult, case: usize, screen: &ProgressDisplay) {
    let CaseResult { endpoint, protocol, workload, message_bytes, figures, .. } = result;
    let message_bytes = *message_bytes;
    screen.event(&RunEvent::CaseBegins { case, repetition: 0, endpoint, protocol, workload, message_bytes });
    screen.event(&RunEvent::CaseEnds { case, repetition: 0, figures });
}

/// Description of a guest.
fn describe_guest(run: &Run, clock: GuestClock) -> String {
    let fact = |name: &str| run.environment.client.get(name);
    let kernel = fact("kernel_release").and_then(Value::as_str).unwrap_or("unknown");
    let clock = match (clock, fact("emulated_cpu") == Some(&Value::Bool(true))) {
        (GuestClock::Instructions, _) => "its time counted in instructions of an emulated CPU",
        (GuestClock::Host, true) => "an emulated CPU",
        (GuestClock::Host, false) => "a virtual CPU",
    };
    format!("Linux {kernel}, {clock}")
}

/// Reads the messages of a guest until it ends.
fn read_stderr(mut stderr: impl Read) -> String {
    let mut messages = Vec::new();
    let _ = stderr.by_ref().take(MAX_STDERR_BYTES).read_to_end(&mut messages);
    let _ = std::io::copy(&mut stderr, &mut std::io::sink());
    String::from_utf8_lossy(&messages).into_owned()
}

fn no_output_error(status: ExitStatus) -> String {
    format!("it ended without a result or an error message ({status})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_is_measured_in_the_lab_or_a_guest() {
        let study = Study::by_name("linx").unwrap();
        let site = |cell: &str, guest| match lab_site(&study, study.find_cell(cell).unwrap(), guest) {
            MeasuringSite::Lab => "here".to_owned(),
            MeasuringSite::Guest(name) => name,
            MeasuringSite::NotMeasured(why) => why,
            MeasuringSite::UserEndpoints(_) => unreachable!(),
        };
        assert_eq!(site("tcp", GuestUse::Wanted), "here");
        // LINX is measured where TIPC is.
        assert_eq!(
            (site("linx-inter", GuestUse::Unwanted), site("linx-inter", GuestUse::Wanted)),
            ("here".to_owned(), "nodes".to_owned())
        );
        assert_eq!(site("linx-inter", GuestUse::Inside("nodes")), "here");
        assert!(site("linx-inter", GuestUse::Inside("messages")).starts_with("not measured"));
        assert_eq!(site("tipc-inter", GuestUse::Wanted), "nodes");
        assert!(site("tipc-inter", GuestUse::Unwanted).ends_with("Try --vm, which measures it in a guest"));
        // A guest measures only its own cells, whatever modules its kernel reports.
        assert_eq!(site("tipc-inter", GuestUse::Inside("nodes")), "here");
        assert!(site("tipc-intra", GuestUse::Inside("nodes")).starts_with("not measured"));
        assert!(site("tcp", GuestUse::Inside("nodes")).starts_with("not measured"));
    }
}
