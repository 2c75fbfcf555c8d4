//! Quotes and errors by hand, and the kernel of this host.

use super::*;

const NONCE: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

#[test]
fn a_quote_says_which_probe_it_is() {
    let payload = payload_of(0x0102_0304, NONCE);
    assert_eq!(number_in_payload(&payload, NONCE), QuotedNumber::Number(0x0102_0304));
    let mut longer = payload.to_vec();
    longer.resize(500, 7);
    assert_eq!(number_in_payload(&longer, NONCE), QuotedNumber::Number(0x0102_0304), "padding follows");
    for length in 4..payload.len() {
        assert_eq!(number_in_payload(&payload[..length], NONCE), QuotedNumber::Number(0x0102_0304));
    }
    for length in 0..4 {
        assert_eq!(number_in_payload(&payload[..length], NONCE), QuotedNumber::TooShort);
    }
    let mut foreign = payload;
    foreign[11] ^= 1;
    assert_eq!(number_in_payload(&foreign, NONCE), QuotedNumber::Foreign);
}

#[test]
fn icmp_errors_of_both_families_have_a_meaning() {
    use IpFamily::{V4, V6};
    for (family, type_code, expected) in [
        (V4, (11, 0), Some(ProbeReplyKind::Expired)),
        (V4, (11, 1), None),
        (V4, (3, 3), Some(ProbeReplyKind::Reached)),
        (V4, (3, 1), Some(ProbeReplyKind::Refused)),
        (V4, (3, 13), Some(ProbeReplyKind::Refused)),
        (V4, (5, 0), None),
        (V6, (3, 0), Some(ProbeReplyKind::Expired)),
        (V6, (1, 4), Some(ProbeReplyKind::Reached)),
        (V6, (1, 1), Some(ProbeReplyKind::Refused)),
        (V6, (11, 0), None),
    ] {
        assert_eq!(kind_of_error(family, type_code), expected, "{family:?} {type_code:?}");
    }
}

/// The kernel of this host replies to each kind of probe, over both families.
#[test]
fn this_host_is_one_hop_away() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let open = listener.local_addr().unwrap();
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (kind, address) in [
        (ProbeKind::Tcp, open),
        (ProbeKind::Udp, closed),
        (ProbeKind::Udp, SocketAddr::new(Ipv6Addr::LOCALHOST.into(), closed.port())),
    ] {
        let target = ProbeTarget { address, kind, ip: IpOptions::default() };
        let Ok(mut socket) = ProbeSocket::open(&target, 3) else {
            assert!(address.is_ipv6(), "only IPv6 may be absent");
            continue;
        };
        for number in [0, 1, 70_000] {
            socket.send(&Probe { number, flow: 3, hop: 1 }).unwrap();
            let mut replies = Vec::new();
            while replies.is_empty() {
                let (handle, flags) = socket.readiness();
                let mut watched = [system::PollFd::from_borrowed_fd(handle, flags)];
                let _ = system::poll(&mut watched, std::time::Duration::from_secs(20));
                socket.take_replies(&Clock::System, &mut |reply| replies.push(reply));
            }
            let ProbeReply { number: found, flow, from, kind, .. } = replies[0];
            assert_eq!((found, flow, from, kind), (Some(number), 3, address.ip(), ProbeReplyKind::Reached));
        }
    }
}
