//! The path to a host: hop-limited probes and what their replies say about routers, loss, queues and the size that fits.
//!
//! `prober` decides what is sent when, `hops` computes the figures of each hop, `queue` finds the hop behind which a load queues, and
//! `mtu` searches the largest packet: state machines and pure functions without I/O. `socket` sends and receives, `drive`
//! runs the machines over sockets, `measure` makes the result of a path alone, and `beside` that of one beside the load of a run.
//!
//! Nothing needs privileges on Linux: routers' replies come from the error queue of the probe's own socket (`IP_RECVERR`).

mod beside;
mod drive;
pub mod hops;
mod measure;
pub mod mtu;
pub mod prober;
pub mod queue;
mod socket;

pub use beside::PathBeside;
pub use measure::{PATH_WORKLOAD, PathPlan, REPLY_INTERVAL, UDP_PORT, measure_path};
pub use socket::{QuotedNumber, kind_of_error, number_in_payload};
