//! Checks of the CPUs: how many are available, and what slows them.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use super::Check;
use crate::host::cpu::{self, CpuLoad, CpuTicks};
use crate::host::power::{self, FrequencyPolicy, IdleState};
use crate::host::{machine, read};

const CPU_SYSFS_DIRECTORY: &str = "/sys/devices/system/cpu";

pub(super) fn cpus() -> Check {
    judge_cpus(&cpu::current_affinity(), &cpu::online_cpus())
}

fn judge_cpus(allowed: &[u32], online: &[u32]) -> Check {
    const NAME: &str = "CPUs";
    if allowed.len() > 1 {
        return Check::good(
            NAME,
            format!("{} for this process ({})", allowed.len(), read::format_list(allowed)),
        );
    }
    let finding = "one for this process: client, server and kernel share it";
    let remedy = if online.len() > 1 {
        format!("allow more: taskset -c {} linkgauge doctor", read::format_list(online))
    } else {
        "run the server on another machine: linkgauge serve tcp://0.0.0.0".to_owned()
    };
    Check::doubtful(NAME, finding, remedy)
}

pub(super) fn quota() -> Check {
    let groups = read::text("/proc/self/cgroup").unwrap_or_default();
    judge_quota(smallest_quota(&groups, |path| read::text(path)))
}

/// The smallest CPU quota of this process's control group (version 2) and its ancestors, in CPUs, and its
/// file.
fn smallest_quota(groups: &str, read: impl Fn(&str) -> Option<String>) -> Option<(f64, String)> {
    let mut group = groups.lines().find_map(|line| line.strip_prefix("0::"))?.trim_end_matches('/');
    let mut smallest: Option<(f64, String)> = None;
    loop {
        let file = format!("/sys/fs/cgroup{group}/cpu.max");
        if let Some(cpus) = read(&file).and_then(|text| parse_quota(&text))
            && smallest.as_ref().is_none_or(|(minimum, _)| cpus < *minimum)
        {
            smallest = Some((cpus, file));
        }
        match group.rfind('/') {
            Some(end) => group = &group[..end],
            None => return smallest,
        }
    }
}

/// `200000 100000` (µs of CPU time per period in µs) is 2 CPUs; `max 100000` is no quota.
fn parse_quota(text: &str) -> Option<f64> {
    let (quota, period) = text.split_once(' ')?;
    let cpus = quota.parse::<u64>().ok()? as f64 / period.trim().parse::<u64>().ok()? as f64;
    cpus.is_finite().then_some(cpus)
}

fn judge_quota(quota: Option<(f64, String)>) -> Check {
    const NAME: &str = "CPU quota";
    match quota {
        None => Check::good(NAME, "none"),
        Some((cpus, file)) => Check::doubtful(
            NAME,
            format!("{cpus:.2} CPUs: when they are used up, the process stops for up to 100 ms"),
            format!("echo max | sudo tee {file}"),
        ),
    }
}

/// Time long enough for 30 ticks of every CPU.
const LOAD_SAMPLE_TIME: Duration = Duration::from_millis(300);
/// Largest share of all CPUs in use by other programs at which both ends of the link find a free CPU.
const MAX_OTHER_LOAD_SHARE: f64 = 0.2;

pub(super) fn load() -> Check {
    let own_before = cpu::process_cpu_seconds();
    let start = Instant::now();
    let load = sample_load();
    let own = (cpu::process_cpu_seconds() - own_before) / start.elapsed().as_secs_f64();
    judge_load(load, own / cpu::online_cpus().len().max(1) as f64)
}

fn sample_load() -> Option<CpuLoad> {
    let before = CpuTicks::now()?;
    thread::sleep(LOAD_SAMPLE_TIME);
    CpuTicks::now()?.since(&before)
}

