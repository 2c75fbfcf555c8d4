//! What stands in front of each message, and in front of the one that says that it was the last: the peer's word. Ours
//! is the message's number. A stream without a head is plain noise; one with a head is blocks, one behind the other.

use crate::clock::Time;
use crate::workload::pattern;

/// Most bytes of a head.
pub const MOST: usize = 64;

/// The head of the messages of one flow, at the end that writes them or at the one that reads them.
pub trait Head: Send {
    /// Bytes of it in a message that has room for them, at most [`MOST`].
    fn length(&self) -> usize;

    /// Writes the head of message `number` (from 0), sent at `now`, over the beginning of a message.
    fn write(&mut self, message: &mut [u8], number: u64, now: Time);

    /// What the head of a message says that came at `now`; `next` is the number behind the highest so far.
    fn read(&mut self, message: &[u8], next: u64, now: Time) -> Read;

    /// Makes the message that follows the last and says so, if the protocol has one. It is sent after the stop, and is
    /// no payload at either end.
    fn write_end(&mut self, message: &mut [u8], now: Time) -> bool {
        let _ = (message, now);
        false
    }
}

/// What a head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// A message of the flow.
    Number(u64),
    /// Behind this message the flow is over.
    End,
    /// None of this flow.
    Strange,
}

/// Our own head: the number, as far as the message has room.
pub struct Numbered;

impl Head for Numbered {
    fn length(&self) -> usize {
        pattern::HEADER
    }

    #[inline]
    fn write(&mut self, message: &mut [u8], number: u64, _now: Time) {
        pattern::write_number(message, number);
    }

    #[inline]
    fn read(&mut self, message: &[u8], next: u64, _now: Time) -> Read {
        Read::Number(pattern::read_number(message, next))
    }
}

/// Finds the heads in a stream of blocks of one length, however it is cut into pieces.
pub struct Blocks {
    head: Box<dyn Head>,
    block: u64,
    /// Bytes of the stream so far, and where it ends once that was said.
    position: u64,
    ends: Option<u64>,
    /// The beginning of a head that came in pieces.
    begun: [u8; MOST],
    /// Blocks that are none of this flow.
    pub strange: u64,
    /// What came behind the end: the peer's next words.
    surplus: Vec<u8>,
}

impl Blocks {
    pub fn new(head: Box<dyn Head>, block: u64) -> Blocks {
        Blocks { head, block, position: 0, ends: None, begun: [0; MOST], strange: 0, surplus: Vec::new() }
    }

    fn head_length(&self) -> u64 {
        (self.head.length().min(MOST) as u64).min(self.block)
    }

    /// Takes the next piece; how many bytes of it are payload.
    pub fn take(&mut self, piece: &[u8], now: Time) -> u64 {
        let mut payload = 0;
        let mut rest = piece;
        while !rest.is_empty() {
            if self.is_over() {
                self.surplus.extend_from_slice(rest);
                break;
            }
            let (into, length) = (self.position % self.block, self.head_length());
            let left = if into < length { length - into } else { self.block - into };
            let (taken, behind) = rest.split_at(rest.len().min(left as usize));
            if into < length {
                self.begun[into as usize..][..taken.len()].copy_from_slice(taken);
            }
            self.position += taken.len() as u64;
            if into < length && into + taken.len() as u64 == length {
                payload += self.understand(length, now);
            } else if into >= length && self.ends.is_none() {
                payload += taken.len() as u64;
            }
            rest = behind;
        }
        payload
    }

    /// A head is whole; its bytes are payload, unless it is that of the end.
    fn understand(&mut self, length: u64, now: Time) -> u64 {
        let block = (self.position - length) / self.block;
        match self.head.read(&self.begun[..length as usize], block, now) {
            Read::Number(_) => length,
            Read::Strange => {
                self.strange += 1;
                length
            }
            Read::End => {
                self.ends = Some(self.position - length + self.block);
                0
            }
        }
    }

    /// Whether the block that says so has come whole.
    pub fn is_over(&self) -> bool {
        self.ends.is_some_and(|end| self.position >= end)
    }

