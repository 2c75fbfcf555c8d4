//! The benchmark of tipcutils in its first generation (2005 to 2013): no commands, only echoes over connections with
//! message boundaries. Both of its tests are echoes with one message in flight; the second has eight clients at once.

use std::time::Duration;

use super::message::MAX_MESSAGE_BYTES;
use crate::link::party::{Party, Step, Tuning};
use crate::link::{Caps, Dialer, Fault, Framing, Link, LinkError};
use crate::protocol::{ClientSession, ConnectContext, Flow, ProtocolError, ReadyCase, open_flows};
use crate::workload::latency::{EchoCodec, Pinger, Reflector};
use crate::workload::{FlowResult, FlowRole, ServerReport};
use linkgauge_model::clock::Time;
use linkgauge_model::endpoint::Endpoint;

/// Size of a client's first message, all 0, and of the number in the reply, in bytes.
const GREETING_BYTES: usize = 4;

/// Whether a link with these capabilities uses the first generation.
pub(crate) fn is_first_generation(link: &Caps) -> bool {
    link.framing == Framing::Message && link.can_signal_close
}

pub(crate) fn connect(
    case: &ReadyCase,
    context: &ConnectContext,
) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let flows = open_flows(case, context, |load, port, mut link, flows| {
        send_greeting(link.as_mut(), &case.endpoints[port], context.dialer)?;
        let caps = link.caps().clone();
        let recorder = (context.new_recorder)(FlowRole::RoundTrip, port);
        let party = Pinger::new(Box::new(EchoCodec::new(load, &caps)), load, &caps, recorder);
        flows.push(Flow { role: FlowRole::RoundTrip, endpoint_index: port, link, party: Box::new(party) });
        Ok(())
    })?;
    Ok(Box::new(FirstGenerationSession { flows }))
}

/// Session with the flows of greeted clients.
struct FirstGenerationSession {
    flows: Vec<Flow>,
}

impl ClientSession for FirstGenerationSession {
    fn take_flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    /// Shuts the links down first, because the original treats a plain close as a broken connection.
    fn finish(
        &mut self,
        _flows: &[FlowResult],
        mut links: Vec<Box<dyn Link>>,
    ) -> Result<Option<ServerReport>, ProtocolError> {
        links.iter_mut().for_each(|link| drop(link.finish_sending()));
        Ok(None)
    }
}

/// Sends the greeting; the server replies with the number of this client.
fn send_greeting(link: &mut dyn Link, endpoint: &Endpoint, dialer: &Dialer) -> Result<(), ProtocolError> {
    let fault = |fault| ProtocolError::Link(LinkError::new(endpoint, fault));
    link.send(&[0; GREETING_BYTES], dialer.timeout).map_err(fault)?;
    // One extra byte detects a longer message. Clients are counted from 1.
    let mut number = [0; GREETING_BYTES + 1];
    match dialer.receive(link, &mut number, dialer.timeout) {
        Ok(GREETING_BYTES) if number != [0; GREETING_BYTES + 1] => Ok(()),
        Ok(_) | Err(Fault::TimedOut | Fault::Closed) => Err(ProtocolError::unexpected_reply(
            endpoint,
            "no benchmark of before 2014 replied: use the stream of a later one, type 18888",
        )),
        Err(other) => Err(fault(other)),
    }
}

/// Server's connection to one client.
pub(crate) struct FirstGenerationConnection {
    client_number: [u8; GREETING_BYTES],
    has_greeted: bool,
    must_reply: bool,
    reflector: Reflector,
}

impl FirstGenerationConnection {
    pub fn new(number: u32, idle: Duration) -> FirstGenerationConnection {
        let echo = Reflector::new(Framing::Message, MAX_MESSAGE_BYTES as usize, Tuning::default(), idle);
        FirstGenerationConnection {
            client_number: number.to_be_bytes(),
            has_greeted: false,
            must_reply: false,
            reflector: echo,
        }
    }
}

