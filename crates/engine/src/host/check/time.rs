//! Checks of the clock and of the timers.

use std::thread;
use std::time::Duration;

use super::Check;
use crate::host::{CLOCK_SOURCE_DIRECTORY, cpu, read};
use linkgauge_model::clock::{self, Clock};
use linkgauge_model::units::format_nanoseconds;

/// Clock sources that need a system call and a slow device to read, or that advance only with ticks.
const SLOW_CLOCK_SOURCES: [&str; 6] = ["hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies", "xen"];

pub(super) fn clock_source() -> Check {
    let text = |file: &str| read::text(format!("{CLOCK_SOURCE_DIRECTORY}/{file}"));
    judge_source(text("current_clocksource").as_deref(), &text("available_clocksource").unwrap_or_default())
}

fn judge_source(current: Option<&str>, available: &str) -> Check {
    const NAME: &str = "clock source";
    let Some(current) = current else {
        return Check::doubtful(NAME, "cannot be read", "mount sysfs: sudo mount -t sysfs sysfs /sys");
    };
    if !SLOW_CLOCK_SOURCES.contains(&current) {
        return Check::good(NAME, current);
    }
    let better = available.split_whitespace().find(|source| !SLOW_CLOCK_SOURCES.contains(source));
    let remedy = match better {
        Some(better) => format!("echo {better} | sudo tee {CLOCK_SOURCE_DIRECTORY}/current_clocksource"),
        None => "see why the kernel refused a better one: sudo dmesg | grep -iE 'tsc|clocksource'".to_owned(),
    };
    Check::doubtful(NAME, format!("{current}: every time stamp is a slow system call"), remedy)
}

/// Largest cost of a clock read through the vDSO (20 to 50 ns), in ns; a slower read is a system call.
const MAX_CLOCK_READ_NS: f64 = 100.0;

pub(super) fn clock_reading() -> Check {
    judge_reading(clock::measure_read_cost())
}

fn judge_reading(cost: clock::ReadCost) -> Check {
    const NAME: &str = "clock reading";
    let finding = format!(
        "{} a reading, smallest step {}",
        format_nanoseconds(cost.read_ns),
        format_nanoseconds(cost.step_ns as f64)
    );
    if cost.read_ns <= MAX_CLOCK_READ_NS {
        return Check::good(NAME, finding);
    }
    let finding = format!("{finding}: the kernel is called for every time stamp");
    Check::doubtful(
        NAME,
        finding,
        format!("correct the clock source, then check it: cat {CLOCK_SOURCE_DIRECTORY}/*_clocksource"),
    )
}

/// Lateness of wake-ups.
#[derive(Debug, Clone, Copy)]
struct Lateness {
    median_ns: f64,
    p99_ns: f64,
}

const TEST_SLEEP_TIME: Duration = Duration::from_millis(1);
const MAX_TEST_SLEEPS: u32 = 200;
/// Time limit of the test. With coarse timers, sleeps overrun and fewer of them must suffice: the check takes
/// half a second at most.
const MAX_TIMER_TEST_TIME: Duration = Duration::from_millis(240);

/// Sleeps to instants 1 ms apart. Uses a separate thread, because the slack is a property of the thread.
fn measure_lateness(slack_ns: Option<u64>) -> Option<Lateness> {
    let sleeps = move || {
        if let Some(slack_ns) = slack_ns {
            cpu::set_timer_slack_ns(slack_ns).ok()?;
        }
        let clock = Clock::System;
        let start = clock.now();
        let mut until = start;
        let mut late: Vec<u64> = Vec::with_capacity(MAX_TEST_SLEEPS as usize);
        for _ in 0..MAX_TEST_SLEEPS {
            // An instant in the past would need no sleep.
            until = (until + TEST_SLEEP_TIME).max(clock.now() + TEST_SLEEP_TIME / 10);
            if until.since(start) > MAX_TIMER_TEST_TIME {
                break;
            }
            clock.sleep_until(until);
            late.push(clock.now().since(until).as_nanos() as u64);
        }
        Lateness::from_samples(late)
    };
    thread::Builder::new().spawn(sleeps).ok()?.join().ok()?
}

impl Lateness {
    fn from_samples(mut late: Vec<u64>) -> Option<Lateness> {
        late.sort_unstable();
        let nearest_rank =
            |percent: usize| Some(*late.get((late.len() * percent).div_ceil(100).checked_sub(1)?)? as f64);
        Some(Lateness { median_ns: nearest_rank(50)?, p99_ns: nearest_rank(99)? })
    }
}

pub(super) fn timer_error() -> Check {
    judge_timer(cpu::timer_slack_ns(), measure_lateness(None), measure_lateness(Some(1)))
}

/// Largest acceptable median lateness: a later wake-up reaches into the busy-polled part of a wait.
const MAX_MEDIAN_LATENESS_NS: f64 = clock::BUSY_POLL_LEAD.as_nanos() as f64;
/// Largest acceptable 99th percentile of lateness: above it, a schedule of 1000 sends per second misses 1 % of them.
const MAX_P99_LATENESS_NS: f64 = 1e6;

