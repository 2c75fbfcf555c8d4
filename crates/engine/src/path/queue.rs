//! Locates the queue of a load: the hop whose delay grows under load, and stays grown for all hops behind it.
//!
//! A queue in front of a link delays the hop behind that link and all later ones. A slow control processor delays only its own replies.
//! So the growth that the path has up to a hop is the smallest growth of this hop and of all later ones, and the link with the largest
//! rise of it has the queue. Replies say nothing about the direction: a queue of the reverse path looks the same.

use linkgauge_model::run::{PathQueue, QueueVerdict};
use linkgauge_model::stats::{SplitMix64, median};

/// Smallest growth that counts: a smaller one is the noise of replies.
const MIN_GROWTH_NS: f64 = 1e6;

/// The share of the whole growth that one link must add.
const MIN_SHARE: f64 = 0.4;

/// The first link that adds this share of the largest rise is named: what seems to grow behind it can be noise of a queue that varies.
const NEAR_LARGEST: f64 = 0.7;

/// Replies that a hop needs in each phase.
const MIN_REPLIES: usize = 3;

/// Resamplings of the replies.
const RESAMPLINGS: u32 = 300;

/// Round trips of a hop in ns.
#[derive(Debug, Clone, Default)]
pub struct HopPhases {
    /// The hop.
    pub hop: u8,
    /// Round trips on the idle path.
    pub idle: Vec<f64>,
    /// Round trips under load.
    pub loaded: Vec<f64>,
}

impl HopPhases {
    /// Whether the hop has enough replies in both phases.
    pub fn is_usable(&self) -> bool {
        self.idle.len().min(self.loaded.len()) >= MIN_REPLIES
    }
}

/// The growth of a hop in ns: as seen, and what it has in common with all later ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Growth {
    /// Number of the hop; 255 stands for the session, behind all hops.
    pub hop: u8,
    /// Median under load minus idle median.
    pub added: f64,
    /// The least growth of this hop and those behind it.
    pub lasting: f64,
}

/// Result of the comparison of both phases.
#[derive(Debug, Clone, PartialEq)]
pub struct Located {
    /// The verdict.
    pub queue: PathQueue,
    /// The growths that it rests on.
    pub growths: Vec<Growth>,
}

/// The session in place of a hop.
const SESSION: u8 = u8::MAX;

/// Growth of the round trips of a session under its load.
#[derive(Debug, Clone, Copy)]
pub struct SessionGrowth {
    /// Added time, in ns.
    pub added: f64,
    /// The last hop is the host of the session.
    pub is_behind_host: bool,
}

/// Compares the phases of the hops with what the load adds to its session.
pub fn locate_queue(hops: &[HopPhases], session: Option<SessionGrowth>) -> Located {
    let growths = growths_of(hops, session, median);
    let mut queue = judge(&growths);
    queue.session_added_ns = session.map(|session| session.added);
    let mut random = SplitMix64::new(u64::from(RESAMPLINGS));
    let place = |queue: &PathQueue| (queue.verdict, queue.after_hop, queue.before_hop);
    let mut agreeing = 0;
    for _ in 0..RESAMPLINGS {
        let resampled = growths_of(hops, session, |values| {
            let draw = |_: &f64| values[(random.next_bits() % values.len() as u64) as usize];
            median(&values.iter().map(draw).collect::<Vec<f64>>())
        });
        agreeing += u32::from(place(&judge(&resampled)) == place(&queue));
    }
    queue.agreement = f64::from(agreeing) / f64::from(RESAMPLINGS);
    Located { queue, growths }
}

/// The growth of each hop with enough replies, and of the session behind them.
fn growths_of(
    hops: &[HopPhases],
    session: Option<SessionGrowth>,
    mut median_of: impl FnMut(&[f64]) -> Option<f64>,
) -> Vec<Growth> {
    let mut growths = Vec::new();
    for HopPhases { hop, idle, loaded } in hops.iter().filter(|phases| phases.is_usable()) {
        if let (Some(idle), Some(loaded)) = (median_of(idle), median_of(loaded)) {
            growths.push(Growth { hop: *hop, added: loaded - idle, lasting: 0.0 });
        }
    }
    if let (Some(last), Some(session)) = (growths.last(), session) {
        // Where the host's own replies are late, the queue is in front of the host. Any further growth belongs to the session:
        // segments that were lost and sent again, a thread that waits.
        let is_seen = session.is_behind_host && last.added >= MIN_GROWTH_NS;
        let added = if is_seen { session.added.min(last.added) } else { session.added };
        growths.push(Growth { hop: SESSION, added, lasting: 0.0 });
    }
    let mut lasting = f64::INFINITY;
    for growth in growths.iter_mut().rev() {
        lasting = lasting.min(growth.added);
        growth.lasting = lasting.max(0.0);
    }
    growths
}

/// The link with the largest rise.
fn judge(growths: &[Growth]) -> PathQueue {
    let total_ns = growths.last().map_or(0.0, |last| last.lasting);
    let mut queue = PathQueue {
        verdict: QueueVerdict::None,
        after_hop: None,
        before_hop: None,
        delay_ns: None,
        total_ns,
        agreement: 0.0,
        session_added_ns: None,
    };
    if growths.is_empty() {
        queue.verdict = QueueVerdict::TooFewReplies;
        return queue;
    }
    let starts = [(0, 0.0)].into_iter().chain(growths.iter().map(|growth| (growth.hop, growth.lasting)));
    // The rise of each link, and the hops at its ends.
    let rises: Vec<(f64, u8, u8)> = starts
        .zip(growths)
        .map(|((hop, lasting), growth)| (growth.lasting - lasting, hop, growth.hop))
        .collect();
    let largest = rises.iter().map(|(rise, ..)| *rise).fold(0.0, f64::max);
    let least = (NEAR_LARGEST * largest).max(MIN_SHARE * total_ns).min(largest);
    let (rise, after, behind) = rises.into_iter().find(|(rise, ..)| *rise >= least).unwrap_or_default();
    queue.verdict = match () {
        () if total_ns < MIN_GROWTH_NS => QueueVerdict::None,
        () if rise < MIN_GROWTH_NS || rise < MIN_SHARE * total_ns => QueueVerdict::Spread,
        () => QueueVerdict::Found,
    };
    if queue.verdict == QueueVerdict::Found {
        queue.delay_ns = Some(rise);
        queue.after_hop = Some(after);
        queue.before_hop = (behind != SESSION).then_some(behind);
    }
    queue
}

/// The growth of a hop.
pub fn growth_at(growths: &[Growth], hop: u8) -> Option<&Growth> {
    growths.iter().find(|growth| growth.hop == hop)
}

#[cfg(test)]
mod tests;
