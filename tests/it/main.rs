//! The integration tests: one binary, one module each.

mod cli;
mod contract;

mod far;
mod foreign;
mod fuzz_smoke;
mod house;
mod licences;
mod listeners;
mod peers;
mod stalls;
