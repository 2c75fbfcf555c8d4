//! Decides from the effects of the settings and the counters which causes limit a rate.

use super::blocks::RateBlock;
use super::pairs::{RateReading, RateSequence};
use super::trials::{RateTest, TestPlan, catalogued};
use super::{CauseVerdict, RateEffect, RateFinding};
use crate::explain::causes::{self, RateKnob};
use crate::explain::counters::{CountedCause, rates};
use crate::explain::live::prove::{MIN_ROUNDS, SIGNIFICANCE_LEVEL};
use linkgauge_model::plan::Direction;
use linkgauge_model::stats::{self, Interval};
use linkgauge_model::units::{format_nanoseconds, format_plural, format_size};

/// The rate follows a quantity if it changes by at least this power of its factor: 1.19 times for twice the buffer.
const MIN_ELASTICITY: f64 = 0.25;
/// Minimum gain that matters of a setting without a factor, as a ratio of rates.
const MIN_GAIN: f64 = 1.05;
/// A queue vanished if the round trip is this share of the one before or less.
const MAX_EMPTY_SHARE: f64 = 0.6;
/// A shorter queue is that of the host.
const MIN_QUEUE_NS: f64 = 1e6;
/// Losses vanished if this share of them or less is left, and persist if this share or more is.
const MAX_VANISHED_SHARE: f64 = 0.25;
const MIN_PERSISTING_SHARE: f64 = 0.5;
/// Minimum share of losses that matters.
const MIN_LOSS_SHARE: f64 = 1e-3;

/// Result of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RateResponse {
    /// The rate follows the setting.
    Follows,
    /// The rate does not follow it.
    Constant,
    /// The pairs decide nothing.
    Unclear,
}

/// Result of the test with less load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LowerLoad {
    empties_queue: bool,
    ends_losses: bool,
    /// The losses are the same, so they do not come from the load.
    keeps_losses: bool,
}

/// The effect of one test.
struct Effect<'a> {
    test: &'a RateTest,
    outcome: RateResponse,
    lower_load: LowerLoad,
    gain: f64,
    gain_interval: Option<Interval>,
    p: f64,
    factor: Option<f64>,
    pairs: Vec<(RateReading, RateReading)>,
    evidence: String,
}

/// The outcome of pairs of a rate, of the logarithms of their ratios.
fn outcome(ratios: &[f64], factor: Option<f64>, p: f64) -> RateResponse {
    let Some((_, Some(interval))) = stats::hodges_lehmann_centre(ratios) else {
        return RateResponse::Unclear;
    };
    let (low, high, limit) = match factor.map(f64::ln).filter(|log| *log != 0.0) {
        Some(log) if log > 0.0 => (interval.low / log, interval.high / log, MIN_ELASTICITY),
        Some(log) => (interval.high / log, interval.low / log, MIN_ELASTICITY),
        None => (interval.low, interval.high, MIN_GAIN.ln()),
    };
    if p < SIGNIFICANCE_LEVEL && low > limit {
        RateResponse::Follows
    } else if ratios.len() >= MIN_ROUNDS && high < limit {
        RateResponse::Constant
    } else {
        RateResponse::Unclear
    }
}

