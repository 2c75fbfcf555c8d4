//! Tells the messages of a flow apart by their numbers: new ones, copies, stragglers, and what is none of this flow.

/// Tells new messages from copies by their numbers, within a window behind the newest.
#[derive(Debug)]
pub struct Tracker {
    seen: Vec<u64>,
    pub next: u64,
    /// Messages that came for the first time.
    pub new: u64,
    pub duplicate: u64,
    pub reordered: u64,
    /// Messages that are none of this flow.
    pub strange: u64,
}

/// A number further ahead than this was not sent by us: more than a minute of the smallest datagrams at 10 Gbit/s.
const BELIEVED: u64 = 1 << 32;

/// Numbers remembered behind the newest: a second of small datagrams.
const REMEMBERED: u64 = 1 << 18;

impl Tracker {
    pub fn new() -> Tracker {
        Tracker {
            seen: vec![0; (REMEMBERED / 64) as usize],
            next: 0,
            new: 0,
            duplicate: 0,
            reordered: 0,
            strange: 0,
        }
    }

    #[inline]
    pub fn is_new(&mut self, number: u64) -> bool {
        let in_order = number == self.next;
        if in_order {
            self.mark(number);
            self.next += 1;
        }
        let is_new = in_order || self.out_of_order(number);
        self.new += u64::from(is_new);
        is_new
    }

    #[cold]
    fn out_of_order(&mut self, number: u64) -> bool {
        if number > self.next {
            if number - self.next > BELIEVED {
                self.strange += 1;
                return false;
            }
            // Everything in between is missing until it comes.
            let gap = number - self.next;
            for missing in self.next..self.next + gap.min(REMEMBERED) {
                self.clear(missing);
            }
            self.mark(number);
            self.next = number + 1;
            return true;
        }
        if self.next - number > REMEMBERED || self.is_marked(number) {
            self.duplicate += 1;
            return false;
        }
        self.mark(number);
        self.reordered += 1;
        true
    }

    fn place(number: u64) -> (usize, u64) {
        (((number % REMEMBERED) / 64) as usize, 1 << (number % 64))
    }

    #[inline]
    fn mark(&mut self, number: u64) {
        let (word, bit) = Tracker::place(number);
        self.seen[word] |= bit;
    }

    fn clear(&mut self, number: u64) {
        let (word, bit) = Tracker::place(number);
        self.seen[word] &= !bit;
    }

    fn is_marked(&self, number: u64) -> bool {
        let (word, bit) = Tracker::place(number);
        self.seen[word] & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(tracker: &mut Tracker, numbers: &[u64]) -> Vec<bool> {
        numbers.iter().map(|number| tracker.is_new(*number)).collect()
    }

    #[test]
    fn copies_and_stragglers_are_told_apart() {
        let mut tracker = Tracker::new();
        let new = numbers(&mut tracker, &[0, 1, 3, 3, 2, 2, 4, 0, 10, 7, 7, 11]);
        assert_eq!(new, [true, true, true, false, true, false, true, false, true, true, false, true]);
        assert_eq!((tracker.duplicate, tracker.reordered), (4, 2));
        // 5, 6, 8 and 9 are missing.
        assert_eq!((tracker.next, tracker.new), (12, 8));
    }

    #[test]
    fn a_gap_wider_than_memory_forgets_what_was_before() {
        let mut tracker = Tracker::new();
        let far = 5 * REMEMBERED + 17;
        assert_eq!(numbers(&mut tracker, &[0, far, far - 1, far - 1, 0]), [true, true, true, false, false]);
    }
}
