//! Direction of the payload, wait mode of the threads and settings of sockets, as plans request them and run documents
//! state them.

use serde::{Deserialize, Serialize};

/// Direction of the payload, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The remote returns the payload.
    Loop,
    /// Upload: client to server.
    Send,
    /// Download: server to client.
    Receive,
    /// Send and receive at the same time, counted separately.
    Both,
}

impl Direction {
    /// All directions.
    pub const ALL: [Direction; 4] = [Direction::Loop, Direction::Send, Direction::Receive, Direction::Both];

    /// The name in plans and documents.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Loop => "loop",
            Direction::Send => "send",
            Direction::Receive => "receive",
            Direction::Both => "both",
        }
    }
}

/// Way in which a thread waits for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitMode {
    /// The kernel wakes the thread.
    #[default]
    Block,
    /// The thread busy-polls and occupies its CPU.
    BusyPoll,
}

impl WaitMode {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            WaitMode::Block => "block",
            WaitMode::BusyPoll => "busy-poll",
        }
    }
}

/// Settings of a socket that a plan requests; `None` leaves a setting as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SocketSettings {
    /// `TCP_NODELAY`: send at once; otherwise Nagle's algorithm gathers small writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodelay: Option<bool>,
    /// `TCP_QUICKACK`: acknowledge at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quick_ack: Option<bool>,
    /// `SO_SNDBUF`. The kernel limits and doubles it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_buffer_bytes: Option<u32>,
    /// `SO_RCVBUF`. The kernel limits and doubles it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_buffer_bytes: Option<u32>,
    /// Traffic class (DSCP and ECN) of sent packets. Of datagrams it is also what received ones are compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic_class: Option<u8>,
}

impl SocketSettings {
    /// Whether nothing is requested.
    pub fn is_empty(&self) -> bool {
        *self == SocketSettings::default()
    }
}
