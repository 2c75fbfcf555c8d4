//! The same shape in the kernel: a netem queue on a network device, set with `tc` and removed again.
//!
//! It works below TCP, so acknowledgements and connections are delayed as well, and it shapes what leaves by the
//! device, of all programs. A process that is killed outright leaves it behind; whoever starts next finds it by its
//! handle.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::LabError;
use super::shaper::check_shape;
use crate::link::shaped::{Occurrence, Shape};

/// Of our queues, so that nobody else's is taken for one: the number of our own port.
const QDISC_HANDLE: &str = "7100:";

/// Payload of a full packet over Ethernet: netem counts its queue in packets.
const FULL_PACKET_BYTES: f64 = 1500.0;

/// netem's own limit, and the most packets we ask it to hold (150 MB of full ones).
const MIN_QUEUE_PACKETS: f64 = 1000.0;
const MAX_QUEUE_PACKETS: f64 = 100_000.0;

/// A netem queue of ours; removed when dropped.
#[derive(Debug)]
pub struct Netem {
    /// Nothing when it was removed.
    device: Option<String>,
}

impl Netem {
    /// Shapes what leaves by `device`. Refuses a device that has a queue of ours already.
    pub fn start(device: &str, shape: &Shape) -> Result<Netem, LabError> {
        check_shape(shape)?;
        if !(shape.tail.is_zero() && shape.slot.is_zero() && shape.spike_occurrence == Occurrence::Never) {
            let text = format!("{device}: netem has no tail, spikes or slots: shape with a relay");
            return Err(LabError(text));
        }
        if shape.reorder != Occurrence::Never && shape.delay.is_zero() {
            let text = format!("{device}: netem reorders by not delaying: --reorder needs --delay");
            return Err(LabError(text));
        }
        let present = run_tc(device, &["qdisc", "show", "dev", device].map(str::to_owned))?;
        if present.contains(&format!("netem {QDISC_HANDLE}")) {
            return Err(LabError(format!(
                "{device}: 'lab shaper' has shaped it already: another one runs, or one was killed; to remove it: tc \
                 qdisc del dev {device} root"
            )));
        }
        run_tc(device, &tc_arguments(device, shape))?;
        Ok(Netem { device: Some(device.to_owned()) })
    }

    /// Removes it, and tells whether that worked.
    pub fn remove(mut self) -> Result<(), LabError> {
        self.device.take().map_or(Ok(()), |device| remove_qdisc(&device))
    }
}

impl Drop for Netem {
    fn drop(&mut self) {
        if let Some(device) = self.device.take() {
            // The next start finds what is left.
            let _ = remove_qdisc(&device);
        }
    }
}

fn remove_qdisc(device: &str) -> Result<(), LabError> {
    run_tc(device, &["qdisc", "del", "dev", device, "root", "handle", QDISC_HANDLE].map(str::to_owned))
        .map(|_| ())
}

/// What `tc` is told (tc-netem(8)).
fn tc_arguments(device: &str, shape: &Shape) -> Vec<String> {
    let words = ["qdisc", "add", "dev", device, "root", "handle", QDISC_HANDLE, "netem", "limit"];
    let mut arguments = words.map(str::to_owned).to_vec();
    // Without a delay nothing is on its way, however unlimited the rate.
    let on_its_way =
        if shape.delay.is_zero() { 0.0 } else { shape.bits_per_second / 8.0 * shape.delay.as_secs_f64() };
    let held = shape.queue_bytes as f64 + on_its_way;
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

/// Runs `tc`; what it prints, or what it complains of.
fn run_tc(device: &str, arguments: &[String]) -> Result<String, LabError> {
    // In a group of its own it does not get the Ctrl-C that ends us, and removes what it has to.
    let output = Command::new("tc").args(arguments).process_group(0).output().map_err(|error| {
        LabError(match error.kind() {
            io::ErrorKind::NotFound => "tc is not installed: apt-get install iproute2".to_owned(),
            _ => format!("tc: {error}"),
        })
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint = complaint.trim().trim_end_matches('.').replace('\n', "; ");
    Err(LabError(format!("{device}: tc: {complaint}{}", remedy(&complaint))))
}

/// What to try, by what `tc` of iproute2 6.1 and older ones say.
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
        ("NLM_F_REPLACE needed", ": somebody has put another queue there; it is left alone"),
        ("Exclusivity flag on", ": somebody has put another queue there; it is left alone"),
        ("File exists", ": somebody has put another queue there; it is left alone"),
    ];
    REMEDIES.iter().find(|(words, _)| complaint.contains(words)).map_or("", |(_, remedy)| remedy)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn shape_becomes_tc_arguments() {
        let told = |shape: &Shape| tc_arguments("eth0", shape)[7..].join(" ");
        let shape = Shape {
            delay: Duration::from_millis(500),
            bits_per_second: 80e3,
            queue_bytes: 65_536,
            ..Shape::default()
        };
        assert_eq!(told(&shape), "netem limit 1000 delay 500000us rate 80000bit");
        let shape = Shape {
            delay: Duration::from_nanos(1_500),
            jitter: Duration::from_micros(1),
            loss: Occurrence::Share(0.07),
            duplicate: Occurrence::Share(0.001),
            reorder: Occurrence::Every(4),
            ..Shape::default()
        };
        assert_eq!(told(&shape), "netem limit 100000 delay 1.5us 1us loss 7% duplicate 0.1% reorder 25%");
        let shape = Shape {
            delay: Duration::from_secs(2),
            bits_per_second: 8e6,
            queue_bytes: 1 << 20,
            ..Shape::default()
        };
        assert_eq!(told(&shape), "netem limit 2033 delay 2000000us rate 8000000bit");
        let shape = Shape { loss: Occurrence::Share(0.01), queue_bytes: 65_536, ..Shape::default() };
        assert_eq!(told(&shape), "netem limit 1000 loss 1%", "no rate and no delay");
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
