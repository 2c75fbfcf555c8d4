//! Large messages: whether they have a reply, and from which size on they have none. Paths lose them where a packet does not fit and
//! no host reports it, and servers have limits.

use std::time::Duration;

use super::LiveError;
use super::blocks::{BlockPlan, BlockRunner, Change};
use super::screen::Screen;
use linkgauge_model::plan::Pacing;

/// Payloads around the limits of common paths: datagrams and segments in packets of 1280, 1400, 1420, 1480, 1492 and 1500 bytes, and
/// more than one packet.
const SIZES: [u32; 12] = [512, 1232, 1360, 1372, 1392, 1400, 1448, 1460, 1464, 1472, 1473, 2000];
/// The time for a reply, as a multiple of the usual one, and its limits.
const TIMEOUT_RATIO: u32 = 20;
const MIN_TIMEOUT: Duration = Duration::from_millis(300);
const MAX_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum round trip of the search; slower ones reach the timeout with large messages.
const MAX_ROUND_TRIP: Duration = Duration::from_millis(100);

/// The largest size with a reply, and the smallest without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SizeLimit {
    pub(super) with_reply: u32,
    pub(super) without: u32,
}

/// Looks for the limit. `None`: all messages have a reply, or losses and slow links would look like a limit.
pub(super) fn find_limit(runner: &BlockRunner, screen: &Screen) -> Result<Option<SizeLimit>, LiveError> {
    let usual = screen.closed.result.message_bytes;
    if screen.lost() > 0 || screen.request_time() > MAX_ROUND_TRIP || usual >= SIZES[0] {
        return Ok(None);
    }
    let timeout = (screen.request_time() * TIMEOUT_RATIO).clamp(MIN_TIMEOUT, MAX_TIMEOUT);
    // A block without a reply is tried twice.
    let plan = BlockPlan { pacing: Pacing::Closed, count: 1, time: 2 * timeout, warm_up: 0 };
    let has_reply =
        |bytes: u32| match runner.run(&[Change::MessageBytes(bytes), Change::Timeout(timeout)], plan) {
            Ok(_) => Ok(true),
            Err(LiveError::Measurement(_)) => Ok(false),
            Err(error) => Err(error),
        };
    search(usual, has_reply)
}

/// Halves the sizes between one with a reply and one without.
fn search<E>(usual: u32, has_reply: impl Fn(u32) -> Result<bool, E>) -> Result<Option<SizeLimit>, E> {
    let largest = SIZES.len() - 1;
    if has_reply(SIZES[largest])? {
        return Ok(None);
    }
    // The index of the smallest size without a reply lies in this range.
    let (mut low, mut high) = (0, largest);
    while low < high {
        let middle = low.midpoint(high);
        match has_reply(SIZES[middle])? {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    let with_reply = high.checked_sub(1).map_or(usual, |index| SIZES[index]);
    // A link that was lost meanwhile has no limit.
    Ok(has_reply(with_reply)?.then_some(SizeLimit { with_reply, without: SIZES[high] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_found_between_the_sizes_of_common_paths() {
        let find = |limit: u32| search::<()>(64, |bytes| Ok(bytes <= limit)).unwrap();
        assert_eq!(find(1472), Some(SizeLimit { with_reply: 1472, without: 1473 }));
        assert_eq!(find(1380), Some(SizeLimit { with_reply: 1372, without: 1392 }));
        assert_eq!(find(100), Some(SizeLimit { with_reply: 64, without: 512 }));
        assert_eq!(find(65_507), None);
        assert_eq!(find(10), None, "the link was lost");
        assert_eq!(search(64, |_| Err("interrupted")), Err("interrupted"));
    }
}