/// Result of the pairs with less load: whether queue and losses vanish.
fn lower_load(pairs: &[(RateReading, RateReading)]) -> LowerLoad {
    let both = |of: fn(&RateReading) -> Option<f64>| -> (Vec<f64>, Vec<f64>) {
        pairs.iter().filter_map(|(base, changed)| Some((of(base)?, of(changed)?))).unzip()
    };
    let decided = |base: &[f64], changed: &[f64]| {
        let differences: Vec<f64> = base.iter().zip(changed).map(|(base, changed)| base - changed).collect();
        stats::signed_rank_p(&differences) < SIGNIFICANCE_LEVEL
    };
    let medians = |(base, changed): &(Vec<f64>, Vec<f64>)| stats::median(base).zip(stats::median(changed));
    let (round_trips, losses) = (both(|reading| reading.round_trip_ns), both(|reading| reading.loss_share));
    let empties_queue = medians(&round_trips).is_some_and(|(base, changed)| {
        base - changed > MIN_QUEUE_NS
            && changed < MAX_EMPTY_SHARE * base
            && decided(&round_trips.0, &round_trips.1)
    });
    let loss = medians(&losses).filter(|(base, _)| *base >= MIN_LOSS_SHARE);
    LowerLoad {
        empties_queue,
        ends_losses: loss.is_some_and(|(base, changed)| {
            changed <= MAX_VANISHED_SHARE * base && decided(&losses.0, &losses.1)
        }),
        keeps_losses: loss.is_some_and(|(base, changed)| changed >= MIN_PERSISTING_SHARE * base),
    }
}

/// The effects of all tests.
fn effects<'a>(plan: &'a TestPlan, sequence: &RateSequence) -> Vec<Effect<'a>> {
    let ratios = |pairs: &[(RateReading, RateReading)]| -> Vec<f64> {
        pairs.iter().map(|(base, changed)| (changed.rate_bps / base.rate_bps).ln()).collect()
    };
    let pairs: Vec<_> = (0..plan.tests.len()).map(|index| sequence.pairs(index)).collect();
    let p_values: Vec<f64> = pairs.iter().map(|pairs| stats::signed_rank_p(&ratios(pairs))).collect();
    let adjusted = stats::holm_adjusted(&p_values);
    let tested = plan.tests.iter().zip(pairs).zip(adjusted).enumerate();
    let effects = tested.map(|(index, ((test, pairs), p))| {
        let factor = sequence.factor(index, test);
        let ratios = ratios(&pairs);
        let (centre, interval) = stats::hodges_lehmann_centre(&ratios).unwrap_or((0.0, None));
        let mut effect = Effect {
            test,
            outcome: outcome(&ratios, factor, p),
            lower_load: lower_load(&pairs),
            gain: centre.exp(),
            gain_interval: interval
                .map(|interval| Interval { low: interval.low.exp(), high: interval.high.exp() }),
            p,
            factor,
            pairs,
            evidence: String::new(),
        };
        effect.evidence = effect.describe();
        effect
    });
    effects.collect()
}

impl Effect<'_> {
    /// Text such as `rcvbuf=128 KiB at the server: 1.94 × the rate [1.90, 1.97], 10 pairs`.
    fn describe(&self) -> String {
        let pairs = format_plural(self.pairs.len() as u64, "pair");
        if self.pairs.is_empty() {
            return format!("{}: this link refuses it", self.test.name);
        }
        if self.test.knob == RateKnob::LowerRate {
            let change = |of: fn(&RateReading) -> Option<f64>, format: fn(f64) -> String| {
                let of_end = |end: fn(&(RateReading, RateReading)) -> RateReading| {
                    stats::median(&self.pairs.iter().filter_map(|pair| of(&end(pair))).collect::<Vec<_>>())
                };
                let (base, changed) = (of_end(|pair| pair.0)?, of_end(|pair| pair.1)?);
                Some(format!("{} → {}", format(base), format(changed)))
            };
            let round_trip = change(|reading| reading.round_trip_ns, format_nanoseconds);
            let losses = change(|reading| reading.loss_share, |share| format!("{:.2} %", 100.0 * share));
            let parts = [
                round_trip.map(|text| format!("round trip {text}")),
                losses.map(|text| format!("lost {text}")),
            ];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            return format!("{}: {}, {pairs}", self.test.name, parts.join(", "));
        }
        let interval =
            self.gain_interval.map(|interval| format!(" [{:.2}, {:.2}]", interval.low, interval.high));
        format!("{}: {:.2} × the rate{}, {pairs}", self.test.name, self.gain, interval.unwrap_or_default())
    }
}

