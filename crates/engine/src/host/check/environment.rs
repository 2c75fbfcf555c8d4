//! Checks of this process's environment: guest, container, buffers and timers.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::Check;
use crate::host::machine::{ContainerTraces, HypervisorGuest, HypervisorTraces};
use crate::host::{interfaces, serial};
use linkgauge_model::units::format_bytes;
use linkgauge_model::warnings::{self, MIN_USB_TIMER_MS};

pub(super) fn hypervisor() -> Check {
    judge_hypervisor(HypervisorTraces::read().detect_guest())
}

fn judge_hypervisor(guest: Option<HypervisorGuest>) -> Check {
    const NAME: &str = "hypervisor";
    const REMEDY: &str = "compare runs of this machine only with each other";
    match guest {
        None => Check::good(NAME, "none to be seen"),
        Some(guest) if guest.has_emulated_cpu => Check::bad(
            NAME,
            format!("{}, emulated CPU: compare rows, not machines", guest.hypervisor),
            format!(
                "give the virtual machine a real CPU: qemu-system-x86_64 -enable-kvm -cpu host; or {REMEDY}"
            ),
        ),
        Some(guest) => Check::doubtful(
            NAME,
            format!("{}: interrupts, timers and wake-ups cost more than on a real machine", guest.hypervisor),
            REMEDY,
        ),
    }
}

pub(super) fn container() -> Check {
    let outside = interfaces::names().into_iter().filter(|name| name != "lo");
    let pair = outside.into_iter().find(|name| interfaces::facts(name).contains_key("stacked"));
    judge_container(ContainerTraces::read().detect_container().as_deref(), pair.as_deref())
}

/// `pair` is an interface whose other end is outside the container.
fn judge_container(kind: Option<&str>, pair: Option<&str>) -> Check {
    const NAME: &str = "container";
    let (kind, pair) = match (kind, pair) {
        (None, _) => return Check::good(NAME, "none"),
        (Some(kind), None) => {
            return Check::good(NAME, format!("{kind}, without a separate network"));
        }
        (Some(kind), Some(pair)) => (kind, pair),
    };
    let finding =
        format!("{kind}: {pair} leads through another virtual interface and perhaps address translation");
    let remedy = match kind {
        "kubernetes" => "set hostNetwork: true in the pod: kubectl explain pod.spec.hostNetwork",
        "podman" => "podman run --network host",
        "wsl" => {
            "add networkingMode=mirrored under [wsl2] in %UserProfile%\\.wslconfig, then: wsl --shutdown"
        }
        _ => "docker run --network host",
    };
    Check::doubtful(NAME, finding, remedy)
}

/// Bytes of 10 Gbit/s in 1 ms, the time that a busy machine may need to wake a reader.
const MIN_SOCKET_BUFFER_BYTES: u64 = 1_250_000;

pub(super) fn socket_buffers() -> Check {
    let limit = |name: &str| crate::host::sysctl(name).as_ref().and_then(Value::as_u64);
    judge_buffers(limit("net.core.rmem_max"), limit("net.core.wmem_max"))
}

fn judge_buffers(receive_bytes: Option<u64>, send_bytes: Option<u64>) -> Check {
    const NAME: &str = "socket buffers";
    let (Some(receive_bytes), Some(send_bytes)) = (receive_bytes, send_bytes) else {
        // Before Linux 6.7 these two limits were not visible inside network namespaces.
        return Check::good(NAME, "this network namespace does not show the limits");
    };
    let finding =
        format!("up to {} to receive, {} to send", format_bytes(receive_bytes), format_bytes(send_bytes));
    if receive_bytes.min(send_bytes) >= MIN_SOCKET_BUFFER_BYTES {
        return Check::good(NAME, finding);
    }
    let finding = format!("{finding}: a fast sender of datagrams overruns them");
    Check::doubtful(NAME, finding, "sudo sysctl -w net.core.rmem_max=16777216 net.core.wmem_max=16777216")
}

pub(super) fn usb_serial_timers() -> Check {
    judge_usb_timers(&serial::usb_latency_timers())
}

/// FTDI adapters hold received bytes back until this timer expires or a packet is full; the default is 16 ms.
fn judge_usb_timers(timers: &[(i64, PathBuf)]) -> Check {
    const NAME: &str = "USB serial timers";
    let slow: Vec<_> = timers.iter().filter(|(milliseconds, _)| *milliseconds > MIN_USB_TIMER_MS).collect();
    let Some((max_ms, _)) = slow.iter().max() else {
        return Check::good(
            NAME,
            if timers.is_empty() { "no adapter with such a timer" } else { "1 ms or less" },
        );
    };
    let files: Vec<_> = slow.iter().map(|(_, file)| file.display().to_string()).collect();
    Check::doubtful(
        NAME,
        format!("an adapter holds received bytes back for up to {max_ms} ms"),
        format!("echo 1 | sudo tee {}", files.join(" ")),
    )
}

