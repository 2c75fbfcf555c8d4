//! Shared code of the transports over IP: resolving addresses, IP options, and facts about the path between
//! two addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::host::interfaces;
use crate::link::own_interfaces::{interface_between, interface_facts, recent_facts};
use crate::link::traffic_class::set_traffic_class;
use crate::link::{Facts, Fault, OpenContext};
use linkgauge_model::endpoint::{DEFAULT_PORT, Endpoint, EndpointError};
use linkgauge_model::run::PATH_MTU_FACT;
use linkgauge_system::{self as system, Errno, IpFamily};

/// Use of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndpointRole {
    /// Opening a link to the endpoint.
    Open,
    /// Accepting links on the endpoint.
    Listen,
}

/// The addresses of an endpoint's host and port, in the resolver's order, restricted to the requested family.
/// Port 0 is valid only for listening.
pub(crate) fn resolve_addresses(
    endpoint: &Endpoint,
    context: &OpenContext,
    role: EndpointRole,
) -> Result<Vec<SocketAddr>, Fault> {
    let (host, port) = endpoint.host_port()?;
    let port = port.or(context.default_port).unwrap_or(DEFAULT_PORT);
    if port == 0 && role == EndpointRole::Open {
        return Err(Fault::Invalid("port 0 cannot be connected to. Use 1 to 65535".to_owned()));
    }
    let options = IpOptions::from_endpoint(endpoint)?;
    if let Ok(address) = host.parse::<IpAddr>() {
        options.check_family(address)?;
        let needs_interface = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        if needs_interface && options.device.is_none() {
            let interfaces = interfaces::names();
            let example = interfaces.iter().find(|name| *name != "lo").map_or("eth0", String::as_str);
            return Err(Fault::Invalid(format!(
                "a link-local address needs its interface: write [{address}%{example}]"
            )));
        }
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    if host.split('.').count() == 4 && host.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit()) {
        return Err(Fault::Invalid(format!("'{host}' is no address: each of its four numbers is 0 to 255")));
    }
    if let Some((_, interface)) = host.split_once('%')
        && !interfaces::names().iter().any(|name| name == interface)
        && interface.parse::<u32>().is_err()
    {
        return Err(missing_interface(interface));
    }
    let unknown =
        |why: &str| Fault::NotFound(format!("the name '{host}' was not found{why}: check its spelling"));
    let mut found =
        context.hosts.resolve(host, port, context.clock.now()).map_err(|error| match is_without_server(&error) {
            true => Fault::NotFound(format!(
                "no server of names (DNS) has an answer, so '{host}' was not found: check the network, or use an address"
            )),
            false => unknown(""),
        })?;
    if found.is_empty() {
        return Err(unknown(" (no address)"));
    }
    match options.required_family() {
        None => Ok(found),
        Some((family, asks)) => {
            found.retain(|address| IpFamily::of_address(address.ip()) == family);
            let none = || format!("'{host}' has no {} address, which {asks} needs", family.name());
            if found.is_empty() { Err(Fault::NotFound(none())) } else { Ok(found) }
        }
    }
}

/// Whether a name was not found because no server of names replied (`EAI_AGAIN`, which only the text shows).
fn is_without_server(error: &io::Error) -> bool {
    error.to_string().contains("Temporary failure")
}

/// The addresses of an endpoint; port 0 is valid.
pub(crate) fn resolve(endpoint: &Endpoint, context: &OpenContext) -> Result<Vec<SocketAddr>, Fault> {
    resolve_addresses(endpoint, context, EndpointRole::Listen)
}

/// Binds a socket to the address that it is to listen on.
pub(crate) fn bind_to_listen(
    socket: &Socket,
    address: SocketAddr,
    context: &OpenContext,
) -> Result<(), Fault> {
    if context.is_v6_only && address.is_ipv6() {
        socket.set_only_v6(true).map_err(Fault::system("set IPV6_V6ONLY"))?;
    }
    socket.bind(&address.into()).map_err(Fault::system("bind"))
}

/// Options of every transport over IP, for its list: name and meaning.
pub(crate) const FAMILY_OPTION: (&str, &str) =
    ("family", "4 or 6: addresses of IPv4 alone, or of IPv6 (in the resolver's order, the first that works)");
