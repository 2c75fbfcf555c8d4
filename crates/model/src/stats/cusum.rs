//! A cumulative sum over good and bad events: has the share of bad ones risen?
//!
//! For: alarms on a stream of probes of which each is good or bad (lost, or late). Not for: events that depend on each
//! other; a burst of losses counts as often as it has probes, so false alarms are then more frequent than computed.
//! Sources: Page, "Continuous inspection schemes", Biometrika 1954; the Bernoulli form and its exact run lengths by a
//! Markov chain: Reynolds and Stoumbos, "A CUSUM chart for monitoring a proportion when inspecting continuously",
//! Journal of Quality Technology 1999.

/// Maximum share of bad events that can be the normal state.
const MAX_SHARE: f64 = 0.95;

/// Maximum number of states. More do not fit a sensible request: such a change is too small, or too rare a false alarm is asked
/// for.
const MAX_THRESHOLD: u32 = 1 << 18;

/// A quantile of a delay is computed in at most this many steps, which take some milliseconds.
const MAX_CHAIN_STEPS: u64 = 4_000_000;

/// Change to be detected: the share of bad events rises from `normal` to `raised`.
///
/// A bad event adds `weight - 1` to the sum and a good one subtracts 1, down to zero: with the weight of the likelihood
/// ratio, rounded to a whole number, so that the run lengths are exact.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShareShift {
    normal: f64,
    raised: f64,
    weight: u32,
}

impl ShareShift {
    /// A change between two shares, each above 0 and below 0.95. `None` unless `raised` is above `normal`, and not too close to it.
    pub fn new(normal: f64, raised: f64) -> Option<ShareShift> {
        if !(normal > 0.0 && raised > normal && raised < MAX_SHARE) {
            return None;
        }
        let good = ((1.0 - normal) / (1.0 - raised)).ln();
        let bad = (raised / normal).ln();
        let weight = ((good + bad) / good).round();
        // The sum falls while all is well, and rises after the change.
        let fits = weight < f64::from(MAX_THRESHOLD) && normal * weight < 1.0 && raised * weight > 1.0;
        fits.then_some(ShareShift { normal, raised, weight: weight as u32 })
    }

    /// Mean number of events from a sum of zero to an alarm, when the share of bad events is `share` (0 to 1).
    ///
    /// Infinite when there are none.
    pub(crate) fn run_length(&self, threshold: u32, share: f64) -> f64 {
        // The mean time from a state is an affine function of the time from the state below: time[s] = a + b time[s - 1].
        // The composed function of `weight - 1` such steps in a row leads from a state to the one after a bad event.
        let mut steps = SlidingSteps::new(self.weight as usize - 1);
        for state in (1..threshold).rev() {
            // After a bad event from here: time a + b time[state]; zero if that is an alarm.
            let after_bad = self.after_bad(&steps, state, threshold);
            let stays = 1.0 - share * after_bad.slope();
            steps.push(Affine {
                constant: (1.0 + share * after_bad.constant) / stays,
                missing_slope: share * after_bad.missing_slope / stays,
            });
        }
        let after_bad = self.after_bad(&steps, 0, threshold);
        (1.0 + share * after_bad.constant) / (share * after_bad.missing_slope)
    }

    fn after_bad(&self, steps: &SlidingSteps, state: u32, threshold: u32) -> Affine {
        if state + self.weight > threshold { Affine::ZERO } else { steps.composed() }
    }

