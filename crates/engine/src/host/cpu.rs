//! The CPUs during a measurement: affinity of threads, CPU time, timer slack, and the load of the machine.
//!
//! The CPU model is in `machine.rs`, power states are in `power.rs`.

use std::collections::BTreeMap;
use std::io;

use super::read;

use linkgauge_system as system;
pub use system::set_timer_slack_ns;
pub(crate) use system::{current_cpu, process_cpu_seconds, thread_cpu_seconds, timer_slack_ns};

/// Error of binding a thread to a CPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The CPU is not available to this process.
    #[error("pinning to CPU {cpu}: this process may not use it. It may use {allowed}")]
    NoSuchCpu {
        /// The requested CPU.
        cpu: u32,
        /// The CPUs that the process may use, as a list.
        allowed: String,
    },
    /// The system refused.
    #[error("pinning to CPU {cpu}: {reason}")]
    Refused {
        /// The requested CPU.
        cpu: u32,
        /// The reason of the system.
        reason: String,
    },
}

/// Binds the current thread, and threads it starts later, to one CPU.
///
/// # Errors
///
/// Fails if this process may not use the CPU, or if the system refuses.
pub fn pin_to_cpu(cpu: u32) -> Result<(), PinError> {
    system::pin_to_cpu(cpu).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => {
            PinError::NoSuchCpu { cpu, allowed: read::format_list(&current_affinity()) }
        }
        _ => PinError::Refused { cpu, reason: error.to_string() },
    })
}

/// The CPUs that the current thread may run on, in ascending order.
pub fn current_affinity() -> Vec<u32> {
    system::current_affinity().unwrap_or_else(online_cpus)
}

/// The CPUs that are online, in ascending order.
pub(crate) fn online_cpus() -> Vec<u32> {
    read::text("/sys/devices/system/cpu/online").map(|text| read::parse_list(&text)).unwrap_or_default()
}

/// A reading of the CPU time counters of the whole machine: ticks since boot (`/proc/stat`, proc(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTicks {
    busy: u64,
    idle: u64,
    steal: u64,
}

/// Load of all CPUs between two readings; shares from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuLoad {
    /// Time spent in programs, the kernel and interrupts.
    pub busy_share: f64,
    /// Time ready to run while the hypervisor ran another machine.
    pub(crate) steal_share: f64,
}

impl CpuTicks {
    /// The current counters.
    pub(crate) fn now() -> Option<CpuTicks> {
        CpuTicks::parse(&read::text("/proc/stat")?)
    }

    /// The current counters of each CPU, by its number.
    pub fn of_each() -> BTreeMap<u32, CpuTicks> {
        let stat = read::text("/proc/stat").unwrap_or_default();
        let lines = stat.lines().filter_map(|line| line.strip_prefix("cpu")?.split_once(' '));
        lines.filter_map(|(cpu, ticks)| Some((cpu.parse().ok()?, CpuTicks::parse_ticks(ticks)?))).collect()
    }

    fn parse(stat: &str) -> Option<CpuTicks> {
        CpuTicks::parse_ticks(stat.lines().find_map(|line| line.strip_prefix("cpu "))?)
    }

    fn parse_ticks(line: &str) -> Option<CpuTicks> {
        let ticks: Vec<u64> = line.split_whitespace().map_while(|number| number.parse().ok()).collect();
        // Guest time, at the end of the line, is already part of user time. Old kernels have no steal time.
        let [user, nice, system, idle, wait, interrupt, soft_interrupt, ref rest @ ..] = ticks[..] else {
            return None;
        };
        let steal = rest.first().copied().unwrap_or(0);
        Some(CpuTicks { busy: user + nice + system + interrupt + soft_interrupt, idle: idle + wait, steal })
    }

    /// Time that the hypervisor took from all CPUs since boot. `USER_HZ` is 100 on every architecture of Linux in use.
    pub(crate) fn steal_ns(&self) -> u64 {
        self.steal.saturating_mul(10_000_000)
    }

    /// The load since boot.
    pub(crate) fn since_boot(&self) -> Option<CpuLoad> {
        self.since(&CpuTicks { busy: 0, idle: 0, steal: 0 })
    }

    /// The load since an earlier reading; `None` if no tick has passed. A tick is 10 ms of one CPU: readings
    /// less than about 200 ms apart are too coarse.
    pub fn since(&self, earlier: &CpuTicks) -> Option<CpuLoad> {
        // Idle and steal counters of a single CPU may decrease slightly.
        let busy = self.busy.saturating_sub(earlier.busy) as f64;
        let idle = self.idle.saturating_sub(earlier.idle) as f64;
        let steal = self.steal.saturating_sub(earlier.steal) as f64;
        let all = busy + idle + steal;
        (all > 0.0).then(|| CpuLoad { busy_share: busy / all, steal_share: steal / all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_the_share_of_ticks_between_two_readings() {
        let before = CpuTicks::parse("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3").unwrap();
        let after = CpuTicks::parse("cpu  120 5 60 850 60 1 4 10 7 0\n").unwrap();
        assert_eq!(
            after.since(&before),
            Some(CpuLoad { busy_share: 40.0 / 110.0, steal_share: 10.0 / 110.0 })
        );
        assert_eq!(before.since_boot(), Some(CpuLoad { busy_share: 0.15, steal_share: 0.0 }));
        assert_eq!(after.since(&after), None);
    }

    #[test]
    fn a_malformed_stat_gives_no_reading() {
        for stat in ["", "cpu  1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu  a b c d e f g"] {
            assert_eq!(CpuTicks::parse(stat), None, "{stat}");
        }
        assert!(CpuTicks::parse("cpu  1 2 3 4 5 6 7").is_some(), "without steal");
    }

    #[test]
    fn a_thread_runs_where_it_was_pinned() {
        std::thread::spawn(|| {
            let last = *current_affinity().last().unwrap();
            pin_to_cpu(last).unwrap();
            assert_eq!((current_affinity(), current_cpu()), (vec![last], last));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        let error = pin_to_cpu(100_000).unwrap_err().to_string();
        assert!(error.starts_with("pinning to CPU 100000: this process may not use it"), "{error}");
        let refused = PinError::Refused { cpu: 1, reason: io::Error::from(system::Errno::PERM).to_string() };
        assert_eq!(refused.to_string(), "pinning to CPU 1: Operation not permitted (os error 1)");
    }

    #[test]
    fn slack_belongs_to_the_thread() {
        let before = timer_slack_ns();
        std::thread::spawn(|| {
            set_timer_slack_ns(1).unwrap();
            assert_eq!(timer_slack_ns(), Some(1));
        })
        .join()
        .unwrap();
        assert_eq!(timer_slack_ns(), before);
    }

    #[test]
    fn work_takes_cpu_time() {
        // In this order, so that the time between the readings counts for the process as well.
        let (process, thread) = (process_cpu_seconds(), thread_cpu_seconds());
        while thread_cpu_seconds() < thread + 0.001 {
            std::hint::spin_loop();
        }
        assert!(process_cpu_seconds() >= process + 0.001);
    }
}
