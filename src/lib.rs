//! linkgauge gauges any link: how long does a message take, how much gets through,
//! why is it not better, and is it the same as last time?

pub mod stats;
