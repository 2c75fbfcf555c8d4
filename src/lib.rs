//! linkgauge gauges any link: how long does a message take, how much gets through,
//! why is it not better, and is it the same as last time?

pub mod clock;
pub mod endpoint;
pub mod host;
pub mod link;
pub mod peer;
pub mod plan;
pub mod report;
pub mod run;
pub mod sample;
pub mod schedule;
pub mod serve;
pub mod stats;
pub mod units;
pub mod warnings;
pub mod workload;
