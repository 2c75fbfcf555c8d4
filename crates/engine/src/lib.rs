//! Measuring and serving. Its threads send events and never print.
//!
//! Four nouns explain the rest. A [`link::Link`] is an open endpoint that moves bytes or messages; a [`link::Transport`] opens such links. A
//! [`link::party::Party`] is the behaviour of one end of it, as a state machine. A [`workload::Workload`] provides the parties and computes the figures. A
//! [`protocol::Protocol`] says what the remote speaks, and puts the parties on their links. A [`Registry`] lists all of them; code looks
//! things up in the one that it was given. [`schedule`] runs the flows of a plan, [`serve`] the parties of clients.
//!
//! # The loop
//!
//! `link::party::drive` runs a party on a link. It asks the party for its next `Step`, performs it with `perform_step`, and reports the
//! outcome and the time. A party never waits and never reads a clock. So the same server party runs in a server's thread and inside
//! `mem://` on a virtual clock, and the same client party measures over a socket and in a test that is exact to the nanosecond. Rates,
//! directions and transports have no loops of their own; pacing, warm-up and stop conditions are values (`workload/phases.rs`). The
//! server ends of `mem://` use `perform_step` as well; the network only decides the order of events (`transport/mem/network.rs`).
//!
//! # Time
//!
//! `clock::Clock` is the system clock or a virtual one. On the virtual clock no thread sleeps: waiting advances the time to the next
//! event, and `mem::MemNetwork` runs the server ends. `schedule` runs the flows of a case in threads on the system clock, and step by
//! step in one thread on the virtual clock.
//!
//! # A load with probes
//!
//! `responsiveness` opens all its connections before it begins. Each one has two halves on the client (`Link::second_handle`): one
//! moves the load, the other collects the probes on it. The second half of the first connection also holds the conductor
//! (`workload/responsiveness/conductor.rs`), which starts the next connection and ends the measurement. It reads atomics that the other
//! parties write; `algorithm.rs` decides without I/O. A server that sends begins with the first probe.
//!
//! # Lines while measuring
//!
//! `latency --each` prints the fate of each request. The party stores events in a ring of fixed size (`sample/reply_log.rs`), one
//! for each flow, and a thread of the command takes and prints them. Where it is behind, events are counted instead of stored.
//!
//! # Stamps of the kernel
//!
//! A link that was tuned for stamps (`Tuning::stamps`, `Caps::has_kernel_stamps`) puts the arrival of a message into its `Batch`.
//! Stamps of sent messages come later, from the error queue of the socket, so a party asks for them in a step of its own
//! (`Step::ReadStamps`), after the time of a reply was taken. `workload/latency/stages.rs` matches them to requests by number, and the
//! server's reflector reports those of a reply in the next one (`latency/stamped.rs`). `sample/stages.rs` subtracts only times of one
//! host. The packet socket of a LINX node asks for stamps only of frames that end a message of a measured endpoint, and
//! `linx/endpoint_stamps.rs` leads from the kernel's number of such a frame to the message.
//!
//! # Many flows
//!
//! More flows than threads share them: `link/shared_thread.rs` waits until links are ready or a time is reached (epoll and a timer
//! queue), and performs the steps of those parties, each for a few steps in turn. It uses `perform_step` with a mode that never blocks.
//! A link without a descriptor (`Caps::descriptor`) keeps a thread, and so does a probe. The thread lends its memory to the receives of
//! all of them (`Batch::lent`). Bulk data is received once for each event, and turns are short: the remote then reads bytes that are
//! still in the caches. Hundreds of connections are opened and attached at a time, in one thread (`link/dialer/greeted.rs`). With ten
//! thousand flows a turn costs what it loads from memory. So the state of a flow is small, with what each turn uses first; a server
//! drops what identified the client (`Party::take_successor`); and the CPU is asked for the state of the next members while the system
//! calls of one take their time (`SharedThread::prefetch_next`). The flows of a large case share one histogram
//! (`sample::SharedRecording`) and have small buffers (`Load::is_one_of_many`). Round trips on a schedule take turns: the pacing of a
//! flow is its part of the rate, and its number sets its place (`SendSchedule::sharing`).
//!
//! # Shaped links
//!
//! `link/shaped.rs` is the only model of delay, rate, queue and faults. A `ShapedPath` receives the time at which each message enters
//! and computes the time at which it leaves. `mem://` uses it, and so does `ShapedLink`, which wraps any link; the relay of
//! `lab/shaper.rs` consists of two of them.
//!
//! # Nodes
//!
//! In LINX many endpoints share one connection (`transport/linx/`). A receiver that waits reads the connection and puts messages for other
//! endpoints into their mailboxes, so a single receiver needs no second thread to wake it. A thread of the connection handles timers
//! (`node_connection.rs`). An endpoint that shares its thread with others waits for a doorbell, a descriptor of its own
//! (`linx/doorbell.rs`); that thread of the connection reads then and rings. The node protocols are state machines, as parties are.
//!
//! # A case
//!
//! `schedule::check` turns a plan into a `CheckedPlan`: it looks up every name, lets the protocol complete the case (`prepare_case`),
//! and sets what was left open. The `ReadyCase` has no names and no values that mean "not set". With `auto`, `protocol::auto` probes
//! the server before the case runs. The protocol's `connect` returns a `ClientSession`. `schedule` runs the flows of the session side
//! by side, lets the session finish (it receives the server's report then), and records everything in a `CaseAccumulator`
//! (`schedule/accumulator.rs`), which becomes a `CaseResult` with its warnings.
//!
//! # Wrapped links
//!
//! No method of `Link` has a default. A link that wraps another (`ShapedLink`, `ReopeningLink`, `SctpLink`) decides on each method, so
//! it cannot lose batches, the port control or the state of the inner link. `Link::status` is the one place of that state: hang-up,
//! unacknowledged bytes, retransmits, drops, busy-poll time.
//!
//! # Links that break
//!
//! A party that can continue on a new connection asks for one (`Step::Reopen`). Its protocol has wrapped the link in a `ReopeningLink`
//! (`link/reopen.rs`): every failure of the link looks like a close to the party, and the dialer opens the new link in a thread of its
//! own, outside the loop. The content of a download leaves the party through a bounded channel, in order; while the channel is full the
//! party requests no more.
//!
//! # Links that are measured by opening them
//!
//! The party of `connect`, and that of `latency` with `--reconnect-every`, closes its link (`Step::FinishSending`) and opens it again
//! (`Step::Reopen`); `workload/redial.rs` decides when. `link/redial.rs` does both in the thread of the party, because the time that
//! opening takes is the figure. A transport that can begin to open a link without waiting (`Transport::begin_open`) shares its thread
//! meanwhile.
//!
//! # Reaching a host
//!
//! `link/hosts.rs` orders the addresses of a name and remembers which one has answered, for all links of a dialer.
//! `transport/connect_first.rs` opens streams to them (RFC 8305), `transport/fallback.rs` sends first messages without connections. Why a host
//! cannot be reached is decided in `link/reachability.rs`, by the reports in the error queue of the socket; they are read until the
//! first reply. If nothing arrived, `schedule` waits for late reports on the links of the case (`Dialer::await_report`).
//!
//! # The path to a host
//!
//! `path` sends hop-limited probes, alone or beside the load of a run. `path/prober.rs` decides what is due and which reply belongs to which
//! probe, `path/mtu.rs` searches the largest packet, `path/queue.rs` and `path/hops.rs` judge; none of them has I/O. `path/socket.rs` reads the
//! error queues. A run with a path beside it is unchanged: the probes have a thread, and the begin of each load is read from its
//! progress events (`path/beside.rs`).
//!
//! # Links with one user
//!
//! A serial port can be open only once, and opening it can reset the device at its end. During a run `Dialer::open` lends such a link
//! (`link/kept.rs`, by `Caps::can_open_parallel`); it comes back when its user drops it, and the next repetition or case at the same
//! endpoint gets it, after late bytes have been discarded.
//!
//! # Repetitions
//!
//! `schedule/split.rs` splits a measurement into repetitions on fresh connections, and `schedule/until.rs` measures in rounds until an
//! interval is narrow. `stats/repetitions.rs` computes the interval of a run; the program corrects it by earlier runs from the store
//! (`verdict::correct_intervals`).
//!
//! # The server
//!
//! `serve` accepts connections and runs the party that the protocol's `Service` makes for each. Connections share a thread for each CPU
//! (`serve/threads.rs`, `link/shared_thread.rs`). When a party tunes its link for a measurement with few flows, it moves to a thread of
//! its own, so that it blocks or busy-polls there as it does in a client. `LimitedParty` (`serve/limited_party.rs`) wraps that party.
//! It is a party itself, so it works on every link and on the virtual clock. It counts bytes in both directions and enforces the limits
//! that hold for all protocols: idle time, duration, rate, message size and, on links without connections, never more bytes out than
//! in. A party reports how far its client is trusted (`Party::client_trust`) and learns why it is stopped (`Party::on_stopped`).
//! Clients that have sent nothing wait without a party (`serve/pending.rs`). On links without connections the first message of a sender
//! passes `serve/admission.rs` and `Service::admit_sender`, which decides: reply without storing anything, open a link, or drop. Drop
//! is the default. `docs/security.md` lists what the server defends against.

pub mod device_settings;
pub mod host;
pub mod link;
pub mod path;
pub mod protocol;
pub mod schedule;
pub mod serve;
mod standard;
pub mod transport;
pub mod workload;

pub use protocol::Registry;
