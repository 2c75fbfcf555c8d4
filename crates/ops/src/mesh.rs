//! A mesh of hosts: every pair is measured, without a server, from one place.
//!
//! `hosts` reads which hosts there are and what they share, `demand` and `timetable` find an order of the tests in which none
//! disturbs another, and `dispatch` keeps to that order while tests take longer or shorter. `agent` carries out orders on a host,
//! `wire` is what it is sent. `coordinator` decides without I/O, and `agents` connects it with processes. `served` finds
//! tests that overlapped in the logs of the servers, `blame` the part that explains the worst pairs; `result` makes the run document.

mod agent;
mod agents;
mod blame;
mod coordinator;
mod demand;
mod dispatch;
mod hosts;
mod outcome;
mod result;
mod served;
mod timetable;
mod wire;

pub use agent::{AddressRange, AgentLimits, AgentRefusal, InvalidAddressRange, Tester, run_agent};
pub use agents::Agents;
pub use coordinator::{Coordinator, CoordinatorAction, MeshOptions, MeshParts, MeshProgress};
pub use demand::Demand;
pub use hosts::{
    Host, HostList, HostListError, LatencyTest, MAX_HOSTS, Reach, SharedResource, Sharing, ThroughputTest,
    url_of,
};
pub use outcome::{PairOutcome, TestKind, TestRecord};
pub use result::{MeshFacts, earlier_tests, mesh_run, pair_name};
pub use timetable::{HostPair, Slot, Timetable};
pub use wire::{
    Answer, MAX_ANSWER_BYTES, MAX_ORDER_BYTES, Order, PROTOCOL_VERSION, TestDirection, TestOrder, WireError,
    parse_answer, parse_order, read_line, to_line,
};
