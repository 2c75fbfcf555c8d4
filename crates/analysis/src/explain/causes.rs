//! The catalogue of causes: one file a family, one entry a cause.
//!
//! A family is what the probe can separate. An entry says where the cause applies, how its signature looks, which counter
//! agrees with it, which setting proves it, and how to fix it. `live` applies the entries; `docs/explain.md` shows them.

use linkgauge_engine::Registry;
use linkgauge_engine::link::{self, Caps};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::Direction;
use serde::Serialize;

mod clocks;
mod host;
mod idle;
mod load;
mod loss;
mod path;
mod per_byte;
mod server;
mod timers;
mod window;

/// Causes that one test separates from others.
pub struct CauseFamily {
    /// Name of the family, one word.
    pub name: &'static str,
    /// Common property of the causes of the family, and how the probe shows it.
    pub summary: &'static str,
    /// The causes. Of several that fit one finding, the first that applies is named.
    pub causes: &'static [Cause],
}

/// All families, in the order of the documents.
pub static FAMILIES: &[CauseFamily] = &[
    clocks::FAMILY,
    timers::FAMILY,
    per_byte::FAMILY,
    idle::FAMILY,
    load::FAMILY,
    loss::FAMILY,
    path::FAMILY,
    host::FAMILY,
    server::FAMILY,
    window::FAMILY,
];

/// All causes with their families.
pub(crate) fn all() -> impl Iterator<Item = (&'static CauseFamily, &'static Cause)> {
    FAMILIES.iter().flat_map(|family| family.causes.iter().map(move |cause| (family, cause)))
}

/// Advice that removes this cause of the rate of a transfer, at the end that receives the payload or that sends it.
pub(crate) fn remedy(cause: &Cause, direction: Direction) -> &'static str {
    match (cause.id, direction) {
        ("receive_window", Direction::Receive) => {
            "raise the receive buffer of the client (?rcvbuf=4Mi, or net.ipv4.tcp_rmem there)"
        }
        ("slow_reader", Direction::Receive) => "read faster in the client",
        ("send_buffer", Direction::Receive) => {
            "leave the send buffer of the server to its kernel, or raise it (--server-socket sndbuf=4Mi)"
        }
        ("loss_limited_window", Direction::Receive) => {
            "remove the loss, use bbr at the server, or use several connections"
        }
        ("receiver_socket_overflow", Direction::Send) => {
            "raise the receive buffer of the server (--server-socket rcvbuf=4Mi), or read faster there"
        }
        _ => cause.remedy,
    }
}

/// The cause that delays the first request of each connection.
pub(crate) const ACCEPT: &str = "server_accept";

/// The cause that delays each new connection to a name.
pub(crate) const NAME: &str = "name_resolution";

/// The cause that has what the path and the other causes leave.
pub(crate) const SERVER: &str = "server";

/// Causes of requests without a reply.
pub(crate) const LOST: &str = "lost_datagrams";
pub(crate) const REPLY_LIMIT: &str = "reply_rate_limit";

/// The cause of messages that are too large.
pub(crate) const LARGE: &str = "large_messages_lost";

/// Place of a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CausePlace {
    /// The server, or what lies behind it.
    Server,
    /// The network, or the line.
    Path,
    /// This host.
    Host,
    /// One of these places; the samples do not show which.
    Unknown,
}

/// Place of the cause with this name.
pub(crate) fn place(family: &CauseFamily, id: &str) -> CausePlace {
    match (id, family.name) {
        ("remote_clock" | "periodic_pause" | "random_pause" | "timer_slack" | "slow_reader", _)
        | ("delayed_ack_nagle" | ACCEPT, _) => CausePlace::Server,
        (LOST | REPLY_LIMIT | LARGE | NAME, _) => CausePlace::Unknown,
        ("cpu_quota" | "kernel_tick" | "cpu_sleep_states" | "send_buffer", _) => CausePlace::Host,
        ("application_limited" | "requested_pacing", _) => CausePlace::Host,
        (_, "clock" | "per byte" | "load" | "loss" | "path") => CausePlace::Path,
        (_, "server") => CausePlace::Server,
        (_, "host") => CausePlace::Host,
        _ => CausePlace::Unknown,
    }
}

/// The cause of this name, if it can occur on such a link.
pub(crate) fn named(target: &Target, id: &str) -> Option<&'static Cause> {
    all().map(|(_, cause)| cause).find(|cause| cause.id == id && (cause.applies)(target))
}

/// Whether the cause of this name takes no time by itself, see [`Signature::Tick`].
pub(crate) fn is_tick(id: &str) -> bool {
    all().any(|(_, cause)| cause.id == id && matches!(cause.signature, Signature::Tick { .. }))
}

