//! Connects a stream to the first address of a host that accepts (RFC 8305): the next address is tried when the one before has failed,
//! or when it has not answered for a while. All attempts go on until one succeeds.

use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Protocol, Socket};

use super::internet;
use crate::link::own_interfaces;
use crate::link::reachability::{connect_fault, ignore_reports, keep_weightier, silent_fault, socket_fault};
use crate::link::unsent::SilentAttempt;
use crate::link::{Fault, OpenContext};
use linkgauge_model::clock::Time;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_system::{CONNECT_BEGUN, PollFd, PollFlags, poll, socket_protocol, watch};

/// `Connection Attempt Delay` of RFC 8305, 5.
pub(crate) const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects to the first address of the endpoint that accepts. `open` makes a socket for an address.
pub(crate) fn connect_first(
    endpoint: &Endpoint,
    context: &OpenContext,
    open: impl Fn(SocketAddr) -> Result<Socket, Fault>,
) -> Result<Socket, Fault> {
    let addresses = internet::resolve_addresses(endpoint, context, internet::EndpointRole::Open)?;
    // A host that is silent may yet be reported as unreachable; no router reports on this host.
    let is_own = addresses.iter().all(|address| own_interfaces::is_own(address.ip()));
    let within = if is_own { context.timeout } else { context.timeout.max(context.report_time) };
    let socket = race(&addresses, context.clock.now() + within, context, open)?;
    let (host, _) = endpoint.host_port()?;
    if let (true, Some(remote)) =
        (addresses.len() > 1, socket.peer_addr().ok().and_then(|peer| peer.as_socket()))
    {
        context.hosts.note_answer(host, remote.ip(), context.clock.now());
    }
    Ok(socket)
}

fn race(
    addresses: &[SocketAddr],
    until: Time,
    context: &OpenContext,
    open: impl Fn(SocketAddr) -> Result<Socket, Fault>,
) -> Result<Socket, Fault> {
    let mut untried = addresses.iter();
    let mut attempts: Vec<Socket> = Vec::new();
    let mut next_at = context.clock.now();
    let mut silent = SilentAttempt::begin(next_at);
    let mut kept = None;
    loop {
        let now = context.clock.now();
        let slow_at = silent.observe(now);
        if (attempts.is_empty() || now >= next_at)
            && let Some(&address) = untried.next()
        {
            next_at = now + ATTEMPT_DELAY;
            match open(address).and_then(|socket| begin(socket, address)) {
                Ok(socket) => attempts.push(socket),
                Err(fault) => keep_weightier(&mut kept, fault),
            }
            continue;
        }
        if attempts.is_empty() {
            return Err(kept.unwrap_or_else(silent_fault));
        }
        if now >= until {
            let is_tcp = |socket: &Socket| socket_protocol(socket) == Some(Protocol::TCP);
            let fault = if attempts.iter().all(is_tcp) { silent.fault() } else { silent_fault() };
            keep_weightier(&mut kept, fault);
            return Err(kept.unwrap_or_else(silent_fault));
        }
        let wake_at = if untried.len() > 0 { next_at.min(until) } else { until };
        let wake_at = slow_at.map_or(wake_at, |slow_at| wake_at.min(slow_at));
        let Some(index) = wait_for_one(&attempts, wake_at.since(now)) else { continue };
        let socket = attempts.swap_remove(index);
        match finish(&socket) {
            Ok(()) => return Ok(socket),
            Err(fault) => {
                keep_weightier(&mut kept, fault);
                next_at = now;
            }
        }
    }
}

/// Begins to connect and does not wait.
pub fn begin(socket: Socket, address: SocketAddr) -> Result<Socket, Fault> {
    socket.set_nonblocking(true).map_err(Fault::system("set non-blocking"))?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(CONNECT_BEGUN.raw_os_error()) => {
            return Err(connect_fault(&socket, address, error));
        }
        _ => {}
    }
    socket.set_nonblocking(false).map_err(Fault::system("set blocking"))?;
    Ok(socket)
}

/// The outcome of a connection that was begun, once its socket can be written to.
pub fn finish(socket: &Socket) -> Result<(), Fault> {
    match socket.take_error() {
        Ok(None) => {
            ignore_reports(socket);
            Ok(())
        }
        Ok(Some(error)) | Err(error) => Err(socket_fault(socket, "connect", error)),
    }
}

/// The index of a socket that is ready, after waiting for `left` at most.
fn wait_for_one(attempts: &[Socket], left: Duration) -> Option<usize> {
    let mut polled: Vec<PollFd> = attempts.iter().map(|socket| watch(socket, PollFlags::OUT)).collect();
    // After an interrupted call the caller waits again.
    let _ = poll(&mut polled, left);
    polled.iter().position(|socket| !socket.revents().is_empty())
}

#[cfg(test)]
mod tests {
    use crate::protocol::Registry;
    use std::net::{IpAddr, TcpListener};

    use socket2::{Domain, Type};

    use crate::link::{LinkError, remote_address};
    use linkgauge_model::clock::Clock;

    /// A port that accepts on the first address and refuses on the others.
    fn listen() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_refusing_address_is_followed_by_the_next_and_remembered() {
        let (_listener, port) = listen();
        let dialer = Registry::standard().dialer(Clock::System);
        dialer.hosts.insert("server", addresses(&["::1", "127.0.0.3", "127.0.0.1"]));
        let endpoint = format!("tcp://server:{port}").parse().unwrap();
        let link = dialer.open(&endpoint).unwrap();
        let reached: IpAddr = "127.0.0.1".parse().unwrap();
        assert_eq!(remote_address(link.as_ref()).unwrap().ip(), reached);
        assert_eq!(dialer.hosts.answered("server", dialer.now()), Some(reached));
    }

    /// The queue of the listener is full, so the kernel ignores further connections.
    #[test]
    fn a_silent_address_delays_and_does_not_fail() {
        let (_listener, port) = listen();
        let silent = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let address: std::net::SocketAddr = format!("127.0.0.2:{port}").parse().unwrap();
        silent.bind(&address.into()).unwrap();
        silent.listen(0).unwrap();
        let first = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        first.connect(&address.into()).unwrap();
        let mut dialer = Registry::standard().dialer(Clock::System);
        dialer.timeout = std::time::Duration::from_secs(60);
        dialer.hosts.insert("server", addresses(&["127.0.0.2", "127.0.0.1"]));
        let endpoint = format!("tcp://server:{port}").parse().unwrap();
        let link = dialer.open(&endpoint).unwrap();
        assert_eq!(remote_address(link.as_ref()).unwrap().to_string(), format!("127.0.0.1:{port}"));
    }

    #[test]
    fn a_refusal_says_more_than_a_missing_route() {
        let (listener, port) = listen();
        drop(listener);
        let dialer = Registry::standard().dialer(Clock::System);
        // TCP has no route to the broadcast address.
        dialer.hosts.insert("server", addresses(&["127.0.0.1", "255.255.255.255"]));
        let error: LinkError = dialer.open(&format!("tcp://server:{port}").parse().unwrap()).err().unwrap();
        assert!(error.to_string().contains("connection refused"), "{error}");
    }
}
