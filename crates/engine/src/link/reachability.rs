//! Whether a remote host can be reached, and why not: the same sentences for TCP, UDP and ICMP.
//!
//! Routers and hosts report what they cannot deliver by ICMP. The kernel stores these reports in the error queue of the socket, with
//! the address of the reporter. A neighbour without an answer is reported after three seconds, as is a host behind a router.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use super::Fault;
use super::fault::NO_ROUTE;
use linkgauge_system::{self as system, DeliveryError, Errno, IpFamily};

/// Time after the first packet in which the reports of an unreachable host arrive: each of the three requests for the address of a
/// neighbour waits for a second (`mcast_solicit` and `retrans_time_ms` of arp(7)).
pub const REPORT_TIME: Duration = Duration::from_millis(3500);

const UNREACHABLE_REMEDY: &str = "check the address, the cable, and that the host is on";

/// The fault of a host that does not answer.
pub(crate) fn silent_fault() -> Fault {
    Fault::System { operation: "connect", source: io::ErrorKind::TimedOut.into() }
}

/// Makes the kernel store the reports about packets of a socket to that address.
pub(crate) fn ask_for_reports(socket: &Socket, address: IpAddr) -> Result<(), Fault> {
    match system::set_receive_errors(socket, IpFamily::of_address(address), true) {
        // A socket of Multipath TCP has no reports.
        Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => Ok(()),
        set => set.map_err(Fault::system("ask for errors")),
    }
}

/// Ignores later reports: of a remote that has answered, they are temporary.
pub(crate) fn ignore_reports(socket: &Socket) {
    // A socket without this option has no reports either.
    let _ = system::set_receive_errors(socket, family_of(socket), false);
}

fn family_of(socket: &Socket) -> IpFamily {
    let is_v6 = socket.local_addr().is_ok_and(|local| local.is_ipv6());
    if is_v6 { IpFamily::V6 } else { IpFamily::V4 }
}

/// The fault for an error of a connected socket: by the report that the kernel has stored for it, or by the routes of this host.
pub(crate) fn socket_fault(socket: &Socket, operation: &'static str, source: io::Error) -> Fault {
    let remote = socket.peer_addr().ok().and_then(|remote| remote.as_socket());
    fault_to(socket, remote, operation, source)
}

/// The fault for an error of a socket that could not be connected to an address.
pub(crate) fn connect_fault(socket: &Socket, remote: SocketAddr, source: io::Error) -> Fault {
    fault_to(socket, Some(remote), "connect", source)
}

fn fault_to(
    socket: &Socket,
    remote: Option<SocketAddr>,
    operation: &'static str,
    source: io::Error,
) -> Fault {
    let report = system::take_delivery_error(socket, family_of(socket));
    let own = socket.local_addr().ok().and_then(|local| local.as_socket()).map(|local| local.ip());
    let remote_ip = remote.map(|remote| remote.ip().to_canonical());
    // A closed port of TCP is refused by TCP itself, one of UDP by a report of its host: that of another host is a firewall's.
    let is_refused = source.kind() == io::ErrorKind::ConnectionRefused;
    let is_udp = system::socket_protocol(socket) == Some(Protocol::UDP);
    let is_of_remote = |from: IpAddr| Some(from.to_canonical()) == remote_ip;
    let report = report.filter(|report| !(is_udp && is_refused && report.from.is_none_or(is_of_remote)));
    report
        .and_then(|report| fault_of(report, own))
        .or_else(|| local_refusal(remote?, &source))
        .unwrap_or(Fault::System { operation, source })
}

/// Reason why this host itself sends nothing to an address, by the error of a call; `None` for errors with other reasons.
pub(crate) fn local_refusal(remote: SocketAddr, source: &io::Error) -> Option<Fault> {
    match Errno::from_io_error(source)? {
        Errno::PERM => Some(own_firewall_fault()),
        Errno::ACCESS | Errno::INVAL | Errno::HOSTUNREACH | Errno::NETUNREACH => route_refusal(remote),
        _ => None,
    }
}

/// The fault of packets that a rule of this host discards.
pub(crate) fn own_firewall_fault() -> Fault {
    Fault::Unreachable(OWN_FIREWALL.to_owned())
}

/// Whether the fault is that of packets that a rule of this host discards.
pub(crate) fn is_own_firewall(fault: &Fault) -> bool {
    matches!(fault, Fault::Unreachable(why) if why == OWN_FIREWALL)
}

const OWN_FIREWALL: &str = "a firewall of this host refuses to send it: check its rules, like 'nft list ruleset' or \
                            'iptables-save'";

/// Refusal of an address by the routes of this host, found with a socket without options.
fn route_refusal(remote: SocketAddr) -> Option<Fault> {
    let socket = Socket::new(Domain::for_address(remote), Type::DGRAM, None).ok()?;
    let address = SocketAddr::new(remote.ip(), remote.port().max(1)).into();
    let ip = remote.ip();
    let kind = match Errno::from_io_error(&socket.connect(&address).err()?)? {
        Errno::ACCESS if socket.set_broadcast(true).is_ok() && socket.connect(&address).is_ok() => {
            return Some(Fault::Invalid(format!(
                "{ip} is the broadcast address of a network. Use that of a host"
            )));
        }
        Errno::ACCESS => "prohibit",
        Errno::INVAL => "blackhole",
        Errno::HOSTUNREACH => "unreachable",
        _ => return None,
    };
    let ip = if ip.is_ipv6() { "ip -6" } else { "ip" };
    Some(Fault::Unreachable(format!(
        "a route of this host refuses the address (type {kind}): '{ip} route list type {kind}' shows it"
    )))
}

