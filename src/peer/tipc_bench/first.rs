//! The benchmark of tipcutils in its first generation (2005 to 2013): no commands, only echoes over connections with
//! message bounds. Both of its tests are echoes with one message on its way; the second has eight clients at once.

use std::time::Duration;

use super::message::LONGEST;
use crate::clock::Time;
use crate::endpoint::Endpoint;
use crate::link::party::{Party, Step, Tuning};
use crate::link::{Caps, Fault, Framing, Link, LinkError};
use crate::peer::{Flow, Near, PeerError, Session, flows};
use crate::plan::Case;
use crate::workload::latency::{Echo, Pinger, Reflector};
use crate::workload::{FarReport, Flowed, Role};

/// Bytes of a client's first message, all 0, and of the number that answers it.
const GREETING: usize = 4;

/// Whether links like this one are those of the first generation.
pub fn is_meant(link: &Caps) -> bool {
    link.framing == Framing::Message && link.closes
}

pub fn connect(case: &Case, near: &Near) -> Result<Box<dyn Session>, PeerError> {
    let flows = flows(case, near, |port, mut link, flows| {
        greet(link.as_mut(), &case.endpoints[port], near.dialer.timeout)?;
        let caps = link.caps().clone();
        let recorder = (near.recorder)(Role::Exchange, port);
        let party = Pinger::new(Box::new(Echo::new(case, &caps)), case, &caps, recorder);
        flows.push(Flow { role: Role::Exchange, port, link, party: Box::new(party) });
        Ok(())
    })?;
    Ok(Box::new(Greeted { flows }))
}

/// The flows of greeted clients.
struct Greeted {
    flows: Vec<Flow>,
}

impl Session for Greeted {
    fn flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    /// The original takes a connection that is only closed for one that broke: it is shut down first.
    fn finish(
        &mut self,
        _flows: &[Flowed],
        mut links: Vec<Box<dyn Link>>,
    ) -> Result<Option<FarReport>, PeerError> {
        links.iter_mut().for_each(|link| drop(link.finish()));
        Ok(None)
    }
}

/// Tells the server that we are here; it says which of its clients we are.
fn greet(link: &mut dyn Link, endpoint: &Endpoint, timeout: Duration) -> Result<(), PeerError> {
    let fault = |fault| PeerError::Link(LinkError::new(endpoint, fault));
    link.send(&[0; GREETING], timeout).map_err(fault)?;
    // One byte more than the number has, so that a longer message is none. Clients are counted from 1.
    let mut number = [0; GREETING + 1];
    match link.receive(&mut number, timeout) {
        Ok(GREETING) if number != [0; GREETING + 1] => Ok(()),
        Ok(_) | Err(Fault::TimedOut | Fault::Closed) => Err(PeerError::protocol(
            endpoint,
            "no benchmark of before 2014 answered there: a later one is reached by its stream, type 18888",
        )),
        Err(other) => Err(fault(other)),
    }
}

/// The end that serves one client.
pub struct Child {
    number: [u8; GREETING],
    greeted: bool,
    answers: bool,
    echo: Reflector,
}

impl Child {
    pub fn new(number: u32, idle: Duration) -> Child {
        let echo = Reflector::new(Framing::Message, LONGEST as usize, Tuning::default(), idle);
        Child { number: number.to_be_bytes(), greeted: false, answers: false, echo }
    }
}

impl Party for Child {
    #[inline]
    fn next(&mut self, now: Time) -> Step<'_> {
        if self.answers {
            return Step::Send { bytes: &self.number, message: GREETING };
        }
        self.echo.next(now)
    }

    #[inline]
    fn sent(&mut self, bytes: usize, at: Time) {
        if !std::mem::take(&mut self.answers) {
            self.echo.sent(bytes, at);
        }
    }

    #[inline]
    fn received(&mut self, now: Time) {
        if self.greeted {
            self.echo.received(now);
        } else {
            (self.greeted, self.answers) = (true, true);
        }
    }

    fn timed_out(&mut self, now: Time) {
        self.echo.timed_out(now);
    }

    fn closed(&mut self, now: Time) -> Result<(), Fault> {
        self.echo.closed(now)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;
    use crate::clock::Clock;
    use crate::link::{Batch, Dialer};

    /// What a party answers to one message after the other.
    fn answers(party: &mut dyn Party, messages: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut said, mut messages) = (Vec::new(), messages.iter());
        loop {
            match party.next(Time(0)) {
                Step::Tune(_) => {}
                Step::Send { bytes, .. } => {
                    said.push(bytes.to_vec());
                    let length = bytes.len();
                    party.sent(length, Time(0));
                }
                Step::Receive { into, .. } => {
                    let Some(message) = messages.next() else { return said };
                    into.clear();
                    into.bytes[..message.len()].copy_from_slice(message);
                    into.push(0, message.len());
                    party.received(Time(0));
                }
                _ => panic!("a child only talks"),
            }
        }
    }

    #[test]
    fn a_client_is_numbered_and_then_everything_comes_back() {
        let mut second = Child::new(2, Duration::from_secs(30));
        let (short, long) = ([7; 64], vec![9; 66_000]);
        let said = answers(&mut second, &[&[0; 4], &short, &long, b""]);
        assert_eq!(said[0], [0, 0, 0, 2]);
        assert_eq!(said[1..], [short.to_vec(), long]);
    }

    #[test]
    fn a_client_shuts_its_connections_down_before_it_goes() {
        let dialer = Dialer::new(Clock::new_virtual());
        let endpoint = "mem://first?type=message".parse().unwrap();
        let mut listener = dialer.listen(&endpoint).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let noted = ended.clone();
        let hosted = listener
            .host(Box::new(move |_| Box::new(Ends { ended: noted.clone(), batch: Batch::new(100, 1) })));
        assert!(hosted.is_ok());
        let link = dialer.open(&endpoint).unwrap();
        // Another hold on the link: nothing but a shutdown ends it.
        let _held = link.other_half();
        Greeted { flows: Vec::new() }.finish(&[], vec![link]).unwrap();
        dialer.memory.step(dialer.now() + Duration::from_secs(1));
        assert!(ended.load(Relaxed));
    }

    /// Notes that the client sends no more.
    struct Ends {
        ended: Arc<AtomicBool>,
        batch: Batch,
    }

    impl Party for Ends {
        fn next(&mut self, _now: Time) -> Step<'_> {
            if self.ended.load(Relaxed) {
                return Step::Done;
            }
            Step::Receive { into: &mut self.batch, until: Time::NEVER }
        }

        fn sent(&mut self, _bytes: usize, _at: Time) {}

        fn received(&mut self, _now: Time) {}

        fn timed_out(&mut self, _now: Time) {}

        fn closed(&mut self, _now: Time) -> Result<(), Fault> {
            self.ended.store(true, Relaxed);
            Ok(())
        }
    }

    #[test]
    fn a_client_that_went_is_not_waited_for() {
        let mut child = Child::new(1, Duration::from_secs(30));
        assert_eq!(answers(&mut child, &[&[0; 4]]), [[0, 0, 0, 1]]);
        child.closed(Time(0)).unwrap();
        assert!(matches!(child.next(Time(0)), Step::Done));
        let mut silent = Child::new(1, Duration::from_secs(30));
        assert!(answers(&mut silent, &[]).is_empty());
        silent.timed_out(Time(30_000_000_000));
        assert!(matches!(silent.next(Time(30_000_000_000)), Step::Done));
    }
}