pub(crate) const BIND_OPTION: (&str, &str) = (
    "bind",
    "address and port of this host to open from, like 127.0.0.2, :18768, 127.0.0.2:18768 (the system's choice)",
);
pub(crate) const DEVICE_OPTION: (&str, &str) =
    ("device", "interface that all packets leave and arrive by, like eth0 (by the routing table)");
pub(crate) const DSCP_OPTION: (&str, &str) = (
    "dscp",
    "class of service in the IP header of sent packets: EF, CS0 to CS7, AF11 to AF43, VA, LE, DF, or 0 to 63 (0)",
);
/// Option for datagrams only: on streams the kernel negotiates ECN and sets the bits.
pub(crate) const ECN_OPTION: (&str, &str) =
    ("ecn", "ECN bits in the IP header of sent packets: not-ect, ect1, ect0, ce, or 0 to 3 (0)");

pub(crate) const TTL_OPTION: (&str, &str) =
    ("ttl", "routers that a packet may pass, and one more, 1 to 255 (the kernel's choice)");
pub(crate) const PRIORITY_OPTION: (&str, &str) = (
    "priority",
    "priority of sent packets in the queues of this host, 0 to 6; 7 to 15 need CAP_NET_ADMIN (0)",
);

/// `IPDEFTTL` of linux/ip.h, the usual value.
const DEFAULT_TTL: u32 = 64;

/// The requested IP options of an endpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct IpOptions {
    family_option: Option<IpFamily>,
    /// Local address and port; port 0 stands for any.
    bind_address: Option<(Option<IpAddr>, u16)>,
    device: Option<String>,
    dscp: Option<u8>,
    ecn: Option<u8>,
    ttl: Option<u32>,
    priority: Option<u32>,
}

impl IpOptions {
    pub(crate) fn from_endpoint(endpoint: &Endpoint) -> Result<IpOptions, EndpointError> {
        let family = |text: &str| match text {
            "4" => Some(IpFamily::V4),
            "6" => Some(IpFamily::V6),
            _ => None,
        };
        // Interface names: the limit IFNAMSIZ of linux/if.h, and the rules of `dev_valid_name`.
        let device = |text: &str| {
            let valid = (1..16).contains(&text.len()) && !text.contains(['/', ':', ' ']);
            valid.then(|| text.to_owned())
        };
        let number = |name, wanted, range: std::ops::RangeInclusive<u32>| {
            let in_range = move |text: &str| text.parse().ok().filter(|number| range.contains(number));
            endpoint.parse_option(name, wanted, in_range)
        };
        Ok(IpOptions {
            ttl: number(TTL_OPTION.0, "a number from 1 to 255", 1..=255)?,
            priority: number(PRIORITY_OPTION.0, "a number from 0 to 15", 0..=15)?,
            family_option: endpoint.parse_option(FAMILY_OPTION.0, "4 or 6", family)?,
            bind_address: endpoint.parse_option(
                BIND_OPTION.0,
                "an address, a :port or both",
                parse_bind_address,
            )?,
            device: endpoint.parse_option(DEVICE_OPTION.0, "the name of an interface", device)?,
            dscp: endpoint.parse_option(
                DSCP_OPTION.0,
                "a class like EF, CS1 or AF41, or a number from 0 to 63",
                parse_dscp,
            )?,
            ecn: endpoint.parse_option(
                ECN_OPTION.0,
                "not-ect, ect1, ect0, ce, or a number from 0 to 3",
                parse_ecn,
            )?,
        })
    }

    /// The local IP address, if the endpoint requests one.
    pub(crate) fn bind_ip(&self) -> Option<IpAddr> {
        self.bind_address?.0
    }

    /// The requested traffic class of sent packets, if DSCP or ECN is requested.
    pub(crate) fn traffic_class(&self) -> Option<u8> {
        let is_requested = self.dscp.is_some() || self.ecn.is_some();
        is_requested.then(|| self.dscp.unwrap_or(0) << 2 | self.ecn.unwrap_or(0))
    }

