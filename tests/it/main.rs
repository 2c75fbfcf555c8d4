//! The integration tests: one binary, one module each.

mod cli;
mod commands;
mod contract;
mod documents;
mod far;
mod foreign;
mod fuzz_smoke;
mod house;
mod licences;
mod listeners;
mod repetitions;
