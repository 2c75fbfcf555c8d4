//! Cells that need more of a kernel than this host has: measured by this program inside a guest, whose documents come back
//! on its standard output, one for each cell, and go into this one.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use linkgauge::lab::vm;
use linkgauge::paper::{Cell, Guest, PlannedCase, Study};
use linkgauge::report::printable;
use linkgauge::run::{CaseResult, Run};
use linkgauge::schedule::{Event, Observer};
use serde_json::Value;

use super::super::lab::vm::{GuestFlags, wait};
use super::super::measure::Screen;
use super::{Measured, NOT_ASKED_FOR, Site, least_time, runnable};

/// In the document of a case: what the guest was that it was measured in.
const PLACEMENT: &str = "guest";
/// A guest starts, and has another kernel's modules fetched the first time.
const TO_START: Duration = Duration::from_secs(600);
/// An emulated CPU takes so many times as long as the lines would.
const SLOWER: u32 = 20;
/// No guest writes more.
const MOST_BYTES: u64 = 1 << 28;
/// Of what it says of itself only the last line is repeated.
const MOST_WORDS: u64 = 1 << 16;

/// Where a cell of the lab is measured.
pub fn site(study: &Study, cell: &Cell, vm: bool, inside: Option<&str>) -> Site {
    let guest = study.guest_of(cell);
    let name = guest.map(|(name, _)| name);
    let Some((name, guest)) = guest.filter(|_| inside.is_none()) else {
        return match inside.is_none() || name == inside {
            true => Site::Lab,
            false => Site::Nowhere("it is not measured in this guest".to_owned()),
        };
    };
    let lacking = vm::lacking(study.modules_for(cell));
    if lacking.is_empty() && guest.before.is_empty() {
        return Site::Lab;
    }
    if vm {
        return Site::Guest(name.to_owned());
    }
    let what = match lacking.as_slice() {
        [] => "it is set up in a guest only".to_owned(),
        modules => format!("this kernel has not loaded {}", modules.join(", ")),
    };
    Site::Nowhere(format!("{what}: --vm measures it in a guest"))
}

/// What the guests were that something of this was measured in.
pub fn told(run: &Run) -> Vec<String> {
    let guests = run.cases.iter().filter_map(|case| case.placement.get(PLACEMENT)?.as_str());
    let mut guests: Vec<String> = guests.map(str::to_owned).collect();
    guests.sort_unstable();
    guests.dedup();
    guests
}

