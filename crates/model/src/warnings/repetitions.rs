//! Repetitions that differ among themselves.

use crate::metric::Metric;
use crate::run::{CaseResult, PartResult, Warning, WarningCode};
use crate::stats::{Group, separate_groups};

/// Repetitions that fall into groups, for example by the CPUs that the system gives to both ends.
pub fn groups(case: &CaseResult) -> Option<Warning> {
    let metric = Metric::headline(case);
    let parts: Vec<(f64, &PartResult)> = case
        .repeats
        .iter()
        .filter_map(|part| Some((metric.value_of_part(case, &part.figures)?, part)))
        .collect();
    let groups = separate_groups(&parts.iter().map(|(value, _)| *value).collect::<Vec<f64>>());
    let print = |value: f64| metric.unit().format(value);
    let text = |group: &Group| {
        let is_member = |value: f64| (group.range.low..=group.range.high).contains(&value);
        let members = parts.iter().filter(|(value, _)| is_member(*value)).map(|(_, part)| *part);
        let placement = usual_placement(members).map_or(String::new(), |text| format!(" ({text})"));
        format!("{} from {} to {}{placement}", group.size, print(group.range.low), print(group.range.high))
    };
    let is_pinned = case.placement.pinned_cpus()[0].is_some();
    let remedy = match is_pinned {
        true => {
            "find what changes between connections, like the path or the CPU of the server; raise --repeat"
        }
        false => {
            "give both ends CPUs of their own (--pin 0,1), so that every repetition runs in the same place"
        }
    };
    (!groups.is_empty()).then(|| {
        let groups = groups.iter().map(text).collect::<Vec<_>>().join("; ");
        let text = format!("the repetitions fall into separate groups by {}: {groups}", metric.name());
        Warning::new(WarningCode::Groups, text, remedy)
    })
}

/// The most frequent CPUs of both ends in these repetitions: `client on CPU 0, server on CPU 1 in 3 of 4`.
fn usual_placement<'a>(parts: impl Iterator<Item = &'a PartResult>) -> Option<String> {
    let placements: Vec<(u32, Option<u32>)> =
        parts.filter_map(|part| Some((part.client_cpu?, part.server_cpu))).collect();
    let count = |one: &(u32, Option<u32>)| placements.iter().filter(|other| *other == one).count();
    let (client, server) = *placements.iter().max_by_key(|one| (count(one), std::cmp::Reverse(**one)))?;
    let place = match server {
        None => format!("client on CPU {client}"),
        Some(server) if server == client => format!("both ends on CPU {client}"),
        Some(server) => format!("client on CPU {client}, server on CPU {server}"),
    };
    let (most, all) = (count(&(client, server)), placements.len());
    Some(if most == all { place } else { format!("{place} in {most} of {all}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{CpuChoice, Figures, Run};

    /// A case whose repetitions have these rates in Mbit/s.
    fn case(rates: &[f64]) -> CaseResult {
        let text = include_str!("../../../../tests/data/run-v1-throughput.json");
        let mut case = Run::from_json(text).unwrap().cases.remove(0);
        let part = |rate: &f64| {
            let mut figures = Figures::default();
            figures.delivery.throughput_bps = Some(rate * 1e6);
            PartResult::new(case.endpoint.as_str(), 1, figures)
        };
        case.repeats = rates.iter().map(part).collect();
        case
    }

    #[test]
    fn groups_have_sizes_ranges_and_a_remedy() {
        let mut case = case(&[100.0, 300.0, 101.0, 99.0, 305.0, 100.5]);
        let warning = groups(&case).unwrap();
        assert_eq!(
            warning.text,
            "the repetitions fall into separate groups by rate: 4 from 99.00 Mbit/s to 101.0 Mbit/s; \
             2 from 300.0 Mbit/s to 305.0 Mbit/s"
        );
        assert!(warning.remedy.contains("--pin 0,1"));
        case.placement.client_cpu = Some(CpuChoice::Number(0));
        assert!(!groups(&case).unwrap().remedy.contains("--pin"));
    }

    #[test]
    fn groups_have_the_cpus_of_their_repetitions() {
        let mut case = case(&[100.0, 300.0, 101.0, 99.0, 305.0, 100.5]);
        let cpus = [(1, 1), (0, 1), (1, 1), (0, 0), (0, 1), (1, 1)];
        for (part, (client, server)) in case.repeats.iter_mut().zip(cpus) {
            (part.client_cpu, part.server_cpu) = (Some(client), Some(server));
        }
        let text = groups(&case).unwrap().text;
        assert!(text.contains("101.0 Mbit/s (both ends on CPU 1 in 3 of 4); 2 from"), "{text}");
        assert!(text.ends_with("305.0 Mbit/s (client on CPU 0, server on CPU 1)"), "{text}");
        case.repeats.iter_mut().for_each(|part| part.server_cpu = None);
        assert!(groups(&case).unwrap().text.ends_with("305.0 Mbit/s (client on CPU 0)"));
    }

    #[test]
    fn steady_repetitions_have_no_groups() {
        assert_eq!(groups(&case(&[100.0, 103.0, 101.0, 99.0, 102.0, 100.5])), None);
        assert_eq!(groups(&case(&[])), None);
    }
}
