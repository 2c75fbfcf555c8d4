//! Search for the host, uplink or pair that explains why some pairs of a mesh are worse than the others.
//!
//! The model is additive: the value of a pair is that of its groups, plus the effects of its hosts, of the uplinks between
//! its groups, and of the pair. Values of rates are logarithms, so that an effect is a factor. All centres are medians, so
//! that a few bad pairs do not move what is normal. Effects are found one after the other: of all hosts, uplinks and pairs
//! whose pairs are consistently worse than chance explains, the one that explains most is named, and its effect is removed.
//!
//! Differences by chance are judged by the values without the candidate: the pairs of one host among four are half of all
//! pairs, and no median survives that.
//!
//! A host is compared with the other hosts and an uplink with the other uplinks: where all differ, none is to blame.

use std::collections::BTreeMap;

use linkgauge_model::run::{BlamedPart, MeshBlame};
use linkgauge_model::stats::median;

/// The value of a pair: larger is worse. Of a time in nanoseconds, or minus the logarithm of a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PairValue {
    /// Number of the client's host.
    pub(crate) from: usize,
    /// Number of the server's host.
    pub(crate) to: usize,
    /// The value.
    pub(crate) value: f64,
}

/// Scale of the compared values, and how far they differ without a cause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    /// Least difference of two normal pairs, as a share of the typical value.
    pub(crate) pair_floor: f64,
    /// Least difference of two normal hosts, as a share of the typical value.
    pub(crate) host_floor: f64,
    /// Least difference of two normal uplinks, whose lengths differ, as a share of the typical value.
    pub(crate) uplink_floor: f64,
    /// Whether values are logarithms, so that the shares are differences.
    pub(crate) is_logarithm: bool,
}

impl Scale {
    /// Scale of round-trip times.
    pub(crate) const LATENCY: Scale =
        Scale { pair_floor: 0.05, host_floor: 0.05, uplink_floor: 0.25, is_logarithm: false };
    /// Scale of rates.
    pub(crate) const RATE: Scale =
        Scale { pair_floor: 0.03, host_floor: 0.04, uplink_floor: 0.06, is_logarithm: true };
}

/// Effects that are named at most.
const MAX_BLAMED: usize = 5;

/// Number of standard deviations of what is normal that an effect must exceed to be named.
const MIN_HOST_DEVIATIONS: f64 = 4.5;
const MIN_UPLINK_DEVIATIONS: f64 = 4.0;
/// Limit for pairs in standard deviations: chance makes larger deviations, because there are many pairs.
const MIN_PAIR_DEVIATIONS: f64 = 7.0;

/// Share of the pairs of a part that must be worse by half of its effect.
const MIN_CONSISTENT_SHARE: f64 = 0.8;

/// Standard deviation of a normal distribution, in units of its median absolute deviation.
const DEVIATION_OF_MAD: f64 = 1.4826;

/// Standard error of a median, in units of that of a mean.
const ERROR_OF_MEDIAN: f64 = 1.2533;

/// Names the parts that explain the worst values, the most important first. `groups` holds the number of each host's group.
/// Empty: no part differs from the others by more than chance.
pub(crate) fn find_blamed(values: &[PairValue], groups: &[usize], scale: Scale) -> Vec<MeshBlame> {
    let mut fit = Fit::new(values, groups, scale);
    let mut blamed: Vec<MeshBlame> = Vec::new();
    while blamed.len() < MAX_BLAMED {
        let Some(found) =
            fit.largest_effect().filter(|found| blamed.iter().all(|one| one.part != found.part))
        else {
            break;
        };
        fit.remove(found.part, found.effect);
        blamed.push(found);
    }
    blamed
}

/// Values without the effects that were found so far.
#[derive(Clone)]
struct Fit<'a> {
    values: Vec<PairValue>,
    groups: &'a [usize],
    scale: Scale,
    /// The block of each value: its groups, by number.
    blocks: Vec<usize>,
    /// Whether each block lies inside a group.
    is_inside: Vec<bool>,
}

/// A candidate, and how far its pairs lie above what is normal.
struct Candidate {
    part: BlamedPart,
    residuals: Vec<f64>,
    effect: f64,
    /// Normal value of its pairs.
    centre: f64,
}

impl Candidate {
    pub fn new(part: BlamedPart, residuals: Vec<f64>, centres: &[f64]) -> Option<Candidate> {
        let effect = median(&residuals)?;
        Some(Candidate { part, residuals, effect, centre: median(centres)? })
    }

    /// Distance to normal that its effect explains, summed over its pairs.
    fn explained(&self) -> f64 {
        self.residuals.iter().map(|value| value.abs() - (value - self.effect).abs()).sum()
    }

