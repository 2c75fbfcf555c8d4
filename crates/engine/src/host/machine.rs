//! The machine: CPU, memory and kernel, and whether it is a guest or a container.
//!
//! `check/` judges these facts. Functions with arguments are pure, so that tests cover machines that are not
//! at hand.

use std::path::Path;

use serde_json::Value;

use super::read;

/// The CPU model as its vendor writes it; on ARM, where the kernel has no name, its numbers.
pub(crate) fn cpu_model(cpuinfo: &str) -> Option<String> {
    let named = ["model name", "cpu model", "cpu", "uarch"].iter().find_map(|key| read::field(cpuinfo, key));
    named.map(str::to_owned).or_else(|| {
        let implementer = read::field(cpuinfo, "CPU implementer")?;
        Some(format!("implementer {implementer} part {}", read::field(cpuinfo, "CPU part")?))
    })
}

/// Memory managed by the kernel, in bytes.
pub(crate) fn memory_bytes(meminfo: &str) -> Option<u64> {
    let kibibytes = read::field(meminfo, "MemTotal")?.strip_suffix("kB")?;
    kibibytes.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The kernel's tick rate, from its configuration file.
pub(crate) fn tick_hz(configuration: &str) -> Option<u64> {
    configuration.lines().find_map(|line| line.trim().strip_prefix("CONFIG_HZ=")?.parse().ok())
}

/// The load averages over 1, 5 and 15 minutes.
pub(crate) fn load_averages(loadavg: &str) -> Option<[f64; 3]> {
    let mut numbers = loadavg.split_whitespace().map_while(|word| word.parse::<f64>().ok());
    let averages = [numbers.next()?, numbers.next()?, numbers.next()?];
    averages.iter().all(|average| average.is_finite()).then_some(averages)
}

/// A sysctl's value: a number, a list of numbers, or text.
pub(crate) fn parse_sysctl(text: &str) -> Option<Value> {
    let numbers: Option<Vec<i64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
    match numbers.as_deref() {
        Some([]) => None,
        Some([one]) => Some((*one).into()),
        Some(several) => Some(several.into()),
        None => Some(text.trim().into()),
    }
}

/// The kernel's mitigations of CPU flaws, which make system calls slower: one line from the files in
/// `/sys/devices/system/cpu/vulnerabilities`.
pub(crate) fn mitigations(flaws: &[(String, String)]) -> Option<String> {
    if flaws.is_empty() {
        return None;
    }
    let (mut mitigated, mut vulnerable) = (Vec::new(), Vec::new());
    for (name, state) in flaws {
        if state.contains("Mitigation") {
            mitigated.push(name.as_str());
        } else if state.contains("ulnerable") {
            vulnerable.push(name.as_str());
        }
    }
    let groups = [("mitigated", mitigated), ("vulnerable", vulnerable)];
    let parts = groups.iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<String> = parts.map(|(group, names)| format!("{group}: {}", names.join(", "))).collect();
    Some(if parts.is_empty() { "none needed".to_owned() } else { parts.join("; ") })
}

/// Name and content of those files.
pub(crate) fn read_vulnerabilities() -> Vec<(String, String)> {
    let folder = Path::new("/sys/devices/system/cpu/vulnerabilities");
    let names = read::file_names(folder).into_iter();
    names.filter_map(|name| read::text(folder.join(&name)).map(|state| (name, state))).collect()
}

/// A guest of a hypervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HypervisorGuest {
    /// The name of the hypervisor.
    pub(crate) hypervisor: String,
    /// The CPU is emulated: time in the guest is not that of a real CPU.
    pub(crate) has_emulated_cpu: bool,
}

/// Properties that reveal a hypervisor.
#[derive(Debug, Clone, Default)]
pub(crate) struct HypervisorTraces {
    /// `/proc/cpuinfo`.
    pub(crate) cpuinfo: String,
    /// The available clock sources.
    pub(crate) clock_sources: String,
    /// Vendor and product of the board.
    pub(crate) board: String,
    /// `/sys/hypervisor/type`.
    pub(crate) hypervisor_type: String,
    /// `/proc/device-tree/hypervisor/compatible`.
    pub(crate) device_tree: String,
}

