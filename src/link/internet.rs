//! What TCP and UDP have in common: finding addresses, and the facts of the way between two of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use socket2::{Domain, SockAddr, Socket, Type};

use super::{Facts, Fault, Opening, sys, tcp, udp};
use crate::endpoint::{Endpoint, EndpointError};
use crate::host::interfaces;

/// Our own port, unassigned at IANA.
pub const DEFAULT_PORT: u16 = 7100;

/// The addresses of an endpoint's host and port, in the order the resolver gives them. Port 0 only to listen.
pub fn addresses(endpoint: &Endpoint, opening: &Opening, listens: bool) -> Result<Vec<SocketAddr>, Fault> {
    let (host, port) = endpoint.host_port()?;
    let port = port.or(opening.default_port).unwrap_or(DEFAULT_PORT);
    if port == 0 && !listens {
        return Err(Fault::Other("port 0 is nobody's: use 1 to 65535".to_owned()));
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let unknown =
        |why: &str| Fault::Other(format!("the name '{host}' was not found{why}: check its spelling"));
    let found: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(|_| unknown(""))?.collect();
    if found.is_empty() { Err(unknown(" (no address)")) } else { Ok(found) }
}

/// The stream to the place that an endpoint of datagrams leads to, for protocols that agree on a stream on what goes in
/// datagrams. Fails for links that have none beside them.
pub fn stream_beside(endpoint: &Endpoint) -> Result<Endpoint, Fault> {
    if endpoint.scheme() != udp::TRANSPORT.scheme {
        return Err(Fault::Other(format!("there is no stream beside {}", endpoint.scheme())));
    }
    Ok(format!("{}://{}", tcp::TRANSPORT.scheme, endpoint.place()).parse()?)
}

/// Where a link is opened from.
pub const BIND: (&str, &str) = (
    "bind",
    "address and port of this host to open from, like 127.0.0.2, :18768, 127.0.0.2:18768 (the system's choice)",
);

/// What an endpoint says of this end: address and port, 0 being any.
pub fn local(endpoint: &Endpoint) -> Result<Option<(Option<IpAddr>, u16)>, EndpointError> {
    endpoint.parsed(BIND.0, "an address, a :port or both", |text| {
        let address = text.parse::<IpAddr>().ok().map(|ip| (Some(ip), 0));
        let port = || Some((None, text.strip_prefix(':')?.parse().ok()?));
        let both = || text.parse::<SocketAddr>().ok().map(|both| (Some(both.ip()), both.port()));
        address.or_else(port).or_else(both)
    })
}

/// Binds a socket that is about to be connected to `remote`, where the endpoint says to what.
pub fn bind(socket: &Socket, endpoint: &Endpoint, remote: SocketAddr) -> Result<(), Fault> {
    let Some((address, port)) = local(endpoint)? else { return Ok(()) };
    let any = if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let address = SocketAddr::new(address.unwrap_or(any), port);
    socket.bind(&address.into()).map_err(Fault::system("bind"))
}

/// An Internet address as text; `None` for other families.
pub fn text(address: &SockAddr) -> Option<String> {
    address.as_socket().map(|address| address.to_string())
}

/// The same as a fact.
pub fn address_text(address: std::io::Result<SockAddr>) -> Option<serde_json::Value> {
    text(&address.ok()?).map(Into::into)
}

/// The port that a socket is bound to; 0 where there is none.
pub fn port(socket: &Socket) -> u16 {
    socket.local_addr().ok().and_then(|address| address.as_socket()).map_or(0, |address| address.port())
}

/// Addresses, path MTU and interface of a connected socket.
pub fn facts(socket: &Socket, facts: &mut Facts) {
    let mut note = |name: &str, value: Option<serde_json::Value>| {
        facts.extend(value.map(|value| (name.to_owned(), value)));
    };
    note("local", address_text(socket.local_addr()));
    note("remote", address_text(socket.peer_addr()));
    note("path_mtu_bytes", sys::path_mtu(socket).map(Into::into));
    note("interface", interface(socket).map(Into::into));
}

/// The interface that the socket's own address belongs to, with its offloads; loop-back when both ends are on this
/// host, whatever their addresses.
fn interface(socket: &Socket) -> Option<Facts> {
    let ip = |address: std::io::Result<SockAddr>| address.ok()?.as_socket().map(|address| address.ip());
    let (local, remote) = (ip(socket.local_addr())?, ip(socket.peer_addr())?);
    let own = sys::interface_addresses();
    let of =
        |wanted: IpAddr| own.iter().find(|(_, address)| *address == wanted).map(|(name, _)| name.as_str());
    let name = match of(remote) {
        Some(_) => own.iter().find(|(_, address)| address.is_loopback()).map(|(name, _)| name.as_str()),
        None => of(local),
    }?;
    let mut facts = interface_facts(socket, name);
    let offloads: Vec<&str> = sys::offloads(socket, name);
    facts.insert("offloads".to_owned(), offloads.into());
    Some(facts)
}

/// What can be said about every interface of this host; nothing where no socket can be opened.
pub fn interfaces() -> Vec<Facts> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None);
    let of = |socket| interfaces::names().iter().map(|name| interface_facts(&socket, name)).collect();
    socket.map_or(Vec::new(), of)
}

/// What can be said about an interface, asked for through any socket: also how long it holds back its interrupts.
pub fn interface_facts(socket: &Socket, name: &str) -> Facts {
    let mut facts = interfaces::facts(name);
    if let Some(coalescing) = sys::coalescing(socket, name) {
        facts.insert("interrupt_delay_us".to_owned(), coalescing.receive_us.into());
        facts.insert("interrupt_delay_adaptive".to_owned(), coalescing.adaptive.into());
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interface_tells_of_itself_what_it_can() {
        let all = interfaces();
        let named =
            |name: &str| all.iter().find(|facts| facts.get("interface").is_some_and(|own| own == name));
        // Loop-back has no interrupts; where a card tells, it tells both.
        assert!(named("lo").is_some_and(|lo| !lo.contains_key("interrupt_delay_us")));
        for facts in &all {
            let both =
                [facts.contains_key("interrupt_delay_us"), facts.contains_key("interrupt_delay_adaptive")];
            assert_eq!(both[0], both[1], "{facts:?}");
        }
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        assert_eq!(sys::coalescing(&socket, "no-such-device"), None);
    }
}
