//! Power saving of the CPUs: frequency policies and idle states. Both make a quiet link look slower than a
//! busy one.
//!
//! `check/` names the commands that change them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::read;

const CPU_SYSFS_DIRECTORY: &str = "/sys/devices/system/cpu";

/// The combined frequency policies of all CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FrequencyPolicy {
    /// All active governors, without duplicates.
    pub(crate) governors: Vec<String>,
    /// The name of the frequency driver.
    pub(crate) driver: Option<String>,
    /// Lowest permitted frequency of any CPU.
    pub(crate) minimum_hz: Option<u64>,
    /// Highest permitted frequency of any CPU.
    pub(crate) maximum_hz: Option<u64>,
}

/// The active frequency policies; without governors if the kernel does not control the frequency.
pub(crate) fn frequency() -> FrequencyPolicy {
    frequency_in(&Path::new(CPU_SYSFS_DIRECTORY).join("cpufreq"))
}

fn frequency_in(folder: &Path) -> FrequencyPolicy {
    let names = read::file_names(folder).into_iter().filter(|name| name.starts_with("policy"));
    let policies: Vec<PathBuf> = names.map(|name| folder.join(name)).collect();
    let texts =
        |file: &str| policies.iter().filter_map(|policy| read::text(policy.join(file))).collect::<Vec<_>>();
    // sysfs uses kHz.
    let hertz = |file: &str| {
        let khz = texts(file).into_iter().filter_map(|text| text.parse::<u64>().ok());
        khz.map(|khz| khz.saturating_mul(1000)).collect::<Vec<_>>()
    };
    let mut governors = texts("scaling_governor");
    governors.sort();
    governors.dedup();
    FrequencyPolicy {
        governors,
        driver: texts("scaling_driver").into_iter().next(),
        minimum_hz: hertz("scaling_min_freq").into_iter().min(),
        maximum_hz: hertz("scaling_max_freq").into_iter().max(),
    }
}

/// An idle state of a CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleState {
    /// The folder name (`state3`).
    pub(crate) folder: String,
    /// The name of the state, as in `cpuidle`.
    pub name: String,
    /// The time that the CPU needs to leave the state.
    pub exit_latency_us: u64,
    /// The state is switched off.
    pub is_disabled: bool,
}

/// The idle states of the first CPU, the shallowest first; empty if the kernel has no choice of states.
pub fn idle_states() -> Vec<IdleState> {
    idle_states_in(&Path::new(CPU_SYSFS_DIRECTORY).join("cpu0/cpuidle"))
}

fn idle_states_in(folder: &Path) -> Vec<IdleState> {
    let state = |name: String| {
        let path = folder.join(&name);
        Some(IdleState {
            exit_latency_us: read::text(path.join("latency"))?.parse().ok()?,
            is_disabled: read::number(path.join("disable")).is_some_and(|disable| disable != 0),
            name: read::text(path.join("name")).unwrap_or_else(|| name.clone()),
            folder: name,
        })
    };
    let mut states: Vec<IdleState> = read::file_names(folder).into_iter().filter_map(state).collect();
    states.sort_by_key(|state| state.exit_latency_us);
    states
}

/// Limit of the exit latency, in microseconds, that programs have requested from the kernel; readable only by
/// root.
pub(crate) fn idle_latency_limit_us() -> Option<u64> {
    let bytes = std::fs::read("/dev/cpu_dma_latency").ok()?;
    u64::try_from(i32::from_ne_bytes(bytes.try_into().ok()?)).ok()
}

/// Asks the kernel for CPUs that wake up within this time, until the file is closed; by default only root may.
///
/// # Errors
///
/// The device is missing, or this process may not write to it.
pub fn request_wake_latency(microseconds: i32) -> io::Result<File> {
    let mut device = OpenOptions::new().write(true).open("/dev/cpu_dma_latency")?;
    device.write_all(&microseconds.to_ne_bytes())?;
    Ok(device)
}

/// The idle driver (`intel_idle`, `acpi_idle`, `haltpoll`).
pub(crate) fn idle_driver() -> Option<String> {
    read::text(format!("{CPU_SYSFS_DIRECTORY}/cpuidle/current_driver")).filter(|driver| driver != "none")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn write(folder: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(folder).unwrap();
        for (file, text) in files {
            fs::write(folder.join(file), text).unwrap();
        }
    }

    #[test]
    fn policies_are_taken_together() {
        let folder = tempfile::tempdir().unwrap();
        let policy = |name: &str, governor: &str, top: &str| {
            let files = [
                ("scaling_governor", governor),
                ("scaling_driver", "intel_pstate\n"),
                ("scaling_min_freq", "800000\n"),
                ("scaling_max_freq", top),
            ];
            write(&folder.path().join(name), &files);
        };
        policy("policy0", "powersave\n", "3400000\n");
        policy("policy1", "powersave\n", "5000000\n");
        policy("policy2", "performance\n", "strange\n");
        let expected = FrequencyPolicy {
            governors: vec!["performance".to_owned(), "powersave".to_owned()],
            driver: Some("intel_pstate".to_owned()),
            minimum_hz: Some(800_000_000),
            maximum_hz: Some(5_000_000_000),
        };
        assert_eq!(frequency_in(folder.path()), expected);
        assert_eq!(frequency_in(Path::new("/nowhere")), FrequencyPolicy::default());
    }

    #[test]
    fn idle_states_stand_in_order_of_their_latency() {
        let folder = tempfile::tempdir().unwrap();
        let state = |name: &str, files: &[(&str, &str)]| write(&folder.path().join(name), files);
        state("state10", &[("name", "C10"), ("latency", "890"), ("disable", "1")]);
        state("state2", &[("name", "C1E"), ("latency", "10"), ("disable", "0")]);
        state("state3", &[("latency", "?")]);
        let states = idle_states_in(folder.path());
        let states: Vec<_> =
            states.iter().map(|s| (s.folder.as_str(), s.exit_latency_us, s.is_disabled)).collect();
        assert_eq!(states, [("state2", 10, false), ("state10", 890, true)]);
    }
}
