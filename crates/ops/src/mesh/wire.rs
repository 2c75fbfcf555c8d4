//! Messages between the coordinator of a mesh and its agents: JSON objects, one a line.
//!
//! An order holds no command and no path of a file. Both sides read lines of a limited length, and refuse what they do not
//! know. `PROTOCOL_VERSION` grows with every change.

use std::io::{self, BufRead, Read};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use linkgauge_model::run::Run;

/// Version of the protocol, which both sides must have in common.
pub const PROTOCOL_VERSION: u32 = 2;

/// Longest line of an order.
pub const MAX_ORDER_BYTES: usize = 16 * 1024;

/// Longest line of an answer: a run without its time series is far shorter.
pub const MAX_ANSWER_BYTES: usize = 512 * 1024;

/// Order to an agent, which answers each order but `Stop` once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// Accepts measurements of clients that know the token, until the agent ends.
    Serve {
        /// Number of the order.
        id: u64,
        /// Scheme of the URL to serve.
        transport: String,
        /// The port; 0: any.
        port: u16,
        /// The secret of this mesh.
        token: String,
    },
    /// Measures another host.
    Measure {
        /// Number of the order.
        id: u64,
        /// Host and port of its server, without options.
        url: String,
        /// The secret of the server, if it requires one.
        token: Option<String>,
        /// Test to make.
        test: TestOrder,
    },
    /// Reports when the server of the agent served throughput tests.
    ReportLoads {
        /// Number of the order.
        id: u64,
    },
    /// Ends the agent. The end of the input means the same.
    Stop {},
}

/// Test that an agent is ordered to make.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "workload", rename_all = "snake_case", deny_unknown_fields)]
pub enum TestOrder {
    /// Round-trip times on a schedule.
    Latency {
        /// Length of the test.
        time_ms: u64,
        /// Requests per second.
        per_second: f64,
        /// Payload of a request.
        message_bytes: u32,
    },
    /// Payload per second.
    Throughput {
        /// Length of the test.
        time_ms: u64,
        /// Whether the agent sends or receives.
        direction: TestDirection,
        /// Connections.
        parallel: u32,
        /// Payload bits per second of all connections; absent: as fast as the link allows.
        bits_per_second: Option<f64>,
    },
}

/// The direction of a throughput test, as the agent sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestDirection {
    /// The agent sends.
    Send,
    /// The agent receives.
    Receive,
}

impl TestOrder {
    /// Length of the test in milliseconds.
    pub fn time_ms(&self) -> u64 {
        match self {
            TestOrder::Latency { time_ms, .. } | TestOrder::Throughput { time_ms, .. } => *time_ms,
        }
    }
}

/// Message of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// First line of an agent.
    Ready {
        /// `PROTOCOL_VERSION` of the agent.
        version: u32,
        /// The program and version.
        tool: String,
        /// Facts about its host.
        environment: Map<String, Value>,
    },
    /// Server is ready: clients can connect.
    Serving {
        /// Number of the order.
        id: u64,
        /// The port of the server.
        port: u16,
        /// The clock of the agent, in nanoseconds since any time.
        now_ns: u64,
    },
    /// Throughput tests that the server has served.
    ServedLoads {
        /// Number of the order.
        id: u64,
        /// The clock of the agent now.
        now_ns: u64,
        /// Begin and end of each throughput test on that clock.
        loads: Vec<[u64; 2]>,
        /// Tests that are not listed, because there are too many.
        left_out: u64,
    },
    /// A measurement is over; it may be incomplete.
    Measured {
        /// Number of the order.
        id: u64,
        /// The document, with one case and without time series.
        run: Box<Run>,
    },
    /// The order was not carried out.
    Refused {
        /// Number of the order.
        id: u64,
        /// Reason for the refusal, for people.
        why: String,
    },
}

/// Error of a line that is no order or no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The line is not JSON, or not of the expected form.
    #[error("not a message of an agent: {0}")]
    Json(#[from] serde_json::Error),
    /// The line is too long.
    #[error("a line of more than {0} bytes")]
    TooLong(usize),
    /// The input failed.
    #[error("the input cannot be read: {0}")]
    Input(#[from] io::Error),
}

/// Reads an order.
///
/// # Errors
///
/// The line is not an order, or too long.
pub fn parse_order(line: &[u8]) -> Result<Order, WireError> {
    if line.len() > MAX_ORDER_BYTES {
        return Err(WireError::TooLong(MAX_ORDER_BYTES));
    }
    Ok(serde_json::from_slice(line)?)
}

/// Reads an answer.
///
/// # Errors
///
/// The line is not an answer, or too long.
pub fn parse_answer(line: &[u8]) -> Result<Answer, WireError> {
    if line.len() > MAX_ANSWER_BYTES {
        return Err(WireError::TooLong(MAX_ANSWER_BYTES));
    }
    Ok(serde_json::from_slice(line)?)
}

/// A message as a line.
pub fn to_line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("messages have text as keys and finite numbers");
    line.push(b'\n');
    line
}

/// Reads the next line, without its end. `None`: the input is over; an unfinished line does not count.
///
/// # Errors
///
/// The line is longer than `limit`, or the input failed.
pub fn read_line(input: &mut dyn BufRead, limit: usize) -> Result<Option<Vec<u8>>, WireError> {
    let mut line = Vec::new();
    input.take(limit as u64 + 1).read_until(b'\n', &mut line)?;
    match line.pop() {
        Some(b'\n') => Ok(Some(line)),
        Some(_) if line.len() >= limit => Err(WireError::TooLong(limit)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let test = TestOrder::Throughput {
            time_ms: 1000,
            direction: TestDirection::Send,
            parallel: 2,
            bits_per_second: None,
        };
        let measure = Order::Measure { id: 7, url: "tcp://192.0.2.1:7100".to_owned(), token: None, test };
        let serve = Order::Serve { id: 1, transport: "tcp".to_owned(), port: 0, token: "t".to_owned() };
        for order in [measure, serve, Order::ReportLoads { id: 9 }, Order::Stop {}] {
            let line = to_line(&order);
            let read = read_line(&mut line.as_slice(), MAX_ORDER_BYTES).unwrap().unwrap();
            assert_eq!(parse_order(&read).unwrap(), order);
        }
        let answer = Answer::Refused { id: 3, why: "no".to_owned() };
        assert_eq!(parse_answer(to_line(&answer).trim_ascii_end()).unwrap(), answer);
    }

    #[test]
    fn unknown_orders_and_fields_are_refused() {
        for line in [
            r#"{"order": "run", "command": "id"}"#,
            r#"{"order": "stop", "file": "/etc/passwd"}"#,
            r#"{"order": "serve", "id": 1, "transport": "tcp", "port": 70000, "token": "t"}"#,
            "[]",
            "",
        ] {
            assert!(parse_order(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn a_line_has_a_limit() {
        let read = |text: &str| read_line(&mut text.as_bytes(), 4);
        assert_eq!(read("1234\n5").unwrap().unwrap(), b"1234");
        assert!(matches!(read("12345\n"), Err(WireError::TooLong(4))));
        assert_eq!(read("123").unwrap(), None);
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("\n").unwrap().unwrap(), b"");
    }
}
