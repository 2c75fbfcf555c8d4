//! Sentences about the parts of a round trip: forward and reverse delay, and the stages that the kernels stamped.

use super::format_share;
use linkgauge_model::run::{BoundSource, CaseResult, Distribution, OneWayFigures};
use linkgauge_model::units::{format_count, format_nanoseconds};

/// A one-way delay with its error bound.
pub(crate) fn format_one_way(nanoseconds: f64, ways: &OneWayFigures) -> String {
    let bound = format_nanoseconds(ways.one_way_error_bound_ns);
    format!("{} ± {bound}", format_nanoseconds(nanoseconds.max(0.0)))
}

/// The parts of a round trip, if the remote reports its timestamps.
pub(crate) fn one_way_sentence(case: &CaseResult) -> Option<String> {
    let of_probe = || case.under_load.as_ref()?.one_way.as_ref();
    let ways = case.figures.one_way.as_ref().or_else(of_probe)?;
    let of = |times: &Distribution, name| match times.percentile(name) {
        Some(value) => format!("{} at {name}", format_nanoseconds(value as f64)),
        None => format!("at most {}", format_nanoseconds(times.max as f64)),
    };
    let lost = match (ways.forward_lost, ways.reverse_lost) {
        (Some(forward), Some(reverse)) if forward + reverse > 0 => {
            format!(" Lost: {} forward, {} in reverse.", format_count(forward), format_count(reverse))
        }
        _ => String::new(),
    };
    let source = common_time_source(case, ways).map_or(String::new(), |source| format!(" (by {source})"));
    // Both times of its clock were the same.
    let server = match ways.turnaround_ns.percentile("p50") {
        Some(0) => "less than a step of its clock at p50".to_owned(),
        _ => of(&ways.turnaround_ns, "p50"),
    };
    Some(format!(
        "of the round trip the server took {} and the network {}. Above the shortest, the forward delay was {}, the \
         reverse delay {}. One way at p50: forward {}, reverse {}{source}.{lost}",
        server,
        of(&ways.path_ns, "p50"),
        of(&ways.forward_variation_ns, "p99"),
        of(&ways.reverse_variation_ns, "p99"),
        format_one_way(ways.forward_p50_ns, ways),
        format_one_way(ways.reverse_p50_ns, ways),
    ))
}

/// The common time that the error of one-way delays comes from, if it does, and how each host knows it.
pub(crate) fn common_time_source(case: &CaseResult, ways: &OneWayFigures) -> Option<String> {
    if ways.bound_source == BoundSource::RoundTrips {
        return None;
    }
    let of = |name: &str, place| Some(format!("{} {place}", case.effective.get(name)?.as_str()?));
    let hosts = [of("clock_synchronised_by", "here"), of("server_clock_synchronised_by", "at the server")];
    let hosts: Vec<String> = hosts.into_iter().flatten().collect();
    let names = if hosts.is_empty() { String::new() } else { format!(": {}", hosts.join(", ")) };
    Some(format!("the common time of both hosts{names}"))
}

/// Sentence about the number of round trips that the stages cover, and the stages with most of their time.
pub(crate) fn stages_sentence(case: &CaseResult) -> Option<String> {
    let stages = case.figures.stages.as_ref().filter(|stages| stages.stamped > 0)?;
    let parts = stages.parts();
    let means = || parts.iter().filter_map(|(name, times)| Some((*name, times.as_ref()?.mean)));
    let sum: f64 = means().map(|(_, mean)| mean).sum();
    let (longest, mean) = means().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let cost = stages.cost_ns.map_or(String::new(), |ns| {
        format!(
            " Stamps add about {} to a round trip over loopback of this host.",
            format_nanoseconds(ns.max(0.0))
        )
    });
    // This is the interface of the client.
    let sources =
        case.effective.get("interface").and_then(|interface| interface.get("time_stamps")?.as_array());
    let hardware = match sources.is_some_and(|sources| sources.iter().any(|source| source == "hardware")) {
        true => {
            " The stamps are those of the kernel: linkgauge does not use the hardware stamps of this interface."
        }
        false => "",
    };
    Some(format!(
        "the stages of {} round trips add up to {} (mean); the longest is {longest}, with {} of it.{cost}{hardware}",
        format_count(stages.stamped),
        format_nanoseconds(sum),
        format_share(mean / sum.max(1.0)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_runs;

    #[test]
    fn a_server_that_is_faster_than_its_clock_takes_no_time_of_zero() {
        let mut case = sample_runs::one_way_delays().cases.remove(0);
        let ways = case.figures.one_way.as_mut().unwrap();
        ways.turnaround_ns.percentiles.insert("p50".to_owned(), Some(0));
        let sentence = one_way_sentence(&case).unwrap();
        assert!(
            sentence
                .starts_with("of the round trip the server took less than a step of its clock at p50 and"),
            "{sentence}"
        );
    }

    #[test]
    fn one_way_delays_are_described() {
        insta::assert_snapshot!(one_way_sentence(&sample_runs::one_way_delays().cases[0]).unwrap(), @"of the round trip the server took 1.276 µs at p50 and the network 41.28 µs at p50. Above the shortest, the forward delay was 4.323 µs at p99, the reverse delay 1.440 µs at p99. One way at p50: forward 20.51 µs ± 19.40 µs, reverse 18.91 µs ± 19.40 µs (by the common time of both hosts). Lost: 5 forward, 2 in reverse.");
        assert_eq!(one_way_sentence(&sample_runs::full().cases[0]), None);
        let mut case = sample_runs::one_way_delays().cases.remove(0);
        case.effective.insert("clock_synchronised_by".to_owned(), "ptp0".into());
        case.effective.insert("server_clock_synchronised_by".to_owned(), "adjtimex".into());
        let named = one_way_sentence(&case).unwrap();
        assert!(
            named.contains("(by the common time of both hosts: ptp0 here, adjtimex at the server)"),
            "{named}"
        );
    }

    #[test]
    fn the_longest_stage_is_named() {
        insta::assert_snapshot!(stages_sentence(&sample_runs::one_way_delays().cases[0]).unwrap(), @"the stages of 9 990 round trips add up to 43.14 µs (mean); the longest is network, with 43.8 % of it. Stamps add about 3.400 µs to a round trip over loopback of this host.");
        assert_eq!(stages_sentence(&sample_runs::full().cases[0]), None);
        let mut case = sample_runs::one_way_delays().cases.remove(0);
        let mut sentence_on = |sources: &[&str]| {
            case.effective.insert("interface".to_owned(), serde_json::json!({ "time_stamps": sources }));
            stages_sentence(&case).unwrap()
        };
        assert!(sentence_on(&["software", "hardware"]).ends_with("the hardware stamps of this interface."));
        assert!(!sentence_on(&["software"]).contains("hardware"));
    }
}
