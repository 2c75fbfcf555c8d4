//! Whether the path to the host of a case has changed: figures of another path are no change of this one.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::SideCase;
use crate::run::{PathEnd, PathResult, Warning, WarningCode};

/// The hosts of a warning; a path with more changes is another one.
const MAX_NAMED: usize = 3;

/// The paths of all results of a side.
fn paths<'a>(side: &'a SideCase<'_>) -> impl Iterator<Item = &'a PathResult> {
    side.cases.iter().filter_map(|(_, case)| case.path.as_ref())
}

/// Addresses of the hosts that replied at a hop, in all results of a side.
fn hosts(side: &SideCase, hop: u8) -> BTreeSet<IpAddr> {
    let hops = paths(side).flat_map(|path| &path.hops).filter(|found| found.hop == hop);
    hops.flat_map(|found| found.hosts.iter().map(|host| host.address)).collect()
}

/// The lengths of the paths that lead to the host.
fn lengths(side: &SideCase) -> BTreeSet<usize> {
    paths(side).filter(|path| path.end == PathEnd::Reached).map(|path| path.hops.len()).collect()
}

/// A warning if no router of a hop is that of before, or no length of the path.
pub(super) fn path_change(a: &SideCase, b: &SideCase) -> Option<Warning> {
    let last = paths(a).chain(paths(b)).map(|path| path.hops.len()).max()?;
    let list = |addresses: BTreeSet<IpAddr>| {
        addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
    };
    let mut changes = Vec::new();
    if let ([before], [after]) = (&Vec::from_iter(lengths(a))[..], &Vec::from_iter(lengths(b))[..])
        && before != after
    {
        changes.push(format!("{after} hops instead of {before}"));
    }
    for hop in 1..=u8::try_from(last).unwrap_or(u8::MAX) {
        let (before, after) = (hosts(a, hop), hosts(b, hop));
        if !before.is_empty() && !after.is_empty() && before.is_disjoint(&after) {
            changes.push(format!("hop {hop} is {} instead of {}", list(after), list(before)));
        }
    }
    let more = changes.len().saturating_sub(MAX_NAMED);
    changes.truncate(MAX_NAMED);
    if more > 0 {
        changes.push(format!("{more} more"));
    }
    (!changes.is_empty()).then(|| {
        let text = format!("{}: the path differs: {}", b.name.endpoint, changes.join(", "));
        let remedy = "a difference may be that of the path: compare runs with the same hops";
        Warning::new(WarningCode::PathChanged, text, remedy)
    })
}