/// Whether the cause of this name makes some requests much slower, rather than all of them a little.
pub(crate) fn slows_some_requests(id: &str) -> bool {
    let is_rare = |cause: &Cause| match cause.signature {
        Signature::PeriodicPauses { .. }
        | Signature::RandomPauses
        | Signature::Retransmissions
        | Signature::Timer { .. }
        | Signature::CharacterTimer { .. } => true,
        Signature::Idle { from_ms } => from_ms >= 1.0,
        _ => cause.knob == Knob::Pin || [ACCEPT, NAME, LARGE, LOST, REPLY_LIMIT].contains(&cause.id),
    };
    all().any(|(_, cause)| cause.id == id && is_rare(cause))
}

/// A reason why a link is slow.
pub struct Cause {
    /// Stable name in documents for programs.
    pub id: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// Whether the cause can occur on such a link.
    pub(crate) applies: fn(&Target) -> bool,
    /// Form of the cause in the samples.
    pub(crate) signature: Signature,
    /// Place where the system counts the cause, as text.
    pub counter: Option<&'static str>,
    /// The setting that proves the cause.
    pub knob: Knob,
    /// Advice that removes the cause.
    pub remedy: &'static str,
    /// Way to produce the cause on purpose.
    pub plant: Plant,
}

/// Form of a cause in the samples of the probe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Signature {
    /// Replies arrive at one phase of a period. Without periods: of any.
    Clock {
        /// Known periods in milliseconds.
        periods_ms: &'static [f64],
    },
    /// Like [`Signature::Clock`], but the period takes no time by itself: other causes round their time up to it.
    Tick {
        /// Known periods in milliseconds.
        periods_ms: &'static [f64],
    },
    /// A share of the requests takes longer by a known time, or all of them do.
    Timer {
        /// The time in milliseconds.
        delay_ms: f64,
        /// The tolerance in milliseconds.
        tolerance_ms: f64,
    },
    /// Like [`Signature::Timer`], but the time is a number of characters on the line.
    CharacterTimer {
        /// Number of characters.
        characters: f64,
    },
    /// Latency grows with the pause before the request.
    Idle {
        /// Least difference between long and short pauses, in milliseconds; the shorter belongs to the next cause.
        from_ms: f64,
    },
    /// A few requests take much longer, at one phase of a period.
    PeriodicPauses {
        /// Known periods in milliseconds; empty: any period.
        periods_ms: &'static [f64],
    },
    /// A few requests take much longer, at random.
    RandomPauses,
    /// A few requests take much longer, and the sockets of the connection sent segments again.
    Retransmissions,
    /// All requests take longer than their serial line needs.
    LineExcess,
    /// No signature in round trips.
    Hidden,
}

/// The setting that removes a cause, so that its effect can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knob {
    /// A different value of an option of the URL.
    UrlOption {
        /// The name.
        name: &'static str,
        /// The value that removes the cause.
        value: &'static str,
    },
    /// A different value of a setting of the device, for all programs; only if the user allows it.
    DeviceSetting {
        /// The name in sysfs.
        name: &'static str,
        /// The value that removes the cause.
        value: &'static str,
    },
    /// Waiting by polling.
    BusyPoll,
    /// Measuring threads on the CPU with the least other load.
    Pin,
    /// No sleep states of the CPUs: a request to the kernel, withdrawn when the file is closed.
    CpuWakeLatency,
    /// Larger messages: the slope of latency over size.
    MessageSize,
    /// A setting of a transfer: the effect on its rate.
    Rate(RateKnob),
    /// No setting is available here. The text gives the reason, and what would prove the cause.
    Missing(&'static str),
}

/// A setting of a transfer, in the order in which they are tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RateKnob {
    /// Removal of the limit of the kernel's pacing.
    Pacing,
    /// A different receive buffer.
    ReceiveBuffer,
    /// A different send buffer.
    SendBuffer,
    /// Acknowledgements without delay.
    Acknowledgements,
    /// Less load than the link carries: queues and losses vanish.
    LowerRate,
    /// Several connections.
    Connections,
    /// A different congestion control.
    CongestionControl,
    /// A different message size.
    MessageSize,
}

impl RateKnob {
    /// Description for documents.
    pub fn summary(self) -> &'static str {
        match self {
            RateKnob::Pacing => "no pacing rate",
            RateKnob::ReceiveBuffer => "another receive buffer",
            RateKnob::SendBuffer => "another send buffer",
            RateKnob::Acknowledgements => "`quickack=1` at the receiver",
            RateKnob::LowerRate => "80 % of the rate",
            RateKnob::Connections => "4 connections",
            RateKnob::CongestionControl => "`?congestion=bbr`",
            RateKnob::MessageSize => "another message size",
        }
    }
}

/// An option of the URL that sets the time of a cause, so that its effect can be measured at several values.
pub(crate) struct Dose {
    /// The cause, by its name in the catalogue.
    pub(crate) cause: &'static str,
    /// The option.
    pub(crate) option: &'static str,
    /// The values: as written, and in ns.
    pub(crate) values: &'static [(&'static str, f64)],
}

/// All doses. Different values of the other causes need the other host.
pub(crate) static DOSES: &[Dose] = &[Dose {
    cause: "delayed_ack_nagle",
    option: "delack_max",
    values: &[("5ms", 5e6), ("12ms", 12e6), ("20ms", 20e6), ("32ms", 32e6)],
}];

