//! Other load of this host during a measurement: CPU time of other programs and of other guests, and the time
//! that runnable threads waited for a CPU.
//!
//! The counters are read before and after a measurement, never during it. Times of /proc are in ticks of 10 ms, so short
//! measurements give no shares.

use std::collections::HashMap;

use super::read;
use linkgauge_model::run::HostLoad;

/// Number of ticks of all CPUs together below which shares are too coarse.
const MIN_TICKS: u64 = 20;

/// Maximum number of processes to read.
const MAX_PROCESSES: usize = 4096;

/// `PF_KTHREAD` of linux/sched.h: kernel threads work for every program, including linkgauge.
const PF_KTHREAD: u64 = 0x0020_0000;

/// CPU time of one process since its start.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProcessTime {
    program: String,
    is_kernel_thread: bool,
    ticks: u64,
}

/// Load counters of the host.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HostSnapshot {
    /// Ticks of all CPUs: in total, in programs, and taken by the hypervisor for other guests.
    total_ticks: u64,
    busy_ticks: u64,
    steal_ticks: u64,
    /// Total time in which some thread waited for a CPU.
    pressure_us: Option<u64>,
    processes: HashMap<u32, ProcessTime>,
}

impl HostSnapshot {
    /// Reads the counters of the host and of this process.
    pub(crate) fn now() -> HostSnapshot {
        let mut snapshot = HostSnapshot::default();
        if let Some((all, busy, stolen)) = read::text("/proc/stat").as_deref().and_then(parse_ticks) {
            (snapshot.total_ticks, snapshot.busy_ticks, snapshot.steal_ticks) = (all, busy, stolen);
        }
        snapshot.pressure_us = read::text("/proc/pressure/cpu").as_deref().and_then(parse_pressure_us);
        let numbers = read::file_names("/proc").into_iter().filter_map(|name| name.parse::<u32>().ok());
        let process = |number| Some((number, parse_process(&read::text(format!("/proc/{number}/stat"))?)?));
        snapshot.processes = numbers.take(MAX_PROCESSES).filter_map(process).collect();
        snapshot
    }

    /// The load from `before` until now, `elapsed_s` later. `wait_s`: the longest wait of a measuring thread.
    pub fn since(&self, before: &HostSnapshot, elapsed_s: f64, wait_s: f64) -> HostLoad {
        let percent = |part: f64, of: f64| (of > 0.0).then(|| 100.0 * (part / of).clamp(0.0, 1.0));
        let all = self.total_ticks.saturating_sub(before.total_ticks);
        let pressure = self.pressure_us.zip(before.pressure_us);
        let mut load = HostLoad {
            pressure_percent: pressure
                .and_then(|(now, then)| percent(now.saturating_sub(then) as f64 * 1e-6, elapsed_s)),
            wait_percent: percent(wait_s, elapsed_s),
            ..HostLoad::default()
        };
        if all < MIN_TICKS {
            return load;
        }
        let (mut own_ticks, mut others) = (0, HashMap::<&str, u64>::new());
        let own = self.processes.get(&std::process::id()).map(|process| process.program.as_str());
        for (number, process) in &self.processes {
            let then = before.processes.get(number).map_or(0, |process| process.ticks);
            let used = process.ticks.saturating_sub(then);
            match process.is_kernel_thread || Some(process.program.as_str()) == own {
                true => own_ticks += used,
                false => *others.entry(&process.program).or_default() += used,
            }
        }
        let busy = self.busy_ticks.saturating_sub(before.busy_ticks);
        load.other_percent = percent(busy.saturating_sub(own_ticks) as f64, all as f64);
        load.steal_percent = percent(self.steal_ticks.saturating_sub(before.steal_ticks) as f64, all as f64);
        let busiest =
            others.into_iter().filter(|(_, used)| *used > 0).max_by_key(|(name, used)| (*used, *name));
        load.busiest = busiest.map(|(name, _)| name.to_owned());
        load
    }
}

/// Parses `/proc/stat`: ticks of all CPUs in total, in programs (user, nice, system), and stolen.
fn parse_ticks(text: &str) -> Option<(u64, u64, u64)> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    // The fields after the eighth are already included in the first two.
    let fields = fields.get(..8)?;
    Some((fields.iter().sum(), fields[..3].iter().sum(), fields[7]))
}

/// Parses `/proc/pressure/cpu`: the microseconds in which some thread waited.
fn parse_pressure_us(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split_whitespace().find_map(|field| field.strip_prefix("total=")?.parse().ok())
}

