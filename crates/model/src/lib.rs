//! The nouns of linkgauge. Nothing here opens a link, starts a thread that measures, or prints.
//!
//! Four of them explain the rest. An [`endpoint::Endpoint`] is the address of a link. A [`plan::Plan`] says what to measure there.
//! A [`run::Run`] is the document with the results. A [`sample::Recorder`] collects the samples from which its figures come, in fixed
//! memory. `stats` computes, `consistency` says what figures must satisfy, `warnings` and `verdict` judge them.

pub mod clock;
pub mod consistency;
pub mod endpoint;
pub mod metric;
pub mod plan;
pub mod run;
pub mod sample;
pub mod spreadsheet;
pub mod stats;
pub mod traffic;
pub mod units;
pub mod verdict;
pub mod warnings;
