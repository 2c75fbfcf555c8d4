//! The figures of each hop, and where loss begins.
//!
//! A router may limit its replies, so the share that it answers is no loss. Only what all later hops show as well is lost on the path: the
//! loss at a hop is the smallest share of unanswered probes of this hop and of those behind it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use linkgauge_model::run::{HopTimes, PathHop, PathHost, PathLoss};
use linkgauge_model::stats::{Jitter, more_often_p, nearest_rank};

use super::prober::{HopSample, LastHop};

/// Addresses of a hop that are stored. More cannot be real branches: the flows are fewer, and any host can send errors with a foreign
/// source.
const MAX_HOSTS: usize = 16;

/// Probability of error of the statement that a share of lost probes is larger than another.
const LOSS_LEVEL: f64 = 0.01;

/// Answered and unanswered probes of a hop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HopCount {
    /// Number of probes sent.
    pub sent: u64,
    /// Number of probes with a reply.
    pub answered: u64,
}

impl HopCount {
    /// The counts of these samples.
    pub fn of<'a>(samples: impl Iterator<Item = &'a HopSample>) -> HopCount {
        let mut count = HopCount::default();
        for sample in samples {
            count.sent += 1;
            count.answered += u64::from(sample.reply.is_some());
        }
        count
    }

    /// Number of probes without a reply.
    pub fn lost(self) -> u64 {
        self.sent - self.answered
    }

    fn loss(self) -> f64 {
        self.lost() as f64 / self.sent.max(1) as f64
    }
}

/// The samples that belong to the path: those of rounds, or those of the quick trace if there was no round, and none beyond the end of
/// their flow.
pub fn samples_on_path(samples: &[HopSample], ends: &[Option<LastHop>]) -> Vec<HopSample> {
    let is_on_path = |sample: &&HopSample| ends[sample.flow as usize].is_none_or(|end| sample.hop <= end.hop);
    let has_round = samples.iter().any(|sample| sample.round.is_some() && sample.reply.is_some());
    samples.iter().filter(|sample| sample.round.is_some() == has_round).filter(is_on_path).copied().collect()
}

/// The number of hops: up to the end of the longest flow, or to the last hop that replied.
pub fn hop_count(samples: &[HopSample], ends: &[Option<LastHop>]) -> u8 {
    let replied = || samples.iter().filter_map(|sample| Some((sample.hop, sample.reply?.1)));
    // A router that does not find the host refuses what would have been one hop further.
    let of_end = |end: &LastHop| match end.refused_by {
        Some(router) if replied().any(|(hop, from)| hop + 1 == end.hop && from == router) => end.hop - 1,
        _ => end.hop,
    };
    let last_replied = replied().map(|(hop, _)| hop);
    let refused = ends.iter().flatten().filter(|end| end.refused_by.is_some()).map(of_end).max();
    let reached = ends.iter().flatten().filter(|end| end.refused_by.is_none()).map(|end| end.hop).max();
    reached.or(refused).or_else(|| last_replied.max()).unwrap_or(0)
}

/// The hops of a path, from the samples on it.
pub fn hops_of(samples: &[HopSample], count: u8) -> Vec<PathHop> {
    (1..=count)
        .map(|hop| {
            let of_hop = || samples.iter().filter(move |sample| sample.hop == hop);
            let HopCount { sent, answered } = HopCount::of(of_hop());
            PathHop {
                hop,
                hosts: hosts_of(of_hop()),
                sent,
                answered,
                latency_ns: times_of(of_hop()),
                loaded: None,
            }
        })
        .collect()
}

