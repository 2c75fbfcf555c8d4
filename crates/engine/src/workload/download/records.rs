//! Checks the sequence of numbered records: missing, duplicate, or out of order.

use linkgauge_model::run::{RecordCounts, RecordFault, RecordFaultKind};

/// Maximum listed faults of each kind; all are counted.
const MAX_LISTED_FAULTS: usize = 16;

/// Gaps stored to distinguish late records from duplicates.
const MAX_TRACKED_GAPS: usize = 1024;

/// Status of a record by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordStatus {
    /// The record continues the sequence, perhaps after missing numbers.
    New,
    /// The record was missing until now.
    Late,
    /// The record was received before.
    Duplicate,
}

/// Expects consecutive numbers, with a wrap after 2^32 - 1.
#[derive(Debug, Default)]
pub(crate) struct RecordChecker {
    next_number: Option<u32>,
    /// First number and length of each gap, in ascending order.
    gaps: Vec<(u32, u32)>,
    repeated: Vec<RecordFault>,
    out_of_order: Vec<RecordFault>,
    counts: RecordCounts,
}

impl RecordChecker {
    /// Records the arrival of this number.
    pub(crate) fn check(&mut self, number: u32) -> RecordStatus {
        let next = *self.next_number.get_or_insert(number);
        let ahead = number.wrapping_sub(next);
        if ahead > u32::MAX / 2 {
            return self.check_past(number);
        }
        if ahead > 0 {
            self.counts.missing += u64::from(ahead);
            if self.gaps.len() < MAX_TRACKED_GAPS {
                self.gaps.push((next, ahead));
            }
        }
        self.next_number = Some(number.wrapping_add(1));
        self.counts.received += 1;
        RecordStatus::New
    }

    fn check_past(&mut self, number: u32) -> RecordStatus {
        let holds = |&(first, length): &(u32, u32)| number.wrapping_sub(first) < length;
        let Some(at) = self.gaps.iter().position(holds) else {
            self.counts.repeated += 1;
            push_fault(&mut self.repeated, number, RecordFaultKind::Repeated);
            return RecordStatus::Duplicate;
        };
        let (first, length) = self.gaps[at];
        let before = number.wrapping_sub(first);
        let parts = [(first, before), (number.wrapping_add(1), length - before - 1)];
        self.gaps.splice(at..=at, parts.into_iter().filter(|&(_, length)| length > 0));
        self.counts.missing -= 1;
        self.counts.received += 1;
        self.counts.out_of_order += 1;
        push_fault(&mut self.out_of_order, number, RecordFaultKind::OutOfOrder);
        RecordStatus::Late
    }

    /// Counts so far.
    pub(crate) fn records(&self) -> RecordCounts {
        let missing = self.gaps.iter().map(|&(first, length)| RecordFault {
            first_record: first.into(),
            records: length.into(),
            kind: RecordFaultKind::Missing,
        });
        let others = self.repeated.iter().chain(&self.out_of_order).copied();
        RecordCounts {
            faults: missing.take(MAX_LISTED_FAULTS).chain(others).collect(),
            ..self.counts.clone()
        }
    }
}

/// Lists a fault; consecutive faults become one entry.
fn push_fault(faults: &mut Vec<RecordFault>, number: u32, kind: RecordFaultKind) {
    let number = u64::from(number);
    let room = faults.len() < MAX_LISTED_FAULTS;
    match faults.last_mut().filter(|last| last.first_record + last.records == number) {
        Some(last) => last.records += 1,
        None if room => faults.push(RecordFault { first_record: number, records: 1, kind }),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check_all(numbers: impl IntoIterator<Item = u32>) -> (Vec<RecordStatus>, RecordCounts) {
        let mut checker = RecordChecker::default();
        let places = numbers.into_iter().map(|number| checker.check(number)).collect();
        (places, checker.records())
    }

    fn fault(first_record: u64, records: u64, kind: RecordFaultKind) -> RecordFault {
        RecordFault { first_record, records, kind }
    }

    #[test]
    fn gaps_duplicates_and_late_records_are_distinguished() {
        let (places, records) = check_all([7, 8, 12, 13, 8, 9, 10, 10, 14, 6]);
        use RecordStatus::*;
        assert_eq!(places, [New, New, New, New, Duplicate, Late, Late, Duplicate, New, Duplicate]);
        assert_eq!(
            records,
            RecordCounts {
                received: 7,
                missing: 1,
                repeated: 3,
                out_of_order: 2,
                faults: vec![
                    fault(11, 1, RecordFaultKind::Missing),
                    fault(8, 1, RecordFaultKind::Repeated),
                    fault(10, 1, RecordFaultKind::Repeated),
                    fault(6, 1, RecordFaultKind::Repeated),
                    fault(9, 2, RecordFaultKind::OutOfOrder),
                ],
            }
        );
    }

    #[test]
    fn record_numbers_wrap() {
        let (_, records) = check_all([u32::MAX - 1, u32::MAX, 0, 2]);
        assert_eq!((records.received, records.missing, records.repeated), (4, 1, 0));
        assert_eq!(records.faults, [fault(1, 1, RecordFaultKind::Missing)]);
    }

    proptest! {
        #[test]
        fn every_record_is_counted_once(numbers in prop::collection::vec(0u32..60, 0..200)) {
            let (places, records) = check_all(numbers.iter().copied());
            let mut seen = std::collections::BTreeSet::new();
            for (number, place) in numbers.iter().zip(places) {
                // Records before the first one were not expected.
                let early = *number < numbers[0];
                prop_assert_eq!(place == RecordStatus::Duplicate, early || !seen.insert(*number));
            }
            prop_assert_eq!(records.received, seen.len() as u64);
            let all = seen.last().map_or(0, |last| last - seen.first().unwrap() + 1);
            prop_assert_eq!(records.missing, u64::from(all) - seen.len() as u64);
        }
    }
}
