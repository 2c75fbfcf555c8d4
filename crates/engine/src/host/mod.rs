//! Facts about this machine for every run document, and the checks of its fitness for measuring.
//!
//! Links report their own facts. Functions here do not change the machine, except those whose names say so: a check names the
//! command that would.
//!
//! A missing or malformed file is never an error. Unavailable facts are omitted.

pub mod check;
pub mod cpu;
pub(crate) mod evidence;
pub(crate) mod interfaces;
pub(crate) mod load;
pub mod local_server;
mod machine;
mod open_files;
mod permissions;
pub mod power;
pub mod radio;
pub(crate) mod read;
pub mod serial;

use linkgauge_system::{architecture, host_name, kernel_release};
pub(crate) use open_files::free_open_files;
pub use open_files::{open_file_limit, raise_open_file_limit};
use serde_json::{Map, Value};

/// A fact's name, with its unit, and its source.
type Fact = (&'static str, fn() -> Option<Value>);

/// All facts.
const FACTS: &[Fact] = &[
    ("hostname", || text_value(&host_name()?)),
    ("operating_system", || operating_system(&read::text("/etc/os-release")?)),
    ("kernel_release", || text_value(&kernel_release()?)),
    ("architecture", || text_value(&architecture()?)),
    ("hypervisor", || text_value(&machine::HypervisorTraces::read().detect_guest()?.hypervisor)),
    ("emulated_cpu", || {
        machine::HypervisorTraces::read().detect_guest()?.has_emulated_cpu.then_some(true.into())
    }),
    ("container", || text_value(&machine::ContainerTraces::read().detect_container()?)),
    ("cpu_model", || text_value(&machine::cpu_model(&read::text("/proc/cpuinfo")?)?)),
    ("cpus_online", || Some(cpu::online_cpus().len()).filter(|&cpus| cpus > 0).map(Value::from)),
    ("cpus_allowed", || text_value(&read::format_list(&cpu::current_affinity()))),
    ("numa_nodes", numa_nodes),
    ("smt", smt),
    ("cpu_governors", || list_value(power::frequency().governors)),
    ("cpu_frequency_driver", || power::frequency().driver.map(Value::from)),
    ("cpu_frequency_minimum_hz", || power::frequency().minimum_hz.map(Value::from)),
    ("cpu_frequency_maximum_hz", || power::frequency().maximum_hz.map(Value::from)),
    ("cpu_idle_driver", || power::idle_driver().map(Value::from)),
    ("cpu_idle_exit_latency_us", deepest_idle_us),
    ("mitigations", || machine::mitigations(&machine::read_vulnerabilities()).map(Value::from)),
    ("memory_bytes", || machine::memory_bytes(&read::text("/proc/meminfo")?).map(Value::from)),
    ("clock_source", || text_value(&read::text(format!("{CLOCK_SOURCE_DIRECTORY}/current_clocksource"))?)),
    ("clock_sources_available", || {
        let names = read::text(format!("{CLOCK_SOURCE_DIRECTORY}/available_clocksource"))?;
        list_value(names.split_whitespace().map(str::to_owned).collect())
    }),
    ("timer_slack_ns", || cpu::timer_slack_ns().map(Value::from)),
    ("timer_tick_hz", || {
        let release = kernel_release()?;
        machine::tick_hz(&read::text(format!("/boot/config-{release}"))?).map(Value::from)
    }),
    ("load_1min", || load(0)),
    ("load_5min", || load(1)),
    ("load_15min", || load(2)),
    ("loopback_mtu_bytes", || read::number("/sys/class/net/lo/mtu").map(Value::from)),
    ("sysctl", sysctls),
];

const CLOCK_SOURCE_DIRECTORY: &str = "/sys/devices/system/clocksource/clocksource0";

/// The settings of the network stack that affect buffers, windows and queues, with the kernel's names and
/// units (bytes; `busy_poll` in microseconds).
const SYSCTLS: &[&str] = &[
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.rmem_default",
    "net.core.wmem_default",
    "net.core.default_qdisc",
    "net.core.busy_poll",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_congestion_control",
];

/// The facts of this machine, for `environment.client` of a run document.
pub fn facts() -> Map<String, Value> {
    FACTS.iter().filter_map(|(name, find)| Some(((*name).to_owned(), find()?))).collect()
}

fn text_value(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| text.into())
}

fn list_value(texts: Vec<String>) -> Option<Value> {
    (!texts.is_empty()).then(|| texts.into())
}

fn operating_system(os_release: &str) -> Option<Value> {
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    text_value(name.trim_matches(['"', '\'']))
}

fn numa_nodes() -> Option<Value> {
    let nodes = read::parse_list(&read::text("/sys/devices/system/node/online")?).len();
    (nodes > 1).then(|| nodes.into())
}

/// `active`, or the reason why not: `off`, `forceoff`, `notsupported`, `notimplemented`.
fn smt() -> Option<Value> {
    if read::number("/sys/devices/system/cpu/smt/active") == Some(1) {
        return text_value("active");
    }
    let control = read::text("/sys/devices/system/cpu/smt/control")?;
    text_value(if control == "on" { "inactive" } else { &control })
}

fn deepest_idle_us() -> Option<Value> {
    let states = power::idle_states();
    let enabled = states.iter().rfind(|state| !state.is_disabled)?;
    Some(enabled.exit_latency_us.into())
}

fn load(which: usize) -> Option<Value> {
    Some(machine::load_averages(&read::text("/proc/loadavg")?)?[which].into())
}

/// A kernel setting, by its dotted name.
pub(crate) fn sysctl(name: &str) -> Option<Value> {
    machine::parse_sysctl(&read::text(format!("/proc/sys/{}", name.replace('.', "/")))?)
}

fn sysctls() -> Option<Value> {
    let found = SYSCTLS.iter().filter_map(|name| Some(((*name).to_owned(), sysctl(name)?)));
    let found: Map<String, Value> = found.collect();
    (!found.is_empty()).then(|| found.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_linux_has_these_facts() {
        let facts = facts();
        for name in
            ["hostname", "kernel_release", "architecture", "memory_bytes", "load_1min", "cpus_allowed"]
        {
            assert!(facts.contains_key(name), "{name} is missing in {facts:#?}");
        }
        assert!(facts["memory_bytes"].as_u64().unwrap() > 1 << 20);
        assert!(facts.values().all(|value| !value.is_null()));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = FACTS.iter().map(|fact| fact.0).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FACTS.len());
    }

    #[test]
    fn the_operating_system_has_a_pretty_name() {
        let text = "NAME=\"Debian GNU/Linux\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(operating_system(text), text_value("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(operating_system("NAME=x\n"), None);
    }

    #[test]
    fn a_sysctl_that_is_not_there_is_left_out() {
        assert_eq!(sysctl("net.core.no_such_setting"), None);
    }
}
