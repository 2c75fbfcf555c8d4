//! Where a load queues: the hop whose delay grows under load, and stays grown for all hops behind it.
//!
//! A queue in front of a link delays the hop behind that link and all later ones. A slow control processor delays only its own replies.
//! So the growth that the path has up to a hop is the smallest growth of this hop and of all later ones, and the link with the largest
//! rise of it has the queue. Replies say nothing about the direction: a queue on the way back looks the same.

use linkgauge_model::run::{PathQueue, QueueVerdict};
use linkgauge_model::stats::{SplitMix64, median};

/// A growth below this is the noise of replies.
const MIN_GROWTH_NS: f64 = 1e6;

/// The share of the whole growth that one link must add.
const MIN_SHARE: f64 = 0.4;

/// Replies that a hop needs in each phase.
const MIN_REPLIES: usize = 3;

/// Resamplings of the replies.
const RESAMPLINGS: u32 = 300;

/// Round trips of a hop in ns.
#[derive(Debug, Clone, Default)]
pub(crate) struct HopPhases {
    pub(crate) hop: u8,
    pub(crate) idle: Vec<f64>,
    pub(crate) loaded: Vec<f64>,
}

/// The growth of a hop in ns: as seen, and what it has in common with all later ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Growth {
    /// 255 stands for the session, behind all hops.
    pub(crate) hop: u8,
    pub(crate) added: f64,
    pub(crate) lasting: f64,
}

/// What a comparison of both phases says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Located {
    pub(crate) queue: PathQueue,
    pub(crate) growths: Vec<Growth>,
}

/// The session in place of a hop.
const SESSION: u8 = u8::MAX;

/// Compares the phases of the hops, and the delay that the load adds to the round trips of its own session.
pub(crate) fn locate_queue(hops: &[HopPhases], session_added_ns: Option<f64>) -> Located {
    let growths = growths_of(hops, session_added_ns, |values| median(values));
    let mut queue = judge(&growths);
    queue.session_added_ns = session_added_ns;
    let mut random = SplitMix64::new(u64::from(RESAMPLINGS));
    let place = |queue: &PathQueue| (queue.verdict, queue.after_hop, queue.before_hop);
    let mut agreeing = 0;
    for _ in 0..RESAMPLINGS {
        let resampled = growths_of(hops, session_added_ns, |values| {
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
    session_added_ns: Option<f64>,
    mut median_of: impl FnMut(&[f64]) -> Option<f64>,
) -> Vec<Growth> {
    let mut growths = Vec::new();
    for HopPhases { hop, idle, loaded } in hops {
        if idle.len().min(loaded.len()) >= MIN_REPLIES
            && let (Some(idle), Some(loaded)) = (median_of(idle), median_of(loaded))
        {
            growths.push(Growth { hop: *hop, added: loaded - idle, lasting: 0.0 });
        }
    }
    if !growths.is_empty() {
        growths.extend(session_added_ns.map(|added| Growth { hop: SESSION, added, lasting: 0.0 }));
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
    let (mut before, mut largest) = ((0, 0.0), (0.0, 0, 0));
    for growth in growths {
        let (hop_before, lasting_before) = before;
        let rise = growth.lasting - lasting_before;
        if rise > largest.0 {
            largest = (rise, hop_before, growth.hop);
        }
        before = (growth.hop, growth.lasting);
    }
    let (rise, after, behind) = largest;
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
pub(crate) fn growth_at(growths: &[Growth], hop: u8) -> Option<&Growth> {
    growths.iter().find(|growth| growth.hop == hop)
}

#[cfg(test)]
mod tests;
