//! Whole measurements on the virtual clock, over paths that answer as the test says.

use super::*;

const MS: Duration = Duration::from_millis(1);

/// A path of the virtual clock: what answers each hop, and how late.
struct Path {
    /// Round trip of each hop; `None`: it never replies. The last is the host.
    hops: Vec<Option<Duration>>,
    /// Probes by number that are lost.
    lost: Vec<u32>,
    /// The routers quote too little for the number.
    quotes_nothing: bool,
}

impl Path {
    fn of(hops: &[Option<u64>]) -> Path {
        let hops = hops.iter().map(|ms| ms.map(Duration::from_millis)).collect();
        Path { hops, lost: Vec::new(), quotes_nothing: false }
    }

    fn address(hop: usize) -> IpAddr {
        IpAddr::from([192, 0, 2, hop as u8])
    }

    /// The reply to a probe that leaves now.
    fn reply(&self, probe: &Probe, now: Time) -> Option<ProbeReply> {
        let hop = usize::from(probe.hop).min(self.hops.len());
        let kind = if hop == self.hops.len() { ProbeReplyKind::Reached } else { ProbeReplyKind::Expired };
        let round_trip = self.hops[hop - 1].filter(|_| !self.lost.contains(&probe.number))?;
        let number = (!self.quotes_nothing).then_some(probe.number);
        Some(ProbeReply { number, flow: probe.flow, from: Path::address(hop), kind, at: now + round_trip })
    }

    /// Runs a prober on the virtual clock. Returns the times of its probes.
    fn run(&self, prober: &mut Prober) -> Vec<(Time, Probe)> {
        let (mut now, mut replies, mut sent) = (Time(0), Vec::<ProbeReply>::new(), Vec::new());
        loop {
            replies.sort_by_key(|reply| reply.at);
            while replies.first().is_some_and(|reply| reply.at <= now) {
                prober.on_reply(&replies.remove(0));
            }
            match prober.next(now) {
                ProbeAction::Send(probe) => {
                    sent.push((now, probe));
                    replies.extend(self.reply(&probe, now));
                }
                ProbeAction::Wait(until) => {
                    assert!(until > now, "a wait that is over: {until:?}");
                    now = replies.first().map_or(until, |reply| reply.at.min(until));
                }
                ProbeAction::Done => return sent,
            }
            assert!(sent.len() < 10_000, "endless");
        }
    }
}

fn schedule() -> Schedule {
    Schedule {
        flows: 1,
        max_hops: 30,
        rounds: Some(5),
        interval: 1000 * MS,
        timeout: 1000 * MS,
        under_way: usize::MAX,
        seed: 7,
    }
}

fn hops_of_rounds(prober: &Prober, round: u32) -> Vec<u8> {
    prober.samples.iter().filter(|sample| sample.round == Some(round)).map(|sample| sample.hop).collect()
}

#[test]
fn each_round_probes_each_hop_once() {
    let mut prober = Prober::new(schedule());
    let sent = Path::of(&[Some(1), Some(5), Some(20)]).run(&mut prober);
    assert_eq!(prober.ends, [Some(LastHop { hop: 3, refused_by: None })]);
    for round in 0..5 {
        assert_eq!(hops_of_rounds(&prober, round), [1, 2, 3]);
    }
    assert_eq!(sent.len(), 3 + 5 * 3, "a quick trace and five rounds");
    assert!(prober.samples.iter().all(|sample| sample.reply.is_some()));
    // No hop gets its next probe before 0.9 intervals are over: the jitter is below 0.3 of a third.
    let of_hop = |hop: u8| sent[3..].iter().filter(move |(_, probe)| probe.hop == hop).map(|(at, _)| *at);
    for hop in 1..=3 {
        let times: Vec<Time> = of_hop(hop).collect();
        assert!(times.windows(2).all(|pair| pair[1].since(pair[0]) >= 900 * MS), "{times:?}");
    }
    assert_eq!(prober.samples[2].round_trip(), Some(20 * MS));
}

#[test]
fn silent_hops_do_not_end_the_path() {
    let mut prober = Prober::new(schedule());
    Path::of(&[Some(1), None, None, None, None, Some(30)]).run(&mut prober);
    assert_eq!(prober.ends[0].unwrap().hop, 6);
    assert_eq!(hops_of_rounds(&prober, 4), [1, 2, 3, 4, 5, 6]);
    assert_eq!(hops_of_rounds(&prober, 1), [1, 2, 3, 4, 5], "the host may be one of the silent hops");
    let silent = prober.samples.iter().filter(|sample| sample.hop == 3 && sample.reply.is_some()).count();
    assert_eq!(silent, 0);
}

