//! The integration tests: one binary, one module each.

mod bad_input;
mod cases;
mod contract;
mod exact;
mod far;
mod foreign;
mod liars;
mod listeners;
mod memory;
mod program;
mod raw_client;
mod server;
mod virtual_net;
