//! The node of firmware (`linkgauge_responder::linx`) against this one: on a wire that loses frames, and on what real nodes sent.

use linkgauge_responder::linx::DeviceNode;
use linkgauge_responder::linx::frame::{Body, ETHERNET_HEADER_BYTES, Frame, Headers};
use proptest::prelude::{ProptestConfig, prop, proptest};

use super::*;
use crate::transport::linx::rlnh::RlnhMessage;
use crate::transport::linx::tests::captured;

const HOST: MacAddress = [0x52, 0x54, 0, 0, 0, 0x0a];
const DEVICE: MacAddress = [0x52, 0x54, 0, 0, 0, 0x0b];
const DELAY: Duration = Duration::from_micros(100);

/// Largest message of the device.
const MESSAGE_BYTES: usize = 16_388;

/// Both ends, and the frames between them: to the device, to the host.
struct DeviceBench<const SLOTS: usize> {
    host: EthernetConnection,
    device: Box<DeviceNode<MESSAGE_BYTES, SLOTS>>,
    now: Time,
    wires: [VecDeque<Vec<u8>>; 2],
    /// Decides which frames are lost, of 100.
    random: Rng,
    loss: u8,
    received: Vec<(u32, u32, Vec<u8>)>,
}

impl<const SLOTS: usize> DeviceBench<SLOTS> {
    fn new(seed: u64, loss: u8) -> Self {
        DeviceBench {
            host: EthernetConnection::new(ConnectionRole::Active, [HOST, DEVICE], 1500, seed, Time(0)),
            device: Box::new(DeviceNode::new(DEVICE)),
            now: Time(0),
            wires: Default::default(),
            random: Rng::with_seed(seed),
            loss,
            received: Vec::new(),
        }
    }

    fn act(&mut self, act: impl FnOnce(&mut EthernetConnection, Time, &mut FrameSink)) {
        let (wire, random, loss) = (&mut self.wires[0], &mut self.random, self.loss);
        act(&mut self.host, self.now, &mut |frame, _| {
            if random.u8(0..100) >= loss {
                wire.push_back([&DEVICE, &HOST, &[0x89, 0x11][..], frame].concat());
            }
            true
        });
    }

    /// Delivers all frames, and does the work that is due.
    fn step(&mut self) {
        self.now = self.now + DELAY;
        let now = self.now.0;
        let [to_device, to_host] = std::mem::take(&mut self.wires);
        for frame in to_device {
            self.device.on_frame(now, &frame);
            self.poll_device();
        }
        for frame in to_host {
            self.act(|host, now, out| {
                host.handle_frame(&frame[ETHERNET_HEADER_BYTES..], now, out);
            });
        }
        self.poll_device();
        self.act(|host, now, out| {
            host.tick(now, out);
        });
        let mut messages = Vec::new();
        self.act(|host, _, out| host.take_messages(&mut messages, out).unwrap());
        let mut left = &messages[..];
        while let Some((message, rest)) = split_first_message(left) {
            self.received.push((message.source, message.destination, message.bytes.to_vec()));
            left = rest;
        }
    }

    fn poll_device(&mut self) {
        let mut frame = [0; 1514];
        while let Some(length) = self.device.poll(self.now.0, &mut frame) {
            if self.random.u8(0..100) >= self.loss {
                self.wires[1].push_back(frame[..length].to_vec());
            }
        }
    }

    /// Steps until it holds; a minute of the clock at most.
    fn until(&mut self, holds: impl Fn(&Self) -> bool) {
        for _ in 0..600_000 {
            if holds(self) {
                return;
            }
            self.step();
        }
        panic!("not within a minute: {} messages", self.received.len());
    }

    fn send(&mut self, [source, destination]: [u32; 2], bytes: &[u8]) {
        self.act(|host, _, out| host.queue_message(source, destination, [b"", bytes], out));
    }

    /// Connects, greets, and hunts for a name; returns what the device published.
    fn hunt(&mut self, name: &str) -> u32 {
        self.until(|bench| bench.host.is_up() && bench.device.is_up());
        self.send([0, 0], &RlnhMessage::Init { version: 2 }.encode());
        self.until(|bench| !bench.received.is_empty());
        for message in [
            RlnhMessage::InitReply { supported: true },
            RlnhMessage::Publish { address: 1, name: b"client".to_vec() },
            RlnhMessage::QueryName { asker: 1, name: name.into() },
        ] {
            self.send([0, 0], &message.encode());
        }
        self.until(|bench| bench.received.len() >= 3);
        let parsed: Vec<_> =
            self.received.drain(..).map(|(_, _, bytes)| RlnhMessage::parse(&bytes).unwrap()).collect();
        let RlnhMessage::Publish { address, .. } = parsed[2] else { panic!("{parsed:?}") };
        let expected = RlnhMessage::Publish { address, name: name.into() };
        assert_eq!(
            parsed,
            [RlnhMessage::Init { version: 2 }, RlnhMessage::InitReply { supported: true }, expected]
        );
        address
    }
}

fn signal(number: u32, bytes: usize) -> Vec<u8> {
    let content = (0..bytes.saturating_sub(4)).map(|at| (at * 7 + number as usize) as u8);
    number.to_be_bytes().into_iter().chain(content).collect()
}

