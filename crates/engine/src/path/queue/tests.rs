//! Places of queues from medians that are known.

use super::*;

/// Replies of a hop around a median, with a slow one among them.
fn replies(ms: f64, count: usize) -> Vec<f64> {
    let spread = [0.0, 0.05, -0.04, 0.02, 8.0, -0.01, 0.03];
    (0..count).map(|index| (ms + spread[index % spread.len()]) * 1e6).collect()
}

/// Hops with these idle and loaded medians in ms.
fn path(medians: &[(f64, f64)]) -> Vec<HopPhases> {
    (1..)
        .zip(medians)
        .map(|(hop, &(idle, loaded))| HopPhases { hop, idle: replies(idle, 9), loaded: replies(loaded, 9) })
        .collect()
}

fn place(hops: &[HopPhases], session: Option<f64>) -> (QueueVerdict, Option<u8>, Option<u8>) {
    let session = session.map(|ms| SessionGrowth { added: ms * 1e6, is_behind_host: true });
    let queue = locate_queue(hops, session).queue;
    (queue.verdict, queue.after_hop, queue.before_hop)
}

#[test]
fn the_link_whose_growth_lasts_has_the_queue() {
    for link in 1..=4 {
        let medians: Vec<(f64, f64)> = (1..=4)
            .map(|hop| (f64::from(hop), f64::from(hop) + if hop >= link { 64.0 } else { 0.0 }))
            .collect();
        let located =
            locate_queue(&path(&medians), Some(SessionGrowth { added: 65e6, is_behind_host: true })).queue;
        assert_eq!(
            (located.verdict, located.after_hop, located.before_hop),
            (QueueVerdict::Found, Some(link as u8 - 1), Some(link as u8))
        );
        assert!((located.delay_ns.unwrap() - 64e6).abs() < 1e5 && located.agreement > 0.95, "{located:?}");
    }
}

#[test]
fn a_router_that_answers_slowly_has_none() {
    let slow = [(1.0, 1.0), (2.0, 84.0), (3.0, 3.0), (4.0, 4.0)];
    assert_eq!(place(&path(&slow), Some(0.1)), (QueueVerdict::None, None, None));
    let slow_first = [(1.0, 116.0), (2.0, 2.0), (3.0, 23.0), (4.0, 24.0)];
    assert_eq!(place(&path(&slow_first), None), (QueueVerdict::Found, Some(2), Some(3)));
}

#[test]
fn a_hop_without_replies_widens_the_place() {
    let mut hops = path(&[(1.0, 1.0), (2.0, 66.0), (3.0, 67.0)]);
    hops[1].loaded.truncate(2);
    assert_eq!(place(&hops, None), (QueueVerdict::Found, Some(1), Some(3)));
    hops.iter_mut().for_each(|hop| hop.loaded.clear());
    assert_eq!(place(&hops, Some(60.0)), (QueueVerdict::TooFewReplies, None, None));
}

#[test]
fn growth_that_only_the_session_shows_is_behind_the_hops() {
    let calm = path(&[(1.0, 1.0), (2.0, 2.0)]);
    assert_eq!(place(&calm, Some(60.0)), (QueueVerdict::Found, Some(2), None));
    assert_eq!(place(&calm, Some(0.5)), (QueueVerdict::None, None, None));
    // A host that is late itself shows the queue; its session may be later for reasons of its own.
    let queued = path(&[(1.0, 41.0), (2.0, 42.0)]);
    assert_eq!(place(&queued, Some(100.0)), (QueueVerdict::Found, Some(0), Some(1)));
    let behind = SessionGrowth { added: 100e6, is_behind_host: false };
    let queue = locate_queue(&queued, Some(behind)).queue;
    assert_eq!((queue.after_hop, queue.before_hop), (Some(2), None), "the host is not among the hops");
}

#[test]
fn a_queue_that_varies_is_at_its_first_hop() {
    let varying = path(&[(1.0, 1.0), (2.0, 9.0), (3.0, 16.0), (4.0, 19.0)]);
    assert_eq!(place(&varying, None), (QueueVerdict::Found, Some(1), Some(2)));
    let two = path(&[(1.0, 21.0), (2.0, 22.0), (3.0, 83.0)]);
    assert_eq!(place(&two, None), (QueueVerdict::Found, Some(2), Some(3)), "the larger one");
}

#[test]
fn several_queues_of_one_size_are_no_bottleneck() {
    let spread = path(&[(1.0, 11.0), (1.0, 21.0), (1.0, 31.0)]);
    assert_eq!(place(&spread, None), (QueueVerdict::Spread, None, None));
}

#[test]
fn a_verdict_that_chance_decides_is_not_sure() {
    let mut hops = path(&[(1.0, 1.0), (2.0, 3.2)]);
    hops[1].loaded = [0.0, 0.0, 0.0, 0.0, 2.4, 2.4, 2.4, 2.4, 2.4].map(|added| (2.0 + added) * 1e6).to_vec();
    let located = locate_queue(&hops, None).queue;
    assert!(located.agreement < 0.9, "{located:?}");
}
