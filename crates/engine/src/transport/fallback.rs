//! A link without connections to a host with several addresses, of which some may not reply, such as `localhost`.
//!
//! Connecting a datagram socket sends nothing. So the first messages go to the first address, to the next one when that has failed or
//! has not replied for a while, and so on. The first address that replies is the remote from then on.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::connect_first::ATTEMPT_DELAY;
use crate::link::delegate::{delegate_link, plain_link};
use crate::link::party::Tuning;
use crate::link::reachability::{keep_weightier, silent_fault};
use crate::link::{Batch, Caps, Fault, Link, LinkDescriptor, OpenContext};
use linkgauge_model::clock::Time;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_system::{PollFd, PollFlags, poll, watch};

/// Opens a link to an address.
type OpenAddress = Box<dyn Fn(SocketAddr) -> Result<Box<dyn Link>, Fault> + Send>;

pub(crate) struct FallbackLink {
    /// The links to addresses that have not failed, or the last one that has; one from the first reply on.
    tried: Vec<(IpAddr, Box<dyn Link>)>,
    /// The addresses to try next; none from the first reply on.
    untried: VecDeque<SocketAddr>,
    is_decided: bool,
    /// Time at which the next address is tried.
    next_at: Option<Time>,
    last_fault: Option<Fault>,
    last_sent: Vec<u8>,
    tuning: Option<Tuning>,
    caps: Caps,
    host: String,
    open: OpenAddress,
    context: OpenContext,
}

/// A link to the host of the endpoint, which has these addresses.
pub(crate) fn open(
    endpoint: &Endpoint,
    context: &OpenContext,
    addresses: Vec<SocketAddr>,
    open: OpenAddress,
) -> Result<Box<dyn Link>, Fault> {
    let (host, _) = endpoint.host_port()?;
    if let [address] = addresses[..] {
        return open(address);
    }
    if context.hosts.answered(host, context.clock.now()) == Some(addresses[0].ip()) {
        return open(addresses[0]);
    }
    let mut link = FallbackLink {
        tried: Vec::new(),
        untried: addresses.into(),
        is_decided: false,
        next_at: None,
        last_fault: None,
        last_sent: Vec::new(),
        tuning: None,
        caps: Caps::STREAM,
        host: host.to_owned(),
        open,
        context: context.clone(),
    };
    link.try_next();
    let Some((_, first)) = link.tried.first() else { return Err(link.take_fault()) };
    // It is not known yet which socket counts.
    link.caps = Caps { descriptor: LinkDescriptor::None, ..first.caps().clone() };
    Ok(Box::new(link))
}

impl FallbackLink {
    /// Opens a link to the next address that can be opened, and repeats the last message there.
    fn try_next(&mut self) {
        while let Some(address) = self.untried.pop_front() {
            self.next_at = Some(self.context.clock.now() + ATTEMPT_DELAY);
            match self.open_tuned(address) {
                Ok(link) => {
                    self.tried.push((address.ip(), link));
                    return;
                }
                Err(fault) => keep_weightier(&mut self.last_fault, fault),
            }
        }
    }

    fn take_fault(&mut self) -> Fault {
        self.last_fault.take().unwrap_or_else(silent_fault)
    }

    fn open_tuned(&self, address: SocketAddr) -> Result<Box<dyn Link>, Fault> {
        let mut link = (self.open)(address)?;
        if let Some(tuning) = &self.tuning {
            link.tune(tuning);
        }
        if !self.last_sent.is_empty() {
            link.send(&self.last_sent, Duration::ZERO)?;
        }
        Ok(link)
    }

    /// Tries the next address after the failure of a link, and drops the link. An error if there is no other address.
    fn drop_failed(&mut self, index: usize, fault: Fault) -> Result<(), Fault> {
        keep_weightier(&mut self.last_fault, fault);
        self.try_next();
        if self.tried.len() == 1 {
            return Err(self.take_fault());
        }
        self.tried.remove(index);
        Ok(())
    }

    fn decide(&mut self, index: usize) {
        let (address, link) = self.tried.swap_remove(index);
        self.context.hosts.note_answer(&self.host, address, self.context.clock.now());
        self.tried = vec![(address, link)];
        self.untried.clear();
        self.is_decided = true;
    }

    fn receive_first<T>(
        &mut self,
        within: Duration,
        mut receive: impl FnMut(&mut dyn Link, Duration) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let until = self.context.clock.now() + within;
        loop {
            let now = self.context.clock.now();
            let next_at = self.next_at.filter(|_| !self.untried.is_empty() && !self.last_sent.is_empty());
            if next_at.is_some_and(|at| now >= at) {
                self.try_next();
                continue;
            }
            let ready = self.wait_for_one(next_at.map_or(until, |at| at.min(until)).since(now));
            let Some(index) = ready else {
                if self.context.clock.now() >= until {
                    return Err(Fault::TimedOut);
                }
                continue;
            };
            match receive(self.tried[index].1.as_mut(), Duration::ZERO) {
                Ok(received) => {
                    self.decide(index);
                    return Ok(received);
                }
                // A message that was not for this link.
                Err(Fault::TimedOut) => {}
                Err(fault) => self.drop_failed(index, fault)?,
            }
        }
    }

    /// The index of a link that is ready, after waiting for `left` at most.
    fn wait_for_one(&self, left: Duration) -> Option<usize> {
        let descriptors: Vec<_> = self.tried.iter().map(|(_, link)| link.descriptor()).collect();
        let mut polled: Vec<PollFd> =
            descriptors.iter().flatten().map(|descriptor| watch(descriptor, PollFlags::IN)).collect();
        // After an interrupted call the caller waits again.
        let _ = poll(&mut polled, left);
        polled.iter().position(|socket| !socket.revents().is_empty())
    }