/// A decision about one cause: its name, what is known, and the tests that show it.
type CauseDecision = (&'static str, CauseVerdict, Vec<RateKnob>);

/// The outcomes of the tests, and what else is known.
struct Outcomes<'a> {
    /// Response of each test that was made.
    of: &'a dyn Fn(RateKnob) -> Option<RateResponse>,
    lower: LowerLoad,
    counted: &'a [&'static str],
    /// Causes that stopped the sender for less than half of the time.
    partial: &'a [&'static str],
}

impl Outcomes<'_> {
    fn is_counted(&self, id: &str) -> bool {
        self.counted.contains(&id)
    }

    fn follows(&self, knob: RateKnob) -> bool {
        (self.of)(knob) == Some(RateResponse::Follows)
    }

    /// The verdict about the cause that this setting removes; `None` without a test.
    fn verdict(&self, knob: RateKnob) -> Option<CauseVerdict> {
        (self.of)(knob).map(|outcome| match outcome {
            RateResponse::Follows => CauseVerdict::Proved,
            RateResponse::Constant => CauseVerdict::RuledOut,
            RateResponse::Unclear => CauseVerdict::NotShown,
        })
    }

    /// The receiver's window was full.
    fn is_window_full(&self) -> bool {
        self.is_counted("receive_window") || self.is_counted("slow_reader")
    }

    /// Losses that less load does not end.
    fn loses_without_load(&self) -> bool {
        self.is_counted("loss_limited_window") && !self.lower.ends_losses && !self.lower.empties_queue
    }

    /// The receiver: its buffer, or its program, which no buffer helps.
    fn of_receiver(&self) -> Option<CauseDecision> {
        let overflows = self.is_counted("receiver_socket_overflow");
        let cause = if overflows { "receiver_socket_overflow" } else { "receive_window" };
        let knobs = vec![RateKnob::ReceiveBuffer];
        match self.verdict(RateKnob::ReceiveBuffer)? {
            CauseVerdict::RuledOut if self.is_window_full() => {
                Some(("slow_reader", CauseVerdict::Counted, knobs))
            }
            CauseVerdict::Proved => Some((cause, CauseVerdict::Proved, knobs)),
            _ if self.is_counted(cause) => Some((cause, CauseVerdict::Counted, knobs)),
            verdict => Some((cause, self.with_counter(cause, verdict), knobs)),
        }
    }

    /// The verdict of pairs that decide nothing, where a counter shows the cause for a part of the time.
    fn with_counter(&self, cause: &str, verdict: CauseVerdict) -> CauseVerdict {
        let is_counted = verdict == CauseVerdict::NotShown && self.partial.contains(&cause);
        if is_counted { CauseVerdict::Counted } else { verdict }
    }

    /// The link: a queue or a policer, which less load shows.
    fn of_link(&self) -> Option<CauseDecision> {
        let knobs = vec![RateKnob::LowerRate, RateKnob::Connections];
        match self.lower {
            LowerLoad { empties_queue: true, .. } => Some(("link_rate_reached", CauseVerdict::Proved, knobs)),
            LowerLoad { ends_losses: true, .. } => Some(("policed_rate", CauseVerdict::Proved, knobs)),
            LowerLoad { keeps_losses: true, .. } => {
                Some(("policed_rate", CauseVerdict::RuledOut, vec![RateKnob::LowerRate]))
            }
            _ => None,
        }
    }

    /// The congestion control, which takes losses for a full link.
    fn of_losses(&self) -> Option<CauseDecision> {
        let is_multiplied = self.loses_without_load() && self.follows(RateKnob::Connections);
        if self.follows(RateKnob::CongestionControl) || is_multiplied {
            let knobs = vec![RateKnob::CongestionControl, RateKnob::LowerRate, RateKnob::Connections];
            return Some(("loss_limited_window", CauseVerdict::Proved, knobs));
        }
        let verdict = self.verdict(RateKnob::CongestionControl).filter(|_| !self.loses_without_load())?;
        Some(("loss_limited_window", verdict, vec![RateKnob::CongestionControl]))
    }

    /// Cause of a rate that several connections multiply and nothing else explains.
    fn of_connections(&self) -> Option<CauseDecision> {
        let limits =
            [RateKnob::ReceiveBuffer, RateKnob::SendBuffer, RateKnob::Pacing, RateKnob::Acknowledgements];
        let is_explained = self.is_window_full() || self.loses_without_load();
        let is_explained = is_explained || limits.into_iter().any(|knob| self.follows(knob));
        let verdict = self.verdict(RateKnob::Connections)?;
        let is_new = verdict != CauseVerdict::Proved || !is_explained;
        is_new.then_some(("connection_limit", verdict, vec![RateKnob::Connections]))
    }

    /// Causes that limit the rate.
    fn decide(&self) -> Vec<CauseDecision> {
        let plain = [
            (RateKnob::SendBuffer, "send_buffer"),
            (RateKnob::Pacing, "requested_pacing"),
            (RateKnob::Acknowledgements, "delayed_ack"),
            (RateKnob::MessageSize, "message_cost"),
        ];
        let plain = plain
            .into_iter()
            .filter_map(|(knob, id)| Some((id, self.with_counter(id, self.verdict(knob)?), vec![knob])));
        let others = [self.of_receiver(), self.of_link(), self.of_losses(), self.of_connections()];
        plain.chain(others.into_iter().flatten()).collect()
    }
}

