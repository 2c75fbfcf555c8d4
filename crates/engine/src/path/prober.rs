//! Decides which hop-limited probe is due when, and which reply belongs to it: a state machine without I/O.
//!
//! A quick trace finds the length of the path; rounds follow, each with one probe for each hop. The routers of strangers limit their
//! replies, so a round takes a second by default. Flows take turns, round by round.

use std::net::IpAddr;
use std::time::Duration;

use linkgauge_model::clock::Time;
use linkgauge_model::stats::SplitMix64;

/// Schedule of a measurement of a path.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// Flows with different ports.
    pub flows: u32,
    /// The longest path that is looked for.
    pub max_hops: u8,
    /// Probes for each hop; `None` until it is stopped.
    pub rounds: Option<u32>,
    /// Time from one round to the next.
    pub interval: Duration,
    /// Timeout of a reply: a later one counts as lost.
    pub timeout: Duration,
    /// Probes of a flow that may be under way at a time: one, if each occupies the ports of the flow.
    pub under_way: usize,
    /// Seed of the jitter of the probes.
    pub seed: u64,
}

/// Hops without a reply after which the quick trace ends.
const MAX_SILENT_HOPS: u8 = 5;

/// Rounds in which hops beyond the last one that replied are probed, while the end of the path is unknown.
const SEARCH_ROUNDS: u32 = 3;

/// Rounds without the host, if silent hops are in front of it: it may be one of them that has limited its replies.
const GAP_ROUNDS: u32 = 2;

/// Time that the quick trace waits for a reply before it probes the next hop as well.
const TRACE_PATIENCE: Duration = Duration::from_millis(50);

/// Largest random shift of a probe, as a share of the time between two probes, so that no period of the path fits theirs.
const JITTER_SHARE: f64 = 0.3;

/// A probe to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Number of the probe, unique, from 0.
    pub number: u32,
    /// Flow of the probe, from 0.
    pub flow: u32,
    /// The hop limit.
    pub hop: u8,
}

/// Next action of the prober.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeAction {
    /// Sends this probe.
    Send(Probe),
    /// Waits for replies until then.
    Wait(Time),
    /// The prober sends and awaits nothing any more.
    Done,
}

/// Meaning of a reply for the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeReplyKind {
    /// The hop limit was used up at the sender of the reply.
    Expired,
    /// The destination has the probe.
    Reached,
    /// The sender of the reply does not forward the probe.
    Refused,
    /// The probe is too big for the next link, which carries packets of this size in bytes.
    TooBig(u32),
}

/// A reply to a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeReply {
    /// The number of the probe; `None` if the router quoted too little of it.
    pub number: Option<u32>,
    /// The flow whose socket received it.
    pub flow: u32,
    /// Sender of the reply.
    pub from: IpAddr,
    /// Meaning of the reply.
    pub kind: ProbeReplyKind,
    /// Arrival time of the reply.
    pub at: Time,
}

/// The fate of a probe.
#[derive(Debug, Clone, Copy)]
pub struct HopSample {
    /// The flow, from 0.
    pub flow: u32,
    /// The hop limit.
    pub hop: u8,
    /// The round; `None` in the quick trace.
    pub round: Option<u32>,
    /// Time at which the probe left.
    pub sent: Time,
    /// The round trip, and who replied.
    pub reply: Option<(Duration, IpAddr)>,
    /// Whether the probe has had neither a reply nor a timeout so far.
    is_under_way: bool,
}

impl HopSample {
    /// The round trip.
    pub fn round_trip(&self) -> Option<Duration> {
        self.reply.map(|(time, _)| time)
    }
}

/// End of a flow: its last hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastHop {
    /// The hop limit of the probe that ended there.
    pub hop: u8,
    /// The router that refused it; `None`: the destination replied.
    pub refused_by: Option<IpAddr>,
}

/// The state machine.
#[derive(Debug)]
pub struct Prober {
    schedule: Schedule,
    /// Samples by the number of their probe.
    pub samples: Vec<HopSample>,
    /// Ends by flow.
    pub ends: Vec<Option<LastHop>>,
    /// The last hop that replied to any flow.
    last_replied: u8,
    /// The last hop that replied and is no host.
    last_router: u8,
    /// The first sample that may be under way: earlier ones are not.
    oldest: usize,
    phase: ProberPhase,
    random: SplitMix64,
}

