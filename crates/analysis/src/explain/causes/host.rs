//! The host that measures.

use super::{ANYWHERE, Cause, CauseFamily, Knob, Plant, Signature};

pub(super) const FAMILY: CauseFamily = CauseFamily {
    name: "host",
    summary: "this host adds time: it wakes a thread, runs other programs first, or collects interrupts",
    causes: &[
        Cause {
            id: "thread_wake_up",
            name: "wake-up of a blocked thread",
            applies: ANYWHERE,
            signature: Signature::Hidden,
            counter: Some("voluntary context switches of the measuring thread"),
            knob: Knob::BusyPoll,
            remedy: "wait by polling (--busy-poll), which keeps a CPU busy",
            plant: Plant::Lab("any link that blocks"),
        },
        Cause {
            id: "run_queue",
            name: "other programs on the CPU (run queue)",
            applies: ANYWHERE,
            signature: Signature::Hidden,
            counter: Some(
                "wait in the run queue of the measuring threads, and of a server on this host (schedstat)",
            ),
            knob: Knob::Pin,
            remedy: "move the other programs to other CPUs, or pin both ends to free CPUs (--pin)",
            plant: Plant::Lab("lab trouble --hog 0"),
        },
        Cause {
            id: "steal",
            name: "other guests on the CPU (steal)",
            applies: ANYWHERE,
            signature: Signature::Hidden,
            counter: Some("steal of /proc/stat"),
            knob: Knob::Missing("a guest cannot stop other guests. Try a host with CPUs of its own"),
            remedy: "use a virtual machine with reserved CPUs, or a physical host",
            plant: Plant::NotHere("needs control of the hypervisor"),
        },
        Cause {
            id: "interrupt_coalescing",
            name: "interrupt coalescing of the network card",
            applies: |target| target.is_remote(),
            signature: Signature::Hidden,
            counter: Some("rx-usecs of the interface (ethtool -c); packets per interrupt"),
            knob: Knob::DeviceSetting { name: "rx-usecs", value: "0" },
            remedy: "set rx-usecs to 0 and switch off adaptive coalescing, on both hosts: ethtool -C IF adaptive-rx off rx-usecs 0",
            plant: Plant::NotHere("virtual interfaces do not coalesce"),
        },
        Cause {
            id: "cpu_saturated",
            name: "CPU of sender or receiver",
            applies: ANYWHERE,
            signature: Signature::Hidden,
            counter: Some("CPU share of the measuring threads, time_squeeze of softnet_stat"),
            knob: Knob::Missing(
                "nothing makes a CPU faster. Try: linkgauge ab --workload throughput with --pin",
            ),
            remedy: "send larger messages, use offloads, or pin both ends to different CPUs",
            plant: Plant::Lab("linkgauge throughput on loopback"),
        },
    ],
};