    /// The lowest threshold with at least this mean number of events between two false alarms. `None` if it would be absurd.
    pub fn threshold(&self, events_between_false_alarms: f64) -> Option<u32> {
        let suffices =
            |threshold: u32| self.run_length(threshold, self.normal) >= events_between_false_alarms;
        let mut high = self.weight;
        while !suffices(high) {
            high = high.checked_mul(2).filter(|&high| high <= MAX_THRESHOLD)?;
        }
        let mut low = high / 2;
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if suffices(middle) { high = middle } else { low = middle }
        }
        Some(high)
    }

    /// Mean number of events until a change to the raised share is noticed.
    pub fn detection_delay(&self, threshold: u32) -> f64 {
        self.run_length(threshold, self.raised)
    }

    /// Number of events within which a change to the raised share is noticed with this probability (0 to 1), from a sum of
    /// zero. `None` if that many events would take long to compute.
    pub fn detection_delay_quantile(&self, threshold: u32, probability: f64) -> Option<u64> {
        let rise = self.weight as usize - 1;
        let mut at = vec![0.0; threshold.max(1) as usize];
        at[0] = 1.0;
        let mut next = at.clone();
        let mut noticed = 0.0;
        for event in 1..=MAX_CHAIN_STEPS / at.len() as u64 {
            next.fill(0.0);
            for (state, share) in at.iter().enumerate() {
                next[state.saturating_sub(1)] += (1.0 - self.raised) * share;
                match next.get_mut(state + rise) {
                    Some(after_bad) => *after_bad += self.raised * share,
                    None => noticed += self.raised * share,
                }
            }
            if noticed >= probability {
                return Some(event);
            }
            std::mem::swap(&mut at, &mut next);
        }
        None
    }

    /// A sum of this change.
    pub fn start(&self, threshold: u32) -> Cusum {
        Cusum { sum: 0, weight: self.weight, threshold }
    }
}

/// The running sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cusum {
    sum: u32,
    weight: u32,
    threshold: u32,
}

impl Cusum {
    /// Counts an event. True if the sum has reached the threshold; it stays there until good events lower it.
    pub fn record(&mut self, is_bad: bool) -> bool {
        self.sum = match is_bad {
            true => (self.sum + self.weight - 1).min(self.threshold),
            false => self.sum.saturating_sub(1),
        };
        self.sum >= self.threshold
    }

    /// The sum is zero: nothing speaks for a change.
    pub fn is_clear(&self) -> bool {
        self.sum == 0
    }
}

/// `constant + (1 - missing_slope) x`. The slope is close to 1 where alarms are rare, so its difference from 1 is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Affine {
    constant: f64,
    missing_slope: f64,
}

impl Affine {
    const IDENTITY: Affine = Affine { constant: 0.0, missing_slope: 0.0 };
    const ZERO: Affine = Affine { constant: 0.0, missing_slope: 1.0 };

    fn slope(self) -> f64 {
        1.0 - self.missing_slope
    }

    /// Composition: this function of the value of `inner`.
    fn of(self, inner: Affine) -> Affine {
        Affine {
            constant: self.constant + self.slope() * inner.constant,
            missing_slope: self.missing_slope + self.slope() * inner.missing_slope,
        }
    }
}

/// The composition of the last steps, of which the latest is the innermost. Two stacks: each step is composed twice, and nothing is
/// ever divided.
struct SlidingSteps {
    length: usize,
    /// Steps since the last turn, and their composition.
    newer: Vec<Affine>,
    newer_composed: Affine,
    /// Compositions of the older steps that are still in the window, the whole of them last.
    older: Vec<Affine>,
}

impl SlidingSteps {
    pub fn new(length: usize) -> SlidingSteps {
        SlidingSteps { length, newer: Vec::new(), newer_composed: Affine::IDENTITY, older: Vec::new() }
    }

    pub fn push(&mut self, step: Affine) {
        if self.newer.len() + self.older.len() == self.length {
            self.drop_oldest();
        }
        self.newer_composed = self.newer_composed.of(step);
        self.newer.push(step);
    }

    fn drop_oldest(&mut self) {
        if self.older.is_empty() {
            let mut composed = Affine::IDENTITY;
            for step in self.newer.drain(..).rev() {
                composed = step.of(composed);
                self.older.push(composed);
            }
            self.newer_composed = Affine::IDENTITY;
        }
        self.older.pop();
    }