#[test]
fn a_silent_host_is_searched_for_three_rounds() {
    let mut prober = Prober::new(schedule());
    Path::of(&[Some(1), Some(2), None]).run(&mut prober);
    assert_eq!(prober.ends, [None]);
    assert_eq!(hops_of_rounds(&prober, 2), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(hops_of_rounds(&prober, 3), [1, 2]);
}

#[test]
fn a_dead_path_ends_after_three_rounds() {
    let mut prober = Prober::new(schedule());
    let sent = Path::of(&[None, None]).run(&mut prober);
    assert_eq!(sent.len(), 5 + 3 * 5, "{sent:?}");
    assert!(prober.samples.iter().all(|sample| sample.reply.is_none()));
}

#[test]
fn a_lost_reply_of_the_host_is_found_in_a_round() {
    let mut prober = Prober::new(schedule());
    let mut path = Path::of(&[Some(1), Some(2), Some(3)]);
    path.lost = vec![2, 3, 4, 5, 6, 7, 8, 9];
    path.run(&mut prober);
    assert_eq!(prober.ends[0].unwrap().hop, 3);
    assert_eq!(hops_of_rounds(&prober, 4), [1, 2, 3]);
}

#[test]
fn flows_take_turns() {
    let mut prober = Prober::new(Schedule { flows: 3, rounds: Some(6), ..schedule() });
    Path::of(&[Some(1), Some(2)]).run(&mut prober);
    assert!(prober.ends.iter().all(|end| end.unwrap().hop == 2));
    for sample in prober.samples.iter().filter(|sample| sample.round.is_some()) {
        assert_eq!(sample.flow, sample.round.unwrap() % 3);
    }
}

#[test]
fn one_connection_is_opened_at_a_time() {
    let mut prober = Prober::new(Schedule { under_way: 1, ..schedule() });
    let path = Path::of(&[Some(100), None, Some(300), Some(900)]);
    let sent = path.run(&mut prober);
    for pair in sent.windows(2) {
        let free = path.reply(&pair[0].1, pair[0].0).map_or(pair[0].0 + 1000 * MS, |reply| reply.at);
        assert!(pair[1].0 >= free, "{pair:?}");
    }
    assert_eq!(prober.ends[0].unwrap().hop, 4);
}

#[test]
fn a_reply_without_a_number_belongs_to_the_only_probe_under_way() {
    let mut prober = Prober::new(Schedule { rounds: Some(2), ..schedule() });
    let mut path = Path::of(&[Some(1), Some(2)]);
    path.quotes_nothing = true;
    path.run(&mut prober);
    assert!(prober.samples.iter().all(|sample| sample.reply.is_some()), "one was under way at a time");
    let (mut several, reply) =
        (Prober::new(schedule()), path.reply(&Probe { number: 0, flow: 0, hop: 1 }, Time(0)));
    for _ in 0..2 {
        several.send(0, 1, None, Time(0));
    }
    several.on_reply(&reply.unwrap());
    assert!(several.samples.iter().all(|sample| sample.reply.is_none()), "it may belong to either");
}

#[test]
fn strange_replies_change_nothing() {
    let mut prober = Prober::new(Schedule { flows: 2, ..schedule() });
    prober.send(0, 1, None, Time(0));
    let reply = ProbeReply {
        number: Some(0),
        flow: 0,
        from: Path::address(1),
        kind: ProbeReplyKind::Expired,
        at: Time(5),
    };
    for strange in [
        ProbeReply { number: Some(7), ..reply },
        ProbeReply { number: Some(u32::MAX), ..reply },
        ProbeReply { flow: 1, ..reply },
        ProbeReply { kind: ProbeReplyKind::TooBig(576), ..reply },
        ProbeReply { number: None, flow: 1, ..reply },
    ] {
        prober.on_reply(&strange);
        assert!(prober.samples[0].reply.is_none(), "{strange:?}");
    }
    prober.on_reply(&reply);
    let first = prober.samples[0].reply;
    prober.on_reply(&ProbeReply { from: Path::address(9), at: Time(9), ..reply });
    assert_eq!(prober.samples[0].reply, first, "a second reply");
    assert_eq!(first, Some((Duration::from_nanos(5), Path::address(1))));
}

#[test]
fn a_path_that_becomes_longer_is_followed() {
    let mut prober = Prober::new(schedule());
    prober.send(0, 2, Some(0), Time(0));
    prober.send(0, 2, Some(0), Time(0));
    prober.send(0, 3, Some(0), Time(0));
    let reply = |number, kind| ProbeReply {
        number: Some(number),
        flow: 0,
        from: Path::address(2),
        kind,
        at: Time(1),
    };
    prober.on_reply(&reply(0, ProbeReplyKind::Reached));
    assert_eq!(prober.ends[0].map(|end| end.hop), Some(2));
    prober.on_reply(&reply(1, ProbeReplyKind::Expired));
    assert_eq!(prober.ends[0], None);
    prober.on_reply(&reply(2, ProbeReplyKind::Refused));
    assert_eq!(prober.ends[0], Some(LastHop { hop: 3, refused_by: Some(Path::address(2)) }));
}

#[test]
fn a_late_refusal_ends_the_path() {
    let mut prober = Prober::new(schedule());
    prober.send(0, 4, None, Time(0));
    assert!(matches!(prober.next(Time(0) + 1500 * MS), ProbeAction::Send(_)));
    let from = Path::address(3);
    let late =
        ProbeReply { number: Some(0), flow: 0, from, kind: ProbeReplyKind::Refused, at: Time(0) + 3000 * MS };
    prober.on_reply(&late);
    assert_eq!(prober.ends[0], Some(LastHop { hop: 4, refused_by: Some(from) }));
    assert!(prober.samples[0].reply.is_none());
}

#[test]
fn a_host_that_limits_its_replies_is_not_farther_away() {
    let mut prober = Prober::new(schedule());
    let mut path = Path::of(&[Some(1), Some(2)]);
    // The probes of the quick trace to hops 2 and 3 have no reply, the one to hop 4 has.
    path.lost = vec![1, 2];
    path.run(&mut prober);
    assert_eq!(prober.ends[0].unwrap().hop, 2);
    assert_eq!(hops_of_rounds(&prober, 4), [1, 2]);
}
