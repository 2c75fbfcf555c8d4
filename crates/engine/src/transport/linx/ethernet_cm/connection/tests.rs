//! Connections on a simulated clock: lossy and dead wires, a day of supervision, and captures of real nodes.

use super::*;
use crate::transport::linx::tests::{captured, described, without_rows};

const A: MacAddress = [0x52, 0x54, 0, 0, 0, 0x0a];
const B: MacAddress = [0x52, 0x54, 0, 0, 0, 0x0b];
const MILLISECOND: Duration = Duration::from_millis(1);

/// Two ends and the wire between them.
struct Pair {
    ends: [EthernetConnection; 2],
    now: Time,
    /// Frames in flight: arrival time, receiving end, frame.
    wire: VecDeque<(Time, usize, Vec<u8>)>,
    /// Number of frames of which one is lost; 1: all are lost.
    loss_interval: usize,
    frames: usize,
    events: Vec<(Time, usize, ConnectionEvent)>,
    /// Messages received by each end.
    received: [Vec<(u32, u32, Vec<u8>)>; 2],
    /// Ends that do not take their messages.
    pauses: [bool; 2],
    /// Number of frames that the device of each end still takes.
    capacity: [usize; 2],
    /// Endpoints of the messages that each end sent to their end for the first time.
    ended: [Vec<u32>; 2],
}

impl Pair {
    pub fn new(mtu: usize) -> Pair {
        let ends = [
            EthernetConnection::new(ConnectionRole::Active, [A, B], mtu, 1, Time(0)),
            EthernetConnection::new(ConnectionRole::Passive, [B, A], 1500, 2, Time(0)),
        ];
        Pair {
            ends,
            now: Time(0),
            wire: VecDeque::new(),
            loss_interval: usize::MAX,
            frames: 0,
            events: Vec::new(),
            received: Default::default(),
            pauses: [false; 2],
            capacity: [usize::MAX; 2],
            ended: Default::default(),
        }
    }

    fn up(mtu: usize) -> Pair {
        let mut pair = Pair::new(mtu);
        while !pair.ends.iter().all(EthernetConnection::is_up) {
            pair.step();
        }
        pair
    }

    fn act<T>(
        &mut self,
        end: usize,
        act: impl FnOnce(&mut EthernetConnection, Time, &mut FrameSink) -> T,
    ) -> T {
        let (now, loss_interval) = (self.now, self.loss_interval);
        let (wire, frames, capacity) = (&mut self.wire, &mut self.frames, &mut self.capacity[end]);
        let ended = &mut self.ended[end];
        let mut out = |frame: &[u8], message_of: Option<u32>| {
            if *capacity == 0 {
                return false;
            }
            *capacity -= 1;
            ended.extend(message_of);
            *frames += 1;
            if !frames.is_multiple_of(loss_interval) {
                wire.push_back((now + MILLISECOND / 10, 1 - end, frame.to_vec()));
            }
            true
        };
        act(&mut self.ends[end], now, &mut out)
    }

    /// Advances to the next event.
    fn step(&mut self) {
        let arrival = self.wire.front().map(|(at, _, _)| *at);
        let due = self.ends.iter().map(EthernetConnection::next_due);
        self.now = due.chain(arrival).min().unwrap().max(self.now);
        let mut events = Vec::new();
        if arrival.is_some_and(|at| at <= self.now)
            && let Some((_, end, frame)) = self.wire.pop_front()
        {
            events
                .push((end, self.act(end, |connection, now, out| connection.handle_frame(&frame, now, out))));
        }
        for end in 0..2 {
            events.push((end, self.act(end, |connection, now, out| connection.tick(now, out))));
        }
        events.retain(|(_, event)| *event != ConnectionEvent::Nothing);
        self.events.extend(events.into_iter().map(|(end, event)| (self.now, end, event)));
        for end in 0..2 {
            self.take(end);
        }
    }

    fn take(&mut self, end: usize) {
        while !self.pauses[end] && self.ends[end].has_messages() {
            let mut messages = Vec::new();
            self.act(end, |connection, _, out| connection.take_messages(&mut messages, out)).unwrap();
            self.received[end].extend(entries(&messages));
        }
    }
}

fn entries(mut messages: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some((message, rest)) = split_first_message(messages) {
        all.push((message.source, message.destination, message.bytes.to_vec()));
        messages = rest;
    }
    all
}

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut random = Rng::with_seed(seed);
    (0..length).map(|_| random.u8(..)).collect()
}

