//! Decides on the first datagram of an unknown sender, whose address may be forged.
//!
//! The protocol decides (`Service::admit_sender`), within common limits: no reply is longer than its request, apart from what a
//! handshake needs (`Service::max_reply_growth_bytes`), no reply goes to a program that would reply to it ([`AdmissionControl::is_server_port`]), and the rate of the source is respected.

use std::net::SocketAddr;
use std::sync::Arc;

use super::client_id::ClientId;
use super::rate_limiter::{RateLimiter, RepeatLimiter};
use super::refusals::Refusals;
use crate::link::{Admission, DEFAULT_PORT};
use crate::protocol::Service;
use linkgauge_model::clock::Time;

pub(crate) struct AdmissionControl {
    server_ports: Arc<[u16]>,
    rate_limiter: Option<Arc<RateLimiter>>,
    repeat_limiter: RepeatLimiter,
    refusals: Arc<Refusals>,
}

impl AdmissionControl {
    pub fn new(
        server_ports: Arc<[u16]>,
        rates: Option<Arc<RateLimiter>>,
        refusals: Arc<Refusals>,
    ) -> AdmissionControl {
        AdmissionControl { server_ports, rate_limiter: rates, repeat_limiter: RepeatLimiter::new(), refusals }
    }

    /// Whether a sender at this port is likely to be a server, which may reply to a reply. Clients of most protocols use
    /// ephemeral ports, which are above those of well-known services and of the protocols here.
    fn is_server_port(&self, port: u16) -> bool {
        port < 1024 || port == DEFAULT_PORT || self.server_ports.contains(&port)
    }

    fn reject(&self, reason: &str, from: &str) -> Admission {
        self.refusals.record(reason, from);
        Admission::Drop
    }

    pub(crate) fn admit(
        &self,
        service: &dyn Service,
        first: &[u8],
        from: &str,
        reply: &mut Vec<u8>,
        now: Time,
    ) -> Admission {
        let admission = service.admit_sender(first, from, reply);
        if admission == Admission::Drop {
            return self
                .reject("a datagram that this protocol does not reply to, or without the token", from);
        }
        if admission == Admission::Ignore {
            return admission;
        }
        let port = from.parse::<SocketAddr>().map(|from| from.port());
        let is_refused =
            |port| self.is_server_port(port) && !service.replies_to_server_port(port, first, reply);
        if port.is_ok_and(is_refused) {
            return self.reject("a datagram from the port of a server, which would reply to the reply", from);
        }
        if admission == Admission::Open {
            return admission;
        }
        let within_rate = |rates: &Arc<RateLimiter>| {
            rates.try_charge(&ClientId::from_sender(from), first.len() + reply.len(), now)
        };
        if reply.len() > first.len() + service.max_reply_growth_bytes() {
            return self.reject("a datagram that is shorter than its reply", from);
        }
        if !self.rate_limiter.as_ref().is_none_or(within_rate) {
            return self.reject("a datagram beyond the rate of its sender (--max-rate)", from);
        }
        if !self.repeat_limiter.try_count(from, first, now) {
            return self.reject("a datagram that was repeated unchanged too often", from);
        }
        Admission::Reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Caps;
    use crate::link::party::Party;
    use crate::protocol::linkgauge::wire::Hello;
    use crate::protocol::{Registry, ServerConfig};
    use crate::serve::rate_limiter::MAX_FREE_REPEATS;
    use linkgauge_model::clock::Clock;

    /// Replies with this many bytes.
    struct FixedLengthReplies(usize);

    impl Service for FixedLengthReplies {
        fn new_party(&self, _caps: &Caps, _from: &str) -> Box<dyn Party> {
            unreachable!("it only replies")
        }

        fn admit_sender(&self, _first: &[u8], _from: &str, reply: &mut Vec<u8>) -> Admission {
            reply.resize(self.0, 0);
            Admission::Reply
        }
    }

    fn server_ports() -> Arc<[u16]> {
        Registry::standard().dialer(Clock::new_virtual()).server_ports
    }

    fn admit(gate: &AdmissionControl, bytes: usize, from: &str) -> Admission {
        gate.admit(&FixedLengthReplies(bytes), &[1; 100], from, &mut Vec::new(), Time(0))
    }

    #[test]
    fn replies_are_never_longer_than_requests_and_never_go_to_server_ports() {
        let gate = AdmissionControl::new(server_ports(), None, Arc::default());
        assert_eq!(admit(&gate, 100, "192.0.2.7:40000"), Admission::Reply);
        assert_eq!(admit(&gate, 101, "192.0.2.7:40000"), Admission::Drop);
        for port in [7, 9, 13, 17, 19, 53, 862, 2112, 5201, 7100, 11111, 18767] {
            assert_eq!(admit(&gate, 10, &format!("192.0.2.7:{port}")), Admission::Drop, "{port}");
            assert_eq!(admit(&gate, 10, &format!("[::1]:{port}")), Admission::Drop, "{port}");
        }
        // A protocol without support for datagrams.
        struct Silent;
        impl Service for Silent {
            fn new_party(&self, _caps: &Caps, _from: &str) -> Box<dyn Party> {
                unreachable!("nothing opens it")
            }
        }
        let silent = gate.admit(&Silent, b"x", "192.0.2.7:40000", &mut Vec::new(), Time(0));
        assert_eq!(silent, Admission::Drop);
    }

    fn served(name: &str) -> Arc<dyn Service> {
        let serve = Registry::standard().protocol(name).unwrap().serve.unwrap();
        serve(&Arc::new(ServerConfig::default()))
    }

    #[test]
    fn each_protocol_states_the_ports_of_its_clients() {
        let gate = AdmissionControl::new(server_ports(), None, Arc::default());
        let hello = Hello::new();
        let sockperf: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 1, 0, 3, 0, 0, 0, 14];
        // A first message, and whether it may come from such a port.
        let irtt =
            [&[0x14, 0xa7, 0x5b, 1, 1, 2][..], &[2, 0x80, 0x80, 0x80, 0xbe, 7, 3, 0x80, 0xda, 0xc4, 9]]
                .concat();
        let cases: [(&str, &[u8], &[u16], bool); 9] = [
            ("linkgauge", hello.bytes(), &[7100, 18768], true),
            ("linkgauge", b"an echo", &[7, 7100], false),
            ("echo", b"an echo", &[7, 7100], false),
            ("chargen", b"x", &[7, 19, 7100], false),
            ("stamp", &[1; 44], &[862, 5201, 7100], true),
            ("stamp", &[1; 44], &[7, 19, 53], false),
            ("twamp-light", &[1; 41], &[862, 18768], true),
            ("sockperf", sockperf, &[11111], true),
            ("irtt", &irtt, &[2112, 7100], true),
        ];
        for (name, first, ports, allowed) in cases {
            for port in ports {
                let from = format!("192.0.2.7:{port}");
                let admission = gate.admit(served(name).as_ref(), first, &from, &mut Vec::new(), Time(0));
                assert_eq!(admission != Admission::Drop, allowed, "{name} from port {port}");
            }
        }
        // A stream vouches for the datagrams.
        let netio = served("netio");
        let admit = || gate.admit(netio.as_ref(), &[0; 1024], "192.0.2.7:18768", &mut Vec::new(), Time(0));
        assert_eq!(admit(), Admission::Drop);
        let endpoints = ["tcp://h:18768", "udp://h:18768"].map(|url| url.parse().unwrap());
        let control = netio.for_endpoint(&endpoints[0], &endpoints).unwrap();
        let _stream = control.new_party(&Caps::STREAM, "192.0.2.7:40000");
        assert_eq!(admit(), Admission::Open);
    }

