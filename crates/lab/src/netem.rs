//! Shaping by the kernel: a netem queue on a network device, set with `tc` and removed afterwards.
//!
//! The queue works below TCP, so it also delays acknowledgements and connection setup. It shapes all programs' traffic that
//! leaves by the device. If this process is killed, the queue stays. The next start recognises it by its handle.

use std::io;
use std::process::Command;

use super::LabError;
use super::shaper::check_shape;
use linkgauge_engine::link::shaped::{Occurrence, Shape};

/// Handle of our queues, to distinguish them from others: our own port number.
const QDISC_HANDLE: &str = "7100:";

/// Payload of a full Ethernet packet. netem counts its queue in packets.
const FULL_PACKET_BYTES: f64 = 1500.0;

/// netem's default limit, and our maximum queue (150 MB of full packets).
const MIN_QUEUE_PACKETS: f64 = 1000.0;
const MAX_QUEUE_PACKETS: f64 = 100_000.0;

/// A netem queue that is removed when dropped.
#[derive(Debug)]
pub struct Netem {
    /// `None` after removal.
    device: Option<String>,
}

impl Netem {
    /// Shapes traffic that leaves by `device`.
    ///
    /// # Errors
    ///
    /// Fails if netem does not support the shape, if the device already has a queue of ours, or if `tc` fails.
    pub fn start(device: &str, shape: &Shape) -> Result<Netem, LabError> {
        check_shape(shape)?;
        if has_relay_only_settings(shape) {
            return Err(LabError::Invalid(format!(
                "{device}: netem has no tail, spikes, waits, slots, bursts or overhead: shape with a relay"
            )));
        }
        if shape.police.is_some() {
            return Err(LabError::Invalid(format!(
                "{device}: netem does not police: shape datagrams with a relay"
            )));
        }
        if shape.reorder != Occurrence::Never && shape.delay.is_zero() {
            let text = format!("{device}: netem reorders by not delaying: --reorder needs --delay");
            return Err(LabError::Invalid(text));
        }
        let present = run_tc(device, &["qdisc", "show", "dev", device].map(str::to_owned))?;
        if present.contains(&format!("netem {QDISC_HANDLE}")) {
            return Err(LabError::Invalid(format!(
                "{device}: 'lab shaper' already shapes it: another one runs, or one was killed. To remove it: tc \
                 qdisc del dev {device} root"
            )));
        }
        run_tc(device, &tc_arguments(device, shape))?;
        Ok(Netem { device: Some(device.to_owned()) })
    }

    /// Removes the queue.
    ///
    /// # Errors
    ///
    /// Fails if `tc` fails.
    pub fn remove(mut self) -> Result<(), LabError> {
        self.device.take().map_or(Ok(()), |device| remove_qdisc(&device))
    }
}

impl Drop for Netem {
    fn drop(&mut self) {
        if let Some(device) = self.device.take() {
            // The next start detects a queue that remains.
            let _ = remove_qdisc(&device);
        }
    }
}

fn remove_qdisc(device: &str) -> Result<(), LabError> {
    run_tc(device, &["qdisc", "del", "dev", device, "root", "handle", QDISC_HANDLE].map(str::to_owned))
        .map(|_| ())
}

/// Whether the shape has settings that netem cannot apply.
fn has_relay_only_settings(shape: &Shape) -> bool {
    let is_free_of_waits = [shape.spike_occurrence, shape.wait_occurrence] == [Occurrence::Never; 2];
    let is_plain = shape.tail.is_zero() && shape.slot.is_zero() && is_free_of_waits;
    !is_plain || shape.burst_bytes > 0 || shape.overhead_bytes > 0 || shape.costs.is_some()
}