#[test]
fn ten_thousand_messages_arrive_complete_in_order_and_once_though_every_seventh_frame_is_lost() {
    let mut pair = Pair::up(1500);
    pair.loss_interval = 7;
    let mut random = Rng::with_seed(3);
    // Most messages are short, as in practice; every size class of the fragments is included.
    let sizes: Vec<usize> = (0..10_000)
        .map(|index| match index % 200 {
            0 => random.usize(1..=65_532),
            1 => [1, 1476, 1477, 2964, 2965, 65_532][random.usize(..6)],
            _ => random.usize(1..3000),
        })
        .collect();
    let mut next = 0;
    while pair.received[1].len() < sizes.len() {
        while next < sizes.len() && pair.ends[0].can_queue() {
            let bytes = pattern(sizes[next], next as u64);
            pair.act(0, |connection, _, out| connection.queue_message(1, 2, [b"sign", &bytes], out));
            next += 1;
        }
        pair.step();
        assert_eq!(pair.events.len(), 2, "{:?}", pair.events.last());
    }
    for (index, (source, destination, received)) in pair.received[1].iter().enumerate() {
        assert_eq!((*source, *destination), (1, 2));
        assert!(
            received[..4] == *b"sign" && received[4..] == pattern(sizes[index], index as u64),
            "message {index}"
        );
    }
    assert!(pair.ended[0].len() == sizes.len() && pair.ended[1].is_empty(), "retransmissions end no message");
    assert_eq!(pair.received[1].len(), sizes.len());
}

#[test]
fn both_directions_at_once_and_a_smaller_mtu_at_one_end() {
    for mtu in [MIN_MTU, 100, 1500, 16_383] {
        let mut pair = Pair::up(mtu);
        assert_eq!([pair.ends[0].mtu(), pair.ends[1].mtu()], [mtu.min(1500); 2]);
        pair.loss_interval = 5;
        for number in 0..50 {
            let bytes = pattern(number * 29, number as u64);
            for end in 0..2 {
                while !pair.ends[end].can_queue() {
                    pair.step();
                }
                pair.act(end, |connection, _, out| connection.queue_message(1, 1, [&[], &bytes], out));
            }
        }
        while !pair.ends.iter().all(EthernetConnection::is_all_acknowledged) {
            pair.step();
        }
        for end in 0..2 {
            let received: Vec<usize> = pair.received[end].iter().map(|(_, _, bytes)| bytes.len()).collect();
            assert_eq!(received, (0..50).map(|number| number * 29).collect::<Vec<_>>(), "mtu {mtu}");
        }
    }
}

#[test]
fn a_healthy_link_lives_for_a_day_and_a_dead_one_is_noticed_in_1_4_seconds() {
    let mut pair = Pair::up(1500);
    while pair.now < Time(0) + Duration::from_secs(24 * 3600) {
        pair.step();
    }
    assert_eq!(pair.events.len(), 2);
    let last = pair.now;
    pair.loss_interval = 1;
    pair.wire.clear();
    while pair.events.len() < 4 {
        pair.step();
    }
    for (at, end, event) in &pair.events[2..] {
        assert_eq!(
            *event,
            ConnectionEvent::Down(DisconnectReason::Timeout("the remote node stopped replying")),
            "end {end}"
        );
        assert!(*at - last <= Duration::from_millis(1400), "{:?}", *at - last);
    }
    // The connection comes up again once frames get through.
    pair.loss_interval = usize::MAX;
    while !pair.ends.iter().all(EthernetConnection::is_up) {
        pair.step();
    }
    assert!(pair.now - last < Duration::from_secs(5));
    pair.act(0, |connection, _, out| connection.queue_message(3, 4, [b"", b"again"], out));
    while pair.received[1].is_empty() {
        pair.step();
    }
}

#[test]
fn a_receiver_that_takes_nothing_shuts_the_window_and_opens_it_again() {
    let mut pair = Pair::up(1500);
    pair.pauses[1] = true;
    let mut sent = 0;
    let stuck = pair.now + Duration::from_secs(20);
    while pair.now < stuck {
        while pair.ends[0].can_queue() && sent < 5000 {
            pair.act(0, |connection, _, out| connection.queue_message(1, 1, [b"", &[7; 1000]], out));
            sent += 1;
        }
        pair.step();
    }
    assert!(sent < 2500, "{sent} messages were taken");
    assert!(pair.ends[1].inbox.len() < 2 * MAX_INBOX_BYTES);
    let began = pair.now;
    pair.pauses[1] = false;
    pair.take(1);
    while pair.received[1].len() < sent {
        pair.step();
    }
    assert!(pair.now - began < Duration::from_secs(1), "{:?}", pair.now - began);
    assert_eq!(pair.events.len(), 2, "a shut window is no silence");
}