/// All findings: first the causes that limit, by their effect.
pub(super) fn findings(
    plan: &TestPlan,
    sequence: &RateSequence,
    counted: &[CountedCause],
    screen: &RateBlock,
) -> Vec<RateFinding> {
    let effects = effects(plan, sequence);
    let effect =
        |knob: RateKnob| effects.iter().find(|effect| effect.test.knob == knob && !effect.pairs.is_empty());
    let lower = effect(RateKnob::LowerRate).map(|effect| effect.lower_load).unwrap_or_default();
    let counted = &contradicted(counted, lower);
    let (partial, full): (Vec<&CountedCause>, Vec<&CountedCause>) =
        counted.iter().partition(|counted| counted.partial_share.is_some());
    let [partial, full] =
        [partial, full].map(|causes| causes.iter().map(|counted| counted.id).collect::<Vec<_>>());
    let of = |knob| effect(knob).map(|effect| effect.outcome);
    let decisions = Outcomes { of: &of, lower, counted: &full, partial: &partial }.decide();
    let mut findings: Vec<RateFinding> = Vec::new();
    for (id, verdict, knobs) in decisions {
        let tests: Vec<&Effect> = knobs.iter().filter_map(|knob| effect(*knob)).collect();
        let counters =
            counted.iter().filter(|counted| counted.id == id).map(|counted| counted.evidence.clone());
        let shown = tests.iter().map(|effect| effect.evidence.clone());
        let evidence = counters.chain(shown).collect();
        findings.extend(finding(id, verdict, evidence, tests.first().copied(), screen.result.direction));
    }
    add_counted(&mut findings, counted, screen.result.direction);
    add_untested(&mut findings, plan, screen);
    for cause in counted {
        let known = findings
            .iter_mut()
            .filter(|finding| finding.id == cause.id && finding.verdict == CauseVerdict::Counted);
        known.for_each(|finding| finding.effect.limited_share = cause.partial_share);
    }
    findings.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| effect_size(b).total_cmp(&effect_size(a))));
    findings
}

/// What the counters show: losses that less load keeps are none of a policer.
fn contradicted(counted: &[CountedCause], lower: LowerLoad) -> Vec<CountedCause> {
    let is_contradicted = |cause: &CountedCause| cause.id == "policed_rate" && lower.keeps_losses;
    let as_seen = |cause: &CountedCause| match is_contradicted(cause) {
        true => CountedCause {
            id: "loss_limited_window",
            evidence: "segments are lost as often with less load".to_owned(),
            ..cause.clone()
        },
        false => cause.clone(),
    };
    counted.iter().map(as_seen).collect()
}