    /// What came behind the end, with the last piece.
    pub fn surplus(&self) -> &[u8] {
        &self.surplus
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::link::party::{Party, Step, Tuning};
    use crate::link::{Caps, Framing};
    use crate::plan::{Case, CaseSpec, OneOrMany, Stop};
    use crate::sample::Recorder;
    use crate::units::{Bytes, Span};
    use crate::workload::Measured;
    use crate::workload::throughput::{Sink, Source};

    /// Two bytes: 0 and the low byte of the number; 1 and 0 at the end.
    pub struct Flagged;

    impl Head for Flagged {
        fn length(&self) -> usize {
            2
        }

        fn write(&mut self, message: &mut [u8], number: u64, _now: Time) {
            let head = [0, number as u8];
            let length = message.len().min(2);
            message[..length].copy_from_slice(&head[..length]);
        }

        fn read(&mut self, message: &[u8], next: u64, _now: Time) -> Read {
            match message {
                [0] => Read::Number(next),
                [0, low, ..] if *low == next as u8 => Read::Number(next),
                [1, ..] => Read::End,
                _ => Read::Strange,
            }
        }

        fn write_end(&mut self, message: &mut [u8], now: Time) -> bool {
            self.write(message, 0, now);
            message[0] = 1;
            true
        }
    }

    proptest! {
        #[test]
        fn blocks_are_found_however_they_are_cut(
            block in 1usize..9, count in 0u64..20, cut in 1usize..30, behind in 0usize..5,
        ) {
            let mut stream = Vec::new();
            let mut one = vec![7; block];
            for number in 0..count {
                Flagged.write(&mut one, number, Time(0));
                stream.extend_from_slice(&one);
            }
            assert!(Flagged.write_end(&mut one, Time(0)));
            stream.extend_from_slice(&one);
            stream.extend_from_slice(&vec![9; behind]);
            let mut blocks = Blocks::new(Box::new(Flagged), block as u64);
            let mut payload = 0;
            for piece in stream.chunks(cut) {
                payload += blocks.take(piece, Time(0));
            }
            prop_assert_eq!(payload, count * block as u64);
            prop_assert!(blocks.is_over());
            prop_assert_eq!((blocks.strange, blocks.surplus()), (0, &vec![9; behind][..]));
        }
    }

    fn case(stop: Stop) -> Case {
        let spec = CaseSpec {
            url: Some(OneOrMany::One("mem://x".parse().unwrap())),
            workload: Some("throughput".to_owned()),
            size: Some(OneOrMany::One(Bytes(10))),
            timeout: Some(Span(Duration::from_secs(1))),
            ..CaseSpec::default()
        };
        Case { stop, ..spec.expand().unwrap().remove(0) }
    }

    /// What a source sends in pieces of at most `most` bytes, a microsecond each, goes to a sink.
    fn carried(caps: &Caps, stop: Stop, most: usize) -> (Source, Sink) {
        let case = case(stop);
        let tuning = Tuning::default();
        let mut source =
            Source::new(&case, caps, tuning, Recorder::counting()).with_head(Box::new(Flagged), caps);
        let mut sink = Sink::new(&case, caps, tuning, Recorder::counting()).with_head(Box::new(Flagged));
        for now in (0..).map(|step| Time(step * 1000)) {
            let mut on_its_way = Vec::new();
            match source.next(now) {
                Step::Send { bytes, .. } => on_its_way.extend_from_slice(&bytes[..bytes.len().min(most)]),
                Step::Finish => return (source, sink),
                _ => continue,
            }
            source.sent(on_its_way.len(), now);
            loop {
                match sink.next(now) {
                    Step::Receive { into, .. } => {
                        into.clear();
                        into.bytes[..on_its_way.len()].copy_from_slice(&on_its_way);
                        into.push(0, on_its_way.len());
                    }
                    _ => continue,
                }
                sink.received(now);
                break;
            }
        }
        unreachable!("it finishes")
    }

    #[test]
    fn a_flow_with_heads_ends_by_its_last_message() {
        let message = Caps { framing: Framing::Message, max_message: Some(100), ..Caps::STREAM };
        // Blocks are whole however much the link takes at once, and also when the time is over in the middle of one.
        for (caps, most) in [(Caps::STREAM, 3), (Caps::STREAM, 10), (message, 10)] {
            for stop in [Stop::after_count(5), Stop::after(Duration::from_micros(14))] {
                let (source, mut sink) = carried(&caps, stop, most);
                let counts = source.recorder().counts;
                assert_eq!(counts.bytes, counts.sent * 10);
                assert!(counts.sent >= 4 && (stop.count.is_none() || counts.sent == 5), "{}", counts.sent);
                assert!(matches!(sink.next(Time(1 << 30)), Step::Done));
                let got = sink.recorder().counts;
                assert_eq!((got.received, got.bytes, got.corrupt_messages), (counts.sent, counts.bytes, 0));
            }
        }
    }

    #[test]
    fn a_strange_block_is_counted() {
        let mut blocks = Blocks::new(Box::new(Flagged), 4);
        assert_eq!(blocks.take(&[0, 0, 7, 7, 5, 5, 7, 7, 0, 2, 7, 7], Time(0)), 12);
        assert!(!blocks.is_over());
        assert_eq!(blocks.strange, 1);
    }
}