/// Words in the board names of guests, and their hypervisors.
const BOARD_HYPERVISORS: [(&str, &str); 11] = [
    ("VMware", "VMware"),
    ("VirtualBox", "VirtualBox"),
    ("Xen", "Xen"),
    ("Microsoft Corporation Virtual Machine", "Hyper-V"),
    ("Amazon EC2", "Amazon EC2"),
    ("Google Compute Engine", "Google Compute Engine"),
    ("Parallels", "Parallels"),
    ("bhyve", "bhyve"),
    ("Apple Virtualization", "Apple Virtualization"),
    ("QEMU", "QEMU"),
    ("KVM", "KVM"),
];

/// Clock sources that exist only in guests.
const GUEST_CLOCK_SOURCES: [(&str, &str); 3] =
    [("kvm-clock", "KVM"), ("hyperv_clocksource", "Hyper-V"), ("xen", "Xen")];

impl HypervisorTraces {
    /// Reads the properties of this host.
    pub(crate) fn read() -> HypervisorTraces {
        let text = |path: &str| read::text(path).unwrap_or_default();
        let board = |file: &str| text(&format!("/sys/class/dmi/id/{file}"));
        HypervisorTraces {
            cpuinfo: text("/proc/cpuinfo"),
            clock_sources: text("/sys/devices/system/clocksource/clocksource0/available_clocksource"),
            board: format!("{} {}", board("sys_vendor"), board("product_name")),
            hypervisor_type: text("/sys/hypervisor/type"),
            device_tree: text("/proc/device-tree/hypervisor/compatible"),
        }
    }

    /// The hypervisor with these properties.
    pub(crate) fn detect_guest(&self) -> Option<HypervisorGuest> {
        let flags = read::field(&self.cpuinfo, "flags");
        let flagged = flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
        let board =
            BOARD_HYPERVISORS.iter().find(|(words, _)| self.board.contains(words)).map(|(_, name)| *name);
        let is_guest = match flags {
            // Clouds also offer whole machines: their boards have the cloud's name, but the CPU flag is
            // clear.
            Some(_) => flagged || !self.hypervisor_type.is_empty(),
            None => {
                !self.device_tree.is_empty()
                    || !self.hypervisor_type.is_empty()
                    || (board.is_some() && !self.board.contains(".metal"))
            }
        };
        if !is_guest {
            return None;
        }
        let has_clock =
            |clock: &str| self.clock_sources.split_whitespace().any(|name| name.starts_with(clock));
        let clock = GUEST_CLOCK_SOURCES.iter().find(|(clock, _)| has_clock(clock)).map(|(_, name)| *name);
        let model = cpu_model(&self.cpuinfo).unwrap_or_default();
        // QEMU on a real CPU offers kvm-clock; without one, it emulates.
        let qemu = board == Some("QEMU") || model.starts_with("QEMU");
        let emulated_cpu = model.contains("TCG") || (flagged && qemu && clock.is_none());
        let stated = [&self.hypervisor_type, &self.device_tree].into_iter().find(|text| !text.is_empty());
        let hypervisor = match (board, clock) {
            (Some("QEMU"), Some("KVM")) => "QEMU with KVM".to_owned(),
            (Some("QEMU"), _) if emulated_cpu => "QEMU without KVM".to_owned(),
            (Some(name), _) | (None, Some(name)) => name.to_owned(),
            (None, None) if qemu => "QEMU".to_owned(),
            (None, None) => stated.map_or_else(|| "an unknown hypervisor".to_owned(), String::clone),
        };
        Some(HypervisorGuest { hypervisor, has_emulated_cpu: emulated_cpu })
    }
}

/// The first PID namespace of a machine (`PROC_PID_INIT_INO` in the kernel's `proc_ns.h`).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Properties that reveal a container.
#[derive(Debug, Clone, Default)]
pub(crate) struct ContainerTraces {
    /// Target of `/proc/self/ns/pid`.
    pub(crate) pid_namespace: String,
    /// `/run/systemd/container`.
    pub(crate) systemd_container: String,
    /// Control groups of the first process.
    pub(crate) control_groups: String,
    /// The release of the kernel.
    pub(crate) kernel_release: String,
    /// Docker's file exists.
    pub(crate) has_docker_marker: bool,
    /// Podman's file exists.
    pub(crate) has_podman_marker: bool,
}