#[test]
fn a_lone_message_and_its_reply_need_two_frames() {
    let mut pair = Pair::up(1500);
    while !pair.wire.is_empty() {
        pair.step();
    }
    let before = pair.frames;
    pair.act(0, |connection, _, out| connection.queue_message(1, 1, [b"", b"ping"], out));
    while pair.received[1].is_empty() {
        pair.step();
    }
    pair.act(1, |connection, _, out| connection.queue_message(1, 1, [b"", b"pong"], out));
    assert_eq!(pair.frames - before, 2);
    while pair.received[0].is_empty() {
        pair.step();
    }
    assert!(pair.ends[0].is_all_acknowledged(), "the reply acknowledges");
}

#[test]
fn a_frame_that_asks_is_acknowledged_at_once_with_an_empty_one_that_does_not() {
    let mut pair = Pair::up(1500);
    while !pair.wire.is_empty() {
        pair.step();
    }
    for request in [AckRequest::Wanted, AckRequest::None] {
        let replies = request as usize;
        let frame = super::super::encode_ack(pair.ends[0].remote_id, request, pair.ends[0].expected);
        let event = pair.act(1, |connection, now, out| connection.handle_frame(&frame, now, out));
        assert_eq!((event, pair.wire.len()), (ConnectionEvent::Nothing, replies));
        let ack = super::super::encode_ack(pair.ends[1].remote_id, AckRequest::None, pair.ends[1].expected);
        let acks: Vec<_> = pair.wire.drain(..).map(|(at, end, frame)| (at > pair.now, end, frame)).collect();
        assert_eq!(acks, vec![(true, 0, ack.to_vec()); replies]);
    }
}

/// The reactions of our end to the frames of one of two real nodes.
fn transcript(text: &str, replayed: char) -> Vec<String> {
    let (own, remote) = if replayed == '>' { (B, A) } else { (A, B) };
    // The node marked '>' was the caller.
    let side = if replayed == '>' { ConnectionRole::Passive } else { ConnectionRole::Active };
    let mut connection = EthernetConnection::new(side, [own, remote], 1500, 1, Time(0));
    connection.local_id = 1;
    let mut lines = Vec::new();
    for (from, frame) in captured(text) {
        // Our end calls when the real node did.
        if from != replayed && side == ConnectionRole::Active && frame[4] == 0xf2 {
            connection.state = HandshakeState::ConnectSent;
        }
        if from == replayed {
            match connection.handle_frame(&frame, Time(0), &mut |_, _| true) {
                ConnectionEvent::Nothing => {}
                event => lines.push(format!("{replayed} {event:?}")),
            }
        }
        let mut messages = Vec::new();
        connection.take_messages(&mut messages, &mut |_, _| true).unwrap();
        for (source, destination, bytes) in entries(&messages) {
            lines.push(format!("{replayed} {}", described(source, destination, &bytes)));
        }
    }
    lines
}