    /// Makes the options for links without ports.
    pub(crate) fn without_port(endpoint: &Endpoint) -> Result<IpOptions, EndpointError> {
        let address = |text: &str| text.parse::<IpAddr>().ok();
        endpoint.parse_option(BIND_OPTION.0, "an address of this host", address)?;
        IpOptions::from_endpoint(endpoint)
    }

    /// The required address family, and the option that requires it.
    fn required_family(&self) -> Option<(IpFamily, String)> {
        let requested = self.family_option.map(|family| {
            (family, format!("{}={}", FAMILY_OPTION.0, if family == IpFamily::V4 { 4 } else { 6 }))
        });
        requested.or_else(|| {
            let address = self.bind_address?.0?;
            Some((IpFamily::of_address(address), format!("{}={address}", BIND_OPTION.0)))
        })
    }

    /// Fails if an address is not of the requested family.
    fn check_family(&self, address: IpAddr) -> Result<(), Fault> {
        match self.required_family() {
            Some((family, asks)) if family != IpFamily::of_address(address) => Err(Fault::Invalid(format!(
                "{address} is an {} address, but {asks} needs {}",
                IpFamily::of_address(address).name(),
                family.name()
            ))),
            _ => Ok(()),
        }
    }

    /// Applies the options to a socket for `address`, before it is bound or connected.
    pub(crate) fn apply(&self, socket: &Socket, address: IpAddr) -> Result<(), Fault> {
        if let Some(device) = &self.device {
            system::bind_to_device(socket, device).map_err(|error| device_fault(device, error))?;
        }
        if let Some(ttl) = self.ttl {
            let set =
                if address.is_ipv6() { socket.set_unicast_hops_v6(ttl) } else { socket.set_ttl_v4(ttl) };
            set.map_err(Fault::system("set the ttl"))?;
        }
        if let Some(class) = self.traffic_class() {
            set_traffic_class(socket, address, class)?;
        }
        // After the traffic class, which sets a priority of its own.
        self.priority
            .map_or(Ok(()), |priority| system::set_priority(socket, priority))
            .map_err(Fault::system("set the priority"))
    }

    /// Binds a socket before it connects to `remote`, if the endpoint requests this.
    pub(crate) fn bind(&self, socket: &Socket, remote: SocketAddr) -> Result<(), Fault> {
        let Some((address, port)) = self.bind_address else { return Ok(()) };
        let any = if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let address = address.unwrap_or(any);
        let [own, other] = [address, remote.ip()].map(|address| IpFamily::of_address(address).name());
        if own != other {
            return Err(Fault::Invalid(format!(
                "{}={address} is an {own} address, but the link uses {other}",
                BIND_OPTION.0
            )));
        }
        socket.bind(&SocketAddr::new(address, port).into()).map_err(|error| match error.kind() {
            io::ErrorKind::AddrNotAvailable => Fault::NotFound(format!(
                "this host does not have the address {address}: 'ip address' lists its addresses"
            )),
            io::ErrorKind::AddrInUse if port != 0 => Fault::Invalid(format!(
                "port {port} to open from is in use: by another program, by a server on all addresses of this host, \
                 or by a connection of this measurement or the last one. Choose another {}, without a port if possible",
                BIND_OPTION.0
            )),
            _ => Fault::System { operation: "bind", source: error },
        })
    }

    /// Fails if an option applies only to links that are opened.
    pub(crate) fn refuse_bind_for_listener(&self) -> Result<(), Fault> {
        match self.bind_address {
            None => Ok(()),
            Some(_) => Err(Fault::Invalid(format!(
                "{} applies only to links that are opened. Write the address to listen on after '://'",
                BIND_OPTION.0
            ))),
        }
    }
}

/// The traffic class that an endpoint requests for its packets, if its transport has that option and it is set.
pub(crate) fn requested_traffic_class(endpoint: &Endpoint) -> Option<u8> {
    IpOptions::from_endpoint(endpoint).ok()?.traffic_class()
}

fn missing_interface(name: &str) -> Fault {
    let names = interfaces::names().join(", ");
    Fault::NotFound(format!("this host has no interface '{name}'. Its interfaces: {names}"))
}