    #[test]
    fn valid_messages_without_a_reply_are_not_refused() {
        let refusals: Arc<Refusals> = Arc::default();
        let gate = AdmissionControl::new(server_ports(), None, refusals.clone());
        let one_way: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 14];
        for (name, first) in [("sockperf", one_way), ("discard", b"x")] {
            let from = "192.0.2.7:40000";
            let admission = gate.admit(served(name).as_ref(), first, from, &mut Vec::new(), Time(0));
            assert_eq!(admission, Admission::Ignore, "{name}");
        }
        assert!(refusals.take().is_empty());
    }

    #[test]
    fn replies_count_against_the_rate_of_their_source() {
        let gate =
            AdmissionControl::new(server_ports(), Some(Arc::new(RateLimiter::new(8_000.0))), Arc::default());
        let replied = |from: &str| (0..100).filter(|_| admit(&gate, 100, from) == Admission::Reply).count();
        // A kilobyte per second allows a burst of 255 bytes, and each reply has 200.
        assert_eq!((replied("192.0.2.7:40000"), replied("192.0.2.7:40001")), (2, 0));
        assert_eq!(replied("192.0.2.8:40000"), 2);
    }

    #[test]
    fn reply_loops_end() {
        let gates = [
            AdmissionControl::new(server_ports(), None, Arc::default()),
            AdmissionControl::new(server_ports(), None, Arc::default()),
        ];
        let names = ["192.0.2.7:40000", "192.0.2.8:40000"];
        // One datagram in a loop, a hundred thousand times a second.
        let (mut hops, mut now) = (0, Time(0));
        let decides = |hop: usize, now| {
            gates[hop % 2].admit(
                &FixedLengthReplies(100),
                &[1; 100],
                names[1 - hop % 2],
                &mut Vec::new(),
                now,
            )
        };
        while decides(hops, now) == Admission::Reply {
            (hops, now) = (hops + 1, Time(now.0 + 10_000));
            assert!(hops < 3 * MAX_FREE_REPEATS as usize, "it never ends");
        }
        assert!(hops >= MAX_FREE_REPEATS as usize);
    }
}
