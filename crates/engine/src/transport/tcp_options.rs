//! The options of `tcp` for the timers, windows and rates of one connection. Each changes one thing, so that a
//! measurement with and without it shows what that thing costs.

use std::io;
use std::time::Duration;

use socket2::Socket;

use super::socket::parse_flag;
use crate::link::{Facts, Fault};
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_model::units;
use linkgauge_system::{self as system, Errno, TcpTimer};

pub(crate) const QUICK_ACK_OPTION: (&str, &str) = (
    "quickack",
    "1 acknowledges at once, set again after each read; 0 delays acknowledgements from the start (the kernel's choice)",
);
pub(crate) const DELAYED_ACK_OPTION: (&str, &str) = (
    "delack_max",
    "longest delay of an acknowledgement, 1ms to 200ms, rounded up to the kernel's tick (the kernel's choice)",
);
pub(crate) const RETRANSMISSION_OPTION: (&str, &str) =
    ("rto_min", "shortest time to a retransmission, 1ms to 200ms, rounded up to the kernel's tick (200ms)");
pub(crate) const NOT_SENT_OPTION: (&str, &str) =
    ("notsent_lowat", "bytes that may wait unsent in the send buffer before it counts as full (no limit)");
pub(crate) const PACING_OPTION: (&str, &str) =
    ("pacing_rate", "highest rate at which the kernel sends, like 50M (no limit)");
pub(crate) const SEGMENT_OPTION: (&str, &str) = (
    "mss",
    "largest segment in bytes, 88 to 32767 (what the path allows); the listener's holds for what it receives",
);

/// The values that a kernel uses by default are not facts worth noting.
const DEFAULT_TIMER_US: u32 = 200_000;

/// The requested options; `None` leaves the kernel's choice.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TcpOptions {
    pub(crate) quick_ack: Option<bool>,
    delayed_ack_max: Option<Duration>,
    retransmission_min: Option<Duration>,
    not_sent_bytes: Option<u32>,
    pacing_bps: Option<f64>,
    segment_bytes: Option<u32>,
}

impl TcpOptions {
    pub(crate) fn from_endpoint(endpoint: &Endpoint) -> Result<TcpOptions, EndpointError> {
        let timer = |name| {
            endpoint.parse_option(name, "a time from 1ms to 200ms", |text| {
                let range = Duration::from_millis(1)..=Duration::from_millis(200);
                units::parse_duration(text).ok().filter(|time| range.contains(time))
            })
        };
        let number = |name, wanted, range: std::ops::RangeInclusive<u64>| {
            endpoint.parse_option(name, wanted, move |text| {
                let number = units::parse_bytes(text).ok().filter(|number| range.contains(number));
                number.and_then(|number| u32::try_from(number).ok())
            })
        };
        Ok(TcpOptions {
            quick_ack: parse_flag(endpoint, QUICK_ACK_OPTION.0)?,
            delayed_ack_max: timer(DELAYED_ACK_OPTION.0)?,
            retransmission_min: timer(RETRANSMISSION_OPTION.0)?,
            not_sent_bytes: number(NOT_SENT_OPTION.0, "a size from 1 to 1Gi bytes", 1..=1 << 30)?,
            pacing_bps: endpoint.parse_option(PACING_OPTION.0, "a rate from 1kbit/s, like 50M", |text| {
                units::parse_bit_rate(text).ok().filter(|rate| (1e3..1e15).contains(rate))
            })?,
            segment_bytes: number(SEGMENT_OPTION.0, "a size from 88 to 32767 bytes", 88..=32_767)?,
        })
    }