/// The fault that a report describes; `None` if it is an error of this system without a report. `own` is the address of
/// this host.
fn fault_of(report: DeliveryError, own: Option<IpAddr>) -> Option<Fault> {
    use IpFamily::{V4, V6};
    // RFC 792, RFC 1122 3.2.2.1 and RFC 1812 5.2.7.1; RFC 4443.
    let (kind, code) = report.icmp_type_code.filter(|_| !report.is_too_big())?;
    let (what, remedy) = match (report.family, kind, code) {
        (V4, 11, 0) | (V6, 3, 0) => (
            "time exceeded: the route has more routers than the ttl allows",
            "raise ttl, or look for a loop of routers",
        ),
        (V4, 3, 0) | (V6, 1, 0) => (NO_ROUTE, "check the address and the routes there"),
        (V4, 3, 1) | (V6, 1, 3) if report.from.is_some() && report.from == own => {
            let no_answer = "host unreachable: nothing on this network has its address";
            return Some(Fault::Unreachable(format!("{no_answer}. {}", capitalized(UNREACHABLE_REMEDY))));
        }
        (V4, 3, 1) | (V6, 1, 3) => ("host unreachable", UNREACHABLE_REMEDY),
        (V4, 3, 2 | 3 | 9 | 10 | 13) | (V6, 1, 1 | 4..=6) if report.from.is_some() && report.from == own => {
            return Some(Fault::Unreachable(OWN_FIREWALL.to_owned()));
        }
        (V4, 3, 2 | 3 | 9 | 10 | 13) | (V6, 1, 1 | 4..=6) => {
            ("prohibited on the route", "a firewall refuses it: contact its administrator")
        }
        _ => ("unreachable", "check the address and the route to it"),
    };
    Some(Fault::Unreachable(match report.from {
        Some(from) => format!("{what}, reported by {from}: {remedy}"),
        None => format!("{what} (ICMP type {kind}, code {code}): {remedy}"),
    }))
}

fn capitalized(text: &str) -> String {
    text[..1].to_uppercase() + &text[1..]
}

/// Amount of information of a fault about the host: of several addresses, the fault with the largest weight is reported.
pub(crate) fn weight(fault: &Fault) -> u8 {
    match fault {
        Fault::System { source, .. } => match source.kind() {
            io::ErrorKind::ConnectionRefused => 4,
            io::ErrorKind::TimedOut => 2,
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => 1,
            _ => 0,
        },
        Fault::Unreachable(_) => 3,
        Fault::TimedOut => 2,
        _ => 0,
    }
}

/// Keeps the fault that says more.
pub(crate) fn keep_weightier(kept: &mut Option<Fault>, fault: Fault) {
    if kept.as_ref().is_none_or(|kept| weight(kept) < weight(&fault)) {
        *kept = Some(fault);
    }
}

#[cfg(test)]
mod tests {
    use super::IpFamily::{V4, V6};
    use super::*;
    use crate::protocol::Registry;

    #[test]
    fn a_report_is_one_line() {
        let own = Some("192.0.2.9".parse().unwrap());
        let message_of = |family, message, from: Option<&str>| {
            let from = from.map(|from| from.parse().unwrap());
            let errno = Errno::HOSTUNREACH;
            let error = DeliveryError { family, icmp_type_code: message, errno, from };
            fault_of(error, own).map_or("none".to_owned(), |fault| fault.to_string())
        };
        insta::assert_snapshot!([
            message_of(V4, Some((11, 0)), Some("192.0.2.1")),
            message_of(V6, Some((3, 0)), Some("2001:db8::1")),
            message_of(V4, Some((3, 0)), Some("192.0.2.1")),
            message_of(V4, Some((3, 1)), Some("192.0.2.1")),
            message_of(V4, Some((3, 1)), Some("192.0.2.9")),
            message_of(V4, Some((3, 13)), None),
            message_of(V4, Some((3, 3)), Some("192.0.2.9")),
            message_of(V4, Some((3, 4)), None),
            message_of(V4, None, None),
        ].join("\n"), @r"
        time exceeded: the route has more routers than the ttl allows, reported by 192.0.2.1: raise ttl, or look for a loop of routers
        time exceeded: the route has more routers than the ttl allows, reported by 2001:db8::1: raise ttl, or look for a loop of routers
        no route to the host, reported by 192.0.2.1: check the address and the routes there
        host unreachable, reported by 192.0.2.1: check the address, the cable, and that the host is on
        host unreachable: nothing on this network has its address. Check the address, the cable, and that the host is on
        prohibited on the route (ICMP type 3, code 13): a firewall refuses it: contact its administrator
        a firewall of this host refuses to send it: check its rules, like 'nft list ruleset' or 'iptables-save'
        none
        none
        ");
    }

    #[test]
    fn the_broadcast_address_is_named_over_every_transport() {
        let dialer = Registry::standard().dialer(linkgauge_model::clock::Clock::System);
        for url in ["udp://127.255.255.255:9", "tcp://127.255.255.255:9"] {
            let error = dialer.open(&url.parse().unwrap()).err().unwrap().to_string();
            let expected = "127.255.255.255 is the broadcast address of a network. Use that of a host";
            assert_eq!(error, format!("{url}: {expected}"));
        }
    }
}
