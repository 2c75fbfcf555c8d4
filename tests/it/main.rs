//! The integration tests: one binary, one module each.

mod commands;
mod contract;
mod far;
mod foreign;
mod listeners;
