//! Requests without a reply on links without repair: losses, and limits of the rate of replies.

use std::time::Duration;

use super::super::causes::{self, Cause};
use super::blocks::Block;
use super::places::PlacePart;
use super::screen::Screen;
use linkgauge_model::stats;
use linkgauge_model::units::format_nanoseconds;

/// Minimum number and share of lost requests that are not by chance, and the usual timeout of a program without a reply.
const MIN_LOST: f64 = 2.0;
const MIN_LOST_SHARE: f64 = 0.001;
const LOST_NS: f64 = 1e9;
/// Losses come from the rate if they are this much more frequent without a pause, which chance makes this seldom.
const LIMITED_RATIO: f64 = 3.0;
const LIMITED_LEVEL: f64 = 0.001;

/// The part of a cause of lost messages, if the screen shows it.
pub(super) fn part(cause: &Cause, screen: &Screen) -> Option<PlacePart> {
    match (cause.id, limited_replies(screen)) {
        (causes::REPLY_LIMIT, limited) => limited,
        (_, None) => lost_datagrams(screen),
        (_, Some(_)) => None,
    }
}

/// Requests without a reply.
fn lost_datagrams(screen: &Screen) -> Option<PlacePart> {
    let (lost, all) = (screen.lost() as f64, (screen.lost() + screen.replies()) as f64);
    let handshakes = screen.path.as_ref().map_or_else(String::new, |path| match path.resent {
        0 => format!("; none of {} handshakes was lost", path.handshakes.len()),
        resent => format!("; {resent} of {} handshakes were lost as well", path.handshakes.len() + resent),
    });
    let text = format!(
        "{lost:.0} of {all:.0} requests had no reply ({:.1} %){handshakes}",
        100.0 * lost / all.max(1.0)
    );
    let matters = lost >= MIN_LOST && lost >= MIN_LOST_SHARE * all;
    matters.then(|| PlacePart { cost_ns: 0.0, text, mean_ns: LOST_NS * lost / all })
}

/// Requests of a block without a reply, and all.
fn losses(block: &Block) -> (u64, f64) {
    (block.lost(), (block.lost() + block.samples.len() as u64).max(1) as f64)
}

/// Replies that are lost where requests follow each other at once, and not after pauses.
fn limited_replies(screen: &Screen) -> Option<PlacePart> {
    let [unpaused, paused] = [&screen.closed, &screen.paused].map(losses);
    limited(unpaused, ("without a pause", paused), screen.mean_pause)
}

/// Replies that are lost in the screen, and not in a later block with longer pauses.
pub(super) fn limited_later(screen: &Screen, later: &Block, pause: Duration) -> Option<PlacePart> {
    let [unpaused, paused, later] = [&screen.closed, &screen.paused, later].map(losses);
    let screen = (unpaused.0 + paused.0, unpaused.1 + paused.1);
    limited(screen, ("of the first ones", later), pause)
}

/// The limit, if requests at a higher rate are lost more often than those after pauses.
fn limited(
    unpaused: (u64, f64),
    (what, paused): (&str, (u64, f64)),
    mean_pause: Duration,
) -> Option<PlacePart> {
    let share = |(lost, all): (u64, f64)| lost as f64 / all;
    let is_of_rate = share(unpaused) > LIMITED_RATIO * share(paused)
        && stats::more_often_p((unpaused.0, unpaused.1), (paused.0, paused.1)) < LIMITED_LEVEL;
    let text = format!(
        "{} of {} requests {what} had no reply, after pauses of {} on average {} of {}",
        unpaused.0,
        unpaused.1,
        format_nanoseconds(mean_pause.as_nanos() as f64),
        paused.0,
        paused.1
    );
    (is_of_rate && unpaused.0 as f64 >= MIN_LOST).then(|| PlacePart {
        text,
        cost_ns: 0.0,
        mean_ns: LOST_NS * share(unpaused),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::live::blocks::Block;
    use linkgauge_model::clock::Time;
    use linkgauge_model::sample::Sample;

    #[test]
    fn replies_that_are_lost_only_without_pauses_have_a_limited_rate() {
        let screen = |unpaused: (u64, usize), paused: (u64, usize)| {
            let block = |(lost, replies): (u64, usize)| {
                let mut result = crate::report::sample_runs::minimal().cases.remove(0);
                result.figures.counts.lost = lost;
                let sample = Sample { sequence: 0, intended: Time(0), sent: Time(0), received: Time(1000) };
                Block { samples: vec![sample; replies], result, server_wait_ns: None }
            };
            Screen::of_blocks(block(unpaused), block(paused))
        };
        let limited = screen((12, 100), (1, 300));
        assert_eq!(
            limited_replies(&limited).unwrap().text,
            "12 of 112 requests without a pause had no reply, after pauses of 10.00 ms on average 1 of 301"
        );
        let random = screen((12, 600), (6, 294));
        assert!(limited_replies(&random).is_none());
        // A limit so low that the requests after the pauses of the screen are lost as well.
        let low = screen((40, 80), (150, 200));
        assert!(limited_replies(&low).is_none());
        let later = |lost| screen((0, 1), (lost, 40)).paused;
        let pause = Duration::from_millis(150);
        assert!(
            limited_later(&low, &later(0), pause).is_some_and(|part| part.text.contains("of the first ones"))
        );
        assert!(limited_later(&low, &later(30), pause).is_none());
        let lost = lost_datagrams(&random).unwrap();
        assert_eq!(lost.text, "18 of 912 requests had no reply (2.0 %)");
        assert!(lost_datagrams(&screen((1, 600), (0, 294))).is_none(), "one by chance");
    }
}
