//! A link to a host with several addresses, of which some may have no server, such as `localhost`.
//!
//! Connecting a datagram socket sends nothing. So a refused datagram goes to the next address, until something
//! arrives.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::LinkMaker;
use crate::link::datagram::DatagramLink;
use crate::link::party::Tuning;
use crate::link::serial_line::PortControl;
use crate::link::stamps::SendStamps;
use crate::link::{Batch, Caps, Facts, Fault, Link, LinkStatus};

pub(crate) struct FallbackLink {
    inner: DatagramLink,
    maker: LinkMaker,
    /// The addresses to try next; none once something has arrived.
    others: VecDeque<SocketAddr>,
    last_sent: Vec<u8>,
    tuning: Option<Tuning>,
}

impl FallbackLink {
    pub(crate) fn new(inner: DatagramLink, maker: LinkMaker, others: VecDeque<SocketAddr>) -> FallbackLink {
        FallbackLink { inner, maker, others, last_sent: Vec::new(), tuning: None }
    }

    /// After a refusal: continues with the next address and repeats the last datagram there.
    fn switch_address(&mut self, fault: Fault, within: Duration) -> Result<(), Fault> {
        match &fault {
            Fault::System { source, .. }
                if source.kind() == io::ErrorKind::ConnectionRefused && !self.others.is_empty() => {}
            _ => return Err(fault),
        }
        self.inner = self.maker.connect_next(&mut self.others)?;
        if let Some(tuning) = &self.tuning {
            self.inner.tune(tuning);
        }
        if !self.last_sent.is_empty() {
            self.inner.send(&self.last_sent, within)?;
        }
        Ok(())
    }

    fn receive_first<T>(
        &mut self,
        within: Duration,
        mut receive: impl FnMut(&mut DatagramLink, Duration) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let until = self.maker.clock.now() + within;
        loop {
            let left = until.since(self.maker.clock.now());
            match receive(&mut self.inner, left) {
                Ok(received) => {
                    self.others.clear();
                    return Ok(received);
                }
                Err(fault) => self.switch_address(fault, left)?,
            }
        }
    }
}

impl Link for FallbackLink {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn facts(&self) -> Facts {
        self.inner.facts()
    }

    fn status(&self) -> LinkStatus {
        self.inner.status()
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.tuning = Some(*tuning);
        self.inner.tune(tuning);
    }

    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        if self.others.is_empty() {
            return self.inner.send(bytes, within);
        }
        loop {
            match self.inner.send(bytes, within) {
                Ok(sent) => {
                    self.last_sent.clear();
                    self.last_sent.extend_from_slice(bytes);
                    return Ok(sent);
                }
                Err(fault) => self.switch_address(fault, within)?,
            }
        }
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        if self.others.is_empty() {
            return self.inner.receive(into, within);
        }
        self.receive_first(within, |inner, left| inner.receive(into, left))
    }

    fn send_batch(&mut self, messages: &[u8], message: usize, within: Duration) -> Result<usize, Fault> {
        if self.others.is_empty() {
            return self.inner.send_batch(messages, message, within);
        }
        self.send(&messages[..messages.len().min(message)], within)
    }

    fn receive_batch(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault> {
        if self.others.is_empty() {
            return self.inner.receive_batch(into, within);
        }
        self.receive_first(within, |inner, left| inner.receive_batch(into, left))
    }

    fn finish_sending(&mut self) -> Result<(), Fault> {
        self.inner.finish_sending()
    }

    fn abort(&mut self) {
        self.inner.abort();
    }

    fn reopen(&mut self, within: Duration) -> Result<(), Fault> {
        self.inner.reopen(within)
    }

    /// The second handle has the address of this moment.
    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        self.inner.second_handle()
    }

    fn read_send_stamps(&mut self, into: &mut SendStamps) {
        self.inner.read_send_stamps(into);
    }

    fn port_control(&mut self) -> Option<&mut dyn PortControl> {
        self.inner.port_control()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::clock::Clock;
    use crate::link::Dialer;
    use crate::link::udp::Options;
    use crate::plan::WaitMode;

    const LONG_TIMEOUT: Duration = Duration::from_secs(10);

    #[test]
    fn a_refused_datagram_goes_to_the_next_address() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        // Only `address` has this port.
        let refusing: SocketAddr = format!("127.0.0.2:{}", address.port()).parse().unwrap();
        let options = Options::from_endpoint(&"udp://localhost".parse().unwrap()).unwrap();
        let maker = LinkMaker { options, clock: Clock::System, wait: WaitMode::Block };
        let mut addresses = VecDeque::from([refusing, address]);
        let inner = maker.connect_next(&mut addresses).unwrap();
        let mut link = FallbackLink::new(inner, maker, addresses);
        assert_eq!(link.send(b"request", LONG_TIMEOUT).unwrap(), 7);
        let reply = std::thread::spawn(move || {
            let mut received = [0; 9];
            let (length, client) = server.recv_from(&mut received).unwrap();
            server.send_to(&received[..length], client).unwrap();
        });
        let mut received = [0; 9];
        assert_eq!(link.receive(&mut received, LONG_TIMEOUT).unwrap(), 7);
        assert_eq!(received[..7], *b"request");
        reply.join().unwrap();
    }

    #[test]
    fn a_server_that_goes_away_is_no_missing_server() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("udp://{}", server.local_addr().unwrap()).parse().unwrap();
        let mut link = Dialer::new(Clock::System).open(&endpoint).unwrap();
        link.send(b"request", LONG_TIMEOUT).unwrap();
        let (_, client) = server.recv_from(&mut [0; 9]).unwrap();
        server.send_to(b"reply", client).unwrap();
        link.receive(&mut [0; 9], LONG_TIMEOUT).unwrap();
        drop(server);
        link.send(b"request", LONG_TIMEOUT).unwrap();
        let fault = link.receive(&mut [0; 9], LONG_TIMEOUT).unwrap_err();
        let error = crate::link::LinkError::new(&endpoint, fault).to_string();
        assert!(error.contains("the remote stopped replying during the run"), "{error}");
        assert!(!error.contains("linkgauge serve"), "{error}");
    }
}
