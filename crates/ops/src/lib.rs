//! Operation of many links: some watched for weeks, or every pair of many hosts measured once.
//!
//! A [`monitor`] runs the schedule again and again and keeps states, alarms and windows. A [`mesh`] orders agents to measure every pair
//! of hosts.
//!
//! # Watching links
//!
//! `monitor` runs the schedule again and again: a slice of some seconds is a run of a plan with one latency case, so every transport
//! and protocol can be watched. The flows of many links run in a few threads (`schedule/flow_threads.rs`, as many flows of one case
//! do), and nothing waits for them: further threads, as many as are busy at a time, begin slices and end them
//! (`schedule::run_in_threads`, `monitor/workers.rs`). The recorder of a flow with few samples has no histogram (`sample::Room`), and
//! the facts of an interface are read once for all links of a second (`link/own_interfaces.rs`). The caller's thread keeps the ledger
//! (`monitor/ledger.rs`), which has neither thread nor clock: alarms (`stats/cusum.rs`), levels (`monitor/level.rs`), states, and the
//! windows for the store (`sample/window.rs`, `store/windows.rs`). The notices that it makes go to one more thread
//! (`monitor/notifier.rs`), which gathers those of a slice, runs `explain::live` if the watch has a time for it, and performs the
//! actions (`monitor/action.rs`); it may be slow. `monitor/live.rs` makes of the states what people see; the live page
//! (`monitor/site.rs`, `monitor/site/`) and the terminal view share it. hyper serves the pages in one thread (`monitor/http.rs`), which
//! shares nothing with the probes but finished texts and a snapshot of the metrics (`monitor/families.rs`). Text (`metrics.rs`),
//! protobuf (`exposition.rs`) and remote write (`remote_write.rs`) are encodings of that snapshot; `monitor/pusher.rs` pushes the last
//! one in a thread of its own.
//!
//! # A mesh of hosts
//!
//! `mesh` measures every pair. `demand` says which resources each test uses, `timetable` finds an order in which no resource carries
//! more tests than it may (circle method or list scheduling), and `dispatch` keeps to that order while tests take longer or shorter.
//! `coordinator` is a state machine without I/O: answers and times in, orders out, so its tests play whole meshes with agents that lie,
//! stall or vanish. `agents` connects it with processes, whose lines `wire` defines; `agent` carries out orders with `schedule` and
//! `serve`. The servers of the agents log the loads that they served (`protocol::LoadLog`); `served` compares the logs. `blame` is a
//! pure function. The result is one run with `Run::mesh`; `explain::mesh` puts it into words, and `report::mesh` draws it.

pub mod mesh;
pub mod monitor;
