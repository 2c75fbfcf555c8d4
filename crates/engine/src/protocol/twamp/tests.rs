//! Messages of the control connection as other programs send them.

use super::wire::{AcceptSession, ControlCommand, TestSessionRequest, read_command, read_modes};

/// The first bytes in hexadecimal digits, then zeros.
fn message<const BYTES: usize>(first: &str) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let digits = first.replace(' ', "");
    for (at, byte) in bytes.iter_mut().enumerate().take(digits.len() / 2) {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap();
    }
    bytes
}

#[test]
fn messages_of_other_programs_are_read() {
    // twampd offers all modes of RFC 4656 and RFC 5618.
    assert_eq!(read_modes(&message("000000000000000000000000 0000000f a5bff6fc")), 15);
    let accept = AcceptSession::decode(&message("0000 258a 0a090002 eeb4a616 4eb78897 140bffd1"));
    assert_eq!((accept.accept.0, accept.port), (0, 9610));
    assert_eq!(accept.session[..4], [10, 9, 0, 2]);
    // twampy.
    let request = TestSessionRequest {
        is_ipv6: false,
        sender_port: 20_000,
        receiver_port: 1862,
        padding_bytes: 0,
        timeout_seconds: 0,
    };
    let bytes = message::<112>("05 04 00 00 00000000 00000000 4e20 0746");
    assert_eq!(read_command(&bytes), Some(Ok((ControlCommand::RequestSession(request), 112))));
    assert_eq!(request.encode(), bytes);
}