fn judge_timer(slack_ns: Option<u64>, usual: Option<Lateness>, tight: Option<Lateness>) -> Check {
    const NAME: &str = "timer error";
    let Some(best) = tight.or(usual) else {
        return Check::doubtful(NAME, "could not be measured", "allow more threads: ulimit -u 4096");
    };
    let print = |lateness: Lateness| {
        format!(
            "{} (median), {} (p99)",
            format_nanoseconds(lateness.median_ns),
            format_nanoseconds(lateness.p99_ns)
        )
    };
    let mut finding = Vec::new();
    if let Some(usual) = usual {
        let slack = slack_ns.map_or("unknown".to_owned(), |slack_ns| format_nanoseconds(slack_ns as f64));
        finding.push(format!("{} late at the usual slack of {slack}", print(usual)));
    }
    if let Some(tight) = tight {
        finding.push(format!("{} late at a slack of 1 ns", print(tight)));
    }
    let finding = format!("sleeps end {}", finding.join("; "));
    if best.median_ns >= 1e6 {
        let remedy = "the kernel has no fine timers: boot without highres=off, or with another kernel; \
                      look with: grep -E 'HIGH_RES|CONFIG_HZ=' /boot/config-$(uname -r)";
        return Check::bad(NAME, finding, remedy);
    }
    if best.median_ns > MAX_MEDIAN_LATENESS_NS || best.p99_ns > MAX_P99_LATENESS_NS {
        return Check::doubtful(
            NAME,
            finding,
            "see whether priority helps: sudo chrt --fifo 50 linkgauge doctor",
        );
    }
    Check::good(NAME, finding)
}

#[cfg(test)]
mod tests {
    use super::super::CheckVerdict;
    use super::*;

    #[test]
    fn slow_sources_are_doubtful() {
        let show = |check: Check| format!("{:?}: {}: {:?}", check.verdict, check.finding, check.remedy);
        let rows = [
            show(judge_source(Some("tsc"), "tsc hpet acpi_pm")),
            show(judge_source(Some("kvm-clock"), "kvm-clock acpi_pm")),
            show(judge_source(Some("hpet"), "hpet tsc acpi_pm")),
            show(judge_source(Some("acpi_pm"), "hpet acpi_pm")),
            show(judge_source(None, "")),
        ];
        insta::assert_snapshot!(rows.join("\n"), @r#"
        Good: tsc: None
        Good: kvm-clock: None
        Doubtful: hpet: every time stamp is a slow system call: Some("echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource")
        Doubtful: acpi_pm: every time stamp is a slow system call: Some("see why the kernel refused a better one: sudo dmesg | grep -iE 'tsc|clocksource'")
        Doubtful: cannot be read: Some("mount sysfs: sudo mount -t sysfs sysfs /sys")
        "#);
    }

    #[test]
    fn a_slow_clock_reading_is_doubtful() {
        let verdict = |read_ns| judge_reading(clock::ReadCost { read_ns, step_ns: 10 }).verdict;
        assert_eq!(verdict(25.0), CheckVerdict::Good);
        assert_eq!(verdict(700.0), CheckVerdict::Doubtful);
    }

    #[test]
    fn timers_are_judged_by_the_tight_slack() {
        let late =
            |median_us: f64, p99_us: f64| Some(Lateness { median_ns: median_us * 1e3, p99_ns: p99_us * 1e3 });
        let verdict = |usual, tight| judge_timer(Some(50_000), usual, tight).verdict;
        assert_eq!(verdict(late(58.0, 120.0), late(6.0, 40.0)), CheckVerdict::Good);
        assert_eq!(verdict(late(250.0, 3000.0), late(6.0, 40.0)), CheckVerdict::Good);
        assert_eq!(verdict(late(58.0, 120.0), late(6.0, 4000.0)), CheckVerdict::Doubtful);
        assert_eq!(verdict(late(58.0, 120.0), None), CheckVerdict::Good);
        assert_eq!(verdict(late(5000.0, 9000.0), late(5000.0, 9000.0)), CheckVerdict::Bad);
        assert_eq!(verdict(None, None), CheckVerdict::Doubtful);
        insta::assert_snapshot!(judge_timer(Some(50_000), late(58.0, 120.0), late(6.0, 40.0)).finding, @"sleeps end 58.00 µs (median), 120.0 µs (p99) late at the usual slack of 50.00 µs; 6.000 µs (median), 40.00 µs (p99) late at a slack of 1 ns");
    }

    #[test]
    fn ranks_are_the_nearest() {
        let lateness = Lateness::from_samples((1..=200).rev().collect()).unwrap();
        assert_eq!((lateness.median_ns, lateness.p99_ns), (100.0, 198.0));
        assert!(Lateness::from_samples(vec![]).is_none());
    }
}
