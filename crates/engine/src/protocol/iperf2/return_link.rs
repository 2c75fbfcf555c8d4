//! The links that a server opens to the client, for servers that cannot send on the client's own (`-r` and `-d`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::wire::{Settings, TestMode};
use crate::link::party::CANCEL_CHECK_INTERVAL;
use crate::link::{Admission, Dialer, Fault, Link, LinkError, Listener, remote_address};
use crate::protocol::{CaseError, ProtocolError};
use linkgauge_model::endpoint::Endpoint;

/// The least time that a server has to connect.
const MIN_ACCEPT_TIME: Duration = Duration::from_secs(3);

/// Fault of a server that does not connect.
const NO_RETURN: &str = "the server does not connect to --callback: it does not support -r and -d, a linkgauge server lacks \
                         --trust-senders, or a firewall drops the connection. Name a port that is open";

/// The links of the two directions.
pub(crate) struct FlowLinks {
    pub(crate) upload: Option<Box<dyn Link>>,
    pub(crate) download: Option<Box<dyn Link>>,
}

/// Listens for the links of one server.
pub(crate) struct ReturnListener {
    listener: Box<dyn Listener>,
    port: u16,
    endpoint: Endpoint,
    server: IpAddr,
}

impl ReturnListener {
    /// Listens on a port (0: a free one) for the server at the other end of a link.
    pub(crate) fn open(
        endpoint: &Endpoint,
        link: &dyn Link,
        port: u16,
        dialer: &Dialer,
    ) -> Result<ReturnListener, ProtocolError> {
        let Some(server) = remote_address(link).map(|address| address.ip().to_canonical()) else {
            let text = format!("{endpoint}: --callback needs a connection over IP: use tcp");
            return Err(CaseError::Link(text).into());
        };
        let any: IpAddr =
            if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let own = format!("{}://{}", endpoint.scheme(), SocketAddr::new(any, port));
        let own: Endpoint = own.parse().map_err(|error: linkgauge_model::endpoint::EndpointError| {
            LinkError::new(endpoint, error.into())
        })?;
        let listener = dialer.listen(&own)?;
        let port = listener.endpoint().host_port().ok().and_then(|(_, port)| port).unwrap_or(port);
        Ok(ReturnListener { listener, port, endpoint: endpoint.clone(), server })
    }

    /// Port that the server connects to.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Sends the settings, and accepts the link that the server then opens.
    pub(crate) fn open_return(
        &mut self,
        mut link: Box<dyn Link>,
        settings: &Settings,
        dialer: &Dialer,
    ) -> Result<FlowLinks, ProtocolError> {
        let error = |fault| ProtocolError::from(LinkError::new(&self.endpoint, fault));
        // So short that it is sent whole or not at all.
        link.send(&settings.encode(0), dialer.timeout).map_err(error)?;
        let upload = match settings.mode {
            TestMode::TradeOff => {
                // The test of this direction is over at once. The other one begins when the server has noticed that.
                link.finish_sending().map_err(error)?;
                await_close(link.as_mut(), dialer).map_err(error)?;
                None
            }
            _ => Some(link),
        };
        let back = self.accept(dialer).map_err(|fault| LinkError::new(&self.endpoint, fault))?;
        Ok(FlowLinks { upload, download: Some(back) })
    }

    /// The next link that the server opens.
    fn accept(&mut self, dialer: &Dialer) -> Result<Box<dyn Link>, Fault> {
        let until = dialer.now() + dialer.timeout.max(MIN_ACCEPT_TIME);
        while dialer.now() < until {
            if dialer.cancel.load(Relaxed) {
                return Err(Fault::Interrupted);
            }
            let accepted = self
                .listener
                .accept(CANCEL_CHECK_INTERVAL, &mut |_: &[u8], _: &str, _: &mut Vec<u8>| Admission::Drop);
            match accepted {
                Ok((link, from)) => {
                    let from = from.parse::<SocketAddr>().map(|from| from.ip().to_canonical());
                    // Another host may connect as well.
                    if from.is_ok_and(|from| from == self.server) {
                        return Ok(link);
                    }
                }
                Err(Fault::TimedOut) => {}
                Err(fault) => return Err(fault),
            }
        }
        Err(Fault::NoReply(NO_RETURN.to_owned()))
    }
}

/// Waits until the server has closed the connection, as long as a server may take to connect. What it sends is the
/// acknowledgement of the settings.
fn await_close(link: &mut dyn Link, dialer: &Dialer) -> Result<(), Fault> {
    let until = dialer.now() + dialer.timeout.max(MIN_ACCEPT_TIME);
    let mut unused = [0; 256];
    loop {
        match dialer.receive(link, &mut unused, until.since(dialer.now())) {
            Ok(_) if dialer.now() < until => {}
            Ok(_) | Err(Fault::Closed | Fault::TimedOut) => return Ok(()),
            Err(fault) => return Err(fault),
        }
    }
}
