//! The integration tests: one binary, one module each.

mod cases;
mod cli;
mod commands;
mod contract;
mod documents;
mod exact;
mod far;
mod foreign;
mod fuzz_smoke;
mod house;
mod licences;
mod listeners;
mod memory;
mod repetitions;
mod virtual_net;