/// Adds the causes that only a counter shows, unless a proved cause is the same limit.
fn add_counted(findings: &mut Vec<RateFinding>, counted: &[CountedCause], direction: Direction) {
    for cause in counted {
        let has = |id: &str| findings.iter().any(|finding| finding.id == id);
        let is_proved = |id: &str| {
            findings.iter().any(|finding| finding.id == id && finding.verdict == CauseVerdict::Proved)
        };
        let same: &[&str] = match cause.id {
            "bufferbloat" | "loss_limited_window" => &["link_rate_reached", "policed_rate"],
            "policed_rate" => &["link_rate_reached"],
            "receive_window" => &["slow_reader"],
            "slow_reader" => &["receive_window"],
            "application_limited" => &["send_buffer"],
            // Most paths have a short time of a full buffer at the start.
            "send_buffer" => &["link_rate_reached", "policed_rate", "loss_limited_window"],
            _ => &[],
        };
        let is_same =
            same.iter().any(|id| is_proved(id)) || (cause.id == "receive_window" && has("slow_reader"));
        if !has(cause.id) && !is_same {
            let evidence = vec![cause.evidence.clone()];
            findings.extend(finding(cause.id, CauseVerdict::Counted, evidence, None, direction));
        }
    }
}

/// Adds why causes were not tested.
fn add_untested(findings: &mut Vec<RateFinding>, plan: &TestPlan, screen: &RateBlock) {
    for untested in &plan.untested {
        let text = format!("not tested: {}", untested.why.0);
        match findings.iter_mut().find(|finding| finding.id == untested.cause.id) {
            Some(known) => known.evidence.push(text),
            None if screen.result.evidence.is_none() => {}
            None => {
                let direction = screen.result.direction;
                findings.extend(finding(
                    untested.cause.id,
                    CauseVerdict::CannotTest,
                    vec![text],
                    None,
                    direction,
                ));
            }
        }
    }
}

/// Order of the findings: proved first, then seen and counted, then those that limit for a part of the time, then the others.
fn rank(finding: &RateFinding) -> (bool, CauseVerdict, bool) {
    (!finding.verdict.is_found(), finding.verdict, finding.effect.limited_share.is_some())
}

/// Size of the change of the rate by the setting, in either direction.
fn effect_size(finding: &RateFinding) -> f64 {
    finding.effect.gain.map_or(0.0, |gain| gain.ln().abs())
}

fn finding(
    id: &'static str,
    verdict: CauseVerdict,
    evidence: Vec<String>,
    effect: Option<&Effect>,
    direction: Direction,
) -> Option<RateFinding> {
    let (family, cause) = catalogued(id)?;
    // The rate with less load says nothing: it is what was asked for.
    let measured = effect.filter(|effect| effect.test.knob != RateKnob::LowerRate);
    Some(RateFinding {
        id: cause.id,
        family: family.name,
        place: causes::place(family, cause.id),
        name: cause.name,
        verdict,
        effect: RateEffect {
            change: effect.map(|effect| effect.test.name.clone()),
            factor: measured.and_then(|effect| effect.factor),
            gain: measured.map(|effect| effect.gain),
            gain_interval: measured.and_then(|effect| effect.gain_interval),
            limited_share: None,
            p: measured.map(|effect| effect.p),
            pairs_bps: measured.map_or_else(Vec::new, |effect| {
                effect.pairs.iter().map(|(base, changed)| [base.rate_bps, changed.rate_bps]).collect()
            }),
        },
        evidence,
        remedy: causes::remedy(cause, direction),
    })
}

