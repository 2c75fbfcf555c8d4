//! Large messages: whether they have a reply, and from which size on they have none. Paths lose them where a packet does not fit and
//! no host reports it, and servers have limits.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::LiveError;
use super::blocks::{BlockPlan, BlockRunner, Change};
use linkgauge_model::plan::Pacing;
use linkgauge_model::stats;

/// Payloads around the limits of common paths: datagrams and segments in packets of 1280, 1400, 1420, 1480, 1492 and 1500 bytes, and
/// more than one packet.
const SIZES: [u32; 12] = [512, 1232, 1360, 1372, 1392, 1400, 1448, 1460, 1464, 1472, 1473, 2000];
/// Time for a reply: a server may wake up meanwhile, and this host be busy.
const TIMEOUT: Duration = Duration::from_secs(1);
/// A block without a reply is tried this many times.
const TRIES: u32 = 2;
/// Maximum round trip of the search; slower ones reach the timeout with large messages.
const MAX_ROUND_TRIP: Duration = Duration::from_millis(100);

/// The largest size with a reply, and the smallest without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SizeLimit {
    pub(super) with_reply: u32,
    pub(super) without: u32,
}

impl Display for SizeLimit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let SizeLimit { with_reply, without } = self;
        write!(f, "messages of {without} bytes have no reply, those of {with_reply} bytes have one")
    }
}

/// Looks for the limit. `usual`, `round_trip`: size and round trip of messages with a reply. `None`: all messages have a reply, slow
/// links would look like a limit, or the time was over.
pub(super) fn find_limit(
    runner: &BlockRunner,
    usual: u32,
    round_trip: Duration,
) -> Result<Option<SizeLimit>, LiveError> {
    if round_trip > MAX_ROUND_TRIP || usual >= SIZES[0] {
        return Ok(None);
    }
    let plan = BlockPlan { pacing: Pacing::Closed, count: 1, time: TRIES * TIMEOUT, warm_up: 0 };
    let has_reply = |bytes: u32| {
        if runner.left() < TIMEOUT {
            return Ok(None);
        }
        match runner.run(&[Change::MessageBytes(bytes), Change::Timeout(TIMEOUT)], plan) {
            Ok(_) => Ok(Some(true)),
            Err(LiveError::Measurement(_)) => Ok(Some(false)),
            Err(error) => Err(error),
        }
    };
    search(usual, has_reply)
}

/// The limit, of a link on which a transfer fails: its packets are as large as they can be.
pub(super) fn find_limit_of_transfer(runner: &mut BlockRunner) -> Option<SizeLimit> {
    let plan = BlockPlan { pacing: Pacing::Closed, count: 20, time: TIMEOUT, warm_up: 1 };
    let small = runner.run(&[], plan).ok().filter(|block| block.lost() == 0)?;
    runner.use_protocol(&small.result.protocol);
    let round_trip = Duration::from_nanos(stats::median(&small.latencies_ns())? as u64);
    find_limit(runner, small.result.message_bytes, round_trip).ok().flatten()
}

/// Halves the sizes between one with a reply and one without. `has_reply`: `None` if the time is over; then the limits are wider.
fn search<E>(usual: u32, has_reply: impl Fn(u32) -> Result<Option<bool>, E>) -> Result<Option<SizeLimit>, E> {
    let largest = SIZES.len() - 1;
    if has_reply(SIZES[largest])? != Some(false) {
        return Ok(None);
    }
    // The index of the smallest size without a reply lies in this range.
    let (mut low, mut high) = (0, largest);
    while low < high {
        let middle = low.midpoint(high);
        match has_reply(SIZES[middle])? {
            Some(true) => low = middle + 1,
            Some(false) => high = middle,
            None => break,
        }
    }
    let with_reply = low.checked_sub(1).map_or(usual, |index| SIZES[index]);
    // A link that was lost meanwhile has no limit, and a busy host or a server that sleeps delays any reply now and then.
    let without = SIZES[high];
    let is_confirmed = has_reply(with_reply)? != Some(false) && has_reply(without)? != Some(true);
    Ok(is_confirmed.then_some(SizeLimit { with_reply, without }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_limit_is_found_between_the_sizes_of_common_paths() {
        let find = |limit: u32| search::<()>(64, |bytes| Ok(Some(bytes <= limit))).unwrap();
        assert_eq!(find(1472), Some(SizeLimit { with_reply: 1472, without: 1473 }));
        assert_eq!(find(1380), Some(SizeLimit { with_reply: 1372, without: 1392 }));
        assert_eq!(find(100), Some(SizeLimit { with_reply: 64, without: 512 }));
        assert_eq!(find(65_507), None);
        assert_eq!(find(10), None, "the link was lost");
        assert_eq!(search(64, |_| Err("interrupted")), Err("interrupted"));
        let asked = Cell::new(0);
        let out_of_time = search::<()>(64, |bytes| {
            asked.set(asked.get() + 1);
            Ok((asked.get() <= 2).then_some(bytes < 1400))
        });
        assert_eq!(out_of_time, Ok(Some(SizeLimit { with_reply: 64, without: 1400 })), "wider");
        assert_eq!(search::<()>(64, |_| Ok(None)), Ok(None));
    }
}