#[derive(Debug, Clone, Copy)]
enum ProberPhase {
    /// The next hop of the quick trace.
    Trace { hop: u8 },
    /// The next hop of a round, the begin of the round, and when the hop is due.
    Round { round: u32, hop: u8, began: Time, due: Time },
    /// The prober sends no more probes.
    Ending,
}

impl Prober {
    /// A measurement that has not begun.
    pub fn new(schedule: Schedule) -> Prober {
        Prober {
            schedule,
            samples: Vec::new(),
            ends: vec![None; schedule.flows as usize],
            last_replied: 0,
            last_router: 0,
            oldest: 0,
            phase: ProberPhase::Trace { hop: 1 },
            random: SplitMix64::new(schedule.seed),
        }
    }

    /// The fates of the probes and the end of each flow. Probes that are still under way have none.
    pub fn finish(mut self) -> (Vec<HopSample>, Vec<Option<LastHop>>) {
        self.samples.retain(|sample| !sample.is_under_way);
        (self.samples, self.ends)
    }

    /// The next action at this time. A probe counts as sent at this time unless `on_sent` says otherwise.
    pub fn next(&mut self, now: Time) -> ProbeAction {
        self.expire(now);
        match self.phase {
            ProberPhase::Trace { hop } => self.trace(hop, now),
            ProberPhase::Round { .. } => self.round(now),
            ProberPhase::Ending => match self.under_way(None).map(|sample| sample.sent).max() {
                Some(sent) => ProbeAction::Wait(sent + self.schedule.timeout),
                None => ProbeAction::Done,
            },
        }
    }

    /// Corrects the time at which a probe left.
    pub fn on_sent(&mut self, number: u32, at: Time) {
        if let Some(sample) = self.samples.get_mut(number as usize) {
            sample.sent = at;
        }
    }

    /// Handles a reply. A reply that fits no probe under way is ignored.
    pub fn on_reply(&mut self, reply: &ProbeReply) {
        let Some(number) = reply.number.map(|number| number as usize).or_else(|| self.only_one(reply)) else {
            return;
        };
        let Some(sample) = self.samples.get_mut(number) else { return };
        let is_of_hop = !matches!(reply.kind, ProbeReplyKind::TooBig(_));
        if sample.flow != reply.flow || sample.reply.is_some() || !is_of_hop {
            return;
        }
        let (hop, is_late) = (sample.hop, !sample.is_under_way);
        if !is_late {
            sample.is_under_way = false;
            sample.reply = Some((reply.at.since(sample.sent), reply.from));
            self.last_replied = self.last_replied.max(hop);
            if reply.kind == ProbeReplyKind::Expired {
                self.last_router = self.last_router.max(hop);
            }
        }
        // A late reply has no round trip, but a router takes seconds to find that a host is not there.
        let end = &mut self.ends[reply.flow as usize];
        let is_nearer = end.is_none_or(|end| hop < end.hop);
        match reply.kind {
            // The path has become longer.
            ProbeReplyKind::Expired if !is_nearer && !is_late => *end = None,
            ProbeReplyKind::Reached if is_nearer => *end = Some(LastHop { hop, refused_by: None }),
            ProbeReplyKind::Refused if is_nearer => {
                *end = Some(LastHop { hop, refused_by: Some(reply.from) })
            }
            _ => {}
        }
    }

    /// The only probe that a reply without a number can belong to.
    fn only_one(&self, reply: &ProbeReply) -> Option<usize> {
        let is_of_flow = |sample: &HopSample| sample.is_under_way && sample.flow == reply.flow;
        let mut found = (self.oldest..self.samples.len()).filter(|&index| is_of_flow(&self.samples[index]));
        found.next().filter(|_| found.next().is_none())
    }

    fn under_way(&self, flow: Option<u32>) -> impl Iterator<Item = &HopSample> {
        let is_of = move |sample: &&HopSample| flow.is_none_or(|flow| sample.flow == flow);
        self.samples[self.oldest..].iter().filter(|sample| sample.is_under_way).filter(is_of)
    }

    /// Ends the probes whose timeout is over.
    fn expire(&mut self, now: Time) {
        let timeout = self.schedule.timeout;
        for sample in &mut self.samples[self.oldest..] {
            sample.is_under_way &= now < sample.sent + timeout;
        }
        let passed = self.samples[self.oldest..].iter().take_while(|sample| !sample.is_under_way).count();
        self.oldest += passed;
    }