/// Whether the interfaces with these facts delay their receive interrupts.
pub fn interrupt_coalescing(interfaces: &[Map<String, Value>]) -> Check {
    const NAME: &str = "interrupts";
    let holds_back = |facts: &Map<String, Value>| {
        let name = facts.get("interface")?.as_str()?;
        let is_up = facts.get("operstate").is_some_and(|state| state == "up");
        Some((name.to_owned(), warnings::describe_coalescing(facts).filter(|_| is_up)?))
    };
    let delayed: Vec<(String, String)> = interfaces.iter().filter_map(holds_back).collect();
    let Some((first, _)) = delayed.first() else {
        let known = interfaces.iter().any(|facts| facts.contains_key("interrupt_delay_us"));
        return Check::good(
            NAME,
            if known { "not held back" } else { "no interface reports its interrupt delay" },
        );
    };
    let finding = delayed.iter().map(|(name, how)| format!("{name} {how}")).collect::<Vec<_>>().join("; ");
    Check::doubtful(NAME, finding, warnings::coalescing_remedy(first))
}

#[cfg(test)]
mod tests {
    use super::super::CheckVerdict;
    use super::*;

    #[test]
    fn an_emulated_cpu_is_bad() {
        let guest = |emulated_cpu| {
            Some(HypervisorGuest { hypervisor: "QEMU".to_owned(), has_emulated_cpu: emulated_cpu })
        };
        assert_eq!(judge_hypervisor(None).verdict, CheckVerdict::Good);
        assert_eq!(judge_hypervisor(guest(false)).verdict, CheckVerdict::Doubtful);
        assert_eq!(judge_hypervisor(guest(true)).verdict, CheckVerdict::Bad);
    }

    #[test]
    fn a_container_is_doubtful_only_by_its_network() {
        assert_eq!(judge_container(None, Some("eth0")).verdict, CheckVerdict::Good);
        assert_eq!(judge_container(Some("docker"), None).verdict, CheckVerdict::Good);
        let check = judge_container(Some("podman"), Some("eth0"));
        assert_eq!(check.remedy.as_deref(), Some("podman run --network host"));
    }

    #[test]
    fn small_buffers_are_doubtful() {
        assert_eq!(judge_buffers(Some(4_194_304), Some(4_194_304)).verdict, CheckVerdict::Good);
        assert_eq!(judge_buffers(Some(4_194_304), Some(212_992)).verdict, CheckVerdict::Doubtful);
        assert_eq!(judge_buffers(None, None).verdict, CheckVerdict::Good);
    }

    #[test]
    fn coalesced_interrupts_are_doubtful() {
        let facts = |name: &str, state: &str, us: u64| {
            let facts =
                serde_json::json!({ "interface": name, "operstate": state, "interrupt_delay_us": us });
            facts.as_object().unwrap().clone()
        };
        let lo = Map::from_iter([("interface".to_owned(), Value::from("lo"))]);
        let check = interrupt_coalescing(&[lo.clone(), facts("eth0", "up", 50), facts("eth1", "down", 50)]);
        assert_eq!(check.verdict, CheckVerdict::Doubtful);
        assert_eq!(check.finding, "eth0 holds back interrupts for up to 50 µs");
        assert!(check.remedy.unwrap().starts_with("ethtool -C eth0 "));
        assert_eq!(interrupt_coalescing(&[lo.clone(), facts("eth0", "up", 0)]).finding, "not held back");
        assert_eq!(interrupt_coalescing(&[lo]).verdict, CheckVerdict::Good);
    }

    #[test]
    fn a_slow_usb_timer_is_doubtful() {
        let timers = [(16, "/sys/ttyUSB0".into()), (1, "/sys/ttyUSB1".into())];
        let check = judge_usb_timers(&timers);
        assert_eq!(check.verdict, CheckVerdict::Doubtful);
        assert!(check.finding.ends_with("up to 16 ms"), "{}", check.finding);
        assert_eq!(check.remedy.unwrap(), "echo 1 | sudo tee /sys/ttyUSB0");
        assert_eq!(judge_usb_timers(&timers[1..]).verdict, CheckVerdict::Good);
        assert_eq!(judge_usb_timers(&[]).verdict, CheckVerdict::Good);
    }
}
