//! `chargen`: the server sends an endless sequence of lines of characters (RFC 864). A stream is a source of payload
//! without requests. Over datagrams the server replies to each with one of its own, which gives a round trip.

use std::sync::Arc;
use std::time::Duration;

use super::{
    CaseError, ClientSession, ConnectContext, Flow, FlowsOnlySession, Protocol, ProtocolError, ReadyCase,
    Service, ask, open_flows,
};
use crate::link::party::{Party, PartyCost, Step, Tuning};
use crate::link::{Admission, Batch, Caps, Fault, Framing, Link};
use crate::workload::latency::Pinger;
use crate::workload::phases::{Phase, PhaseTracker};
use crate::workload::{FlowReport, FlowResult, FlowRole, Load, RecordingParty, ServerReport, TrafficKind};
use linkgauge_model::clock::Time;
use linkgauge_model::plan::Direction;
use linkgauge_model::sample::Recorder;
pub use linkgauge_responder::chargen::LineChecker;
use linkgauge_responder::chargen::{Generator, PERIOD_BYTES};

/// The `chargen` protocol (RFC 864).
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "chargen",
    summary: "sends characters without end, or one datagram for each (RFC 864)",
    default_ports: &[("tcp", 19), ("udp", 19)],
    traffic: &[(TrafficKind::Load, &[Direction::Receive]), (TrafficKind::RoundTrips, &[Direction::Loop])],
    options: &[],
    sizes: &[],
    is_measured_whole: false,
    shorthand: None,
    original_server: None,
    prepare_case: |case, caps| match (case.workload.is_round_trip(), caps.framing) {
        (true, Framing::Message) | (false, Framing::Stream) => Ok(()),
        (true, _) => Err(CaseError::Link(format!(
            "{}: chargen replies to nothing on a stream: measure throughput, or latency over udp",
            case.endpoints[0]
        ))),
        _ => Err(CaseError::Link(format!(
            "{}: chargen sends no datagrams by itself: measure latency, or throughput over tcp",
            case.endpoints[0]
        ))),
    },
    connect,
    serve: Some(|_| Arc::new(ChargenService { lines: lines().into() })),
};

fn connect(case: &ReadyCase, context: &ConnectContext) -> Result<Box<dyn ClientSession>, ProtocolError> {
    let flows = open_flows(case, context, |load, port, link, flows| {
        let caps = link.caps().clone();
        let (role, party): (FlowRole, Box<dyn RecordingParty>) = if case.workload.is_round_trip() {
            let codec = ask::any_reply_codec(vec![b'?'; load.message_bytes as usize]);
            let party = Pinger::new(codec, load, &caps, (context.new_recorder)(FlowRole::RoundTrip, port));
            (FlowRole::RoundTrip, Box::new(party))
        } else {
            (
                FlowRole::Download,
                Box::new(ChargenReceiver::new(load, (context.new_recorder)(FlowRole::Download, port))),
            )
        };
        flows.push(Flow { role, endpoint_index: port, link, party });
        Ok(())
    })?;
    Ok(if case.workload.is_round_trip() {
        FlowsOnlySession::boxed(flows)
    } else {
        Box::new(ChargenSession { flows })
    })
}

struct ChargenSession {
    flows: Vec<Flow>,
}

impl ClientSession for ChargenSession {
    fn take_flows(&mut self) -> Vec<Flow> {
        std::mem::take(&mut self.flows)
    }

    /// Returns the counts of the client: the server reports nothing, and a stream loses nothing.
    fn finish(
        &mut self,
        flows: &[FlowResult],
        _links: Vec<Box<dyn Link>>,
    ) -> Result<Option<ServerReport>, ProtocolError> {
        let inward = |flow: &FlowResult| FlowReport {
            port: flow.endpoint_index,
            inward: true,
            messages: flow.recorder.counts.received,
            ..FlowReport::default()
        };
        Ok(Some(ServerReport { flows: flows.iter().map(inward).collect(), ..ServerReport::default() }))
    }
}

/// One full period of the lines.
fn lines() -> Vec<u8> {
    let mut lines = vec![0; PERIOD_BYTES];
    Generator::default().fill(&mut lines);
    lines
}

/// Size of a receive: small enough to stay in the cache.
const RECEIVE_BYTES: usize = 128 * 1024;

/// Client of a stream: reads, compares, counts.
struct ChargenReceiver {
    batch: Batch,
    checker: LineChecker,
    phases: PhaseTracker,
    message_bytes: u64,
    timeout: Duration,
    tuning: Option<Tuning>,
    received_bytes: u64,
    last_received: Option<Time>,
    is_finished: bool,
    recorder: Recorder,
}

impl ChargenReceiver {
    pub fn new(load: &Load, recorder: Recorder) -> ChargenReceiver {
        ChargenReceiver {
            batch: Batch::new(RECEIVE_BYTES, 1),
            checker: LineChecker::default(),
            phases: PhaseTracker::new(load.warm_up, load.stop),
            message_bytes: u64::from(load.message_bytes).max(1),
            timeout: load.timeout,
            tuning: Some(load.tuning()),
            received_bytes: 0,
            last_received: None,
            is_finished: false,
            recorder,
        }
    }
}