/// Parses `/proc/N/stat`. The name of the process may contain any character, also spaces and brackets.
fn parse_process(text: &str) -> Option<ProcessTime> {
    let (head, rest) = text.rsplit_once(')')?;
    let program = head.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // Counted from the third field, the state: flags are the ninth, user and system time the fourteenth and
    // fifteenth.
    let (flags, user, system) = (number(6)?, number(11)?, number(12)?);
    Some(ProcessTime { program, is_kernel_thread: flags & PF_KTHREAD != 0, ticks: user + system })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(name: &str, flags: u64, ticks: u64) -> ProcessTime {
        let text = format!("7 ({name}) S 1 7 7 0 -1 {flags} 10 0 0 0 {ticks} 5 0 0 20 0 1 0 100 0 0");
        parse_process(&text).unwrap()
    }

    #[test]
    fn the_files_of_proc_are_read() {
        assert_eq!(parse_ticks("cpu  70 3 20 900 4 1 2 50 9 0\ncpu0 1 1"), Some((1050, 93, 50)));
        assert_eq!(parse_ticks("cpu  70 3 20 900"), None);
        assert_eq!(parse_ticks(""), None);
        assert_eq!(
            parse_pressure_us("some avg10=0.00 avg60=0.00 avg300=0.00 total=77\nfull total=1"),
            Some(77)
        );
        assert_eq!(parse_pressure_us("full total=1"), None);
        let process = stat("a (b) c", 0, 10);
        assert_eq!(
            (process.program.as_str(), process.is_kernel_thread, process.ticks),
            ("a (b) c", false, 15)
        );
        assert!(stat("ksoftirqd/0", 0x0420_8040 | PF_KTHREAD, 0).is_kernel_thread);
    }

    /// A host with these ticks in total and in programs, and processes with their ticks.
    fn host(all: u64, busy: u64, pressure_us: u64, processes: &[(u32, &str, u64, u64)]) -> HostSnapshot {
        let processes =
            processes.iter().map(|&(number, name, flags, ticks)| (number, stat(name, flags, ticks)));
        let pressure_us = Some(pressure_us);
        HostSnapshot {
            total_ticks: all,
            busy_ticks: busy,
            steal_ticks: all / 100,
            pressure_us,
            processes: processes.collect(),
        }
    }

    #[test]
    fn other_load_excludes_this_program_and_the_kernel() {
        let own = std::process::id();
        let (other, server, kernel) = (own + 1, own + 2, own + 3);
        let before = host(1000, 100, 0, &[(own, "linkgauge", 0, 10), (other, "rustc", 0, 50)]);
        let after = host(
            3000,
            1500,
            250_000,
            &[
                (own, "linkgauge", 0, 210),
                (other, "rustc", 0, 750),
                (server, "linkgauge", 0, 95),
                (kernel, "kworker/0:1", PF_KTHREAD, 95),
            ],
        );
        let load = after.since(&before, 1.0, 0.125);
        // 1400 ticks in programs: 200 of linkgauge, 100 of its server, 100 of the kernel; 700 of rustc and
        // 300 of programs that ended meanwhile.
        assert_eq!(load.other_percent, Some(50.0));
        assert_eq!(load.busiest.as_deref(), Some("rustc"));
        assert_eq!((load.steal_percent, load.pressure_percent), (Some(1.0), Some(25.0)));
        assert_eq!(load.wait_percent, Some(12.5));
        let worse = load.clone().worst_of(HostLoad { other_percent: Some(60.0), ..HostLoad::default() });
        assert_eq!((worse.other_percent, worse.busiest), (Some(60.0), None));
        assert_eq!(worse.wait_percent, Some(12.5));
    }

    #[test]
    fn a_short_interval_gives_no_shares() {
        let load = host(1010, 105, 0, &[]).since(&host(1000, 100, 0, &[]), 0.05, 0.0);
        assert_eq!((load.other_percent, load.steal_percent, load.busiest), (None, None, None));
        assert_eq!((load.pressure_percent, load.wait_percent), (Some(0.0), Some(0.0)));
    }

    #[test]
    fn this_host_is_read() {
        let before = HostSnapshot::now();
        assert!(before.total_ticks > 0 && before.processes.contains_key(&std::process::id()));
        let until = std::time::Instant::now() + std::time::Duration::from_millis(300);
        while std::time::Instant::now() < until {}
        let load = HostSnapshot::now().since(&before, 0.3, 0.0);
        assert!(load.other_percent.is_some_and(|percent| (0.0..=100.0).contains(&percent)), "{load:?}");
    }
}
