//! The receiving side of a line: unread characters and flow control of the sender.
//!
//! A small queue behind the pseudo-terminal's own buffer. It neither waits nor writes.

use std::collections::VecDeque;

/// Capacity; further characters are lost. The size of a Linux terminal's input buffer.
const MAX_WAITING_CHARACTERS: usize = 4096;

/// Level at which flow control stops the sender. Characters in flight still fit.
const STOP_THRESHOLD_CHARACTERS: usize = 1024;

/// Level at which the sender may resume.
const RESUME_THRESHOLD_CHARACTERS: usize = 256;

/// Way in which a sender was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopMethod {
    /// RTS is down, which holds the sender's line.
    HoldLine,
    /// XOFF was sent.
    Xoff,
}

/// Characters that the program's terminal has no room for.
#[derive(Debug, Default)]
pub(crate) struct ReceiveQueue {
    characters: VecDeque<u8>,
    pub(crate) stop_method: Option<StopMethod>,
    /// Characters lost because the queue was full.
    pub(crate) overruns: u64,
}

impl ReceiveQueue {
    /// Adds characters that arrived. `held`: hardware flow control stops the sender in time, so all characters of one
    /// delivery fit, however many.
    pub fn push(&mut self, characters: &[u8], held: bool) {
        let room =
            if held { usize::MAX } else { MAX_WAITING_CHARACTERS.saturating_sub(self.characters.len()) };
        let fits = characters.len().min(room);
        self.characters.extend(&characters[..fits]);
        self.overruns += (characters.len() - fits) as u64;
    }

    /// The oldest characters, at least one if there are any.
    pub(crate) fn front(&self) -> &[u8] {
        self.characters.as_slices().0
    }

    /// Removes the oldest `count` characters, which the terminal accepted.
    pub(crate) fn remove_written(&mut self, count: usize) {
        self.characters.drain(..count);
    }

    /// Discards the unread characters, as the program requested. Returns their number.
    pub(crate) fn flush(&mut self) -> u64 {
        let dropped = self.characters.len() as u64;
        self.characters.clear();
        dropped
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.characters.is_empty()
    }

    /// Whether the sender should stop and was not stopped yet.
    pub(crate) fn should_stop_sender(&self) -> bool {
        self.stop_method.is_none() && self.characters.len() >= STOP_THRESHOLD_CHARACTERS
    }

    /// Way in which the sender was stopped, if it may resume now.
    pub(crate) fn take_resumable(&mut self) -> Option<StopMethod> {
        self.stop_method.take_if(|_| self.characters.len() <= RESUME_THRESHOLD_CHARACTERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overruns_are_lost_and_counted() {
        let mut inbox = ReceiveQueue::default();
        inbox.push(&[1; MAX_WAITING_CHARACTERS - 1], false);
        inbox.push(&[2; 3], false);
        assert_eq!(inbox.overruns, 2);
        inbox.remove_written(MAX_WAITING_CHARACTERS - 1);
        assert_eq!(inbox.front(), [2]);
        assert_eq!((inbox.flush(), inbox.is_empty()), (1, true));
    }

    #[test]
    fn characters_of_a_held_sender_are_not_lost() {
        let mut inbox = ReceiveQueue::default();
        inbox.push(&[0; STOP_THRESHOLD_CHARACTERS - 1], true);
        inbox.push(&[0; MAX_WAITING_CHARACTERS], true);
        inbox.push(&[0], false);
        assert_eq!(inbox.overruns, 1);
    }

    #[test]
    fn sender_is_stopped_once_and_resumed_when_there_is_room() {
        let mut inbox = ReceiveQueue::default();
        inbox.push(&[0; STOP_THRESHOLD_CHARACTERS - 1], true);
        assert!(!inbox.should_stop_sender());
        inbox.push(&[0], true);
        assert!(inbox.should_stop_sender());
        inbox.stop_method = Some(StopMethod::Xoff);
        assert!(!inbox.should_stop_sender());
        assert_eq!(inbox.take_resumable(), None);
        inbox.remove_written(STOP_THRESHOLD_CHARACTERS - RESUME_THRESHOLD_CHARACTERS);
        assert_eq!(inbox.take_resumable(), Some(StopMethod::Xoff));
        assert_eq!(inbox.take_resumable(), None);
    }
}
