//! The published studies, and their systems as parts of the lab.
//!
//! A [`study::Study`] is a published measurement: its cells, plans and figures. A twin rebuilds a published system and predicts
//! figures on the virtual clock.
//!
//! # Twins
//!
//! A twin runs the cases of its study over `mem://`, on the virtual clock. Its links have the shapes of `shaped.rs`, and a device
//! server is a party (`lab/device_server/plugged_port.rs`) with the processor of the real one, so both have the same times.

pub mod study;
pub mod twin;