    fn is_consistent(&self) -> bool {
        let worse = self.residuals.iter().filter(|value| **value > self.effect / 2.0).count();
        worse as f64 >= MIN_CONSISTENT_SHARE * self.residuals.len() as f64
    }
}

impl<'a> Fit<'a> {
    pub fn new(values: &[PairValue], groups: &'a [usize], scale: Scale) -> Fit<'a> {
        let mut numbers = BTreeMap::new();
        let mut is_inside = Vec::new();
        let mut number = |value: &PairValue| {
            let block = (groups[value.from], groups[value.to]);
            *numbers.entry(block).or_insert_with(|| {
                is_inside.push(block.0 == block.1);
                is_inside.len() - 1
            })
        };
        let blocks = values.iter().map(&mut number).collect();
        Fit { values: values.to_vec(), groups, scale, blocks, is_inside }
    }

    /// Indexes of the values that a part affects.
    fn members(&self, part: BlamedPart) -> Vec<usize> {
        let affects = |value: &PairValue| part.affects([value.from, value.to], self.groups);
        (0..self.values.len()).filter(|index| affects(&self.values[*index])).collect()
    }

    fn remove(&mut self, part: BlamedPart, effect: f64) {
        for index in self.members(part) {
            self.values[index].value -= effect;
        }
    }

    /// The median of each block, without the values of a part.
    fn centres_without(&self, members: &[usize]) -> Vec<Option<f64>> {
        let mut blocks = vec![Vec::new(); self.is_inside.len()];
        let mut members = members.iter().copied().peekable();
        for (index, value) in self.values.iter().enumerate() {
            if members.next_if_eq(&index).is_none() {
                blocks[self.blocks[index]].push(value.value);
            }
        }
        blocks.iter().map(|values| median(values)).collect()
    }

    /// Distances of the values of a part above the median of their block. A block that consists of the part alone is compared
    /// with the blocks of its kind: those inside a group, or those between groups.
    fn candidate(&self, part: BlamedPart) -> Option<Candidate> {
        let members = self.members(part);
        let centres = self.centres_without(&members);
        let of_kind = |is_inside: bool| {
            let alike = centres.iter().zip(&self.is_inside).filter(|(_, inside)| **inside == is_inside);
            median(&alike.filter_map(|(centre, _)| *centre).collect::<Vec<f64>>())
        };
        let (mut residuals, mut normal) = (Vec::new(), Vec::new());
        for index in members {
            let block = self.blocks[index];
            let Some(centre) = centres[block].or_else(|| of_kind(self.is_inside[block])) else { continue };
            residuals.push(self.values[index].value - centre);
            normal.push(centre);
        }
        Candidate::new(part, residuals, &normal)
    }

    /// A share of a typical value.
    fn share_of(&self, typical: f64, share: f64) -> f64 {
        if self.scale.is_logarithm { share } else { share * typical.abs() }
    }

    /// Standard deviation of the values within their blocks.
    fn noise(&self) -> f64 {
        let centres = self.centres_without(&[]);
        let mut sizes = vec![0; self.is_inside.len()];
        self.blocks.iter().for_each(|block| sizes[*block] += 1);
        let values = self.values.iter().zip(&self.blocks).filter(|(_, block)| sizes[**block] > 1);
        let residual = |(value, block): (&PairValue, &usize)| Some(value.value - centres[*block]?);
        let residuals: Vec<f64> = values.filter_map(residual).collect();
        let all: Vec<f64> = self.values.iter().map(|value| value.value).collect();
        deviation(&residuals).max(self.share_of(median(&all).unwrap_or(0.0), self.scale.pair_floor))
    }

    /// The part that explains most, of those whose effect is not by chance.
    fn largest_effect(&self) -> Option<MeshBlame> {
        let noise = self.noise();
        let found = [self.blamed_host(), self.blamed_uplink(), self.blamed_pair(noise)];
        let found = found.into_iter().flatten();
        let (candidate, error) = found.max_by(|(a, _), (b, _)| a.explained().total_cmp(&b.explained()))?;
        Some(MeshBlame {
            part: candidate.part,
            effect: candidate.effect,
            effect_error: error,
            pairs: candidate.residuals.len() as u32,
        })
    }

    /// The part of one kind that explains most, if it differs from the others by more than `deviations`. With its error.
    fn best_of(&self, parts: &[BlamedPart], (deviations, floor): (f64, f64)) -> Option<(Candidate, f64)> {
        let candidates = parts.iter().filter_map(|part| self.candidate(*part));
        let candidates = candidates.filter(|candidate| candidate.effect > 0.0 && candidate.is_consistent());
        let best = candidates.max_by(|a, b| a.explained().total_cmp(&b.explained()))?;
        // How the others differ, once it is out of the way. With few of them the floor stands for it.
        let mut without = self.clone();
        without.remove(best.part, best.effect);
        let others = parts.iter().filter(|part| **part != best.part);
        let effects: Vec<f64> = others.filter_map(|part| Some(without.candidate(*part)?.effect)).collect();
        let among = if effects.len() > 2 { deviation(&effects) } else { 0.0 };
        let among = among.max(self.share_of(best.centre, floor));
        let error = ERROR_OF_MEDIAN * without.noise() / (best.residuals.len() as f64).sqrt();
        (best.effect > deviations * among.hypot(error)).then_some((best, 1.96 * error))
    }

    /// Finds the host to blame. With two hosts, a host cannot be separated from its pairs.
    fn blamed_host(&self) -> Option<(Candidate, f64)> {
        if self.groups.len() < 3 {
            return None;
        }
        let limits = (MIN_HOST_DEVIATIONS, few_hosts_factor(self.groups.len()) * self.scale.host_floor);
        let all =
            |part: fn(usize) -> BlamedPart| (0..self.groups.len()).map(part).collect::<Vec<BlamedPart>>();
        let kinds: [fn(usize) -> BlamedPart; 3] = [
            |host| BlamedPart::Host { host },
            |host| BlamedPart::HostSends { host },
            |host| BlamedPart::HostReceives { host },
        ];
        let found = kinds.into_iter().filter_map(|kind| self.best_of(&all(kind), limits));
        found.max_by(|(a, _), (b, _)| a.explained().total_cmp(&b.explained()))
    }

    /// Finds the uplink to blame. With two groups, the excess belongs to both uplinks alike.
    fn blamed_uplink(&self) -> Option<(Candidate, f64)> {
        let mut groups = self.groups.to_vec();
        groups.sort_unstable();
        groups.dedup();
        if groups.len() < 3 {
            return None;
        }
        // A group of one host has no uplink of its own.
        let has_several = |group: &usize| self.groups.iter().filter(|other| *other == group).count() > 1;
        let parts = groups.iter().copied().filter(has_several).map(|group| BlamedPart::Uplink { group });
        let parts: Vec<BlamedPart> = parts.collect();
        self.best_of(&parts, (MIN_UPLINK_DEVIATIONS, self.scale.uplink_floor))
    }

    fn blamed_pair(&self, noise: f64) -> Option<(Candidate, f64)> {
        let residuals = self.residuals_of_pairs();
        let by_pair: BTreeMap<(usize, usize), f64> = self
            .values
            .iter()
            .zip(&residuals)
            .filter_map(|(value, residual)| Some(((value.from, value.to), (*residual)?)))
            .collect();
        let is_bad = |residual: f64| residual > MIN_PAIR_DEVIATIONS * noise;
        let mut best: Option<(Candidate, f64)> = None;
        for (&(from, to), &residual) in by_pair.iter().filter(|(_, residual)| is_bad(**residual)) {
            let back = by_pair.get(&(to, from)).copied();
            let (part, all) = match back.filter(|back| *back > residual / 2.0 && is_bad(*back)) {
                Some(back) => {
                    (BlamedPart::PairBothWays { a: from.min(to), b: from.max(to) }, vec![residual, back])
                }
                None => (BlamedPart::Pair { from, to }, vec![residual]),
            };
            let error = 1.96 * noise / (all.len() as f64).sqrt();
            let Some(candidate) = Candidate::new(part, all, &[0.0]) else { continue };
            if best.as_ref().is_none_or(|(other, _)| candidate.explained() > other.explained()) {
                best = Some((candidate, error));
            }
        }
        best
    }

    /// Residual of each pair, above the median of the other pairs of its block.
    fn residuals_of_pairs(&self) -> Vec<Option<f64>> {
        let mut blocks = vec![Vec::new(); self.is_inside.len()];
        self.values.iter().zip(&self.blocks).for_each(|(value, block)| blocks[*block].push(value.value));
        let residual = |(value, block): (&PairValue, &usize)| {
            let mut others = blocks[*block].clone();
            let own = others.iter().position(|other| *other == value.value)?;
            others.swap_remove(own);
            Some(value.value - median(&others).filter(|_| others.len() >= 3)?)
        };
        self.values.iter().zip(&self.blocks).map(residual).collect()
    }
}

/// Factor by which the floor of a host is multiplied. Few pairs do not show how much paths differ by their nature, so that only
/// a large effect is certain: with 3 hosts, about a factor of two.
fn few_hosts_factor(hosts: usize) -> f64 {
    match hosts {
        ..=3 => 3.5,
        4 => 2.0,
        _ => 1.0,
    }
}

/// The standard deviation of the values, from their median absolute deviation.
fn deviation(values: &[f64]) -> f64 {
    let Some(centre) = median(values) else { return 0.0 };
    let distances: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    DEVIATION_OF_MAD * median(&distances).unwrap_or(0.0)
}

#[cfg(test)]
mod tests;