    fn send(&mut self, flow: u32, hop: u8, round: Option<u32>, now: Time) -> ProbeAction {
        let number = self.samples.len() as u32;
        self.samples.push(HopSample { flow, hop, round, sent: now, reply: None, is_under_way: true });
        ProbeAction::Send(Probe { number, flow, hop })
    }

    fn trace(&mut self, hop: u8, now: Time) -> ProbeAction {
        let is_over = match self.ends[0] {
            Some(end) => hop > end.hop,
            None => hop > self.schedule.max_hops || hop > self.last_replied + MAX_SILENT_HOPS,
        };
        let under_way = self.under_way(None).count();
        let first_end = self.under_way(None).map(|sample| sample.sent).min();
        if is_over {
            // A late reply may be the end of the path.
            if let (Some(sent), None) = (first_end, self.ends[0]) {
                return ProbeAction::Wait(sent + self.schedule.timeout);
            }
            self.phase = self.begin_round(0, now);
            return self.next(now);
        }
        let last = self.samples.last().filter(|sample| sample.is_under_way).map(|sample| sample.sent);
        let patience = last.map(|sent| sent + TRACE_PATIENCE).filter(|until| now < *until);
        let limit = self.schedule.under_way.min(usize::from(MAX_SILENT_HOPS) - 1);
        match (patience, first_end) {
            (_, Some(sent)) if under_way >= limit => ProbeAction::Wait(sent + self.schedule.timeout),
            (Some(until), _) => ProbeAction::Wait(until),
            _ => {
                self.phase = ProberPhase::Trace { hop: hop + 1 };
                self.send(0, hop, None, now)
            }
        }
    }

    fn begin_round(&self, round: u32, began: Time) -> ProberPhase {
        if self.schedule.rounds.is_some_and(|rounds| round >= rounds) || self.horizon(round) == 0 {
            return ProberPhase::Ending;
        }
        ProberPhase::Round { round, hop: 1, began, due: began }
    }

    /// The flow of a round.
    fn flow_of(&self, round: u32) -> u32 {
        round % self.schedule.flows
    }

    /// Whether a round leaves out this hop, so that the replies of the host are left for the silent hops in front of it.
    fn spares_host(&self, round: u32, hop: u8) -> bool {
        let has_more = self.schedule.rounds.is_none_or(|rounds| rounds > GAP_ROUNDS * self.schedule.flows);
        let Some(end) = self.ends[self.flow_of(round) as usize] else { return false };
        let has_gap = end.refused_by.is_none() && self.last_router + 1 < end.hop;
        has_more && has_gap && hop == end.hop && round < GAP_ROUNDS * self.schedule.flows
    }

    /// The last hop that a round probes; 0 if nothing has ever replied.
    fn horizon(&self, round: u32) -> u8 {
        match self.ends[self.flow_of(round) as usize] {
            Some(end) => end.hop,
            None if round < SEARCH_ROUNDS * self.schedule.flows => {
                (self.last_replied + MAX_SILENT_HOPS).min(self.schedule.max_hops)
            }
            None => self.last_replied,
        }
    }

    fn round(&mut self, now: Time) -> ProbeAction {
        let ProberPhase::Round { round, hop, began, due } = self.phase else { return ProbeAction::Done };
        let horizon = self.horizon(round);
        if hop > horizon {
            self.phase = self.begin_round(round + 1, began + self.schedule.interval);
            return self.next(now);
        }
        if now < due {
            return ProbeAction::Wait(due);
        }
        if self.spares_host(round, hop) {
            self.phase = ProberPhase::Round { round, hop: hop + 1, began, due };
            return self.next(now);
        }
        let flow = self.flow_of(round);
        if self.under_way(Some(flow)).count() >= self.schedule.under_way
            && let Some(sent) = self.under_way(Some(flow)).map(|sample| sample.sent).min()
        {
            return ProbeAction::Wait(sent + self.schedule.timeout);
        }
        let slot = self.schedule.interval / u32::from(horizon);
        let jitter = slot.mul_f64(JITTER_SHARE * self.random.uniform());
        let due = began + slot * u32::from(hop) + jitter;
        self.phase = ProberPhase::Round { round, hop: hop + 1, began, due };
        self.send(flow, hop, Some(round), now)
    }
}

#[cfg(test)]
impl Prober {
    /// A sample of the past.
    pub fn add_sample(&mut self, hop: u8, flow: u32, round: Option<u32>, reply: Option<(Duration, IpAddr)>) {
        self.samples.push(HopSample { flow, hop, round, sent: Time(0), reply, is_under_way: false });
    }
}

#[cfg(test)]
mod tests;
