//! The integration tests: one binary, one module each.

mod contract;
mod far;
mod foreign;
mod fuzz_smoke;
mod listeners;
