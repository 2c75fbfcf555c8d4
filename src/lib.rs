//! linkgauge measures latency and throughput over any link: how long does a message take, how much gets through, what
//! limits it, is that normal here, and has it changed?
//!
//! Features: `cli` (default) is the program, `tui` (default) its terminal view; `report` writes text, CSV and pages,
//! explains, and holds the published studies; `store` saves runs in SQLite; `monitor` watches links; `mesh` measures every
//! pair of many hosts, `fleet` with agents on a hub; `plan-files` reads plans from TOML. Without them the library measures, serves, runs the lab, and
//! reads and writes run documents as JSON.
//!
//! One measurement is one expression. Its error can be matched, and holds what was measured until a failure:
//!
//! ```
//! use linkgauge::{Latency, Server};
//!
//! let server = Server::on("tcp://127.0.0.1:0").start()?;
//! let result = Latency::to(server.url()).count(200).run()?;
//! assert!(result.p50() <= result.percentile(90.0) && result.p50().is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The program is a thin layer over this library. It checks a plan, runs it, and reports the resulting document.
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
//! assert_eq!(plan.cases().map(|case| case.load.message_bytes).collect::<Vec<_>>(), [1]);
//! assert_eq!(schedule::estimate_duration(&plan).map(|time| time.as_secs()), Some(60));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! These pages show what other programs can rely on. Further modules are public only for the program and the tests; they are
//! hidden here and may change at any time, without a new major version.

// Modules of a feature use items of other modules, which are dead code without it. All features together have none.
#![cfg_attr(not(all(feature = "cli", feature = "fleet", feature = "http")), allow(dead_code, unused_imports))]

pub mod endpoint;
pub mod metric;
pub mod plan;
pub mod run;
pub mod schedule;
pub mod serve;
pub mod units;
pub mod verdict;

// For the program, the tests and the benches, which are crates of their own.
#[doc(hidden)]
pub mod clock;
#[doc(hidden)]
pub mod consistency;
#[cfg(feature = "report")]
#[doc(hidden)]
pub mod explain;
#[cfg(feature = "fleet")]
#[doc(hidden)]
pub mod fleet;
#[doc(hidden)]
pub mod host;
#[cfg(feature = "http")]
#[doc(hidden)]
pub mod http2;
#[doc(hidden)]
pub mod import;
#[doc(hidden)]
pub mod lab;
#[doc(hidden)]
pub mod link;
#[cfg(feature = "mesh")]
#[doc(hidden)]
pub mod mesh;
#[cfg(feature = "monitor")]
#[doc(hidden)]
pub mod monitor;
#[doc(hidden)]
pub mod protocol;
#[cfg(feature = "report")]
#[doc(hidden)]
pub mod report;
#[doc(hidden)]
pub mod sample;
#[doc(hidden)]
pub mod spreadsheet;
#[doc(hidden)]
pub mod stats;
#[cfg(feature = "store")]
#[doc(hidden)]
pub mod store;
#[cfg(feature = "report")]
#[doc(hidden)]
pub mod study;
#[doc(hidden)]
pub mod traffic;
#[cfg(feature = "report")]
#[doc(hidden)]
pub mod twin;
#[doc(hidden)]
pub mod warnings;
#[doc(hidden)]
pub mod workload;

pub use schedule::{Download, Latency, MeasureError, Measurement, Throughput};
pub use serve::{ServeError, Server, ServerBuilder};
