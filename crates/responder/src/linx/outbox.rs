//! Messages on their way to the remote node. The content of a frame is computed each time that the frame is sent.

use super::frame::{DATA_HEADER_BYTES, FRAGMENT_HEADER_BYTES, UNFRAGMENTED_TAG};

/// Longest message of the link handler or of a benchmark's set-up.
pub(super) const SHORT_BYTES: usize = 40;

/// Messages that wait for their acknowledgement at once.
const MESSAGES: usize = 8;

/// Content of a message.
#[derive(Debug, Clone, Copy)]
pub(super) enum OutgoingContent {
    /// Bytes that are stored here.
    Short([u8; SHORT_BYTES]),
    /// Bytes of a buffer.
    Buffer(usize),
    /// A signal number, and zeros.
    Signal(u32),
}

/// A message, and the sequence numbers of its frames.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    pub(super) source: u32,
    pub(super) destination: u32,
    pub(super) content: OutgoingContent,
    pub(super) length: usize,
    tag: u16,
    /// Frames not acknowledged, and all.
    frames_left: u16,
    frames: u16,
}

/// A frame of a message: which part of it, and what its headers say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) message: Message,
    pub(super) is_first: bool,
    pub(super) more: bool,
    pub(super) tag: u16,
    pub(super) start: usize,
    pub(super) length: usize,
}

/// The messages in order, oldest first.
#[derive(Debug, Clone)]
pub(super) struct OutgoingMessages {
    messages: [Option<Message>; MESSAGES],
    oldest: usize,
    count: usize,
    tag: u16,
    mtu: usize,
}

impl OutgoingMessages {
    pub(super) const fn new() -> OutgoingMessages {
        OutgoingMessages { messages: [None; MESSAGES], oldest: 0, count: 0, tag: 0, mtu: 1500 }
    }

    /// Starts again, with frames of at most this many bytes.
    pub(super) fn reset(&mut self, mtu: usize) {
        *self = OutgoingMessages { mtu, ..OutgoingMessages::new() };
    }

    /// Places that are left.
    pub(super) fn room(&self) -> usize {
        MESSAGES - self.count
    }

    /// Adds a message; `false` if there is no room.
    pub(super) fn push(
        &mut self,
        [source, destination]: [u32; 2],
        content: OutgoingContent,
        length: usize,
    ) -> bool {
        if self.count == MESSAGES {
            return false;
        }
        let behind_first = length.saturating_sub(self.mtu - DATA_HEADER_BYTES);
        let frames = 1 + behind_first.div_ceil(self.mtu - FRAGMENT_HEADER_BYTES) as u16;
        let tag = if frames == 1 {
            UNFRAGMENTED_TAG
        } else {
            self.tag = (self.tag + 1) % 0x800;
            self.tag
        };
        let message = Message { source, destination, content, length, tag, frames_left: frames, frames };
        self.messages[(self.oldest + self.count) % MESSAGES] = Some(message);
        self.count += 1;
        true
    }

    /// Frames that are not acknowledged.
    pub(super) fn frames(&self) -> u16 {
        self.messages.iter().flatten().fold(0, |sum, message| sum.saturating_add(message.frames_left))
    }

    /// The remote node has acknowledged this many more frames. Calls `done` with each message that it has in whole.
    pub(super) fn acknowledge(&mut self, mut frames: u16, mut done: impl FnMut(Message)) {
        while frames > 0 {
            let Some(message) = &mut self.messages[self.oldest] else { return };
            let of_this = frames.min(message.frames_left);
            message.frames_left -= of_this;
            frames -= of_this;
            if message.frames_left == 0 {
                done(*message);
                self.messages[self.oldest] = None;
                (self.oldest, self.count) = ((self.oldest + 1) % MESSAGES, self.count - 1);
            }
        }
    }

    /// The frame at this distance from the first unacknowledged one.
    pub(super) fn part(&self, mut index: u16) -> Option<Part> {
        for place in 0..self.count {
            let message = self.messages[(self.oldest + place) % MESSAGES]?;
            if index < message.frames_left {
                let frame = usize::from(message.frames - message.frames_left + index);
                let (first, further) = (self.mtu - DATA_HEADER_BYTES, self.mtu - FRAGMENT_HEADER_BYTES);
                let start = if frame == 0 { 0 } else { first + (frame - 1) * further };
                let most = if frame == 0 { first } else { further };
                return Some(Part {
                    is_first: frame == 0,
                    more: frame + 1 < usize::from(message.frames),
                    tag: message.tag,
                    start,
                    length: message.length.saturating_sub(start).min(most),
                    message,
                });
            }
            index -= message.frames_left;
        }
        None
    }
}