    fn composed(&self) -> Affine {
        self.older.last().copied().unwrap_or(Affine::IDENTITY).of(self.newer_composed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SplitMix64;
    use super::*;

    /// Events until an alarm, of one simulated stream.
    fn simulate(change: &ShareShift, threshold: u32, share: f64, random: &mut SplitMix64) -> f64 {
        let mut sum = change.start(threshold);
        let mut events = 1.0;
        while !sum.record(random.uniform() < share) {
            events += 1.0;
        }
        events
    }

    #[test]
    fn run_lengths_agree_with_a_solved_chain() {
        // Three states by hand, weight 3, threshold 4: from 0 a bad event leads to 2, from 1 to 3, from 2 and 3 to the alarm.
        let change = ShareShift { normal: 0.1, raised: 0.5, weight: 3 };
        let (p, q) = (0.1, 0.9);
        // t3 = 1 + q t2; t2 = 1 + q t1; t1 = 1 + q t0 + p t3; t0 = 1 + q t0 + p t2.
        let t1_of_t0 = |t0: f64| (1.0 + q * t0 + p * (1.0 + q)) / (1.0 - p * q * q);
        // t0 = (1 + p t2) / p with t2 = 1 + q t1: linear in t0.
        let at = |t0: f64| (1.0 + p * (1.0 + q * t1_of_t0(t0))) / p - t0;
        let exact = at(0.0) / (at(0.0) - at(1.0));
        assert!((change.run_length(4, 0.1) / exact - 1.0).abs() < 1e-12, "{exact}");
        assert_eq!(change.run_length(4, 0.0), f64::INFINITY);
    }

    #[test]
    fn run_lengths_agree_with_simulations() {
        let mut random = SplitMix64::new(7);
        for (normal, raised, threshold, share) in
            [(0.02, 0.2, 20, 0.02), (0.02, 0.2, 60, 0.2), (0.05, 0.2, 25, 0.05), (0.001, 0.05, 200, 0.05)]
        {
            let change = ShareShift::new(normal, raised).unwrap();
            let runs = 1000;
            let mean = (0..runs).map(|_| simulate(&change, threshold, share, &mut random)).sum::<f64>();
            let ratio = mean / f64::from(runs) / change.run_length(threshold, share);
            assert!((0.88..1.12).contains(&ratio), "{normal} {raised} {threshold} {share}: {ratio}");
        }
    }

    #[test]
    fn a_threshold_is_the_lowest_that_keeps_false_alarms_rare() {
        let change = ShareShift::new(0.005, 0.05).unwrap();
        for wanted in [1e3, 2.6e6, 1e9] {
            let threshold = change.threshold(wanted).unwrap();
            assert!(change.run_length(threshold, 0.005) >= wanted);
            assert!(change.run_length(threshold - 1, 0.005) < wanted);
        }
        // One false alarm in 46 days at a probe a second: the published run length of this change is about 150 probes.
        let threshold = change.threshold(4.0e6).unwrap();
        let delay = change.detection_delay(threshold);
        assert!((130.0..180.0).contains(&delay), "{delay}");
    }

    #[test]
    fn quantiles_of_the_delay_agree_with_simulations() {
        let mut random = SplitMix64::new(11);
        let change = ShareShift::new(0.01, 0.1).unwrap();
        let threshold = change.threshold(1e5).unwrap();
        let limit = change.detection_delay_quantile(threshold, 0.9).unwrap() as f64;
        let within = (0..2000).filter(|_| simulate(&change, threshold, 0.1, &mut random) <= limit).count();
        assert!((1750..1850).contains(&within), "{within} of 2000 within {limit}");
        // A single bad event suffices: geometric.
        let single = ShareShift { normal: 0.1, raised: 0.5, weight: 3 };
        assert_eq!(single.detection_delay_quantile(2, 0.874), Some(3));
        assert_eq!(ShareShift::new(0.01, 0.011).unwrap().detection_delay_quantile(200_000, 0.99), None);
    }

    #[test]
    fn impossible_changes_are_refused() {
        for (normal, raised) in
            [(0.0, 0.1), (0.1, 0.1), (0.2, 0.1), (0.1, 0.99), (f64::NAN, 0.5), (0.01, 0.0101)]
        {
            assert_eq!(ShareShift::new(normal, raised), None, "{normal} {raised}");
        }
        assert_eq!(ShareShift::new(0.01, 0.011).unwrap().threshold(1e300), None);
    }

    #[test]
    fn an_outage_is_noticed_at_once_and_clears_with_good_events() {
        let change = ShareShift::new(0.005, 0.05).unwrap();
        let threshold = change.threshold(2.6e6).unwrap();
        let mut sum = change.start(threshold);
        let lost = (1..).find(|_| sum.record(true)).unwrap();
        assert!((2..=6).contains(&lost), "{lost}");
        let good = (1..).find(|_| !sum.record(false) && sum.is_clear()).unwrap();
        assert_eq!(good, threshold);
    }
}
