//! The integration tests: one binary, one module each.

mod bad_input;
mod cases;
mod cli;
mod commands;
mod contract;
mod documents;
mod exact;
mod far;
mod foreign;
mod fuzz_smoke;
mod guest;
mod house;
mod liars;
mod licences;
mod listeners;
mod memory;
mod peers;
mod program;
mod raw_client;
mod repetitions;
mod server;
mod shaper;
mod stalls;
mod virtual_net;
