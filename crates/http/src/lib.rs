//! Responsiveness over HTTP/2 and TLS (draft-ietf-ippm-responsiveness-09): the client and the server. The same algorithm as that
//! of the session's own workload decides (`workload::responsiveness`); requests take the place of blocks.
//!
//! An asynchronous runtime drives both, in one thread each; the measuring loop of the other links knows nothing of it.

mod client;
pub mod config;
mod error;
mod run;
mod runtime;
mod server;
mod tls;

pub use client::{HttpMeasurement, HttpResult, measure};
pub use run::run;
pub use runtime::UNSENT_BYTES;
pub use server::{HttpServer, HttpServerOptions};
pub use tls::{Identity, Trust};
