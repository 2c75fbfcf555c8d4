//! Components that sleep when idle.

use super::{ANYWHERE, Cause, CauseFamily, Knob, Plant, Signature};

pub(super) const FAMILY: CauseFamily = CauseFamily {
    name: "idle",
    summary: "latency grows with the pause before the request: something sleeps or becomes cold meanwhile",
    causes: &[
        Cause {
            id: "idle_server",
            name: "link or server that sleeps when idle",
            applies: ANYWHERE,
            signature: Signature::Idle { from_ms: 1.0 },
            counter: None,
            knob: Knob::Missing("a request every few ms avoids it. Try: linkgauge latency URL --rate 100"),
            remedy: "keep the link busy, or switch off the power saving of radio, modem or server",
            plant: Plant::Lab("lab trouble --after-idle 100ms:40ms"),
        },
        Cause {
            id: "cpu_sleep_states",
            name: "sleep states of the CPUs (C-states)",
            applies: ANYWHERE,
            signature: Signature::Idle { from_ms: 0.02 },
            counter: Some("usage and time of the states in /sys/devices/system/cpu/cpu*/cpuidle"),
            knob: Knob::CpuWakeLatency,
            remedy: "hold /dev/cpu_dma_latency at 0 while it matters, or busy-poll",
            plant: Plant::NotHere("a virtual machine has no real sleep states"),
        },
        Cause {
            id: "slow_start_after_idle",
            name: "slow start after a pause",
            applies: |target| target.has_delayed_acknowledgements() && !target.is_local,
            signature: Signature::Hidden,
            counter: Some("tcpi_snd_cwnd after a pause"),
            knob: Knob::Missing(
                "this changes the whole host. Try: sysctl net.ipv4.tcp_slow_start_after_idle=0",
            ),
            remedy: "set net.ipv4.tcp_slow_start_after_idle to 0 on the sender",
            plant: Plant::Lab("netem delay 20ms in a guest, messages above 10 segments"),
        },
    ],
};