/// Settings of a device that remove a cause as well as its knob does: cause, name, value. They are tested where the user allows
/// them.
pub(crate) static DEVICE_SETTINGS: &[(&str, &str, &str)] = &[("usb_latency_timer", "latency_timer", "1")];

/// Way to produce a cause on purpose, to test that it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// The cause is produced by this command.
    Lab(&'static str),
    /// The cause cannot be changed with software, for this reason.
    NotHere(&'static str),
}

/// Facts about the link that are known before the measurement.
pub(crate) struct Target {
    /// The address.
    pub(crate) endpoint: Endpoint,
    /// Capabilities of the link.
    pub(crate) caps: Caps,
    /// The server runs on this host.
    pub(crate) is_local: bool,
    /// Options of the transport.
    options: &'static [(&'static str, &'static str)],
}

impl Target {
    /// The link at an endpoint on another host.
    ///
    /// # Errors
    ///
    /// The endpoint is invalid.
    pub fn new(endpoint: Endpoint) -> Result<Target, link::LinkError> {
        let fail = |fault| link::LinkError::new(&endpoint, fault);
        let caps = Registry::standard().transports.caps(&endpoint).map_err(fail)?;
        let options = Registry::standard().transports.find(&endpoint).map_err(fail)?.options;
        Ok(Target { endpoint, caps, is_local: false, options })
    }

    /// Returns this link with the information whether its server runs on this host.
    pub fn with_location(self, is_local: bool) -> Target {
        Target { is_local, ..self }
    }

    /// Whether the transport has this option.
    pub(crate) fn has_option(&self, name: &str) -> bool {
        self.options.iter().any(|(known, _)| *known == name)
    }

    /// Endpoint of the same host and port over TCP, where handshakes measure the path alone: the kernel of the server answers
    /// them, or refuses them where only datagrams are served. Device servers often have room for one connection.
    pub(crate) fn handshake_endpoint(&self) -> Option<Endpoint> {
        let is_network = self.has_option("family") && self.caps.link_rate.is_none();
        let address = self.endpoint.address();
        is_network.then(|| format!("tcp://{address}").parse().ok()).flatten()
    }

    /// The port of the server, if it runs on this host and the endpoint names the port.
    pub(crate) fn local_port(&self) -> Option<u16> {
        self.endpoint.host_port().ok().filter(|_| self.is_local).and_then(|(_, port)| port)
    }

    /// Whether the link acknowledges data as TCP does.
    pub(crate) fn has_delayed_acknowledgements(&self) -> bool {
        self.has_option("nodelay")
    }

    /// Whether a network connection leads to a serial line.
    pub(crate) fn is_device_server(&self) -> bool {
        self.caps.link_rate.is_some() && self.has_option("family")
    }

    /// Whether the link crosses a network between hosts.
    pub(crate) fn is_remote(&self) -> bool {
        !self.is_local && self.caps.link_rate.is_none()
    }
}

const ANYWHERE: fn(&Target) -> bool = |_| true;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_cause_is_complete_and_unique() {
        let mut ids = BTreeSet::new();
        for (family, cause) in all() {
            assert!(ids.insert(cause.id), "{} twice", cause.id);
            assert!(cause.id.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{}", cause.id);
            assert!(!cause.name.is_empty() && !cause.remedy.is_empty() && !family.summary.is_empty());
            assert!(!cause.remedy.ends_with('.') && cause.name.chars().count() <= 44, "{}", cause.id);
            let is_found = cause.signature != Signature::Hidden
                || cause.counter.is_some()
                || !matches!(cause.knob, Knob::Missing(_));
            assert!(is_found, "nothing shows {}", cause.id);
        }
        assert!(ids.len() >= 30, "{}", ids.len());
        assert!(DEVICE_SETTINGS.iter().all(|(cause, ..)| ids.contains(cause)));
        assert!(DOSES.iter().all(|dose| ids.contains(dose.cause) && dose.values.len() >= 3));
    }

    #[test]
    fn links_differ_in_their_causes() {
        let applies = |url: &str, id: &str| {
            let target = Target::new(url.parse().unwrap()).unwrap().with_location(true);
            all().any(|(_, cause)| cause.id == id && (cause.applies)(&target))
        };
        assert!(applies("tcp://127.0.0.1:7333", "delayed_ack_nagle"));
        assert!(!applies("udp://127.0.0.1:7333", "delayed_ack_nagle"));
        assert!(
            applies("tcp://127.0.0.1:7333?nodelay=0", "nagle_here")
                && !applies("tcp://127.0.0.1:7333", "nagle_here")
        );
        assert!(applies("serial:///dev/ttyS0?baud=9600", "usb_latency_timer"));
        assert!(applies("tcp://127.0.0.1:7333?baud=9600", "device_server_packing"));
        assert!(!applies("tcp://127.0.0.1:7333", "device_server_packing"));
    }
}
