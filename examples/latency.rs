//! Measures the round-trip time to a server, or to one of its own without an argument: `cargo run --example latency -- HOST`.
#![allow(clippy::print_stdout)]

use linkgauge::{Latency, MeasureError, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::on("tcp://127.0.0.1:0").start()?;
    let url = std::env::args().nth(1).unwrap_or_else(|| server.url().to_owned());
    let result = match Latency::to(&url).count(2000).run() {
        // What was measured until a failure is a result, too.
        Err(MeasureError::Incomplete { reason, result }) => {
            println!("incomplete: {reason}");
            *result
        }
        other => other?,
    };
    println!("{}: p50 {:?}, p99 {:?}", result.endpoint, result.p50(), result.p99());
    Ok(())
}
