//! Measures upload and download of a server in this process: `cargo run --example throughput`.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use linkgauge::plan::Direction;
use linkgauge::{Server, Throughput};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::on("tcp://127.0.0.1:0").start()?;
    for direction in [Direction::Send, Direction::Receive] {
        let result = Throughput::to(server.url()).direction(direction).time(Duration::from_secs(1)).run()?;
        let rate = result.figures.delivery.throughput_bps.unwrap_or_default();
        println!("{}: {:.2} Gbit/s", direction.name(), rate / 1e9);
    }
    Ok(())
}