/// Sends signals of these sizes at once, and compares the echoes.
fn echoes<const SLOTS: usize>(seed: u64, loss: u8, sizes: &[usize]) {
    let mut bench = DeviceBench::<SLOTS>::new(seed, loss);
    let echo = bench.hunt("echo");
    for (number, bytes) in sizes.iter().enumerate() {
        bench.send([1, echo], &signal(number as u32, *bytes));
    }
    bench.until(|bench| bench.received.len() == sizes.len());
    for (number, (source, destination, bytes)) in bench.received.iter().enumerate() {
        assert_eq!((*source, *destination), (echo, 1));
        assert!(*bytes == signal(number as u32, sizes[number]), "message {number}");
    }
    bench.until(|bench| bench.host.is_all_acknowledged());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_signal_comes_back_in_order_whatever_is_lost(
        seed: u64, loss in 0u8..12, sizes in prop::collection::vec(4usize..=MESSAGE_BYTES, 1..12),
    ) {
        echoes::<1>(seed, loss, &sizes);
        echoes::<3>(seed, loss, &sizes);
    }
}

#[test]
fn sizes_around_the_frames_come_back() {
    echoes::<1>(1, 0, &[4, 5, 1479, 1480, 1481, 2967, 2968, 2969, MESSAGE_BYTES, 4]);
}

#[test]
fn what_is_too_long_or_discarded_is_acknowledged() {
    let mut bench = DeviceBench::<1>::new(3, 0);
    let discard = bench.hunt("discard");
    for bytes in [4, 65_536, 100] {
        bench.send([1, discard], &signal(1, bytes));
    }
    // The endpoint "echo" has address 2, whether it was hunted for or not.
    bench.send([1, 2], &signal(1, MESSAGE_BYTES + 1));
    bench.send([1, 2], &signal(2, 50));
    bench.until(|bench| !bench.received.is_empty());
    assert_eq!(bench.received, [(2, 1, signal(2, 50))]);
    bench.until(|bench| bench.host.is_all_acknowledged());
}

#[test]
fn the_benchmark_is_served_as_real_nodes_do() {
    let mut bench = DeviceBench::<1>::new(4, 0);
    let server = bench.hunt("server");
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    bench.send([1, server], &words(&[0x2870, 1, 0]));
    bench.until(|bench| bench.received.len() == 2);
    let slave = bench.received[1].0;
    let name = b"linx_bmark_00000001".to_vec();
    assert_eq!(bench.received[0].2, RlnhMessage::Publish { address: slave, name }.encode());
    assert_eq!(bench.received[1], (slave, 1, words(&[0x2870, 1, 0])));
    // Both styles of a burst.
    bench.received.clear();
    bench.send([1, slave], &words(&[0x2875, 100, 0x8765, 3000]));
    bench.until(|bench| bench.received.len() == 100);
    bench.send([1, slave], &words(&[0x287a, 7, 0x8765, 64]));
    bench.until(|bench| bench.received.len() == 101);
    assert_eq!(bench.received[100].2, words(&[0x287b, 7, 0x8765, 64]));
    bench.send([1, slave], &words(&[0x2875]));
    bench.until(|bench| bench.received.len() == 108);
    for (index, (source, _, bytes)) in bench.received.iter().enumerate().filter(|(index, _)| *index != 100) {
        assert_eq!((*source, bytes.len()), (slave, if index < 100 { 3000 } else { 64 }));
        assert_eq!(bytes[..4], 0x8765_u32.to_be_bytes());
    }
    bench.received.clear();
    bench.send([1, slave], &words(&[0x2874]));
    bench.until(|bench| !bench.received.is_empty());
    assert_eq!(bench.received[0].2, RlnhMessage::Unpublish { address: slave }.encode());
}

#[test]
fn supervision_survives_loss_and_ends_a_silent_peer() {
    let mut bench = DeviceBench::<1>::new(5, 2);
    bench.until(|bench| bench.host.is_up() && bench.device.is_up());
    for _ in 0..100_000 {
        bench.step();
    }
    assert!(bench.host.is_up() && bench.device.is_up(), "after 10 s with loss");
    bench.loss = 100;
    bench.until(|bench| !bench.device.is_up());
    bench.loss = 0;
    bench.until(|bench| bench.host.is_up() && bench.device.is_up());
}

#[test]
fn frames_of_real_nodes_are_read_and_written_alike() {
    let mut differences = Vec::new();
    let mut frames = 0;
    for text in
        [include_str!("../../captured/ethernet.txt"), include_str!("../../captured/ethernet_loss.txt")]
    {
        for (_, bytes) in captured(text) {
            frames += 1;
            let (ours, theirs) = (EthernetFrame::parse(&bytes).unwrap(), Frame::parse(&bytes).unwrap());
            match (ours, theirs) {
                (EthernetFrame::Connect(ours), Frame::Connect(theirs)) => {
                    assert_eq!(
                        (ours.kind as u32, ours.window, ours.id),
                        (theirs.kind as u32, theirs.window, theirs.id)
                    );
                    assert_eq!(ours.mtu, theirs.mtu.map(usize::from));
                }
                (EthernetFrame::Ack { .. }, Frame::Ack { id, wants_ack, ack, sequence, body }) => {
                    let mut written = [0; 1500];
                    let head = Headers { id, wants_ack, ack, sequence }.write(&body, &mut written);
                    let data = if let Body::Data { bytes, .. } = body { bytes } else { &[] };
                    written[head..head + data.len()].copy_from_slice(data);
                    let length = head + data.len();
                    if written[..length] != bytes[..length] {
                        differences.push(bytes);
                    }
                }
                (ours, theirs) => panic!("{ours:?} {theirs:?}"),
            }
        }
    }
    assert!(frames > 100 && differences.is_empty(), "{frames} frames: {differences:02x?}");
}
