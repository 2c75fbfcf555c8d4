//! Names of requested and effective settings in a document.

/// Requested setting: the file of another program that the case was read from.
pub const IMPORTED_FROM: &str = "imported_from";

/// Requested setting: the number of repetitions among which one measurement was split.
pub const SPLIT_FACT: &str = "split_into";

/// Effective setting: true if the links are streams that repeat what is lost, so that losses are not seen.
pub const RELIABLE_STREAM_FACT: &str = "reliable_stream";

/// Requested setting: why a measurement was not split into repetitions.
pub const ONE_REPETITION_FACT: &str = "one_repetition_because";

/// Effective setting: segments that the local system sent again, in all repetitions.
pub const RETRANSMITS_FACT: &str = "retransmitted_segments";

/// Effective setting: replies of Modbus that were exceptions, those of the warm-up included, by their code.
pub const EXCEPTIONS_FACT: &str = "modbus_exceptions";

/// Effective setting: whose bytes the time series of an upload holds. Absent: those that the sender's system accepted.
pub const SERIES_FACT: &str = "series";

/// Value of [`SERIES_FACT`]: those that the server received.
pub const RECEIVED_SERIES: &str = "received";

/// Effective setting: the largest packet that the path carries, as far as the kernel knows.
pub const PATH_MTU_FACT: &str = "path_mtu_bytes";

/// Effective setting: the router that has reported it.
pub const MTU_REPORTER_FACT: &str = "path_mtu_reported_by";

/// Effective setting: the threads of the client, if its flows share them.
pub const CLIENT_THREADS_FACT: &str = "client_threads";

/// Fact in `effective`: the rate that the server granted, where it is lower than the requested one.
pub const SERVER_LIMIT_MESSAGES_PER_SECOND: &str = "server_limit_messages_per_second";

/// Fact in `effective`: the duration that the server granted, where it is shorter than the requested one.
pub const SERVER_LIMIT_SECONDS: &str = "server_limit_seconds";

/// Effective setting: the number of earlier runs of the case whose differences are in its intervals.
pub const EARLIER_RUNS_FACT: &str = "interval_earlier_runs";

/// Requested setting: the wanted half width of the interval of the headline figure, in percent of it.
pub const UNTIL_FACT: &str = "until_interval_percent";
