//! Classifies the messages of a flow by their numbers: new, duplicate, late, or foreign.

/// Distinguishes new messages from duplicates by their numbers, within a window behind the newest.
#[derive(Debug)]
pub(crate) struct SequenceTracker {
    seen: Vec<u64>,
    pub(crate) next_sequence: u64,
    /// Messages received for the first time.
    pub(crate) distinct: u64,
    pub(crate) duplicate: u64,
    pub(crate) reordered: u64,
    /// Messages that do not belong to this flow.
    pub(crate) foreign: u64,
}

/// A larger jump cannot come from this client: more than a minute of the smallest datagrams at 10 Gbit/s.
const MAX_SEQUENCE_JUMP: u64 = 1 << 32;

/// Numbers tracked behind the newest: a second of small datagrams.
const REORDER_WINDOW: u64 = 1 << 18;

/// Memory of a tracker, in bytes.
pub(crate) const TRACKER_BYTES: usize = (REORDER_WINDOW / 8) as usize;

impl SequenceTracker {
    pub fn new() -> SequenceTracker {
        SequenceTracker { seen: vec![0; TRACKER_BYTES / 8], ..SequenceTracker::unused() }
    }

    /// Tracker for a stream, whose bytes have no numbers: it observes none.
    pub(crate) fn unused() -> SequenceTracker {
        SequenceTracker {
            seen: Vec::new(),
            next_sequence: 0,
            distinct: 0,
            duplicate: 0,
            reordered: 0,
            foreign: 0,
        }
    }

    #[inline]
    pub(crate) fn observe(&mut self, number: u64) -> bool {
        let in_order = number == self.next_sequence;
        if in_order {
            self.mark(number);
            self.next_sequence += 1;
        }
        let is_new = in_order || self.observe_out_of_order(number);
        self.distinct += u64::from(is_new);
        is_new
    }

    #[cold]
    fn observe_out_of_order(&mut self, number: u64) -> bool {
        if number > self.next_sequence {
            if number - self.next_sequence > MAX_SEQUENCE_JUMP {
                self.foreign += 1;
                return false;
            }
            // All numbers in between are missing until they arrive.
            let gap = number - self.next_sequence;
            for missing in self.next_sequence..self.next_sequence + gap.min(REORDER_WINDOW) {
                self.clear(missing);
            }
            self.mark(number);
            self.next_sequence = number + 1;
            return true;
        }
        if self.next_sequence - number > REORDER_WINDOW || self.is_marked(number) {
            self.duplicate += 1;
            return false;
        }
        self.mark(number);
        self.reordered += 1;
        true
    }

    fn bit_position(number: u64) -> (usize, u64) {
        (((number % REORDER_WINDOW) / 64) as usize, 1 << (number % 64))
    }

    #[inline]
    fn mark(&mut self, number: u64) {
        let (word, bit) = SequenceTracker::bit_position(number);
        self.seen[word] |= bit;
    }

    fn clear(&mut self, number: u64) {
        let (word, bit) = SequenceTracker::bit_position(number);
        self.seen[word] &= !bit;
    }

    fn is_marked(&self, number: u64) -> bool {
        let (word, bit) = SequenceTracker::bit_position(number);
        self.seen[word] & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe_all(tracker: &mut SequenceTracker, numbers: &[u64]) -> Vec<bool> {
        numbers.iter().map(|number| tracker.observe(*number)).collect()
    }

    #[test]
    fn duplicates_and_late_messages_are_distinguished() {
        let mut tracker = SequenceTracker::new();
        let new = observe_all(&mut tracker, &[0, 1, 3, 3, 2, 2, 4, 0, 10, 7, 7, 11]);
        assert_eq!(new, [true, true, true, false, true, false, true, false, true, true, false, true]);
        assert_eq!((tracker.duplicate, tracker.reordered), (4, 2));
        // 5, 6, 8 and 9 are missing.
        assert_eq!((tracker.next_sequence, tracker.distinct), (12, 8));
    }

    #[test]
    fn a_gap_wider_than_the_window_forgets_older_numbers() {
        let mut tracker = SequenceTracker::new();
        let far = 5 * REORDER_WINDOW + 17;
        assert_eq!(
            observe_all(&mut tracker, &[0, far, far - 1, far - 1, 0]),
            [true, true, true, false, false]
        );
    }
}