/// Arguments for `tc` (tc-netem(8)).
fn tc_arguments(device: &str, shape: &Shape) -> Vec<String> {
    let words = ["qdisc", "add", "dev", device, "root", "handle", QDISC_HANDLE, "netem", "limit"];
    let mut arguments = words.map(str::to_owned).to_vec();
    // Without a delay no packet is in flight, whatever the rate.
    let in_flight =
        if shape.delay.is_zero() { 0.0 } else { shape.bits_per_second / 8.0 * shape.delay.as_secs_f64() };
    let held = shape.queue_bytes as f64 + in_flight;
    arguments.push(format!(
        "{:.0}",
        (held / FULL_PACKET_BYTES).ceil().clamp(MIN_QUEUE_PACKETS, MAX_QUEUE_PACKETS)
    ));
    let microseconds = |duration: std::time::Duration| format!("{}us", duration.as_nanos() as f64 / 1e3);
    if !shape.delay.is_zero() {
        arguments.extend(["delay".to_owned(), microseconds(shape.delay)]);
        if !shape.jitter.is_zero() {
            arguments.push(microseconds(shape.jitter));
        }
    }
    if shape.bits_per_second.is_finite() {
        arguments.extend(["rate".to_owned(), format!("{:.0}bit", shape.bits_per_second)]);
    }
    for (word, often) in [("loss", shape.loss), ("duplicate", shape.duplicate), ("reorder", shape.reorder)] {
        let share = match often {
            Occurrence::Never => continue,
            Occurrence::Every(n) => 1.0 / n as f64,
            Occurrence::Share(share) => share,
        };
        arguments.extend([word.to_owned(), format!("{}%", (share * 1e8).round() / 1e6)]);
    }
    arguments
}

/// Runs `tc` and returns its output. The error has its error message.
fn run_tc(device: &str, arguments: &[String]) -> Result<String, LabError> {
    // In its own process group it survives the Ctrl-C that ends us, and can remove the queue.
    let output =
        linkgauge_system::in_own_group(Command::new("tc").args(arguments)).output().map_err(|error| {
            LabError::Program(match error.kind() {
                io::ErrorKind::NotFound => "tc is not installed: apt-get install iproute2".to_owned(),
                _ => format!("tc: {error}"),
            })
        })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint = complaint.trim().trim_end_matches('.').replace('\n', "; ");
    Err(LabError::Program(format!("{device}: tc: {complaint}{}", remedy(&complaint))))
}

/// Suggests a remedy, based on the messages of iproute2 6.1 and older.
fn remedy(complaint: &str) -> &'static str {
    const REMEDIES: [(&str, &str); 6] = [
        (
            "qdisc kind is unknown",
            ": this kernel has no netem: try 'modprobe sch_netem', or shape with a relay",
        ),
        (
            "No such file or directory",
            ": this kernel has no netem: try 'modprobe sch_netem', or shape with a relay",
        ),
        ("Operation not permitted", ": only root may shape a device"),
        ("NLM_F_REPLACE needed", ": another program has installed a queue there. Remove it first"),
        ("Exclusivity flag on", ": another program has installed a queue there. Remove it first"),
        ("File exists", ": another program has installed a queue there. Remove it first"),
    ];
    REMEDIES.iter().find(|(words, _)| complaint.contains(words)).map_or("", |(_, remedy)| remedy)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn shape_becomes_tc_arguments() {
        let arguments = |shape: &Shape| tc_arguments("eth0", shape)[7..].join(" ");
        let shape = Shape {
            delay: Duration::from_millis(500),
            bits_per_second: 80e3,
            queue_bytes: 65_536,
            ..Shape::default()
        };
        assert_eq!(arguments(&shape), "netem limit 1000 delay 500000us rate 80000bit");
        let shape = Shape {
            delay: Duration::from_nanos(1_500),
            jitter: Duration::from_micros(1),
            loss: Occurrence::Share(0.07),
            duplicate: Occurrence::Share(0.001),
            reorder: Occurrence::Every(4),
            ..Shape::default()
        };
        assert_eq!(
            arguments(&shape),
            "netem limit 100000 delay 1.5us 1us loss 7% duplicate 0.1% reorder 25%"
        );
        let shape = Shape {
            delay: Duration::from_secs(2),
            bits_per_second: 8e6,
            queue_bytes: 1 << 20,
            ..Shape::default()
        };
        assert_eq!(arguments(&shape), "netem limit 2033 delay 2000000us rate 8000000bit");
        let shape = Shape { loss: Occurrence::Share(0.01), queue_bytes: 65_536, ..Shape::default() };
        assert_eq!(arguments(&shape), "netem limit 1000 loss 1%", "no rate and no delay");
        assert_eq!(
            tc_arguments("eth0", &shape)[..7].join(" "),
            "qdisc add dev eth0 root handle 7100:",
            "found again by its handle"
        );
    }

    #[test]
    fn contradicting_shapes_are_refused() {
        let shape = Shape { reorder: Occurrence::Share(0.1), ..Shape::default() };
        let error = Netem::start("lo", &shape).unwrap_err().to_string();
        assert_eq!(error, "lo: netem reorders by not delaying: --reorder needs --delay");
    }
}