/// The counters of the screen that matter for a rate, in words.
pub(super) fn observations(screen: &RateBlock) -> Vec<String> {
    let (result, sender) = (&screen.result, rates::sending_end(&screen.result));
    let share = |name: &str| {
        let sender = sender?;
        let busy = sender.counter("tcp_busy_ns").filter(|busy| *busy > 0)?;
        Some(100.0 * sender.counter(name)? as f64 / busy as f64)
    };
    let shortest = screen.shortest_round_trip_ns();
    let unread = rates::receiving_end(result).and_then(|end| end.gauge("socket_unread_bytes"));
    let cpu = result.cpu_shares().map(|(client, server)| {
        let server = server.map(|share| format!(", {:.0} % at the server", 100.0 * share));
        format!("CPU {:.0} % here{}", 100.0 * client, server.unwrap_or_default())
    });
    [
        share("tcp_receive_window_limited_ns")
            .map(|share| format!("receive window full {share:.0} % of the time")),
        share("tcp_send_buffer_limited_ns").map(|share| format!("send buffer full {share:.0} %")),
        screen.round_trip_ns().map(|round_trip| {
            let shortest = shortest.map(|shortest| format!(" (shortest {})", format_nanoseconds(shortest)));
            format!("round trip {}{}", format_nanoseconds(round_trip), shortest.unwrap_or_default())
        }),
        screen.loss_share().map(|share| format!("{:.2} % lost", 100.0 * share)),
        unread.map(|unread| format!("{} unread at the receiver", format_size(unread.median))),
        cpu,
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use RateKnob::{
        Acknowledgements, CongestionControl, Connections, LowerRate, MessageSize, Pacing, ReceiveBuffer,
        SendBuffer,
    };
    use RateResponse::{Constant, Follows, Unclear};

    /// Outcomes of tests, what less load showed, counted causes; and what limits then.
    type Decided<'a> =
        (&'a [(RateKnob, RateResponse)], LowerLoad, &'a [&'static str], &'a [(&'static str, CauseVerdict)]);

    /// The causes that limit, with these outcomes and counters.
    fn found(
        outcomes: &[(RateKnob, RateResponse)],
        lower: LowerLoad,
        counted: &[&'static str],
    ) -> Vec<(&'static str, CauseVerdict)> {
        let outcome = |knob| outcomes.iter().find(|(known, _)| *known == knob).map(|(_, outcome)| *outcome);
        let decisions = Outcomes { of: &outcome, lower, counted, partial: &[] }.decide();
        decisions
            .into_iter()
            .map(|(id, verdict, _)| (id, verdict))
            .filter(|(_, verdict)| verdict.is_found())
            .collect()
    }

    #[test]
    fn each_effect_has_its_cause() {
        use CauseVerdict::{Counted, Proved};
        let none = LowerLoad::default();
        let queue = LowerLoad { empties_queue: true, ..none };
        let (ends, keeps) =
            (LowerLoad { ends_losses: true, ..none }, LowerLoad { keeps_losses: true, ..none });
        let cases: &[Decided] = &[
            (
                &[(ReceiveBuffer, Follows), (Connections, Follows)],
                none,
                &["receive_window"],
                &[("receive_window", Proved)],
            ),
            (
                &[(ReceiveBuffer, Constant), (Connections, Follows)],
                none,
                &["slow_reader"],
                &[("slow_reader", Counted)],
            ),
            (&[(ReceiveBuffer, Constant)], none, &["receive_window"], &[("slow_reader", Counted)]),
            (&[(ReceiveBuffer, Unclear)], none, &["receive_window"], &[("receive_window", Counted)]),
            (
                &[(ReceiveBuffer, Follows)],
                none,
                &["receiver_socket_overflow"],
                &[("receiver_socket_overflow", Proved)],
            ),
            (
                &[(SendBuffer, Follows), (Connections, Follows)],
                none,
                &["application_limited"],
                &[("send_buffer", Proved)],
            ),
            (&[(Pacing, Follows), (Connections, Follows)], none, &[], &[("requested_pacing", Proved)]),
            (&[(Acknowledgements, Follows)], none, &["delayed_ack"], &[("delayed_ack", Proved)]),
            (&[(MessageSize, Follows), (Connections, Constant)], none, &[], &[("message_cost", Proved)]),
            (
                &[(LowerRate, Constant), (Connections, Constant)],
                queue,
                &["bufferbloat"],
                &[("link_rate_reached", Proved)],
            ),
            (
                &[(LowerRate, Constant), (Connections, Constant)],
                ends,
                &["loss_limited_window"],
                &[("policed_rate", Proved)],
            ),
            (
                &[(LowerRate, Constant), (Connections, Follows)],
                keeps,
                &["loss_limited_window"],
                &[("loss_limited_window", Proved)],
            ),
            (
                &[(CongestionControl, Follows)],
                keeps,
                &["loss_limited_window"],
                &[("loss_limited_window", Proved)],
            ),
            (&[(Connections, Follows)], none, &[], &[("connection_limit", Proved)]),
            (&[(Connections, Constant), (ReceiveBuffer, Unclear)], none, &[], &[]),
            (&[], none, &[], &[]),
        ];
        for (outcomes, lower, counted, expected) in cases {
            assert_eq!(found(outcomes, *lower, counted), *expected, "{outcomes:?} {lower:?} {counted:?}");
        }
    }

    #[test]
    fn a_rate_follows_a_quantity_by_its_power() {
        let ratios =
            |gain: f64| (0..10).map(|index| gain.ln() + 0.002 * f64::from(index % 3)).collect::<Vec<_>>();
        assert_eq!(outcome(&ratios(1.94), Some(2.0), 0.002), Follows);
        assert_eq!(outcome(&ratios(0.52), Some(0.5), 0.002), Follows);
        assert_eq!(outcome(&ratios(1.02), Some(2.0), 0.3), Constant);
        assert_eq!(outcome(&ratios(0.99), Some(0.5), 0.3), Constant);
        assert_eq!(
            outcome(&ratios(0.6), Some(2.0), 0.002),
            Constant,
            "a larger buffer that harms limits nothing"
        );
        assert_eq!(outcome(&ratios(1.94), Some(2.0), 0.2), Unclear, "not after the correction");
        assert_eq!(outcome(&ratios(1.94)[..3], Some(2.0), 0.002), Unclear, "too few pairs");
        assert_eq!(
            (outcome(&ratios(3.0), None, 0.002), outcome(&ratios(1.01), None, 0.9)),
            (Follows, Constant)
        );
    }

    #[test]
    fn less_load_separates_queues_policers_and_lossy_paths() {
        let reading = |round_trip_ms: f64, loss_share: f64| RateReading {
            round_trip_ns: Some(1e6 * round_trip_ms),
            loss_share: Some(loss_share),
            ..RateReading::default()
        };
        let pairs = |base: (f64, f64), changed: (f64, f64)| {
            let vary = |(ms, loss): (f64, f64), index: u32| reading(ms + 0.01 * f64::from(index), loss);
            (0..10).map(|index| (vary(base, index), vary(changed, 3 * index % 10))).collect::<Vec<_>>()
        };
        let shown = |base, changed| {
            let lower = lower_load(&pairs(base, changed));
            [lower.empties_queue, lower.ends_losses, lower.keeps_losses]
        };
        assert_eq!(shown((291.6, 0.0), (21.0, 0.0)), [true, false, false], "a queue");
        assert_eq!(shown((121.0, 0.02), (21.0, 0.0)), [true, true, false], "a queue that overflows");
        assert_eq!(shown((20.5, 0.5), (20.4, 0.01)), [false, true, false], "a policer");
        assert_eq!(shown((20.5, 0.005), (20.4, 0.005)), [false, false, true], "a lossy path");
        assert_eq!(shown((20.5, 0.0), (20.4, 0.0)), [false; 3]);
        assert_eq!(lower_load(&[]), LowerLoad::default());
    }
}
