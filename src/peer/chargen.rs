//! `chargen`: the far end sends lines of characters for ever (RFC 864). Over a stream it is a source of payload that asks
//! for nothing; over datagrams it answers each with one of its own, so a round trip can be timed.
//!
//! The lines are the 95 printable characters in a ring, 72 to a line, each line beginning one further on. Where the first
//! begins differs from program to program and is not looked at.

use std::sync::Arc;
use std::time::Duration;

use super::{Flow, Near, Peer, PeerError, Plain, Service, Session, ask, flows};
use crate::clock::Time;
use crate::link::party::{Cost, Party, Step, Tuning};
use crate::link::{Admission, Batch, Caps, Fault, Framing, Link};
use crate::plan::{Case, Direction};
use crate::sample::Recorder;
use crate::workload::latency::Pinger;
use crate::workload::phases::{Phase, Phases};
use crate::workload::{FarFlow, FarReport, Flowed, Measured, Role};

pub const PEER: Peer = Peer {
    name: "chargen",
    summary: "sends characters for ever, or one datagram for each (RFC 864)",
    default_ports: &[("tcp", 19), ("udp", 19)],
    workloads: &[("throughput", &[Direction::Receive]), ("latency", &[Direction::Loop])],
    options: &[],
    sizes: &[],
    fit: |case, caps| match (case.workload.as_str(), caps.framing) {
        ("latency", Framing::Message) | ("throughput", Framing::Stream) => Ok(()),
        ("latency", _) => Err(format!(
            "{}: a chargen answers nothing on a stream: measure throughput, or latency over udp",
            case.endpoints[0]
        )),
        _ => Err(format!(
            "{}: a chargen sends no datagrams by itself: measure latency, or throughput over tcp",
            case.endpoints[0]
        )),
    },
    connect,
    serve: Some(|_| Arc::new(Generator { lines: lines().into() })),
};

fn connect(case: &Case, near: &Near) -> Result<Box<dyn Session>, PeerError> {
    let flows = flows(case, near, |port, link, flows| {
        let caps = link.caps().clone();
        let (role, party): (Role, Box<dyn Measured>) = if case.workload == "latency" {
            let exchange = ask::any_message(vec![b'?'; case.message_bytes as usize]);
            let party = Pinger::new(exchange, case, &caps, (near.recorder)(Role::Exchange, port));
            (Role::Exchange, Box::new(party))
        } else {
            (Role::Inward, Box::new(Reader::new(case, (near.recorder)(Role::Inward, port))))
        };
        flows.push(Flow { role, port, link, party });
        Ok(())
    })?;
    Ok(if case.workload == "latency" { Plain::boxed(flows) } else { Box::new(Reading { flows }) })
}

struct Reading {
    flows: Vec<Flow>,
}

impl Session for Reading {
    fn flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    /// The far end reports nothing; a stream brings what was sent.
    fn finish(
        &mut self,
        flows: &[Flowed],
        _links: Vec<Box<dyn Link>>,
    ) -> Result<Option<FarReport>, PeerError> {
        let inward = |flow: &Flowed| FarFlow {
            port: flow.port,
            inward: true,
            messages: flow.recorder.counts.received,
            ..FarFlow::default()
        };
        Ok(Some(FarReport { flows: flows.iter().map(inward).collect(), ..FarReport::default() }))
    }
}

/// The printable characters of ASCII.
const FIRST: u8 = b' ';
const LAST: u8 = b'~';
const RING: usize = 95;
/// Characters of a line; behind them come CR and LF.
const WIDTH: usize = 72;
const LINE_END: usize = WIDTH + 1;

/// All lines, until the first comes again.
fn lines() -> Vec<u8> {
    let mut lines = Vec::with_capacity(RING * (LINE_END + 1));
    for first in 0..RING {
        lines.extend((first..first + WIDTH).map(|at| FIRST + (at % RING) as u8));
        lines.extend(b"\r\n");
    }
    lines
}

/// Compares what comes with what should. Programs differ in which characters their ring has at its ends, and in which
/// line comes next: so each line is looked at by itself.
#[derive(Default)]
pub struct Check {
    /// Place in the line.
    at: usize,
    last: u8,
}

impl Check {
    /// How many of these bytes are wrong.
    pub fn take(&mut self, bytes: &[u8]) -> u64 {
        let mut wrong = 0;
        for &byte in bytes {
            let right = match self.at {
                0 => (FIRST..=LAST).contains(&byte),
                WIDTH => byte == b'\r',
                LINE_END => byte == b'\n',
                _ => byte == self.last.wrapping_add(1) || self.last >= LAST - 1 && byte <= FIRST + 1,
            };
            wrong += u64::from(!right);
            self.last = byte;
            self.at = if self.at == LINE_END { 0 } else { self.at + 1 };
        }
        wrong
    }
}

/// Room for what one receive operation brings: stays in the cache where the next one reuses it.
const ROOM: usize = 128 * 1024;

/// The near end of a stream: reads, compares, counts.
struct Reader {
    batch: Batch,
    check: Check,
    phases: Phases,
    message: u64,
    timeout: Duration,
    tuning: Option<Tuning>,
    position: u64,
    last: Option<Time>,
    over: bool,
    recorder: Recorder,
}

