//! The server with the input of a captured client, and client and server together on a virtual clock.

use super::server::BmarkConnection;
use super::*;
use crate::link::party::{Party, Step};
use linkgauge_model::clock::Time;

/// Replies of an endpoint to a sequence of signals, and whether it terminates.
fn replies_to(signals: &[&[u8]]) -> (Vec<Vec<u8>>, bool) {
    let caps = Caps { framing: Framing::Message, max_message_bytes: Some(65_536), ..Caps::STREAM };
    let mut end = BmarkConnection::new(&caps);
    let (mut replies, mut next) = (Vec::new(), signals.iter());
    loop {
        let sent = match end.next_step(Time(0)) {
            Step::Tune(_) => continue,
            Step::Send { bytes, .. } => {
                replies.push(bytes.to_vec());
                bytes.len()
            }
            Step::Receive { into, .. } => {
                let Some(signal) = next.next() else { return (replies, false) };
                into.clear();
                into.bytes[..signal.len()].copy_from_slice(signal);
                into.push_span(0, signal.len());
                end.on_received(Time(0));
                continue;
            }
            Step::Done => return (replies, true),
            _ => panic!("an end only talks"),
        };
        end.on_sent(sent, Time(0));
    }
}

fn padded(words: &[u32], bytes: usize) -> Vec<u8> {
    let mut signal = signal::from_words(words);
    signal.resize(bytes, 0);
    signal
}

#[test]
fn a_captured_client_gets_what_a_real_server_gave() {
    // The signals are those of the captures.
    let hello = padded(&[CONN_EST, 1], 16);
    let mut echo = padded(&[ECHO, 1], 64);
    echo[16] = 0xee;
    let (replies, gone) = replies_to(&[&hello, &echo, &echo, &TERMINATE_REQ.to_be_bytes()]);
    assert_eq!((replies, gone), (vec![hello.clone(), echo.clone(), echo], true));

    let allocate = padded(&[signal::ALLOC_REQ, 3, 0x8765, 64], 16);
    let (replies, gone) =
        replies_to(&[&hello, &allocate, &signal::BURST_REQ.to_be_bytes(), &TERMINATE_REQ.to_be_bytes()]);
    let ready = padded(&[signal::ALLOC_FINI, 3, 0x8765, 64], 16);
    let burst = padded(&[0x8765], 64);
    assert_eq!((replies, gone), (vec![hello.clone(), ready, burst.clone(), burst.clone(), burst], true));

    let (replies, gone) = replies_to(&[&hello, &padded(&[signal::ATTACH_TEST_REQ, 1], 32)]);
    assert_eq!((replies, gone), (vec![hello], true));
}

#[test]
fn an_older_client_gets_what_an_older_server_gave() {
    let hello = signal::encode_conn_est(ClientStyle::Old);
    assert_eq!(hello.len(), 12);
    // Padded to the message size.
    let ask = padded(&[signal::BURST_REQ, 2, 0x8765, 100], 100);
    let burst = padded(&[0x8765], 100);
    let attach = padded(&[signal::ATTACH_TEST_REQ, 1], 32);
    let (replies, gone) = replies_to(&[&hello, &ask, &attach]);
    assert_eq!((replies, gone), (vec![hello, burst.clone(), burst, attach], true));
}

#[test]
fn strange_signals_do_no_harm() {
    let hello = signal::encode_conn_est(ClientStyle::New);
    let huge = padded(&[signal::BURST_REQ, 1, 7, u32::MAX], 16);
    let (replies, gone) =
        replies_to(&[&hello, b"", b"abc", &[0xff; 90], &padded(&[signal::BURST_REQ], 8), &huge]);
    assert_eq!((replies.len(), replies[1].len(), gone), (2, 65_536, false));
    let none = padded(&[signal::BURST_REQ, 0, 7, 0], 16);
    assert_eq!(replies_to(&[&none]), (vec![], false));
}

#[test]
fn echoes_are_matched_by_their_numbers_where_they_have_room() {
    let caps = Caps { framing: Framing::Message, max_message_bytes: Some(65_536), ..Caps::STREAM };
    for size in [4, 5, 11, 12, 64, 65_536] {
        let mut echo = SignalEchoCodec::new(size, &caps);
        let mut request = echo.encode_request(77).to_vec();
        assert_eq!((request.len(), signal_number(&request)), (size, Some(ECHO)));
        let whole = ReplyStatus::Complete { sequence: 77, used: size, corrupt_bytes: 0 };
        assert_eq!(echo.parse_reply(&request, 77..78), whole, "{size}");
        if size > 12 {
            request[size - 1] ^= 1;
            let whole = ReplyStatus::Complete { sequence: 77, used: size, corrupt_bytes: 1 };
            assert_eq!(echo.parse_reply(&request, 77..78), whole, "{size}");
        }
    }
    let mut echo = SignalEchoCodec::new(64, &caps);
    assert_eq!(echo.parse_reply(b"abc", 0..1), ReplyStatus::Unrelated { used: 3 });
    assert_eq!(echo.parse_reply(&TERMINATE_REQ.to_be_bytes(), 0..1), ReplyStatus::Unrelated { used: 4 });
}

#[test]
fn a_burst_fits_into_the_queue_of_a_real_node_over_ethernet() {
    let count = |mtu, size, flows| limit_burst(200, &Load { flows, ..Load::endless(size) }, mtu);
    // 45 frames each: 200 signals need 9000 frames, but a real node queues 2048.
    assert_eq!(count(Some(1500), 65_536, 1), 42);
    assert_eq!(count(Some(1500), 65_536, 32), 1);
    assert_eq!(count(Some(1500), 64, 1), 200);
    assert_eq!(count(Some(9000), 65_536, 1), 200);
    assert_eq!(count(None, 65_536, 1), 200, "over a stream nothing is queued by frames");
}