/// Hosts that replied, the most frequent first.
fn hosts_of<'a>(samples: impl Iterator<Item = &'a HopSample>) -> Vec<PathHost> {
    let mut found: BTreeMap<IpAddr, PathHost> = BTreeMap::new();
    for sample in samples {
        let Some((_, address)) = sample.reply else { continue };
        if found.len() >= MAX_HOSTS && !found.contains_key(&address) {
            continue;
        }
        let new = || PathHost { address, name: None, answered: 0, flows: Vec::new() };
        let host = found.entry(address).or_insert_with(new);
        host.answered += 1;
        if let Err(place) = host.flows.binary_search(&(sample.flow + 1)) {
            host.flows.insert(place, sample.flow + 1);
        }
    }
    let mut hosts: Vec<PathHost> = found.into_values().collect();
    hosts.sort_by_key(|host| std::cmp::Reverse(host.answered));
    hosts
}

/// The times of the replies.
pub fn times_of<'a>(samples: impl Iterator<Item = &'a HopSample>) -> Option<HopTimes> {
    let (mut sorted, mut jitter) = (Vec::new(), Jitter::default());
    for sample in samples {
        match sample.round_trip() {
            Some(time) => {
                sorted.push(time.as_nanos() as u64);
                jitter.add(time.as_nanos() as f64);
            }
            None => jitter.gap(),
        }
    }
    sorted.sort_unstable();
    let at_rank = |share: f64| {
        let rank = nearest_rank(sorted.len() as u64, share) as usize;
        sorted.get(rank.checked_sub(1)?).copied()
    };
    Some(HopTimes {
        min: *sorted.first()?,
        p50: at_rank(0.5)?,
        p99: at_rank(0.99)?,
        max: *sorted.last()?,
        jitter: jitter.mean(),
    })
}

/// Place where loss begins that all later hops show.
pub fn locate_loss(counts: &[HopCount]) -> Option<PathLoss> {
    let answering: Vec<(u8, HopCount)> =
        (1..).zip(counts.iter().copied()).filter(|(_, count)| count.answered > 0).collect();
    // Hops with more loss than a later one limit their replies.
    let is_limited =
        |index: usize| answering[index + 1..].iter().any(|later| is_larger(answering[index].1, later.1));
    let used: Vec<(u8, HopCount)> =
        (0..answering.len()).filter(|index| !is_limited(*index)).map(|index| answering[index]).collect();
    // The smallest loss of each hop and those behind it.
    let mut lasting: Vec<f64> = used.iter().map(|(_, count)| count.loss()).collect();
    for index in (1..lasting.len()).rev() {
        lasting[index - 1] = lasting[index - 1].min(lasting[index]);
    }
    let place = first_loss(&used, &lasting)?;
    let (hop, count) = used[place];
    Some(PathLoss { hop, share: lasting[place], lost: count.lost(), sent: count.sent })
}

/// The index of the first hop that loses more than those before it; if no single one shows that, the one from which on all together do.
fn first_loss(used: &[(u8, HopCount)], lasting: &[f64]) -> Option<usize> {
    let sum = |counts: &[(u8, HopCount)]| {
        counts.iter().fold(HopCount::default(), |sum, (_, count)| HopCount {
            sent: sum.sent + count.sent,
            answered: sum.answered + count.answered,
        })
    };
    let is_first = |index: &usize| match index {
        // No hop is before this one: the later hops do not lose more.
        0 => !used[1..].iter().any(|later| is_larger(later.1, used[0].1)),
        _ => is_larger(used[*index].1, sum(&used[..*index])),
    };
    let lossy = || (0..used.len()).filter(|index| lasting[*index] > 0.0);
    let rise = |index: usize| lasting[index] - index.checked_sub(1).map_or(0.0, |before| lasting[before]);
    lossy().find(is_first).or_else(|| {
        let steepest = lossy().max_by(|a, b| rise(*a).total_cmp(&rise(*b)))?;
        (steepest > 0 && is_larger(sum(&used[steepest..]), sum(&used[..steepest]))).then_some(steepest)
    })
}

/// Whether a share of lost probes is larger than another, beyond chance.
fn is_larger(count: HopCount, other: HopCount) -> bool {
    count.loss() > other.loss()
        && more_often_p((count.lost(), count.sent as f64), (other.lost(), other.sent as f64)) < LOSS_LEVEL
}

#[cfg(test)]
mod tests;