impl Reader {
    fn new(case: &Case, recorder: Recorder) -> Reader {
        Reader {
            batch: Batch::new(ROOM, 1),
            check: Check::default(),
            phases: Phases::new(case.warm_up.unwrap_or_default(), case.stop),
            message: u64::from(case.message_bytes).max(1),
            timeout: case.timeout,
            tuning: Some(Tuning { wait: case.wait, cpu: case.pin.near, ..Tuning::default() }),
            position: 0,
            last: None,
            over: false,
            recorder,
        }
    }
}

impl Party for Reader {
    fn next(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if self.over {
            return Step::Done;
        }
        let last = *self.last.get_or_insert(now);
        if now >= last + self.timeout {
            return Step::Fail(Fault::TimedOut);
        }
        Step::Receive { into: &mut self.batch, until: last + self.timeout }
    }

    fn sent(&mut self, _bytes: usize, _at: Time) {}

    fn received(&mut self, now: Time) {
        self.last = Some(now);
        let (phase, begins) = self.phases.at(now);
        let chunk = self.batch.messages().next().unwrap_or_default();
        let wrong = self.check.take(chunk);
        // Of a volume or a count no more is counted than was asked for.
        let bytes = (chunk.len() as u64).min(self.phases.bytes_left(self.message));
        let before = self.position / self.message;
        self.position += bytes;
        let messages = self.position / self.message - before;
        if begins {
            self.recorder.begin_with(now, bytes);
        }
        if phase == Phase::Measuring {
            self.recorder.counts.corrupt_bytes += wrong;
            self.recorder.delivered(now, messages, bytes);
        }
        self.phases.sent(messages, bytes);
        self.over = self.phases.at(now).0 == Phase::Over || phase == Phase::Over;
    }

    fn timed_out(&mut self, _now: Time) {}

    fn ended(&mut self, _cost: Cost) {}
}

impl Measured for Reader {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}

struct Generator {
    lines: Arc<[u8]>,
}

impl Service for Generator {
    fn party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        Box::new(Writer {
            lines: self.lines.clone(),
            // One at a time, as the door does; there is none in memory.
            asked: (caps.framing == Framing::Message).then(|| Batch::new(MOST_ANSWERED, 1)),
            waiting: 0,
            position: 0,
            over: false,
        })
    }

    /// The client of a stream says nothing.
    fn speaks_first(&self, caps: &Caps) -> bool {
        caps.framing == Framing::Stream
    }

    fn door(&self, first: &[u8], _from: &str, reply: &mut Vec<u8>) -> Admission {
        // Any length up to this will do (RFC 864); one that is no longer than what was sent is of no use to whoever
        // forges senders.
        reply.extend(self.lines.iter().take(first.len().min(MOST_ANSWERED)));
        Admission::Reply
    }
}

/// Most characters of an answer (RFC 864).
const MOST_ANSWERED: usize = 512;

/// The far end.
struct Writer {
    lines: Arc<[u8]>,
    asked: Option<Batch>,
    /// Bytes of an answer that is to be sent.
    waiting: usize,
    position: u64,
    over: bool,
}

impl Party for Writer {
    fn next(&mut self, _now: Time) -> Step<'_> {
        if self.over {
            return Step::Done;
        }
        if let Some(batch) = &mut self.asked {
            if self.waiting == 0 {
                return Step::Receive { into: batch, until: Time::NEVER };
            }
            return Step::Send { bytes: &self.lines[..self.waiting], message: self.waiting };
        }
        let rest = &self.lines[(self.position % self.lines.len() as u64) as usize..];
        Step::Send { bytes: rest, message: rest.len() }
    }

    fn sent(&mut self, bytes: usize, _at: Time) {
        (self.position, self.waiting) = (self.position + bytes as u64, 0);
    }

    fn received(&mut self, _now: Time) {
        let length = self.asked.iter().flat_map(Batch::messages).next().map_or(0, <[u8]>::len);
        self.waiting = length.min(MOST_ANSWERED);
    }

    fn timed_out(&mut self, _now: Time) {}

    fn closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.over = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_rfc() {
        let lines = lines();
        let text: Vec<&str> = str::from_utf8(&lines).unwrap().split_terminator("\r\n").collect();
        assert_eq!(text.len(), 95);
        assert_eq!(text[0], r##" !"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefg"##);
        assert_eq!(text[94], r##"~ !"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdef"##);
    }

    #[test]
    fn any_line_may_come_and_its_characters_must() {
        // xinetd leaves the first and the last character out of its ring.
        let all = [
            lines(),
            br##"}!"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefg"##.to_vec(),
        ]
        .concat();
        for begin in [0, 74, 50 * 74, 94 * 74] {
            for size in [1, 7, 74, 1000, 10_000] {
                let mut check = Check::default();
                let wrong: u64 = all[begin..].chunks(size).map(|chunk| check.take(chunk)).sum();
                assert_eq!(wrong, 0, "from {begin}, {size} at a time");
            }
        }
        let mut changed = all.clone();
        changed[72] = b' ';
        assert_eq!(Check::default().take(&changed), 1, "a line without its end");
        changed[100] = 0;
        assert_eq!(Check::default().take(&changed), 3, "a character, and the one that does not follow it");
        assert!(Check::default().take(&[0xff; 1000]) > 900 && Check::default().take(&[b'x'; 1000]) > 900);
    }
}
