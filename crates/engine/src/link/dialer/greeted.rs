//! Opens many links and lets a party send the first messages on each. Where opening does not block, one thread has hundreds
//! of them under way, so that no link waits for the round trips of another.

use std::sync::atomic::Ordering::Relaxed;

use super::{Dialer, MIN_OPENED_TOGETHER, check_open_files};
use crate::link::party::{CANCEL_CHECK_INTERVAL, CostDetail, Party, Step, Tuning, drive};
use crate::link::shared_thread::{Departure, Member, SharedThread, ThreadChoice};
use crate::link::{Caps, Fault, Link, LinkError};
use linkgauge_model::clock::Time;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::traffic::WaitMode;

/// A link after its first messages.
pub(crate) struct GreetedLink {
    /// The link, which has failed if `result` is an error.
    pub(crate) link: Box<dyn Link>,
    /// The end of the party.
    pub(crate) result: Result<(), Fault>,
}

/// Links under way at once: enough to hide the round trips, and far fewer than the queue of a listener holds (`SOMAXCONN`:
/// 4096), because connections beyond it are tried again after a second only.
const MAX_BEGUN_LINKS: usize = 256;

impl Dialer {
    /// Opens links and runs a party on each until it ends. `new_party` gets what the link supports, and its number, from 0.
    /// Returns the links in this order.
    ///
    /// # Errors
    ///
    /// As [`Dialer::open_many`]. A link whose party fails does not end the others.
    pub(crate) fn open_greeted<P: Party>(
        &self,
        endpoint: &Endpoint,
        count: usize,
        new_party: impl Fn(&Caps, usize) -> P + Send + Sync + 'static,
    ) -> Result<Vec<GreetedLink>, LinkError> {
        if count >= MIN_OPENED_TOGETHER && self.can_begin_open(endpoint) {
            return self.greet_in_this_thread(endpoint, count, new_party);
        }
        let target = endpoint.clone();
        self.open_together(endpoint, count, move |dialer, number| {
            let mut link = dialer.open(&target)?;
            let mut party = new_party(link.caps(), number);
            let Dialer { clock, cancel, .. } = dialer;
            let result = drive(&mut party, link.as_mut(), clock, cancel, CANCEL_CHECK_INTERVAL);
            match cancel.load(Relaxed) {
                true => Err(LinkError::new(&target, Fault::Interrupted)),
                false => Ok(GreetedLink { link, result }),
            }
        })
    }

    fn greet_in_this_thread<P: Party>(
        &self,
        endpoint: &Endpoint,
        count: usize,
        new_party: impl Fn(&Caps, usize) -> P,
    ) -> Result<Vec<GreetedLink>, LinkError> {
        let failed = |fault| LinkError::new(endpoint, fault);
        check_open_files(endpoint, count)?;
        let mut thread = SharedThread::new(&self.clock, MAX_BEGUN_LINKS).map_err(failed)?;
        let mut departed = Vec::with_capacity(MAX_BEGUN_LINKS);
        let mut greeted: Vec<Option<GreetedLink>> = Vec::new();
        greeted.resize_with(count, || None);
        let (mut begun, mut ended) = (0, 0);
        while ended < count {
            if self.cancel.load(Relaxed) {
                return Err(failed(Fault::Interrupted));
            }
            while begun < count && thread.len() < MAX_BEGUN_LINKS {
                let link = self.begin_open(endpoint)?;
                let until = self.now() + self.timeout;
                let party = OpeningParty { is_open: false, until, party: new_party(link.caps(), begun) };
                thread.add(BegunLink { number: begun, party, link });
                begun += 1;
            }
            thread.turn(CANCEL_CHECK_INTERVAL, &mut departed);
            for departure in departed.drain(..) {
                if let Departure::Ended { member: BegunLink { number, link, .. }, result, .. } = departure {
                    greeted[number] = Some(GreetedLink { link, result });
                }
                ended += 1;
            }
        }
        Ok(greeted.into_iter().flatten().collect())
    }
}

/// A link that is being opened, or greeted.
struct BegunLink<P> {
    number: usize,
    party: OpeningParty<P>,
    link: Box<dyn Link>,
}

