//! Shares of answers, loss and limits of hops, by hand.

use super::*;

fn counts(answered: &[(u64, u64)]) -> Vec<HopCount> {
    answered.iter().map(|&(answered, sent)| HopCount { sent, answered }).collect()
}

#[test]
fn a_router_that_limits_its_replies_loses_nothing() {
    assert_eq!(locate_loss(&counts(&[(100, 100), (12, 100), (100, 100), (100, 100)])), None);
    assert_eq!(locate_loss(&counts(&[(100, 100), (0, 100), (100, 100)])), None);
    assert_eq!(locate_loss(&[]), None);
    assert_eq!(locate_loss(&counts(&[(0, 10), (0, 10)])), None);
}

#[test]
fn loss_begins_where_all_later_hops_show_it() {
    let loss = locate_loss(&counts(&[(200, 200), (199, 200), (170, 200), (172, 200), (171, 200)])).unwrap();
    assert_eq!((loss.hop, loss.lost, loss.sent), (3, 30, 200));
    assert!((loss.share - 0.14).abs() < 1e-9, "that of hop 4, the least: {}", loss.share);
    // A limited router in front, at the place and behind it.
    for limited in [0, 2, 3] {
        let mut counts = counts(&[(200, 200), (200, 200), (170, 200), (172, 200), (171, 200)]);
        counts[limited].answered = 20;
        let found = locate_loss(&counts).unwrap().hop;
        assert!(found == 3 || limited == 2 && found == 4, "{limited}: {found}");
    }
}

#[test]
fn all_hops_may_show_it() {
    assert_eq!(locate_loss(&counts(&[(90, 100), (91, 100), (88, 100)])).unwrap().hop, 1);
}

#[test]
fn loss_that_grows_begins_at_its_first_hop() {
    let found = locate_loss(&counts(&[(200, 200), (200, 200), (180, 200), (156, 200)])).unwrap();
    assert_eq!((found.hop, found.lost), (3, 20));
    let at_second = locate_loss(&counts(&[(999, 1000), (900, 1000), (900, 1000)])).unwrap();
    assert_eq!(at_second.hop, 2, "one lost probe in front is not its begin");
}

#[test]
fn one_lost_probe_has_no_place() {
    assert_eq!(locate_loss(&counts(&[(10, 10), (10, 10), (9, 10)])), None);
}

#[test]
fn the_times_of_a_hop_are_those_of_its_replies() {
    let address = IpAddr::from([192, 0, 2, 1]);
    let other = IpAddr::from([192, 0, 2, 2]);
    let mut prober = super::super::prober::Prober::new(super::super::prober::Schedule {
        flows: 2,
        max_hops: 3,
        rounds: Some(1),
        interval: std::time::Duration::from_secs(1),
        timeout: std::time::Duration::from_secs(1),
        under_way: usize::MAX,
        seed: 1,
    });
    let sample = |prober: &mut super::super::prober::Prober, flow, from, ms: Option<u64>| {
        prober.add_sample(1, flow, Some(0), ms.map(|ms| (std::time::Duration::from_millis(ms), from)));
    };
    for (flow, from, ms) in [
        (0, address, Some(10)),
        (1, other, Some(14)),
        (0, address, None),
        (0, address, Some(20)),
        (0, address, Some(21)),
    ] {
        sample(&mut prober, flow, from, ms);
    }
    let hops = hops_of(&prober.samples, 1);
    let times = hops[0].latency_ns.unwrap();
    assert_eq!((times.min, times.p50, times.max), (10_000_000, 14_000_000, 21_000_000));
    assert_eq!(times.jitter, Some(2.5e6), "no difference across a lost probe");
    assert_eq!((hops[0].sent, hops[0].answered), (5, 4));
    let hosts: Vec<_> = hops[0].hosts.iter().map(|host| (host.address, host.flows.clone())).collect();
    assert_eq!(hosts, [(address, vec![1]), (other, vec![2])]);
}