fn device_fault(name: &str, error: io::Error) -> Fault {
    match Errno::from_io_error(&error) {
        Some(Errno::NODEV) => missing_interface(name),
        Some(Errno::PERM) => Fault::NotPermitted(format!(
            "this user may not choose interface '{name}'. Run it as root, or leave out {}",
            DEVICE_OPTION.0
        )),
        _ => Fault::System { operation: "choose the interface", source: error },
    }
}

/// Parses a local address and port; port 0 stands for any.
fn parse_bind_address(text: &str) -> Option<(Option<IpAddr>, u16)> {
    let address = text.parse::<IpAddr>().ok().map(|ip| (Some(ip), 0));
    let port = || Some((None, text.strip_prefix(':')?.parse().ok()?));
    let both = || text.parse::<SocketAddr>().ok().map(|both| (Some(both.ip()), both.port()));
    address.or_else(port).or_else(both)
}

/// Parses a differentiated services codepoint: a number, or a name of IANA's registry.
fn parse_dscp(text: &str) -> Option<u8> {
    let name = text.to_ascii_uppercase();
    let digit =
        |at: usize| name.as_bytes().get(at).filter(|byte| byte.is_ascii_digit()).map(|byte| byte - b'0');
    match (name.as_str(), name.len()) {
        // RFC 3246, RFC 5865, RFC 8622, RFC 2474.
        ("EF", _) => Some(46),
        ("VA" | "VOICE-ADMIT", _) => Some(44),
        ("LE", _) => Some(1),
        ("DF" | "BE", _) => Some(0),
        // RFC 2474, 4.2.2.2: class selectors are the former precedences.
        (name, 3) if name.starts_with("CS") => digit(2).filter(|class| *class < 8).map(|class| class << 3),
        // RFC 2597: four classes, three drop precedences.
        (name, 4) if name.starts_with("AF") => match (digit(2)?, digit(3)?) {
            (class @ 1..=4, drop @ 1..=3) => Some(class << 3 | drop << 1),
            _ => None,
        },
        (number, _) => number.parse().ok().filter(|codepoint| *codepoint < 64),
    }
}

/// Parses the two ECN bits of RFC 3168.
fn parse_ecn(text: &str) -> Option<u8> {
    match text.to_ascii_lowercase().as_str() {
        "not-ect" | "0" => Some(0),
        "ect1" | "1" => Some(1),
        "ect0" | "2" => Some(2),
        "ce" | "3" => Some(3),
        _ => None,
    }
}

/// An Internet address as text; `None` for other families.
pub(crate) fn address_text(address: &SockAddr) -> Option<String> {
    address.as_socket().map(|address| address.to_string())
}

/// An Internet address as a fact.
pub(crate) fn address_fact(address: std::io::Result<SockAddr>) -> Option<serde_json::Value> {
    address_text(&address.ok()?).map(Into::into)
}

/// The port that a socket is bound to; 0 if there is none.
pub(crate) fn bound_port(socket: &Socket) -> u16 {
    socket.local_addr().ok().and_then(|address| address.as_socket()).map_or(0, |address| address.port())
}

/// Adds addresses, path MTU and interface of a connected socket, and its effective `IpOptions`.
pub fn facts(socket: &Socket, facts: &mut Facts) {
    let mut note = |name: &str, value: Option<serde_json::Value>| {
        facts.extend(value.map(|value| (name.to_owned(), value)));
    };
    note("local", address_fact(socket.local_addr()));
    note("remote", address_fact(socket.peer_addr()));
    note(PATH_MTU_FACT, system::path_mtu(socket).map(Into::into));
    let interface =
        connected_addresses(socket).and_then(|(local, remote)| recent_facts(socket, local, remote));
    note("interface", interface.map(Into::into));
    note("bound_device", system::bound_device(socket).map(Into::into));
    let is_v6 = socket.local_addr().is_ok_and(|local| local.is_ipv6());
    let field = if is_v6 { system::traffic_class_v6(socket) } else { socket.tos_v4().ok() };
    let (dscp, ecn) = field.map_or((0, 0), |field| (field >> 2, field & 3));
    note("dscp", (dscp > 0).then_some(dscp.into()));
    let ttl = if is_v6 { socket.unicast_hops_v6() } else { socket.ttl_v4() };
    note("ttl", ttl.ok().filter(|ttl| *ttl != DEFAULT_TTL).map(Into::into));
    note("priority", system::priority(socket).filter(|priority| *priority > 0).map(Into::into));
    // On streams the bits are those of the last segment.
    let is_stream = socket.r#type().is_ok_and(|kind| kind == Type::STREAM);
    note("ecn", (ecn > 0 && !is_stream).then_some(ecn.into()));
}

