//! A sink as a state machine: how long it waits.

use super::*;
use crate::plan::{CaseSpec, OneOrMany};
use crate::units::Bytes;

/// How long a sink waits for more after its first message.
fn patience(closes: bool) -> Duration {
    let url = Some(OneOrMany::One("mem://x".parse().unwrap()));
    let workload = Some("throughput".to_owned());
    let size = Some(OneOrMany::One(Bytes(1400)));
    let mut case = CaseSpec { url, workload, size, ..CaseSpec::default() }.expand().unwrap().remove(0);
    case.timeout = Duration::from_secs(5);
    let caps = Caps {
        framing: Framing::Message,
        max_message: Some(65_536),
        closes,
        half_closes: false,
        ..Caps::STREAM
    };
    let mut sink = Sink::new(&case, &caps, Tuning::default(), Recorder::counting());
    assert!(matches!(sink.next(Time(0)), Step::Tune(_)));
    assert!(matches!(sink.next(Time(0)), Step::Receive { .. }));
    sink.received(Time(0));
    let Step::Receive { until, .. } = sink.next(Time(0)) else { panic!("it goes on") };
    sink.timed_out(until);
    assert_eq!(matches!(sink.next(until), Step::Fail(Fault::TimedOut)), closes);
    until - Time(0)
}

#[test]
fn a_pause_ends_a_flow_of_messages_only_where_nothing_else_can() {
    assert_eq!(patience(false), QUIET);
    assert_eq!(patience(true), Duration::from_secs(5));
}
