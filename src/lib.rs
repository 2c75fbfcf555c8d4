//! linkgauge gauges any link: how long does a message take, how much gets through,
//! why is it not better, and is it the same as last time?
//!
//! The program is a thin layer over this library: a plan is checked, run, and becomes a document that is reported.
//!
//! ```
//! use linkgauge::{plan::Plan, schedule};
//!
//! let plan = Plan::from_toml(r#"
//!     repeat = 6
//!     [[case]]
//!     url = "udp://192.0.2.7"
//!     workload = "latency"
//!     rate = "100/s"
//!     time = "10s"
//! "#)?;
//! let plan = schedule::check(plan)?;
//! assert_eq!(plan.cases[0].message_bytes, 1);
//! assert_eq!(schedule::estimate(&plan).map(|time| time.as_secs()), Some(60));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod clock;
pub mod endpoint;
pub mod explain;
pub mod host;
pub mod import;
pub mod lab;
pub mod link;
pub mod metric;
pub mod plan;
pub mod protocol;
pub mod report;
pub mod run;
pub mod sample;
pub mod schedule;
pub mod serve;
pub mod spreadsheet;
pub mod stats;
pub mod store;
pub mod study;
pub mod units;
pub mod verdict;
pub mod warnings;
pub mod workload;