/// The addresses of both ends of a connected socket.
fn connected_addresses(socket: &Socket) -> Option<(IpAddr, IpAddr)> {
    let ip = |address: std::io::Result<SockAddr>| address.ok()?.as_socket().map(|address| address.ip());
    Some((ip(socket.local_addr())?, ip(socket.peer_addr())?))
}

/// The interface through which this host reaches an internet endpoint: that of `?device=`, or that of the route. Sends nothing.
pub(crate) fn interface_of(endpoint: &Endpoint) -> Option<String> {
    if let Some(name) = endpoint.option("device") {
        return Some(name.to_owned());
    }
    let (host, port) = endpoint.host_port().ok()?;
    let remote = (host, port.unwrap_or(DEFAULT_PORT)).to_socket_addrs().ok()?.next()?;
    let socket = Socket::new(Domain::for_address(remote), Type::DGRAM, None).ok()?;
    socket.connect(&remote.into()).ok()?;
    let (local, remote) = connected_addresses(&socket)?;
    interface_between(&system::interface_addresses(), local, remote).map(str::to_owned)
}

/// Facts about every interface of this host; empty if no socket can be opened.
pub fn all_interface_facts() -> Vec<Facts> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None);
    let of = |socket| interfaces::names().iter().map(|name| interface_facts(&socket, name)).collect();
    socket.map_or(Vec::new(), of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_service_have_the_numbers_of_their_registry() {
        // https://www.iana.org/assignments/dscp-registry
        let registered = [
            ("CS0", 0),
            ("CS1", 8),
            ("CS2", 16),
            ("CS3", 24),
            ("CS4", 32),
            ("CS5", 40),
            ("CS6", 48),
            ("CS7", 56),
            ("AF11", 10),
            ("AF12", 12),
            ("AF13", 14),
            ("AF21", 18),
            ("AF22", 20),
            ("AF23", 22),
            ("AF31", 26),
            ("AF32", 28),
            ("AF33", 30),
            ("AF41", 34),
            ("AF42", 36),
            ("AF43", 38),
            ("EF", 46),
            ("VA", 44),
            ("LE", 1),
        ];
        for (name, number) in registered {
            assert_eq!([parse_dscp(name), parse_dscp(&name.to_lowercase())], [Some(number); 2], "{name}");
        }
        for number in 0..64 {
            assert_eq!(parse_dscp(&number.to_string()), Some(number));
        }
        for wrong in ["", "64", "-1", "CS8", "CS", "CS10", "AF14", "AF51", "AF1", "AFxx", "CSx", "EF1", "é12"]
        {
            assert_eq!(parse_dscp(wrong), None, "{wrong}");
        }
        let named = ["not-ect", "ECT1", "ect0", "CE", "0", "1", "2", "3"].map(parse_ecn);
        assert_eq!(named, [0, 1, 2, 3, 0, 1, 2, 3].map(Some));
        assert_eq!(["4", "", "ect2", "-1"].map(parse_ecn), [None; 4]);
    }

    #[test]
    fn every_interface_has_facts() {
        let all = all_interface_facts();
        let named =
            |name: &str| all.iter().find(|facts| facts.get("interface").is_some_and(|own| own == name));
        // The loopback interface has no interrupts; other drivers report both values or none.
        assert!(named("lo").is_some_and(|lo| !lo.contains_key("interrupt_delay_us")));
        for facts in &all {
            let both =
                [facts.contains_key("interrupt_delay_us"), facts.contains_key("interrupt_delay_adaptive")];
            assert_eq!(both[0], both[1], "{facts:?}");
        }
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        assert_eq!(system::interrupt_coalescing(&socket, "no-such-device"), None);
        assert_eq!(system::stamp_sources(&socket, "lo"), ["software"]);
        assert!(system::stamp_sources(&socket, "no-such-device").is_empty());
    }
}
