//! Repetitions that differ among themselves.

use crate::metric::Metric;
use crate::run::{CaseResult, Warning, WarningCode};
use crate::stats::{Group, separate_groups};

/// Repetitions that fall into groups, for example by the CPUs that the system gives to both ends.
pub fn groups(case: &CaseResult) -> Option<Warning> {
    let metric = Metric::headline(case);
    let values: Vec<f64> =
        case.repeats.iter().filter_map(|part| metric.value_of_part(&part.figures)).collect();
    let groups = separate_groups(&values);
    let print = |value: f64| metric.unit().format(value);
    let text = |group: &Group| {
        format!("{} from {} to {}", group.size, print(group.range.low), print(group.range.high))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{CpuChoice, Figures, PartResult, Run};

    /// A case whose repetitions have these rates in Mbit/s.
    fn case(rates: &[f64]) -> CaseResult {
        let text = include_str!("../../tests/data/run-v1-throughput.json");
        let mut case = Run::from_json(text).unwrap().cases.remove(0);
        let part = |rate: &f64| {
            let mut figures = Figures::default();
            figures.delivery.throughput_bps = Some(rate * 1e6);
            PartResult { endpoint: case.endpoint.clone(), elapsed_ns: 1, figures }
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
    fn steady_repetitions_have_no_groups() {
        assert_eq!(groups(&case(&[100.0, 103.0, 101.0, 99.0, 102.0, 100.5])), None);
        assert_eq!(groups(&case(&[])), None);
    }
}
