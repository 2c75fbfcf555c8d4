//! Searches over paths whose links have known MTUs.

use super::*;

const TIMEOUT: Duration = Duration::from_secs(1);

/// A path of links with these MTUs; link 1 is that of the client.
struct Path {
    links: Vec<u32>,
    /// Routers report packets that are too big.
    reports: bool,
    /// Packets by number that are lost.
    lost: Vec<u32>,
}

enum Fate {
    Passed,
    Expired,
    TooBig(u32, u8),
    Vanished,
}

impl Path {
    fn fate(&self, probe: &SizedProbe) -> Fate {
        if self.lost.contains(&probe.number) {
            return Fate::Vanished;
        }
        for (router, mtu) in (0u8..).zip(&self.links) {
            if router > 0 && probe.hop == Some(router) {
                return Fate::Expired;
            }
            if probe.bytes > *mtu {
                return if self.reports { Fate::TooBig(*mtu, router) } else { Fate::Vanished };
            }
        }
        Fate::Passed
    }

    fn search(&self) -> Option<PathMtu> {
        let mut search = MtuSearch::new(1500, 1200, self.links.len() as u8, TIMEOUT);
        let mut now = Time(0);
        loop {
            match search.next(now) {
                MtuAction::Send(probe) => match self.fate(&probe) {
                    Fate::Passed => search.on_passed(probe.number),
                    Fate::Expired => search.on_expired(probe.number),
                    Fate::TooBig(mtu, router) => search.on_too_big(mtu, IpAddr::from([192, 0, 2, router])),
                    Fate::Vanished => {}
                },
                MtuAction::Wait(until) => now = until,
                MtuAction::Done => return search.result(),
            }
            assert!(search.sent < 1000, "endless: {search:?}");
        }
    }
}

#[test]
fn a_path_as_wide_as_its_first_link_takes_one_packet() {
    let found = Path { links: vec![1500; 4], reports: true, lost: vec![] }.search().unwrap();
    assert_eq!((found.bytes, found.is_local, found.is_black_hole, found.probes), (1500, true, false, 1));
    assert_eq!((found.last_hop, found.reported_by), (None, None));
}

#[test]
fn a_reported_limit_is_tested() {
    let found = Path { links: vec![1500, 1500, 1400, 1500], reports: true, lost: vec![] }.search().unwrap();
    assert_eq!((found.bytes, found.is_black_hole), (1400, false));
    assert_eq!(found.reported_by, Some(IpAddr::from([192, 0, 2, 2])));
    assert_eq!(found.last_hop, Some(2));
    let two = Path { links: vec![1500, 1480, 1400, 1300], reports: true, lost: vec![] }.search().unwrap();
    assert_eq!((two.bytes, two.last_hop), (1300, Some(3)));
}

#[test]
fn a_black_hole_is_found_with_its_hop() {
    for (mtu, link) in [(1400, 3), (1499, 2), (1201, 4), (1200, 3), (1492, 2)] {
        let mut links = vec![1500; 5];
        links[link - 1] = mtu;
        let found = Path { links, reports: false, lost: vec![] }.search().unwrap();
        assert_eq!((found.bytes, found.is_black_hole, found.last_hop), (mtu, true, Some(link as u8 - 1)));
        assert_eq!(found.reported_by, None);
    }
}

#[test]
fn single_losses_are_no_limit() {
    let found = Path { links: vec![1500; 3], reports: false, lost: vec![0, 1] }.search().unwrap();
    assert_eq!((found.bytes, found.is_local), (1500, true));
    let found = Path { links: vec![1500, 1400, 1500], reports: false, lost: vec![4, 9, 14, 20, 30] }
        .search()
        .unwrap();
    assert_eq!((found.bytes, found.last_hop), (1400, Some(1)));
}

#[test]
fn a_silent_host_has_no_result() {
    assert_eq!(Path { links: vec![1500, 0], reports: false, lost: vec![] }.search(), None);
}

#[test]
fn impossible_reports_are_ignored() {
    let mut search = MtuSearch::new(1500, 1200, 3, TIMEOUT);
    assert!(matches!(search.next(Time(0)), MtuAction::Send(SizedProbe { bytes: 1500, .. })));
    for mtu in [0, 68, 1199, 1500, 9000, u32::MAX] {
        search.on_too_big(mtu, IpAddr::from([192, 0, 2, 1]));
        assert_eq!(search.next(Time(1)), MtuAction::Wait(Time(0) + TIMEOUT), "{mtu}");
    }
    search.on_expired(u32::MAX);
    search.on_passed(7);
    assert_eq!(search.result(), None);
}
