//! The conversation with a logger that only greets, without a link.

use std::time::Duration;

use linkgauge_model::clock::Time;

use super::conversation::Conversation;
use crate::protocol::pakbus::frame::{self, FrameDecoder};
use crate::protocol::pakbus::message::{HelloFields, LoggerCommand};
use crate::protocol::pakbus::packet::{Hop, LinkState, PacketRoute, PakBusPacket};
use crate::protocol::pakbus::reply::LoggerReply;
use std::collections::VecDeque;
/// The next packet of a client, and the transaction number of its command.
fn next_packet(conversation: &mut Conversation, now: Time) -> (Hop, PacketRoute, u8) {
    let frame = conversation.next_frame(now).unwrap().to_vec();
    conversation.mark_sent(frame.len(), now);
    let (mut decoder, mut rest) = (FrameDecoder::default(), &frame[..]);
    loop {
        let (used, packet) = decoder.read(rest);
        if let Some(packet) = packet {
            let PakBusPacket { hop, message } = PakBusPacket::read(packet).unwrap();
            let (route, message) = message.unwrap();
            return (hop, route, message[1]);
        }
        rest = &rest[used..];
    }
}

#[test]
fn a_logger_that_only_greets_is_given_up_after_one_timeout_and_may_be_behind_a_router() {
    const TIMEOUT: Duration = Duration::from_secs(5);
    for (is_reliable, router) in [(true, None), (true, Some(9)), (false, Some(9))] {
        let mut conversation = Conversation::new(17, TIMEOUT, 3, 1, 0).through_router(router);
        conversation.set_reliable(is_reliable);
        conversation.queue_hello();
        let transaction = conversation.allocate_transaction();
        conversation.queue_command(1, transaction, LoggerCommand::Program { security: 0 });
        let neighbour = router.unwrap_or(17);
        let (hop, route, number) = next_packet(&mut conversation, Time(0));
        assert_eq!((hop.to, route.to), (neighbour, neighbour), "neighbours greet each other");
        let hello = LoggerReply::Hello(HelloFields { is_router: router.is_some(), metric: 2, verify: 1800 });
        let (protocol, message) = hello.write(number);
        let hop = Hop { state: LinkState::READY, to: hop.from, from: neighbour, expect_more: 0, priority: 1 };
        let route = PacketRoute { protocol, to: route.from, from: neighbour, hops: 0 };
        let mut bytes = Vec::new();
        frame::write(&PakBusPacket { hop, message: Some((route, &message)) }.write(), &mut bytes);
        let mut outcomes = VecDeque::new();
        conversation.process_input(&bytes, Time(1), &mut outcomes);
        assert_eq!(outcomes.len(), 1);
        let (hop, route, _) = next_packet(&mut conversation, Time(2));
        assert_eq!((hop.to, route.to), (neighbour, 17));
        let late = Time(2) + TIMEOUT;
        assert_eq!(conversation.check_timeouts(late).is_err(), is_reliable);
        let text = conversation.stats.describe_silence(17, conversation.retries() + 1);
        assert!(text.contains("encryption key") && text.contains("--router"), "{text}");
        assert_eq!(text.contains("1 try"), is_reliable, "{text}");
    }
}
