//! A fleet: agents that get the orders of a mesh from a hub and bring it their results. The hub is a NATS server with JetStream.
//!
//! `order` holds what is ordered and which orders an agent accepts, `lease` when a test may run, `slot` who may connect, `outbox`
//! which results wait for the hub: all of them without a network. `hub` is the connection, `streams` what we define on the server,
//! `leases` takes leases there. `agent` carries out orders with the tester of `mesh`; `round` plans them; `collect` reads results,
//! `database` saves them in PostgreSQL, and `metrics` counts them.
//!
//! Only `hub` and `database` wait in an asynchronous runtime. Tests run in threads, as everywhere.
//!
//! # A fleet
//!
//! `fleet` measures a mesh without a coordinator. The operator signs the list of hosts and each order (`signed`), and `round` gives
//! orders the times of the timetable of `mesh`; the hub delivers them then. `order` decides what an agent accepts, `lease` how long it
//! may measure, `outbox` what it still has to upload: none of them has a connection or reads a clock. An agent asks its peer for a slot
//! and measures with the tester of `mesh`; results become the document of a mesh (`collect`), and metrics for the exporter of the
//! monitor (`metrics`, `Site::of_metrics`). The hub is not trusted with measurements: the token of a slot is a MAC that only agents can
//! compute. `hub` and `database` wait in asynchronous runtimes and measure nothing. JetStream is requests in JSON, so the client needs
//! no typed layer of it. A collector saves results in the store, or in PostgreSQL (`database`): a batch is one transaction and one
//! statement, collectors take turns by a lock in the database, and a batch is confirmed to the hub after its commit.

mod agent;
mod certificate;
mod collect;
mod database;
mod file;
mod hub;
mod lease;
mod leases;
mod metrics;
mod order;
mod outbox;
mod policy;
mod round;
mod signed;
mod slot;
mod streams;

pub use agent::{AgentNotice, HubAgentError, HubAgentOptions, run_hub_agent};
pub use collect::{
    Collected, CollectedTest, ResultError, TestOutcome, confirm, give_back, mesh_of_runs, next_results,
    read_result,
};
pub use database::{Database, DatabaseError, DatabaseOptions, RejectedResult};
pub use file::{FleetFile, FleetFileError};
pub use hub::{Hub, HubError, HubMessage, HubOptions, HubSubscription, InitialConnect};
pub use lease::{LEASE_TTL, Lease};
pub use leases::{LeaseTerms, release, renew, take};
pub use metrics::{CollectorMetrics, Connections, Receipt};
pub use order::{
    FleetOrder, HostTime, ListRefusal, MAX_LIST_AGE, OrderBook, OrderRefusal, OrderedTest, Role, SignedList,
    host_lease, subject_part,
};
pub use outbox::{Backoff, Outbox, OutboxError, PendingResult};
pub use policy::{AddressRefused, AgentPolicy, PolicyError};
pub use round::{RoundTimes, plan_round};
pub use signed::{PublicKey, SecretKey, SignatureError, open_signed, sign};
pub use streams::{
    AgentState, FleetResult, FleetStatus, HeldLease, apply, issue_order, publish_list, read_status,
    server_account,
};
