//! Marks figures that were measured while other programs kept the host busy.

use crate::run::{CaseResult, Warning, WarningCode};
use crate::units::format_nanoseconds;

/// Minimum CPU time of other programs that disturbs a measurement, in percent of all CPUs.
const MIN_OTHER_CPU_PERCENT: f64 = 10.0;

/// A measuring thread that waited longer than this for a CPU was disturbed. So was a host with any such thread.
const MIN_CPU_WAIT_PERCENT: f64 = 2.0;
const MIN_CPU_PRESSURE_PERCENT: f64 = 20.0;

/// A guest that lost a larger share to the hypervisor was disturbed.
const MIN_STEAL_PERCENT: f64 = 2.0;

/// Warning that other programs kept the host busy, and the measurement or its lab or server had to wait for them.
pub(crate) fn host_busy(case: &CaseResult) -> Option<Warning> {
    let load = &case.placement.host_load;
    let [others, stolen, waited, pressure] =
        [load.other_percent, load.steal_percent, load.wait_percent, load.pressure_percent]
            .map(|percent| percent.unwrap_or(0.0));
    let by_others = others >= MIN_OTHER_CPU_PERCENT
        && (waited >= MIN_CPU_WAIT_PERCENT || pressure >= MIN_CPU_PRESSURE_PERCENT);
    if !by_others && stolen < MIN_STEAL_PERCENT {
        return None;
    }
    let mut what = Vec::new();
    if by_others {
        let busiest = load.busiest.as_ref().map(|name| format!(" ({name} most)")).unwrap_or_default();
        what.push(format!("other programs used {others:.0} % of this host's CPU time{busiest}"));
        what.push(match (added_wait(case), waited >= MIN_CPU_WAIT_PERCENT) {
            (Some(added), _) => added,
            (None, true) => format!("a measuring thread waited for a CPU {waited:.0} % of the time"),
            (None, false) => format!("some thread waited for a CPU {pressure:.0} % of the time"),
        });
    }
    if stolen >= MIN_STEAL_PERCENT {
        what.push(format!("the hypervisor took {stolen:.0} % of the CPU time"));
    }
    Some(Warning::new(
        WarningCode::HostBusy,
        format!("the host was busy: {}", what.join(", and ")),
        "stop the other programs, or give both ends CPUs of their own (--pin 0,1)",
    ))
}

/// Time that waiting for a CPU can have added to the mean round trip: the waits of the measuring threads of both ends, for each
/// reply.
fn added_wait(case: &CaseResult) -> Option<String> {
    const NAME: &str = "thread_run_queue_wait_ns";
    let evidence = case.evidence.as_ref()?;
    let of_server = evidence.server.as_ref().and_then(|server| server.counter(NAME));
    let wait_ns = evidence.client.counter(NAME)?.saturating_add(of_server.unwrap_or(0)) as f64;
    let times = case.figures.times.latency_ns.as_ref()?;
    // Several connections can wait longer together than one round trip takes, and the fastest one hardly waited.
    let most_ns = (times.mean - times.min as f64).max(0.0);
    let added_ns = (wait_ns / case.figures.counts.received.max(1) as f64).min(most_ns);
    let (added, percent) = (format_nanoseconds(added_ns), 100.0 * added_ns / times.mean);
    let what = if case.workload == "connect" { "time to connect" } else { "round trip" };
    Some(format!("waiting for a CPU can have added {added} ({percent:.0} %) to the mean {what}"))
}

/// Whether a case has the mark of a busy host.
pub fn was_host_busy(case: &CaseResult) -> bool {
    case.warnings.iter().any(|warning| warning.code == WarningCode::HostBusy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{EndEvidence, Evidence};

    /// Warning at these shares, in percent: CPU time of others, waiting of a measuring thread, waiting of any thread, the
    /// hypervisor's share.
    fn busy_warning(others: f64, waited: f64, pressure: f64, stolen: f64) -> Option<String> {
        let case = serde_json::json!({
            "endpoint": "tcp://a", "protocol": "echo", "workload": "latency", "direction": "loop", "message_bytes": 64,
            "ports": 1, "parallel": 1, "method": "", "complete": true, "elapsed_ns": 1_000_000_000, "requested": {}, "effective": {},
            "placement": {
                "host_other_cpu_percent": others, "host_cpu_wait_percent": waited, "host_busiest_program": "rustc",
                "host_cpu_pressure_percent": pressure, "host_steal_percent": stolen,
            },
            "warnings": [],
        });
        host_busy(&serde_json::from_value(case).unwrap()).map(|warning| warning.text)
    }

    #[test]
    fn other_programs_matter_only_when_threads_waited() {
        insta::assert_snapshot!(busy_warning(48.3, 12.5, 61.0, 0.0).unwrap(), @"the host was busy: other programs used 48 % of this host's CPU time (rustc most), and a measuring thread waited for a CPU 12 % of the time");
        assert!(busy_warning(48.3, 2.5, 3.0, 0.0).is_some(), "a thread of ours waited");
        assert!(busy_warning(48.3, 0.0, 25.0, 0.0).is_some(), "the lab or a server may have waited");
        assert_eq!(busy_warning(48.3, 1.0, 10.0, 0.0), None, "there was room for them");
        assert_eq!(busy_warning(3.0, 30.0, 90.0, 0.0), None, "our own threads waited for each other");
        insta::assert_snapshot!(busy_warning(0.0, 0.0, 0.0, 7.4).unwrap(), @"the host was busy: the hypervisor took 7 % of the CPU time");
    }

    #[test]
    fn the_note_says_what_waiting_can_have_added() {
        let mut run = crate::run::sample_runs::full();
        let case = &mut run.cases[0];
        let counts = |wait_ns: u64| [("thread_run_queue_wait_ns".to_owned(), wait_ns)].into();
        let end = |wait_ns| EndEvidence { threads: counts(wait_ns), ..EndEvidence::default() };
        case.figures.counts.received = 1000;
        case.evidence = Some(Evidence { client: end(3_000_000), server: Some(end(1_000_000)) });
        case.figures.times.latency_ns.as_mut().unwrap().mean = 16_000.0;
        let added = added_wait(case).unwrap();
        insta::assert_snapshot!(added, @"waiting for a CPU can have added 3.000 µs (19 %) to the mean round trip");
    }

    #[test]
    fn case_without_host_facts_is_not_marked() {
        assert_eq!(busy_warning(f64::NAN, f64::NAN, f64::NAN, f64::NAN), None);
    }
}