fn judge_load(load: Option<CpuLoad>, own_share: f64) -> Check {
    const NAME: &str = "load";
    let Some(load) = load else {
        return Check::doubtful(NAME, "cannot be read", "mount procfs: sudo mount -t proc proc /proc");
    };
    let others = (load.busy_share - own_share).max(0.0);
    let finding = format!("other programs keep {:.0} % of the CPUs busy", others * 100.0);
    if others <= MAX_OTHER_LOAD_SHARE {
        return Check::good(NAME, finding);
    }
    Check::doubtful(NAME, finding, "see which and stop them: top -o %CPU")
}

/// Largest share of stolen time that is acceptable: 1 % is 10 ms in every second during which this machine stands still.
const MAX_STEAL_SHARE: f64 = 0.01;

pub(super) fn steal() -> Check {
    judge_steal(sample_load(), CpuTicks::now().and_then(|ticks| ticks.since_boot()))
}

fn judge_steal(now: Option<CpuLoad>, since_boot: Option<CpuLoad>) -> Check {
    const NAME: &str = "steal";
    let [now, since_boot] = [now, since_boot].map(|load| load.map_or(0.0, |load| load.steal_share));
    let finding = format!(
        "the hypervisor took {:.1} % of the CPU time now, {:.1} % since boot",
        now * 100.0,
        since_boot * 100.0
    );
    if now <= MAX_STEAL_SHARE && since_boot <= MAX_STEAL_SHARE {
        return Check::good(NAME, finding);
    }
    Check::doubtful(
        NAME,
        finding,
        "use a machine with CPUs of its own, or wait until column st is 0 in: vmstat 1",
    )
}

pub(super) fn frequency() -> Check {
    judge_frequency(&power::frequency(), machine::HypervisorTraces::read().detect_guest().is_some())
}

fn judge_frequency(frequency: &FrequencyPolicy, guest: bool) -> Check {
    const NAME: &str = "CPU frequency";
    let governors = frequency.governors.join(", ");
    match &frequency.governors[..] {
        [] if guest => Check::good(NAME, "no policy in this virtual machine: the hypervisor decides"),
        [] => Check::good(NAME, "no policy: the kernel does not change it"),
        [only] if only == "performance" => Check::good(NAME, governors),
        _ => Check::doubtful(
            NAME,
            format!(
                "{governors}: an idle CPU slows down, so rare round trips take longer than frequent ones"
            ),
            format!("echo performance | sudo tee {CPU_SYSFS_DIRECTORY}/cpufreq/policy*/scaling_governor"),
        ),
    }
}

/// Longest exit latency that is acceptable, in µs: waking from deeper states takes as long as a round trip over loopback.
const MAX_IDLE_EXIT_US: u64 = 20;

pub(super) fn idle() -> Check {
    judge_idle(&power::idle_states(), power::idle_latency_limit_us())
}

fn judge_idle(states: &[IdleState], limit_us: Option<u64>) -> Check {
    const NAME: &str = "idle states";
    let limit_us = limit_us.unwrap_or(u64::MAX);
    let used = states.iter().filter(|state| !state.is_disabled && state.exit_latency_us <= limit_us);
    let Some(deepest) = used.clone().next_back() else {
        return Check::good(NAME, "the kernel does not choose among any here");
    };
    let finding = format!("waking from {} takes {} µs", deepest.name, deepest.exit_latency_us);
    if deepest.exit_latency_us <= MAX_IDLE_EXIT_US {
        return Check::good(NAME, finding);
    }
    let deep = used.filter(|state| state.exit_latency_us > MAX_IDLE_EXIT_US);
    let files: Vec<_> =
        deep.map(|state| format!("{CPU_SYSFS_DIRECTORY}/cpu*/cpuidle/{}/disable", state.folder)).collect();
    Check::doubtful(NAME, finding, format!("echo 1 | sudo tee {}", files.join(" ")))
}