impl<P: Party> Member for BegunLink<P> {
    fn ends(&mut self) -> (&mut dyn Party, &mut dyn Link) {
        (&mut self.party, self.link.as_mut())
    }

    fn place(&mut self, _tuning: &Tuning) -> Result<ThreadChoice, Fault> {
        Ok(ThreadChoice::Stay(WaitMode::Block))
    }
}

/// Waits until the link is open, before its party begins.
struct OpeningParty<P> {
    is_open: bool,
    until: Time,
    party: P,
}

impl<P: Party> Party for OpeningParty<P> {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        match self.is_open {
            true => self.party.next_step(now),
            false if now >= self.until => Step::Fail(Fault::TimedOut),
            false => Step::Reopen,
        }
    }

    fn on_sent(&mut self, bytes: usize, at: Time) {
        self.party.on_sent(bytes, at);
    }

    fn on_received(&mut self, now: Time) {
        self.party.on_received(now);
    }

    fn on_timeout(&mut self, now: Time) {
        self.party.on_timeout(now);
    }

    fn on_closed(&mut self, now: Time) -> Result<(), Fault> {
        self.party.on_closed(now)
    }

    fn on_reopened(&mut self, outcome: Result<(), Fault>, _now: Time) -> Result<(), Fault> {
        self.is_open = true;
        outcome
    }

    fn cost_detail(&self) -> CostDetail {
        CostDetail::Thread
    }
}

#[cfg(test)]
mod tests {
    use crate::protocol::Registry;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;
    use crate::link::Batch;
    use linkgauge_model::clock::Clock;

    /// Sends its number, and expects it back.
    struct Caller {
        number: u8,
        is_sent: bool,
        batch: Batch,
        is_answered: bool,
    }

    impl Party for Caller {
        fn next_step(&mut self, now: Time) -> Step<'_> {
            match (self.is_sent, self.is_answered) {
                (_, true) => Step::Done,
                (false, _) => Step::Send { bytes: std::slice::from_ref(&self.number), message: 1 },
                (true, _) => Step::Receive { into: &mut self.batch, until: now + Duration::from_secs(60) },
            }
        }

        fn on_sent(&mut self, _bytes: usize, _at: Time) {
            self.is_sent = true;
        }

        fn on_received(&mut self, _now: Time) {
            self.is_answered = self.batch.messages().next() == Some(&[self.number][..]);
            self.batch.return_memory();
        }

        fn on_timeout(&mut self, _now: Time) {}
    }

    fn call(dialer: &Dialer, endpoint: &Endpoint, count: usize) -> Result<Vec<GreetedLink>, LinkError> {
        dialer.open_greeted(endpoint, count, |_, number| Caller {
            number: number as u8,
            is_sent: false,
            batch: Batch::lent(8),
            is_answered: false,
        })
    }

    #[test]
    fn many_links_are_under_way_at_once_and_a_refused_one_fails_alone() {
        const LINKS: usize = 40;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
        let server = std::thread::spawn(move || {
            let mut clients: Vec<_> = (0..LINKS).map(|_| listener.accept().unwrap().0).collect();
            // No link has an answer before all are here.
            for client in &mut clients {
                let mut number = [0];
                client.read_exact(&mut number).unwrap();
                if number[0] != 7 {
                    client.write_all(&number).unwrap();
                }
            }
        });
        let mut dialer = Registry::standard().dialer(Clock::System);
        dialer.timeout = Duration::from_secs(60);
        let greeted = call(&dialer, &endpoint, LINKS).unwrap();
        server.join().unwrap();
        let failed: Vec<usize> = (0..LINKS).filter(|&number| greeted[number].result.is_err()).collect();
        assert_eq!((greeted.len(), failed), (LINKS, vec![7]));
    }

    #[test]
    fn links_without_a_listener_name_the_refusal() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
        drop(listener);
        let greeted = call(&Registry::standard().dialer(Clock::System), &endpoint, 20).unwrap();
        let refused = |link: &GreetedLink| {
            link.result.as_ref().is_err_and(|fault| fault.to_string().contains("refused"))
        };
        assert!(greeted.len() == 20 && greeted.iter().all(refused));
    }
}