impl Party for FirstGenerationConnection {
    #[inline]
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if self.must_reply {
            return Step::Send { bytes: &self.client_number, message: GREETING_BYTES };
        }
        self.reflector.next_step(now)
    }

    #[inline]
    fn on_sent(&mut self, bytes: usize, at: Time) {
        if !std::mem::take(&mut self.must_reply) {
            self.reflector.on_sent(bytes, at);
        }
    }

    #[inline]
    fn on_received(&mut self, now: Time) {
        if self.has_greeted {
            self.reflector.on_received(now);
        } else {
            (self.has_greeted, self.must_reply) = (true, true);
        }
    }

    fn on_timeout(&mut self, now: Time) {
        self.reflector.on_timeout(now);
    }

    fn on_closed(&mut self, now: Time) -> Result<(), Fault> {
        self.reflector.on_closed(now)
    }
}

#[cfg(test)]
mod tests {
    use crate::protocol::Registry;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;
    use crate::link::Batch;
    use linkgauge_model::clock::Clock;

    /// Replies of a party to a sequence of messages.
    fn replies(party: &mut dyn Party, messages: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut output, mut messages) = (Vec::new(), messages.iter());
        loop {
            match party.next_step(Time(0)) {
                Step::Tune(_) => {}
                Step::Send { bytes, .. } => {
                    output.push(bytes.to_vec());
                    let length = bytes.len();
                    party.on_sent(length, Time(0));
                }
                Step::Receive { into, .. } => {
                    let Some(message) = messages.next() else { return output };
                    into.clear();
                    into.bytes[..message.len()].copy_from_slice(message);
                    into.push_span(0, message.len());
                    party.on_received(Time(0));
                }
                _ => panic!("a child only talks"),
            }
        }
    }

    #[test]
    fn a_client_is_numbered_and_then_everything_comes_back() {
        let mut second = FirstGenerationConnection::new(2, Duration::from_secs(30));
        let (short, long) = ([7; 64], vec![9; 66_000]);
        let output = replies(&mut second, &[&[0; 4], &short, &long, b""]);
        assert_eq!(output[0], [0, 0, 0, 2]);
        assert_eq!(output[1..], [short.to_vec(), long]);
    }

    #[test]
    fn a_client_shuts_down_its_connections_before_closing() {
        let dialer = Registry::standard().dialer(Clock::new_virtual());
        let endpoint = "mem://first?type=message".parse().unwrap();
        let mut listener = dialer.listen(&endpoint).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let noted = ended.clone();
        let hosted = listener.set_party_factory(Box::new(move |_| {
            Box::new(CloseRecorder { ended: noted.clone(), batch: Batch::new(100, 1) })
        }));
        assert!(hosted.is_ok());
        let link = dialer.open(&endpoint).unwrap();
        // A second handle to the link: only a shutdown ends it.
        let _held = link.second_handle();
        FirstGenerationSession { flows: Vec::new() }.finish(&[], vec![link]).unwrap();
        dialer.memory_network.advance(dialer.now() + Duration::from_secs(1));
        assert!(ended.load(Relaxed));
    }

    /// Records that the client has closed its sending side.
    struct CloseRecorder {
        ended: Arc<AtomicBool>,
        batch: Batch,
    }

    impl Party for CloseRecorder {
        fn next_step(&mut self, _now: Time) -> Step<'_> {
            if self.ended.load(Relaxed) {
                return Step::Done;
            }
            Step::Receive { into: &mut self.batch, until: Time::NEVER }
        }

        fn on_sent(&mut self, _bytes: usize, _at: Time) {}

        fn on_received(&mut self, _now: Time) {}

        fn on_timeout(&mut self, _now: Time) {}

        fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
            self.ended.store(true, Relaxed);
            Ok(())
        }
    }

    #[test]
    fn a_closed_client_ends_its_party() {
        let mut child = FirstGenerationConnection::new(1, Duration::from_secs(30));
        assert_eq!(replies(&mut child, &[&[0; 4]]), [[0, 0, 0, 1]]);
        child.on_closed(Time(0)).unwrap();
        assert!(matches!(child.next_step(Time(0)), Step::Done));
        let mut silent = FirstGenerationConnection::new(1, Duration::from_secs(30));
        assert!(replies(&mut silent, &[]).is_empty());
        silent.on_timeout(Time(30_000_000_000));
        assert!(matches!(silent.next_step(Time(30_000_000_000)), Step::Done));
    }
}