impl Measured<'_> {
    /// Measures what is to be measured in guests, one after the other. What fails there leaves the rest.
    pub fn in_guests(&mut self, cases: &[(Site, PlannedCase)], flags: &GuestFlags, screen: &Screen) {
        let mut guests: BTreeMap<&str, Vec<(usize, &PlannedCase)>> = BTreeMap::new();
        for (number, (site, case)) in runnable(cases).enumerate() {
            if let Site::Guest(name) = site {
                guests.entry(name).or_default().push((number, case));
            }
        }
        for (name, cases) in guests {
            if self.cancel.load(Relaxed) {
                break;
            }
            if let Err(why) = self.in_guest(name, flags, &cases, screen) {
                let reason = format!("guest {name}: {why:#}");
                screen.event(&Event::Failed { case: cases[0].0, repetition: 0, reason: &reason });
                for (_, case) in cases {
                    if !self.seen(&case.name) {
                        self.failed.insert(case.name.clone(), reason.clone());
                    }
                }
            }
        }
    }

    /// After so much time of the host a guest is not going to be done.
    fn limit(&self, cases: &[(usize, &PlannedCase)]) -> Duration {
        TO_START + SLOWER * least_time(cases.iter().map(|(_, case)| *case))
    }

    /// What the guest's shell does: what its kind asks for, then this study, cell by cell.
    fn script(&self, name: &str, guest: &Guest, cases: &[(usize, &PlannedCase)]) -> String {
        let mut cells: Vec<(&str, Vec<String>)> = Vec::new();
        for (_, case) in cases {
            let (place, text) = (&case.place, case.place.to_string());
            match cells.iter_mut().find(|(cell, _)| *cell == place.cell) {
                Some((_, places)) if places.contains(&text) => {}
                Some((_, places)) => places.push(text),
                None => cells.push((&place.cell, vec![text])),
            }
        }
        let mut script = format!("set -e\n{}\nset +e\n", guest.before);
        for (_, places) in cells {
            let quick = if self.quick { " --quick" } else { "" };
            script += &format!(
                "linkgauge reproduce {}{quick} --in-guest {name} --table {} --cell {} --quiet --no-store --json -\n",
                self.study.name,
                self.study.table_numbers().join(","),
                places.join(","),
            );
        }
        // Each of them has said what it failed at.
        script + "exit 0\n"
    }

    fn in_guest(
        &mut self,
        name: &str,
        flags: &GuestFlags,
        cases: &[(usize, &PlannedCase)],
        screen: &Screen,
    ) -> Result<()> {
        let guest = self.study.guest(name).context("the plan has none of that name")?;
        let options = flags.options(&guest.modules, &guest.tools, self.limit(cases))?;
        let script = self.script(name, guest, cases);
        let mut process = vm::process(&options, &["sh".to_owned(), "-c".to_owned(), script]);
        process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut guest = process.spawn().context("bash cannot be started")?;
        let (stdout, stderr) = (guest.stdout.take(), guest.stderr.take());
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else { return Err(anyhow!("it has no output")) };
        let cancel = self.cancel;
        let (ended, said) = thread::scope(|scope| {
            let ended = scope.spawn(|| wait(&mut guest, cancel));
            let said = scope.spawn(|| words(stderr));
            for run in Run::stream(stdout.take(MOST_BYTES)) {
                self.take(run, options.virtual_time, cases, screen);
            }
            (ended.join(), said.join())
        });
        let said = said.unwrap_or_default();
        let last = said.lines().rfind(|line| !line.trim().is_empty());
        let last = last.map(|line| printable(line.strip_prefix("error: ").unwrap_or(line)));
        let Some(status) = ended.map_err(|_| anyhow!("nobody waited for it"))?? else { return Ok(()) };
        let missing = cases.iter().any(|(_, case)| !self.seen(&case.name));
        if !status.success() || missing {
            return Err(anyhow!(last.unwrap_or_else(|| without_a_word(status))));
        }
        Ok(())
    }

    fn seen(&self, case: &str) -> bool {
        self.done.contains_key(case) || self.failed.contains_key(case)
    }

    /// Takes over what a document has of these cases.
    fn take(&mut self, run: Run, virtual_time: bool, cases: &[(usize, &PlannedCase)], screen: &Screen) {
        let guest = is(&run, virtual_time);
        let begun = self.run.cases.len();
        let count = run.cases.len();
        self.run.cases.extend(run.cases.into_iter().map(|mut case| {
            case.placement.insert(PLACEMENT.to_owned(), guest.as_str().into());
            case
        }));
        let asked: BTreeMap<&str, usize> =
            cases.iter().map(|(number, case)| (case.name.as_str(), *number)).collect();
        let rows = run.paper.into_iter().flat_map(|paper| paper.tables).flat_map(|table| table.rows);
        for row in rows {
            let Some(&number) = asked.get(row.planned_case.as_str()) else { continue };
            let name = row.planned_case;
            if self.seen(&name) {
                continue;
            }
            match (row.case.filter(|case| (1..=count).contains(case)), row.reason) {
                (Some(case), _) => {
                    let index = begun + case - 1;
                    self.done.insert(name, index);
                    announce(&self.run.cases[index], number, screen);
                }
                // Others have a document of their own.
                (None, Some(reason)) if reason != NOT_ASKED_FOR => {
                    screen.event(&Event::Failed { case: number, repetition: 0, reason: &reason });
                    self.failed.insert(name, reason);
                }
                (None, _) => {}
            }
        }
    }
}

/// Tells that a case has been measured.
fn announce(result: &CaseResult, case: usize, screen: &Screen) {
    let CaseResult { endpoint, peer, workload, message_bytes, figures, .. } = result;
    let message_bytes = *message_bytes;
    screen.event(&Event::CaseBegins { case, repetition: 0, endpoint, peer, workload, message_bytes });
    screen.event(&Event::CaseEnds { case, repetition: 0, figures });
}

/// What a guest was, in words.
fn is(run: &Run, virtual_time: bool) -> String {
    let fact = |name: &str| run.environment.near.get(name);
    let kernel = fact("kernel_release").and_then(Value::as_str).unwrap_or("unknown");
    let clock = match (virtual_time, fact("emulated_cpu") == Some(&Value::Bool(true))) {
        (true, _) => "its time counted in instructions of an emulated CPU",
        (false, true) => "an emulated CPU",
        (false, false) => "a virtual CPU",
    };
    format!("Linux {kernel}, {clock}")
}

/// What a guest says of itself, to its end.
fn words(mut stderr: impl Read) -> String {
    let mut said = Vec::new();
    let _ = stderr.by_ref().take(MOST_WORDS).read_to_end(&mut said);
    let _ = std::io::copy(&mut stderr, &mut std::io::sink());
    String::from_utf8_lossy(&said).into_owned()
}

fn without_a_word(status: ExitStatus) -> String {
    format!("it ended without a result and without a word ({status})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_measured_where_it_can_be() {
        let study = Study::named("linx").unwrap();
        let site = |cell: &str, vm, inside| match site(&study, study.cell(cell).unwrap(), vm, inside) {
            Site::Lab => "here".to_owned(),
            Site::Guest(name) => name,
            Site::Nowhere(why) => why,
            Site::Given(_) => unreachable!(),
        };
        assert_eq!(site("tcp", true, None), "here");
        assert_eq!(site("tipc-inter", true, None), "nodes");
        assert!(site("tipc-inter", false, None).ends_with("--vm measures it in a guest"));
        // In a guest only its own cells are, whatever its kernel says of its modules.
        assert_eq!(site("tipc-inter", false, Some("nodes")), "here");
        assert!(site("tipc-intra", false, Some("nodes")).starts_with("it is not measured"));
        assert!(site("tcp", false, Some("nodes")).starts_with("it is not measured"));
    }
}