    /// The link of the address that replies, or the one that was tried first.
    pub fn first(&self) -> &dyn Link {
        self.tried[0].1.as_ref()
    }

    fn first_mut(&mut self) -> &mut dyn Link {
        self.tried[0].1.as_mut()
    }
}

impl Link for FallbackLink {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.tuning = Some(*tuning);
        for (_, link) in &mut self.tried {
            link.tune(tuning);
        }
    }

    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        if self.is_decided {
            return self.first_mut().send(bytes, within);
        }
        let mut index = 0;
        while index < self.tried.len() {
            match self.tried[index].1.send(bytes, within) {
                Ok(_) => index += 1,
                Err(Fault::TimedOut) => return Err(Fault::TimedOut),
                Err(fault @ Fault::TooLong { .. }) => return Err(fault),
                Err(fault) => self.drop_failed(index, fault)?,
            }
        }
        if self.last_sent.is_empty() {
            self.next_at = Some(self.context.clock.now() + ATTEMPT_DELAY);
        }
        self.last_sent.clear();
        self.last_sent.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        if self.is_decided {
            return self.first_mut().receive(into, within);
        }
        self.receive_first(within, |link, left| link.receive(into, left))
    }

    fn send_batch(&mut self, messages: &[u8], message: usize, within: Duration) -> Result<usize, Fault> {
        if self.is_decided {
            return self.first_mut().send_batch(messages, message, within);
        }
        self.send(&messages[..messages.len().min(message)], within)
    }

    fn receive_batch(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault> {
        if self.is_decided {
            return self.first_mut().receive_batch(into, within);
        }
        self.receive_first(within, |link, left| link.receive_batch(into, left))
    }

    /// The second handle has the address of this moment.
    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        self.first().second_handle()
    }

    delegate_link!(self => self.first(), self.first_mut(); facts status finish_sending abort reopen read_send_stamps descriptor);
    plain_link!(port_control);
}

#[cfg(test)]
mod tests {
    use crate::protocol::Registry;
    use std::net::UdpSocket;

    use super::*;
    use crate::link::{Dialer, LinkError};
    use linkgauge_model::clock::Clock;

    const LONG_TIMEOUT: Duration = Duration::from_secs(10);

    fn dialer_of(addresses: &[&str]) -> Dialer {
        let dialer = Registry::standard().dialer(Clock::System);
        dialer.hosts.insert("server", addresses.iter().map(|text| text.parse().unwrap()).collect());
        dialer
    }

    /// Sends a message back, and the next one.
    fn reply_twice(server: UdpSocket) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || {
            for _ in 0..2 {
                let mut received = [0; 9];
                let (length, client) = server.recv_from(&mut received).unwrap();
                server.send_to(&received[..length], client).unwrap();
            }
        })
    }

    #[test]
    fn a_message_goes_to_the_address_that_replies() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        // 127.0.0.2 refuses, 127.0.0.3 is silent.
        let _silent = UdpSocket::bind(("127.0.0.3", port)).unwrap();
        let dialer = dialer_of(&["127.0.0.2", "127.0.0.3", "127.0.0.1"]);
        let mut link = dialer.open(&format!("udp://server:{port}").parse().unwrap()).unwrap();
        let replies = reply_twice(server);
        for _ in 0..2 {
            assert_eq!(link.send(b"request", LONG_TIMEOUT).unwrap(), 7);
            let mut received = [0; 9];
            assert_eq!(link.receive(&mut received, LONG_TIMEOUT).unwrap(), 7);
            assert_eq!(received[..7], *b"request");
        }
        replies.join().unwrap();
        let reached = "127.0.0.1".parse().unwrap();
        assert_eq!(dialer.hosts.answered("server", dialer.now()), Some(reached));
        assert_eq!(link.facts()["remote"], format!("127.0.0.1:{port}"));
    }

    #[test]
    fn without_a_server_the_refusal_is_reported() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        drop(server);
        let dialer = dialer_of(&["127.0.0.2", "127.0.0.1"]);
        let endpoint = format!("udp://server:{port}").parse().unwrap();
        let mut link = dialer.open(&endpoint).unwrap();
        let sent = link.send(b"request", LONG_TIMEOUT);
        let fault = sent.and_then(|_| link.receive(&mut [0; 9], LONG_TIMEOUT)).unwrap_err();
        let error = LinkError::new(&endpoint, fault).to_string();
        assert!(error.contains("connection refused: no server listens on this port"), "{error}");
    }

    #[test]
    fn a_server_that_goes_away_is_no_missing_server() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("udp://{}", server.local_addr().unwrap()).parse().unwrap();
        let mut link = Registry::standard().dialer(Clock::System).open(&endpoint).unwrap();
        link.send(b"request", LONG_TIMEOUT).unwrap();
        let (_, client) = server.recv_from(&mut [0; 9]).unwrap();
        server.send_to(b"reply", client).unwrap();
        link.receive(&mut [0; 9], LONG_TIMEOUT).unwrap();
        drop(server);
        link.send(b"request", LONG_TIMEOUT).unwrap();
        let fault = link.receive(&mut [0; 9], LONG_TIMEOUT).unwrap_err();
        let error = LinkError::new(&endpoint, fault).to_string();
        assert!(error.contains("the remote stopped replying during the run"), "{error}");
        assert!(!error.contains("linkgauge serve"), "{error}");
    }
}