impl ContainerTraces {
    /// Reads the properties of this process.
    pub(crate) fn read() -> ContainerTraces {
        ContainerTraces {
            pid_namespace: read::link_name("/proc/self/ns/pid").unwrap_or_default(),
            systemd_container: read::text("/run/systemd/container").unwrap_or_default(),
            control_groups: read::text("/proc/1/cgroup").unwrap_or_default(),
            kernel_release: read::text("/proc/sys/kernel/osrelease").unwrap_or_default(),
            has_docker_marker: Path::new("/.dockerenv").exists(),
            has_podman_marker: Path::new("/run/.containerenv").exists(),
        }
    }

    /// The kind of container, or `None` outside of one.
    pub(crate) fn detect_container(&self) -> Option<String> {
        let groups = |word: &str| self.control_groups.contains(word);
        let named = if !self.systemd_container.is_empty() {
            Some(self.systemd_container.as_str())
        } else if self.kernel_release.to_lowercase().contains("microsoft") {
            Some("wsl")
        } else if groups("kubepods") {
            Some("kubernetes")
        } else if groups("libpod") {
            Some("podman")
        } else if groups("/docker") {
            Some("docker")
        } else if groups("/lxc") {
            Some("lxc")
        } else {
            None
        };
        if let Some(name) = named {
            return Some(name.to_owned());
        }
        // Virtual machines made from container images have the same marks, but run in the initial PID
        // namespace.
        match self.pid_namespace.as_str() {
            INITIAL_PID_NAMESPACE | "" => None,
            _ if self.has_docker_marker => Some("docker".to_owned()),
            _ if self.has_podman_marker => Some("podman".to_owned()),
            _ => Some("unknown kind".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: &str = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu tsc hypervisor avx\n";

    #[test]
    fn cpu_models() {
        assert_eq!(cpu_model(X86).as_deref(), Some("AMD EPYC"));
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(cpu_model(arm).as_deref(), Some("implementer 0x41 part 0xd0c"));
        assert_eq!(
            cpu_model("cpu\t\t: POWER9, altivec supported\n").as_deref(),
            Some("POWER9, altivec supported")
        );
        assert_eq!(cpu_model(""), None);
    }

    #[test]
    fn numbers_of_the_kernel() {
        assert_eq!(memory_bytes("MemTotal:       24668960 kB\nMemFree: 1 kB\n"), Some(25_261_015_040));
        assert_eq!(memory_bytes("MemTotal: lots\n"), None);
        assert_eq!(tick_hz("CONFIG_HZ_250=y\n# CONFIG_HZ_300 is not set\nCONFIG_HZ=250\n"), Some(250));
        assert_eq!(load_averages("0.10 0.11 0.10 2/85 7806\n"), Some([0.10, 0.11, 0.10]));
        assert_eq!(load_averages("0.10 nan 0.10"), None);
        assert_eq!(load_averages("0.10"), None);
    }

    #[test]
    fn sysctl_values() {
        assert_eq!(parse_sysctl("4194304\n"), Some(4_194_304.into()));
        assert_eq!(
            parse_sysctl("4096\t131072\t33554432\n"),
            Some(serde_json::json!([4096, 131_072, 33_554_432]))
        );
        assert_eq!(parse_sysctl("bbr\n"), Some("bbr".into()));
        assert_eq!(parse_sysctl(" \n"), None);
    }

    #[test]
    fn mitigations_are_one_line() {
        let flaws = |states: &[(&str, &str)]| {
            mitigations(&states.iter().map(|(n, s)| ((*n).to_owned(), (*s).to_owned())).collect::<Vec<_>>())
        };
        let states = [
            ("mds", "Mitigation: Clear CPU buffers; SMT vulnerable"),
            ("itlb_multihit", "KVM: Mitigation: Split huge pages"),
            ("meltdown", "Not affected"),
            ("srbds", "Unknown: Dependent on hypervisor status"),
            ("spec_store_bypass", "Vulnerable"),
        ];
        assert_eq!(flaws(&states).unwrap(), "mitigated: mds, itlb_multihit; vulnerable: spec_store_bypass");
        assert_eq!(flaws(&[("meltdown", "Not affected")]).unwrap(), "none needed");
        assert_eq!(flaws(&[]), None);
    }

    fn guest(cpuinfo: &str, clock_sources: &str, board: &str) -> String {
        let traces = HypervisorTraces {
            cpuinfo: cpuinfo.to_owned(),
            clock_sources: clock_sources.to_owned(),
            board: board.to_owned(),
            ..HypervisorTraces::default()
        };
        traces.detect_guest().map_or_else(
            || "none".to_owned(),
            |guest| format!("{}{}", guest.hypervisor, if guest.has_emulated_cpu { ", emulated" } else { "" }),
        )
    }

    #[test]
    fn hypervisors() {
        let bare = X86.replace("hypervisor ", "");
        let tcg = X86.replace("AMD EPYC", "QEMU TCG CPU version 2.5+");
        let arm = "CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        let rows = [
            guest(&bare, "tsc hpet acpi_pm", "Dell Inc. PowerEdge R640"),
            guest(&bare, "tsc hpet acpi_pm", "Amazon EC2 c5.metal"),
            guest(X86, "tsc kvm-clock", " "),
            guest(X86, "kvm-clock tsc acpi_pm", "QEMU Standard PC (Q35 + ICH9, 2009)"),
            guest(X86, "tsc hpet acpi_pm", "QEMU Standard PC (Q35 + ICH9, 2009)"),
            guest(&tcg, "tsc hpet", " "),
            guest(X86, "hyperv_clocksource_tsc_page acpi_pm", "Microsoft Corporation Virtual Machine"),
            guest(X86, "tsc", " "),
            guest(arm, "arch_sys_counter", "Amazon EC2 c7g.large"),
            guest(arm, "arch_sys_counter", "Amazon EC2 c7g.metal"),
            guest(arm, "arch_sys_counter", " "),
        ];
        insta::assert_snapshot!(rows.join("\n"), @r"
        none
        none
        KVM
        QEMU with KVM
        QEMU without KVM, emulated
        QEMU, emulated
        Hyper-V
        an unknown hypervisor
        Amazon EC2
        none
        none
        ");
        let traces = HypervisorTraces { hypervisor_type: "xen".to_owned(), ..HypervisorTraces::default() };
        assert_eq!(traces.detect_guest().unwrap().hypervisor, "xen");
    }

    #[test]
    fn containers() {
        let inside =
            ContainerTraces { pid_namespace: "pid:[4026532261]".to_owned(), ..ContainerTraces::default() };
        let machine =
            ContainerTraces { pid_namespace: INITIAL_PID_NAMESPACE.to_owned(), ..ContainerTraces::default() };
        let kind = |walls: ContainerTraces| walls.detect_container().unwrap_or_default();
        assert_eq!(kind(machine.clone()), "");
        assert_eq!(
            kind(ContainerTraces { has_docker_marker: true, ..machine.clone() }),
            "",
            "a machine made from an image"
        );
        assert_eq!(kind(ContainerTraces { has_docker_marker: true, ..inside.clone() }), "docker");
        assert_eq!(kind(ContainerTraces { has_podman_marker: true, ..inside.clone() }), "podman");
        assert_eq!(kind(inside), "unknown kind");
        assert_eq!(kind(ContainerTraces { systemd_container: "lxc".to_owned(), ..machine.clone() }), "lxc");
        let groups = "0::/kubepods.slice/kubepods-pod1".to_owned();
        assert_eq!(kind(ContainerTraces { control_groups: groups, ..machine.clone() }), "kubernetes");
        let release = "5.15.90.1-microsoft-standard-WSL2".to_owned();
        assert_eq!(kind(ContainerTraces { kernel_release: release, ..machine }), "wsl");
        assert_eq!(kind(ContainerTraces::default()), "");
    }
}
