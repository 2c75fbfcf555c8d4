//! The integration tests: one binary, one module each.

mod cases;
mod contract;
mod exact;
mod far;
mod foreign;
mod listeners;
mod memory;
mod virtual_net;
