//! Hours of a monitor on the virtual clock, with planted trouble; `benches/month.rs` does the same for months.

use std::time::Duration;

use jiff::SignedDuration;

#[path = "../../benches/month/simulation.rs"]
#[allow(dead_code, reason = "the bench uses more of it")]
mod simulation;

use simulation::{Plant, Trouble, simulate};

const MINUTE: Duration = Duration::from_secs(60);

fn plant(from_minute: u32, minutes: u32, trouble: Trouble) -> Plant {
    Plant { from: from_minute * MINUTE, to: (from_minute + minutes) * MINUTE, trouble }
}

#[test]
fn planted_trouble_is_found_in_time_and_gaps_are_no_losses() {
    let hour = SignedDuration::from_hours(1);
    let plants = [
        plant(90, 15, Trouble::Loss(0.05)),
        plant(150, 15, Trouble::Late(0.1)),
        plant(200, 0, Trouble::Killed(Duration::ZERO)),
        plant(220, 0, Trouble::Killed(20 * MINUTE)),
        plant(260, 4, Trouble::Loss(1.0)),
        plant(290, 0, Trouble::Set(hour)),
        plant(300, 0, Trouble::Set(-hour / 2)),
        plant(310, 0, Trouble::Suspended(10 * MINUTE)),
        plant(330, 120, Trouble::Level(Duration::from_millis(6))),
    ];
    let folder = tempfile::tempdir().unwrap();
    let outcome = simulate(&plants, 450 * MINUTE, 1.0, 1, folder.path());
    assert_eq!(outcome.findings.len(), 4);
    for finding in &outcome.findings {
        let delay = finding.delay.unwrap_or_else(|| panic!("not found: {finding:?}"));
        assert!(delay <= finding.printed.mul_f64(1.2), "{finding:?}");
    }
    assert_eq!(outcome.false_alarms, []);
    assert_eq!(outcome.clock_events, 3);
    // Killed twice: at most a minute of probes each, besides the slice that is measured.
    let (measured, stored) = (outcome.measured.counts, outcome.stored.counts);
    assert!(stored.due <= measured.due && stored.due + 2 * 90 >= measured.due, "{measured:?} {stored:?}");
    // 430 minutes at a probe a second, of which one in a thousand is lost by itself.
    assert!((24_000..27_500).contains(&measured.due), "{measured:?}");
    assert!(outcome.unexplained_losses < 60, "{}", outcome.unexplained_losses);
}