#[test]
fn captured_benchmarks_bring_the_same_messages_with_and_without_loss() {
    let (clean, lossy) =
        (include_str!("../../captured/ethernet.txt"), include_str!("../../captured/ethernet_loss.txt"));
    let both = |text: &str| without_rows(transcript(text, '<').into_iter().chain(transcript(text, '>')));
    insta::assert_snapshot!(both(clean), @r"
    < Up
    < Init { version: 2 }
    < InitReply { supported: true }
    < publish 1 = client
    < query from 1: server
    < 1 -> 1: signal 2870, 12 bytes
    < 1 -> 2: signal 2873, 64 bytes
    < 1 -> 2: signal 2874, 4 bytes
    < UnpublishAck { address: 2 }
    < Unpublish { address: 1 }
    < publish 1 = client
    < 1 -> 1: signal 2870, 12 bytes
    < 1 -> 2: signal 2873, 4000 bytes
    < 1 -> 2: signal 2874, 4 bytes
    < UnpublishAck { address: 2 }
    < Unpublish { address: 1 }
    < publish 1 = client
    < 1 -> 1: signal 2870, 12 bytes
    < 1 -> 2: signal 2875, 16 bytes
    < 1 -> 2: signal 2874, 4 bytes
    < UnpublishAck { address: 2 }
    < Unpublish { address: 1 }
    < publish 1 = client
    < 1 -> 1: signal 2870, 12 bytes
    < 1 -> 2: signal 2873, 8000 bytes
    < 1 -> 2: signal 2874, 4 bytes
    < UnpublishAck { address: 2 }
    < Unpublish { address: 1 }
    < publish 1 = client
    < 1 -> 1: signal 2870, 12 bytes
    < 1 -> 2: signal 2877, 4 bytes
    < UnpublishAck { address: 2 }
    < Unpublish { address: 1 }
    < Down(Closed)
    > Up
    > Init { version: 2 }
    > InitReply { supported: true }
    > publish 1 = server
    > publish 2 = linx_bmark_00000001
    > 2 -> 1: signal 2870, 12 bytes
    > 2 -> 1: signal 2873, 64 bytes
    > Unpublish { address: 2 }
    > UnpublishAck { address: 1 }
    > publish 2 = linx_bmark_00000002
    > 2 -> 1: signal 2870, 12 bytes
    > 2 -> 1: signal 2873, 4000 bytes
    > Unpublish { address: 2 }
    > UnpublishAck { address: 1 }
    > publish 2 = linx_bmark_00000003
    > 2 -> 1: signal 2870, 12 bytes
    > 2 -> 1: signal 8765, 64 bytes
    > Unpublish { address: 2 }
    > UnpublishAck { address: 1 }
    > publish 2 = linx_bmark_00000004
    > 2 -> 1: signal 2870, 12 bytes
    > 2 -> 1: signal 2873, 8000 bytes
    > Unpublish { address: 2 }
    > UnpublishAck { address: 1 }
    > publish 2 = linx_bmark_00000005
    > 2 -> 1: signal 2870, 12 bytes
    > 2 -> 1: signal 2877, 4 bytes
    > Unpublish { address: 2 }
    > UnpublishAck { address: 1 }
    > Down(Closed)
    ");
    // In the other run some addresses were free later, so different ones were assigned.
    let without_addresses = |text: &str| {
        let lines = both(text);
        let blank = |line: &str| {
            line.split_once(": ").filter(|(head, _)| head.contains("->")).map(|(_, rest)| rest.to_owned())
        };
        lines.lines().filter_map(blank).collect::<Vec<_>>()
    };
    assert_eq!(without_addresses(lossy), without_addresses(clean));
}

#[test]
fn a_device_that_takes_nothing_for_a_while_loses_nothing_and_nacks_are_served_meanwhile() {
    let mut pair = Pair::up(1500);
    pair.capacity[0] = 2;
    for number in 0..5 {
        let bytes = pattern(1000, number);
        pair.act(0, |connection, _, out| connection.queue_message(1, 2, [b"sign", &bytes], out));
    }
    assert!(pair.ends[0].is_device_blocked() && pair.ends[0].has_unsent_frames());
    assert_eq!((pair.ends[0].unsent_messages(1), pair.ends[0].unsent_messages(2)), (3, 0));
    assert_eq!(pair.ended[0], [1, 1]);
    // The first of the two frames in flight is lost. The other end requests it, and receives it before the
    // unsent frames.
    pair.wire.pop_front();
    pair.capacity[0] = 1;
    while pair.received[1].len() < 2 {
        pair.step();
    }
    assert_eq!(pair.events.len(), 2, "{:?}", pair.events.last());
    pair.capacity[0] = usize::MAX;
    pair.act(0, |connection, _, out| connection.transmit(out));
    assert!(!pair.ends[0].is_device_blocked());
    while pair.received[1].len() < 5 {
        pair.step();
    }
    for (number, (_, _, received)) in pair.received[1].iter().enumerate() {
        assert!(received[4..] == pattern(1000, number as u64), "message {number}");
    }
}

#[test]
fn the_stamp_of_a_message_is_that_of_the_frame_that_completes_it() {
    let mut pair = Pair::up(1500);
    // Four frames: two of a message, and two messages of one.
    for (source, bytes) in [(1, 2000), (2, 100), (3, 100)] {
        let bytes = pattern(bytes, 7);
        pair.act(0, |connection, _, out| connection.queue_message(source, 9, [b"sign", &bytes], out));
    }
    assert_eq!(pair.ended[0], [1, 2, 3]);
    let frames: Vec<Vec<u8>> = pair.wire.drain(..).map(|(_, _, frame)| frame).collect();
    assert_eq!(frames.len(), 4);
    let mut stamps = Vec::new();
    // The third frame overtakes the second one, so that its message waits for that one. The last has no stamp.
    for (index, arrived) in [(0, Some(Time(10))), (2, Some(Time(20))), (1, Some(Time(30))), (3, None)] {
        pair.act(1, |connection, now, out| {
            connection.handle_stamped_frame(&frames[index], arrived, now, out);
        });
        let mut messages = Vec::new();
        pair.act(1, |connection, _, out| connection.take_messages(&mut messages, out)).unwrap();
        let mut left = &messages[..];
        while let Some((message, rest)) = split_first_message(left) {
            stamps.push((index, message.source, message.arrived));
            left = rest;
        }
    }
    assert_eq!(stamps, [(1, 1, Some(Time(30))), (1, 2, Some(Time(30))), (3, 3, None)]);
}
