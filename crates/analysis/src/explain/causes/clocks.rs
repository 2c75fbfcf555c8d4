//! A clock: a program or device looks, sends or sleeps only at multiples of a period.

use super::{ANYWHERE, Cause, CauseFamily, Knob, Plant, Signature};

pub(super) const FAMILY: CauseFamily = CauseFamily {
    name: "clock",
    summary: "something acts only at multiples of a period: replies arrive at one phase of it, whatever their latency",
    causes: &[
        Cause {
            // First: behind a device server 4 ms are more often this tick than the timer of an adapter.
            id: "kernel_tick",
            name: "tick of kernel timers (HZ)",
            applies: |target| target.has_delayed_acknowledgements(),
            signature: Signature::Tick { periods_ms: &[4.0, 10.0 / 3.0] },
            counter: Some("CONFIG_HZ of the kernel"),
            knob: Knob::Missing(
                "the tick is compiled into the kernel. It only rounds the time of other causes up",
            ),
            remedy: "look for the timer that waits: the tick alone costs nothing",
            plant: Plant::Lab("any timer of the kernel, as that of a delayed ACK"),
        },
        Cause {
            id: "usb_latency_timer",
            name: "latency timer of a USB serial adapter",
            applies: |target| target.caps.is_serial_device(),
            signature: Signature::Clock { periods_ms: &[16.0, 4.0, 2.0, 1.0] },
            counter: Some("latency_timer of the adapter in sysfs"),
            knob: Knob::UrlOption { name: "low_latency", value: "1" },
            remedy: "add ?low_latency=1 to the URL, or write 1 to latency_timer of the adapter in sysfs",
            plant: Plant::Lab("lab uart --latency-timer 16ms"),
        },
        Cause {
            id: "wifi_power_save",
            name: "Wi-Fi power save (beacon interval)",
            applies: |target| target.is_remote(),
            signature: Signature::Clock { periods_ms: &[102.4, 204.8, 307.2] },
            counter: Some("power_save of the interface"),
            knob: Knob::DeviceSetting { name: "power_save", value: "off" },
            remedy: "switch off power save of the Wi-Fi interfaces, of both hosts: iw dev WLAN set power_save off",
            plant: Plant::Lab("lab shaper --slot 102.4ms"),
        },
        Cause {
            id: "bluetooth_sniff",
            name: "Bluetooth sniff mode",
            applies: |target| target.is_remote() || target.has_option("channel"),
            signature: Signature::Clock { periods_ms: &[500.0, 640.0, 800.0] },
            counter: Some("mode of the HCI connection"),
            knob: Knob::Missing(
                "this changes the whole adapter. Try: keep the link busy, with a request every 100 ms",
            ),
            remedy: "request a shorter sniff interval, or keep the link busy",
            plant: Plant::Lab("lab shaper --slot 640ms"),
        },
        Cause {
            id: "radio_slot",
            name: "time slots of a radio or bus",
            applies: |target| target.is_remote() || target.caps.is_serial_device(),
            signature: Signature::Clock { periods_ms: &[0.125, 0.625, 1.25, 2.5, 7.5, 40.0] },
            counter: None,
            knob: Knob::Missing("the slots belong to the radio. Try another radio profile, or a cable"),
            remedy: "choose a profile of the radio with shorter slots, or send less often and more at once",
            plant: Plant::Lab("lab shaper --slot 1.25ms"),
        },
        Cause {
            id: "remote_clock",
            name: "server or device that acts on a clock",
            applies: ANYWHERE,
            signature: Signature::Clock { periods_ms: &[] },
            counter: None,
            knob: Knob::Missing(
                "only the server can change its clock. Try a shorter poll interval or tick there",
            ),
            remedy: "wait for input in the server instead of polling on a timer, or shorten its timer",
            plant: Plant::Lab("lab trouble --tick 10ms, --poll 20ms; lab device-server --poll 20ms"),
        },
        Cause {
            id: "cpu_quota",
            name: "CPU quota of a container",
            applies: |target| target.is_local,
            signature: Signature::PeriodicPauses { periods_ms: &[100.0] },
            counter: Some("nr_throttled, throttled_usec of cpu.stat of the control group"),
            knob: Knob::Missing("a program cannot raise its own quota. Try a larger cpu.max"),
            remedy: "raise or remove the CPU quota (cpu.max)",
            plant: Plant::Lab("a control group with cpu.max"),
        },
        Cause {
            id: "periodic_pause",
            name: "periodic pauses of the server",
            applies: ANYWHERE,
            signature: Signature::PeriodicPauses { periods_ms: &[] },
            counter: None,
            knob: Knob::Missing("only the server can skip its pauses. Look there for a job with this period"),
            remedy: "find the job of the server that runs with this period, and move it to another thread",
            plant: Plant::Lab("lab trouble --stall 50ms@1s"),
        },
    ],
};
