//! The receiving side of a line: what the program has not read, and how its sender is stopped.
//!
//! Behind the pseudo-terminal's own buffer lies a small one of ours. Nothing here waits or writes.

use std::collections::VecDeque;

/// Most characters that wait here; what comes beyond is lost: the size of a Linux terminal's input buffer.
const MOST: usize = 4096;

/// From so many on the sender is asked to stop: what is on its way then still fits.
const STOP_AT: usize = 1024;

/// At so few it may go on.
const GO_AT: usize = 256;

/// How a sender was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Its line is held: RTS is down.
    Line,
    /// It was sent XOFF.
    Xoff,
}

/// Characters that the program's terminal has no room for.
#[derive(Debug, Default)]
pub struct Inbox {
    characters: VecDeque<u8>,
    pub stopped: Option<Stopped>,
    /// Characters lost because nothing had room for them.
    pub overruns: u64,
}

impl Inbox {
    /// Takes what has arrived. `held`: the sender is held in time, so that there is room for all that comes in one
    /// hand-over, however large.
    pub fn put(&mut self, characters: &[u8], held: bool) {
        let room = if held { usize::MAX } else { MOST.saturating_sub(self.characters.len()) };
        let fits = characters.len().min(room);
        self.characters.extend(&characters[..fits]);
        self.overruns += (characters.len() - fits) as u64;
    }

    /// Those that came first, at least one unless there are none.
    pub fn front(&self) -> &[u8] {
        self.characters.as_slices().0
    }

    /// So many of the first found room in the terminal.
    pub fn written(&mut self, count: usize) {
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
    pub fn is_high(&self) -> bool {
        self.stopped.is_none() && self.characters.len() >= STOP_AT
    }

    /// How the sender was stopped, if it is time to let it go on.
    pub fn lets_go(&mut self) -> Option<Stopped> {
        self.stopped.take_if(|_| self.characters.len() <= GO_AT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_lost_and_counted() {
        let mut inbox = Inbox::default();
        inbox.put(&[1; MOST - 1], false);
        inbox.put(&[2; 3], false);
        assert_eq!(inbox.overruns, 2);
        inbox.written(MOST - 1);
        assert_eq!(inbox.front(), [2]);
        assert_eq!((inbox.flush(), inbox.is_empty()), (1, true));
    }

    #[test]
    fn what_a_held_sender_had_sent_before_is_kept() {
        let mut inbox = Inbox::default();
        inbox.put(&[0; STOP_AT - 1], true);
        inbox.put(&[0; MOST], true);
        inbox.put(&[0], false);
        assert_eq!(inbox.overruns, 1);
    }

    #[test]
    fn a_sender_is_stopped_once_and_let_go_when_there_is_room() {
        let mut inbox = Inbox::default();
        inbox.put(&[0; STOP_AT - 1], true);
        assert!(!inbox.is_high());
        inbox.put(&[0], true);
        assert!(inbox.is_high());
        inbox.stopped = Some(Stopped::Xoff);
        assert!(!inbox.is_high());
        assert_eq!(inbox.lets_go(), None);
        inbox.written(STOP_AT - GO_AT);
        assert_eq!(inbox.lets_go(), Some(Stopped::Xoff));
        assert_eq!(inbox.lets_go(), None);
    }
}
