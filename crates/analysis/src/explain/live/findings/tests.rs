//! What the causes leave.

use super::*;

fn found(id: &'static str, place: CausePlace, cost_ns: f64, mean_ns: f64) -> CauseFinding {
    let effect = DelayEffect { cost_ns: Some(cost_ns), mean_ns: Some(mean_ns), ..DelayEffect::default() };
    let (family, name, remedy, evidence) = ("", "", "", Vec::new());
    CauseFinding { id, family, place, name, verdict: CauseVerdict::Counted, effect, evidence, remedy }
}

#[test]
fn what_is_known_by_its_place_has_what_the_named_causes_leave() {
    let server = || found(causes::SERVER, CausePlace::Server, 10e6, 12e6);
    let left = |others: Vec<CauseFinding>| {
        let mut findings = [vec![server()], others].concat();
        leave_rest(&mut findings, 20e6, 0.0);
        let server = findings.iter().find(|finding| finding.id == causes::SERVER);
        server.map(|server| (server.effect.cost_ns.unwrap(), server.effect.mean_ns.unwrap()))
    };
    assert_eq!(left(vec![]), Some((10e6, 12e6)));
    assert_eq!(left(vec![found("per_byte_cost", CausePlace::Path, 6e6, 6e6)]), Some((4e6, 6e6)));
    assert_eq!(
        left(vec![found("delayed_ack_nagle", CausePlace::Server, 10e6, 10e6)]),
        None,
        "little is left"
    );
    // The path and new connections have parts of their own.
    assert_eq!(left(vec![found("path_delay", CausePlace::Path, 9e6, 9e6)]), Some((10e6, 12e6)));
    assert_eq!(left(vec![found(causes::ACCEPT, CausePlace::Server, 0.0, 4e8)]), Some((10e6, 12e6)));
    assert_eq!(left(vec![found(PATH_LOSS, CausePlace::Path, 0.0, 1e6)]), Some((10e6, 9e6)), "its median");
    let mut queue = vec![
        found(PATH_QUEUE, CausePlace::Path, 5e6, 5e6),
        found("path_clock", CausePlace::Path, 5e6, 5e6),
        found("remote_clock", CausePlace::Server, 9e6, 9e6),
    ];
    leave_rest(&mut queue, 20e6, 0.0);
    let mut slow_line = vec![server()];
    leave_rest(&mut slow_line, 20e6, 8e6);
    assert!(slow_line.is_empty(), "the bytes take most of it");
    assert_eq!(queue.iter().map(|finding| finding.id).collect::<Vec<_>>(), ["path_clock", "remote_clock"]);
}
