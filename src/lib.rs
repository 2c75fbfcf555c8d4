//! linkgauge measures latency and throughput over any link: how long does a message take, how much gets through, what
//! limits it, is that normal here, and has it changed?
//!
//! This crate is the program, and the surface of the crates that it is made of (`crates/`). Features: `cli` (default) is the program,
//! `tui` (default) its terminal view; `full` adds reports, explanations, the published studies, the store, monitors and meshes; `http`
//! responsiveness over HTTP/2, `fleet` agents on a hub. Without them the library measures, serves, runs the lab, and reads and writes run
//! documents as JSON.
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
//! use linkgauge::{Registry, plan::Plan, schedule};
//!
//! let plan = Plan::from_toml(r#"
//!     repeat = 6
//!     [[case]]
//!     url = "udp://192.0.2.7"
//!     workload = "latency"
//!     rate = "100/s"
//!     time = "10s"
//! "#)?;
//! let plan = schedule::check(plan, Registry::standard())?;
//! assert_eq!(plan.cases().map(|case| case.load.message_bytes).collect::<Vec<_>>(), [1]);
//! assert_eq!(schedule::estimate_duration(&plan).map(|time| time.as_secs()), Some(60));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! These pages show what other programs can rely on. Further modules are public only for the program and the tests; they are
//! hidden here and may change at any time, without a new major version.

#[doc(inline)]
pub use linkgauge_engine::{schedule, serve};
#[doc(inline)]
pub use linkgauge_model::{endpoint, metric, plan, run, units, verdict};

// For the program, the tests and the benches.
#[cfg(feature = "full")]
#[doc(hidden)]
pub use linkgauge_analysis::{explain, import, lists, report};
#[doc(hidden)]
pub use linkgauge_engine::{device_settings, host, link, path, protocol, transport, workload};
#[cfg(feature = "fleet")]
#[doc(hidden)]
pub use linkgauge_fleet as fleet;
#[cfg(feature = "http")]
#[doc(hidden)]
pub use linkgauge_http as http2;
#[doc(hidden)]
pub use linkgauge_lab as lab;
#[doc(hidden)]
pub use linkgauge_model::{clock, consistency, sample, spreadsheet, stats, traffic, warnings};
#[cfg(feature = "full")]
#[doc(hidden)]
pub use linkgauge_ops::{mesh, monitor};
#[cfg(feature = "full")]
#[doc(hidden)]
pub use linkgauge_store as store;
#[cfg(feature = "full")]
#[doc(hidden)]
pub use linkgauge_studies::{study, twin};
#[doc(hidden)]
pub use linkgauge_system as system;

pub use linkgauge_engine::Registry;
pub use schedule::{Download, Latency, MeasureError, Measurement, Throughput};
pub use serve::{ServeError, Server, ServerBuilder};