impl Party for ChargenReceiver {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if let Some(tuning) = self.tuning.take() {
            return Step::Tune(tuning);
        }
        if self.is_finished {
            return Step::Done;
        }
        let last = *self.last_received.get_or_insert(now);
        if now >= last + self.timeout {
            return Step::Fail(Fault::TimedOut);
        }
        Step::Receive { into: &mut self.batch, until: last + self.timeout }
    }

    fn on_sent(&mut self, _bytes: usize, _at: Time) {}

    fn on_received(&mut self, now: Time) {
        self.last_received = Some(now);
        let (phase, begins) = self.phases.advance_to(now);
        let chunk = self.batch.messages().next().unwrap_or_default();
        let wrong = self.checker.count_wrong(chunk);
        // Do not count more than the requested volume or count.
        let bytes = (chunk.len() as u64).min(self.phases.bytes_left(self.message_bytes));
        let before = self.received_bytes / self.message_bytes;
        self.received_bytes += bytes;
        let messages = self.received_bytes / self.message_bytes - before;
        if begins {
            self.recorder.begin_with_bytes(now, bytes);
        }
        if phase == Phase::Measuring {
            self.recorder.counts.corrupt_bytes += wrong;
            self.recorder.record_delivery(now, messages, bytes);
        }
        self.phases.count_sent(messages, bytes);
        self.is_finished = self.phases.advance_to(now).0 == Phase::Finished || phase == Phase::Finished;
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_ended(&mut self, _cost: PartyCost) {}
}

impl RecordingParty for ChargenReceiver {
    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn into_recorder(self: Box<Self>) -> Recorder {
        self.recorder
    }
}

struct ChargenService {
    lines: Arc<[u8]>,
}

impl Service for ChargenService {
    fn connection_bytes(&self, _caps: &Caps) -> usize {
        MAX_REPLY_BYTES
    }

    fn new_party(&self, caps: &Caps, _from: &str) -> Box<dyn Party> {
        Box::new(ChargenSender {
            lines: self.lines.clone(),
            // One message at a time, as in `admit_sender`, which in-memory links lack.
            request_batch: (caps.framing == Framing::Message).then(|| Batch::new(MAX_REPLY_BYTES, 1)),
            reply_bytes: 0,
            sent_bytes: 0,
            is_finished: false,
        })
    }

    /// Whether the server speaks first: on a stream, where the client sends nothing.
    fn speaks_first(&self, caps: &Caps) -> bool {
        caps.framing == Framing::Stream
    }

    fn admit_sender(&self, first: &[u8], _from: &str, reply: &mut Vec<u8>) -> Admission {
        // RFC 864 allows any length up to this one. A reply that is not longer than the request prevents amplification
        // with forged senders.
        reply.extend(self.lines.iter().take(first.len().min(MAX_REPLY_BYTES)));
        Admission::Reply
    }
}

/// Maximum reply in bytes (RFC 864).
const MAX_REPLY_BYTES: usize = 512;

/// Server side of `chargen`.
struct ChargenSender {
    lines: Arc<[u8]>,
    request_batch: Option<Batch>,
    /// Number of bytes of the reply that are still to be sent.
    reply_bytes: usize,
    sent_bytes: u64,
    is_finished: bool,
}

impl Party for ChargenSender {
    fn next_step(&mut self, _now: Time) -> Step<'_> {
        if self.is_finished {
            return Step::Done;
        }
        if let Some(batch) = &mut self.request_batch {
            if self.reply_bytes == 0 {
                return Step::Receive { into: batch, until: Time::NEVER };
            }
            return Step::Send { bytes: &self.lines[..self.reply_bytes], message: self.reply_bytes };
        }
        let rest = &self.lines[(self.sent_bytes % self.lines.len() as u64) as usize..];
        Step::Send { bytes: rest, message: rest.len() }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        (self.sent_bytes, self.reply_bytes) = (self.sent_bytes + bytes as u64, 0);
    }

    fn on_received(&mut self, _now: Time) {
        let length = self.request_batch.iter().flat_map(Batch::messages).next().map_or(0, <[u8]>::len);
        self.reply_bytes = length.min(MAX_REPLY_BYTES);
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        self.is_finished = true;
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
        // xinetd omits the first and the last character of the ring.
        let all = [
            lines(),
            br##"}!"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefg"##.to_vec(),
        ]
        .concat();
        for begin in [0, 74, 50 * 74, 94 * 74] {
            for size in [1, 7, 74, 1000, 10_000] {
                let mut check = LineChecker::default();
                let wrong: u64 = all[begin..].chunks(size).map(|chunk| check.count_wrong(chunk)).sum();
                assert_eq!(wrong, 0, "from {begin}, {size} at a time");
            }
        }
        let mut changed = all.clone();
        changed[72] = b' ';
        assert_eq!(LineChecker::default().count_wrong(&changed), 1, "a line without its end");
        changed[100] = 0;
        assert_eq!(
            LineChecker::default().count_wrong(&changed),
            3,
            "a character, and the one that does not follow it"
        );
        assert!(
            LineChecker::default().count_wrong(&[0xff; 1000]) > 900
                && LineChecker::default().count_wrong(&[b'x'; 1000]) > 900
        );
    }
}