    /// Applies the options to a socket, before it connects or once it was accepted.
    pub(crate) fn apply(&self, socket: &Socket) -> Result<(), Fault> {
        if let Some(on) = self.quick_ack {
            system::set_quick_ack(socket, on).map_err(Fault::system("set TCP_QUICKACK"))?;
        }
        for (option, timer, time) in [
            (DELAYED_ACK_OPTION.0, TcpTimer::DelayedAckMax, self.delayed_ack_max),
            (RETRANSMISSION_OPTION.0, TcpTimer::RetransmissionMin, self.retransmission_min),
        ] {
            if let Some(time) = time {
                let set = system::set_tcp_timer(socket, timer, time.as_micros() as u32);
                set.map_err(|error| timer_fault(option, timer, error))?;
            }
        }
        if let Some(bytes) = self.not_sent_bytes {
            system::set_unsent_limit(socket, bytes).map_err(Fault::system("set TCP_NOTSENT_LOWAT"))?;
        }
        if let Some(bps) = self.pacing_bps {
            system::set_pacing_rate(socket, (bps / 8.0) as u64)
                .map_err(Fault::system("set the pacing rate"))?;
        }
        Ok(())
    }

    /// Applies what must precede the connection.
    pub(crate) fn apply_before_connecting(&self, socket: &Socket) -> Result<(), Fault> {
        let Some(bytes) = self.segment_bytes else { return Ok(()) };
        system::set_segment_bytes(socket, bytes).map_err(Fault::system("set the segment size"))
    }
}

fn timer_fault(option: &str, timer: TcpTimer, error: io::Error) -> Fault {
    match Errno::from_io_error(&error) {
        Some(Errno::NOPROTOOPT) => Fault::Unsupported(format!(
            "this kernel has no {}, which {option} sets: leave out {option}, or use a newer kernel (Linux 6.18 has it)",
            timer.name()
        )),
        Some(Errno::INVAL) => Fault::Invalid(format!(
            "the kernel refuses this time for {}: use a longer {option}, like 10ms",
            timer.name()
        )),
        _ => Fault::System { operation: "set a timer of TCP", source: error },
    }
}

/// Adds the effective values that are not the kernel's usual ones.
pub fn facts(socket: &Socket, facts: &mut Facts) {
    for (name, timer) in [
        ("delayed_ack_max_ns", TcpTimer::DelayedAckMax),
        ("retransmission_min_ns", TcpTimer::RetransmissionMin),
    ] {
        let micros = system::tcp_timer(socket, timer).filter(|micros| *micros != DEFAULT_TIMER_US);
        facts.extend(micros.map(|micros| (name.to_owned(), (u64::from(micros) * 1000).into())));
    }
    let pacing = system::pacing_rate(socket).map(|rate| ("pacing_limit_bps".to_owned(), (rate * 8).into()));
    facts.extend(pacing);
    let not_sent = system::unsent_limit(socket).filter(|bytes| *bytes > 0 && *bytes < u32::MAX);
    facts.extend(not_sent.map(|bytes| ("not_sent_limit_bytes".to_owned(), bytes.into())));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &str) -> Result<TcpOptions, EndpointError> {
        TcpOptions::from_endpoint(&format!("tcp://h:1?{options}").parse().unwrap())
    }

    #[test]
    fn options_have_units_and_ranges() {
        let all = "quickack=1&delack_max=5ms&rto_min=20ms&notsent_lowat=16Ki&pacing_rate=50M&mss=536";
        let expected = TcpOptions {
            quick_ack: Some(true),
            delayed_ack_max: Some(Duration::from_millis(5)),
            retransmission_min: Some(Duration::from_millis(20)),
            not_sent_bytes: Some(16_384),
            pacing_bps: Some(50e6),
            segment_bytes: Some(536),
        };
        assert_eq!(parse(all), Ok(expected));
        assert_eq!(parse("nodelay=1"), Ok(TcpOptions::default()));
        for wrong in
            ["quickack=2", "delack_max=0", "rto_min=1s", "notsent_lowat=0", "pacing_rate=1", "mss=87"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_old_kernel_and_a_short_time_have_a_remedy() {
        let fault =
            |errno: Errno| timer_fault("delack_max", TcpTimer::DelayedAckMax, errno.into()).to_string();
        insta::assert_snapshot!(fault(Errno::NOPROTOOPT), @"this kernel has no TCP_DELACK_MAX_US, which delack_max sets: leave out delack_max, or use a newer kernel (Linux 6.18 has it)");
        insta::assert_snapshot!(fault(Errno::INVAL), @"the kernel refuses this time for TCP_DELACK_MAX_US: use a longer delack_max, like 10ms");
    }
}