pub(super) fn smt() -> Check {
    let siblings = cpu::online_cpus().into_iter().filter_map(|cpu| {
        let text = read::text(format!("{CPU_SYSFS_DIRECTORY}/cpu{cpu}/topology/thread_siblings_list"))?;
        Some(read::parse_list(&text)).filter(|siblings| siblings.len() > 1)
    });
    judge_smt(&siblings.collect(), read::text(format!("{CPU_SYSFS_DIRECTORY}/smt/control")).as_deref())
}

fn judge_smt(cores: &BTreeSet<Vec<u32>>, control: Option<&str>) -> Check {
    const NAME: &str = "SMT";
    let Some(first) = cores.first() else {
        return Check::good(NAME, "each CPU is a separate core");
    };
    let finding =
        format!("two CPUs share a core (such as {}): one slows the other down", read::format_list(first));
    if control == Some("on") {
        return Check::doubtful(
            NAME,
            finding,
            format!("echo off | sudo tee {CPU_SYSFS_DIRECTORY}/smt/control"),
        );
    }
    // Guests and old kernels cannot switch it off as a whole, but can switch off single CPUs.
    let second: Vec<_> = cores
        .iter()
        .flat_map(|core| &core[1..])
        .map(|cpu| format!("{CPU_SYSFS_DIRECTORY}/cpu{cpu}/online"))
        .collect();
    Check::doubtful(NAME, finding, format!("echo 0 | sudo tee {}", second.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(checks: &[Check]) -> String {
        let lines = checks.iter().map(|check| {
            let remedy = check.remedy.as_deref().unwrap_or("-");
            format!("{:?} | {} | {remedy}", check.verdict, check.finding)
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn one_cpu_is_doubtful() {
        let checks = [judge_cpus(&[0, 1], &[0, 1]), judge_cpus(&[3], &[0, 1, 2, 3]), judge_cpus(&[0], &[0])];
        insta::assert_snapshot!(show(&checks), @r"
        Good | 2 for this process (0-1) | -
        Doubtful | one for this process: client, server and kernel share it | allow more: taskset -c 0-3 linkgauge doctor
        Doubtful | one for this process: client, server and kernel share it | run the server on another machine: linkgauge serve tcp://0.0.0.0
        ");
    }

    #[test]
    fn the_smallest_quota_on_the_way_up_counts() {
        let files = |path: &str| match path {
            "/sys/fs/cgroup/pod/box/cpu.max" => Some("max 100000".to_owned()),
            "/sys/fs/cgroup/pod/cpu.max" => Some("150000 100000".to_owned()),
            "/sys/fs/cgroup/cpu.max" => Some("400000 100000".to_owned()),
            _ => None,
        };
        let quota = smallest_quota("1:cpu:/other\n0::/pod/box\n", files);
        assert_eq!(quota, Some((1.5, "/sys/fs/cgroup/pod/cpu.max".to_owned())));
        assert_eq!(smallest_quota("0::/\n", files), Some((4.0, "/sys/fs/cgroup/cpu.max".to_owned())));
        assert_eq!(smallest_quota("1:cpu:/\n", files), None);
        assert_eq!(parse_quota("0 0"), None);
        insta::assert_snapshot!(show(&[judge_quota(None), judge_quota(quota)]), @r"
        Good | none | -
        Doubtful | 1.50 CPUs: when they are used up, the process stops for up to 100 ms | echo max | sudo tee /sys/fs/cgroup/pod/cpu.max
        ");
    }

    #[test]
    fn load_of_others_and_steal() {
        let load = |busy_share, steal_share| Some(CpuLoad { busy_share, steal_share });
        let checks = [
            judge_load(load(0.1, 0.0), 0.0),
            judge_load(load(0.5, 0.0), 0.4),
            judge_load(load(0.5, 0.0), 0.0),
            judge_load(None, 0.0),
            judge_steal(load(0.1, 0.0), load(0.1, 0.0004)),
            judge_steal(load(0.1, 0.05), load(0.1, 0.0004)),
            judge_steal(load(0.1, 0.0), load(0.1, 0.05)),
            judge_steal(None, None),
        ];
        insta::assert_snapshot!(show(&checks), @r"
        Good | other programs keep 10 % of the CPUs busy | -
        Good | other programs keep 10 % of the CPUs busy | -
        Doubtful | other programs keep 50 % of the CPUs busy | see which and stop them: top -o %CPU
        Doubtful | cannot be read | mount procfs: sudo mount -t proc proc /proc
        Good | the hypervisor took 0.0 % of the CPU time now, 0.0 % since boot | -
        Doubtful | the hypervisor took 5.0 % of the CPU time now, 0.0 % since boot | use a machine with CPUs of its own, or wait until column st is 0 in: vmstat 1
        Doubtful | the hypervisor took 0.0 % of the CPU time now, 5.0 % since boot | use a machine with CPUs of its own, or wait until column st is 0 in: vmstat 1
        Good | the hypervisor took 0.0 % of the CPU time now, 0.0 % since boot | -
        ");
    }

    #[test]
    fn frequency_policies() {
        let policy = |governors: &[&str]| FrequencyPolicy {
            governors: governors.iter().map(|name| (*name).to_owned()).collect(),
            ..FrequencyPolicy::default()
        };
        let checks = [
            judge_frequency(&policy(&[]), true),
            judge_frequency(&policy(&[]), false),
            judge_frequency(&policy(&["performance"]), false),
            judge_frequency(&policy(&["performance", "schedutil"]), false),
        ];
        insta::assert_snapshot!(show(&checks), @r"
        Good | no policy in this virtual machine: the hypervisor decides | -
        Good | no policy: the kernel does not change it | -
        Good | performance | -
        Doubtful | performance, schedutil: an idle CPU slows down, so rare round trips take longer than frequent ones | echo performance | sudo tee /sys/devices/system/cpu/cpufreq/policy*/scaling_governor
        ");
    }

    #[test]
    fn deep_idle_states() {
        let state = |number: u32, name: &str, exit_latency_us, disabled| IdleState {
            folder: format!("state{number}"),
            name: name.to_owned(),
            exit_latency_us,
            is_disabled: disabled,
        };
        let mut states = vec![
            state(0, "POLL", 0, false),
            state(1, "C1", 2, false),
            state(2, "C6", 133, false),
            state(3, "C8", 260, false),
        ];
        let all = judge_idle(&states, Some(2_000_000_000));
        let limited = judge_idle(&states, Some(2));
        states[2].is_disabled = true;
        states[3].is_disabled = true;
        insta::assert_snapshot!(show(&[all, limited, judge_idle(&states, None), judge_idle(&[], None)]), @r"
        Doubtful | waking from C8 takes 260 µs | echo 1 | sudo tee /sys/devices/system/cpu/cpu*/cpuidle/state2/disable /sys/devices/system/cpu/cpu*/cpuidle/state3/disable
        Good | waking from C1 takes 2 µs | -
        Good | waking from C1 takes 2 µs | -
        Good | the kernel does not choose among any here | -
        ");
    }

    #[test]
    fn shared_cores() {
        let cores = BTreeSet::from([vec![0, 4], vec![1, 5]]);
        let checks = [
            judge_smt(&BTreeSet::new(), Some("notsupported")),
            judge_smt(&cores, Some("on")),
            judge_smt(&cores, Some("notimplemented")),
        ];
        insta::assert_snapshot!(show(&checks), @r"
        Good | each CPU is a separate core | -
        Doubtful | two CPUs share a core (such as 0,4): one slows the other down | echo off | sudo tee /sys/devices/system/cpu/smt/control
        Doubtful | two CPUs share a core (such as 0,4): one slows the other down | echo 0 | sudo tee /sys/devices/system/cpu/cpu4/online /sys/devices/system/cpu/cpu5/online
        ");
    }
}
