//! The receiving side of a line: what the program has not read, and how its sender is stopped.
//!
//! Behind the pseudo-terminal's own buffer lies a small one of ours. Nothing here waits or writes.

use std::collections::VecDeque;

/// Most characters that wait here; what comes beyond is lost: the size of a Linux terminal's input buffer.
const MAX_WAITING_CHARACTERS: usize = 4096;

/// From so many on the sender is asked to stop: what is on its way then still fits.
const STOP_THRESHOLD_CHARACTERS: usize = 1024;

/// At so few it may go on.
const RESUME_THRESHOLD_CHARACTERS: usize = 256;

/// How a sender was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMethod {
    /// Its line is held: RTS is down.
    HoldLine,
    /// It was sent XOFF.
    Xoff,
}

/// Characters that the program's terminal has no room for.
#[derive(Debug, Default)]
pub struct ReceiveQueue {
    characters: VecDeque<u8>,
    pub stop_method: Option<StopMethod>,
    /// Characters lost because nothing had room for them.
    pub overruns: u64,
}

impl ReceiveQueue {
    /// Takes what has arrived. `held`: the sender is held in time, so that there is room for all that comes in one
    /// hand-over, however large.
    pub fn push(&mut self, characters: &[u8], held: bool) {
        let room =
            if held { usize::MAX } else { MAX_WAITING_CHARACTERS.saturating_sub(self.characters.len()) };
        let fits = characters.len().min(room);
        self.characters.extend(&characters[..fits]);
        self.overruns += (characters.len() - fits) as u64;
    }

    /// Those that came first, at least one unless there are none.
    pub fn front(&self) -> &[u8] {
        self.characters.as_slices().0
    }

    /// So many of the first found room in the terminal.
    pub fn remove_written(&mut self, count: usize) {
        self.characters.drain(..count);
    }

    /// The program does not want what it has not read.
    pub fn flush(&mut self) -> u64 {
        let dropped = self.characters.len() as u64;
        self.characters.clear();
        dropped
    }

    pub fn is_empty(&self) -> bool {
        self.characters.is_empty()
    }

    /// Whether it is time to stop the sender, which has not been stopped.
    pub fn should_stop_sender(&self) -> bool {
        self.stop_method.is_none() && self.characters.len() >= STOP_THRESHOLD_CHARACTERS
    }

    /// How the sender was stopped, if it is time to let it go on.
    pub fn take_resumable(&mut self) -> Option<StopMethod> {
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
