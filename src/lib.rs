//! linkgauge gauges any link: how long does a message take, how much gets through,
//! why is it not better, and is it the same as last time?

pub mod clock;
pub mod endpoint;
pub mod plan;
pub mod report;
pub mod run;
pub mod stats;
pub mod units;
