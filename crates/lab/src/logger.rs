//! A software data logger: it replies like a CR1000 over PakBus, on streams and serial lines.
//!
//! The logger is an emulation and proves nothing about real loggers. docs/limits.md lists its unconfirmed behaviour.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::LabError;
use super::line_server::LineServer;
use linkgauge_engine::Registry;
use linkgauge_engine::link::{Dialer, Framing, LinkError};
use linkgauge_engine::protocol::pakbus::value::{LOGGER_EPOCH_UNIX_SECONDS, LoggerTime};
use linkgauge_engine::protocol::pakbus::{DEFAULT_ADDRESS, DEFAULT_PORT};
use linkgauge_engine::protocol::{ServerLimits, Service};
use linkgauge_engine::serve::Server;
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::Endpoint;

mod connection;
mod files;
mod machine;
mod queue;
mod tables;

use connection::{LoggerConnection, SharedMachine};
use files::check_file_name;
pub use files::generate_content;
pub(crate) use machine::LoggerCounters;
use machine::LoggerMachine;
pub use tables::TableSpec;

/// The endpoints of a logger and its configuration.
#[derive(Debug, Clone, Default)]
pub struct LoggerOptions {
    /// Endpoints to listen on. Each accepts any number of clients.
    pub listen: Vec<Endpoint>,
    /// Serial lines to reply on.
    pub serial_lines: Vec<Endpoint>,
    /// Identity, contents and timing.
    pub config: LoggerConfig,
}

/// Identity, contents and timing of a logger.
#[derive(Debug, Clone)]
pub struct LoggerConfig {
    /// PakBus address of the logger, 1 to 4094.
    pub address: u16,
    /// The code that commands must carry. 0: none.
    pub security_code: u16,
    /// Names including the drive, and contents.
    pub files: Vec<(String, Vec<u8>)>,
    /// The data tables.
    pub tables: Vec<TableSpec>,
    /// Seed of the values in tables.
    pub seed: u64,
    /// Processor time of each command, at most one minute. Hello messages take no time.
    pub command_time: Duration,
    /// Maximum number of commands in the queue, including the one in progress: 1 to 255.
    pub queue_commands: usize,
    /// The treatment of commands that the queue has no room for.
    pub full_queue_policy: FullQueuePolicy,
    /// A command that takes longer than this gets a "please wait" after this time.
    pub please_wait: Duration,
    /// Maximum packet size in bytes: 200 to 1000.
    pub max_packet_bytes: u16,
    /// Collections that wait for other commands lack their first record.
    pub skip_records: bool,
}

/// The treatment of commands when the queue is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FullQueuePolicy {
    /// The client gets an error reply.
    #[default]
    Refuse,
    /// The client gets no reply.
    Drop,
}

impl Default for LoggerConfig {
    /// A logger without files and tables that replies immediately.
    fn default() -> LoggerConfig {
        LoggerConfig {
            address: DEFAULT_ADDRESS,
            security_code: 0,
            files: Vec::new(),
            tables: Vec::new(),
            seed: 1,
            command_time: Duration::ZERO,
            // The buffers for short packets of a CR3000, by its manual. Other loggers are reported to be similar.
            queue_commands: 15,
            full_queue_policy: FullQueuePolicy::Refuse,
            // Loggers promise a reply or "please wait" within a second (BMP5 manual).
            please_wait: Duration::from_secs(1),
            max_packet_bytes: 1000,
            skip_records: false,
        }
    }
}

impl LoggerConfig {
    /// Maximum number of message bytes: 998 in the largest packet.
    fn max_message_bytes(&self) -> usize {
        usize::from(self.max_packet_bytes).saturating_sub(2)
    }

    fn check(&self) -> Result<(), LabError> {
        let refuse = |what: String| Err(LabError::Invalid(what));
        if !(1..=4094).contains(&self.address) {
            return refuse(format!("address {}: use 1 to 4094", self.address));
        }
        if !(1..=255).contains(&self.queue_commands) {
            return refuse(format!("a queue of {}: use 1 to 255", self.queue_commands));
        }
        if !(200..=1000).contains(&self.max_packet_bytes) {
            return refuse(format!("packets of {} bytes: use 200 to 1000", self.max_packet_bytes));
        }
        if self.command_time > Duration::from_secs(60) {
            return refuse("a command cannot take longer than a minute".to_owned());
        }
        let (files, tables) =
            (self.files.iter().map(|(name, _)| name), self.tables.iter().map(|table| &table.name));
        if let Some(name) = first_duplicate(files.clone()) {
            return refuse(format!("file '{name}' is given twice"));
        }
        if let Some(name) = first_duplicate(tables) {
            return refuse(format!("table '{name}' is given twice"));
        }
        files.into_iter().try_for_each(|name| check_file_name(name))
    }
}

/// The first name that occurs twice.
fn first_duplicate<'a>(names: impl Iterator<Item = &'a String>) -> Option<&'a String> {
    let mut seen = BTreeSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}

/// A running logger; stops when it is dropped.
pub struct Logger {
    server: Server,
    machine: SharedMachine,
    lines: LineServer,
}

/// Maximum number of simultaneous connections: far more than a real logger supports.
const CONNECTION_LIMITS: ServerLimits = ServerLimits { sessions: 256, idle_s: 600, ..ServerLimits::DEFAULT };

impl Logger {
    /// Starts a logger whose clock shows the host's time in UTC.
    ///
    /// # Errors
    ///
    /// Same errors as [`Logger::start_with`].
    pub fn start(options: &LoggerOptions) -> Result<Logger, LabError> {
        let since_1990 = linkgauge_model::clock::wall_clock_date().as_nanosecond()
            - i128::from(LOGGER_EPOCH_UNIX_SECONDS) * 1_000_000_000;
        let clock = LoggerTime::from_nanoseconds(i64::try_from(since_1990).unwrap_or_default());
        Logger::start_with(options, clock, Registry::standard().dialer(Clock::System))
    }

    /// Starts a logger whose clock now shows `clock`, on the links of a dialer.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid, an endpoint preserves message boundaries, or an endpoint or line
    /// cannot be opened.
    pub fn start_with(
        options: &LoggerOptions,
        clock: LoggerTime,
        mut dialer: Dialer,
    ) -> Result<Logger, LabError> {
        options.config.check()?;
        for endpoint in &options.listen {
            let caps = dialer.transports.caps(endpoint).map_err(|fault| LinkError::new(endpoint, fault))?;
            if caps.framing == Framing::Message {
                return Err(LabError::Invalid(format!("{endpoint}: a logger needs a stream, like TCP")));
            }
        }
        dialer.default_port = Some(DEFAULT_PORT);
        let shared = SharedMachine::new(LoggerMachine::new(options.config.clone(), clock, dialer.now()));
        let service: Arc<dyn Service> = Arc::new(shared.clone());
        let server = Server::start(&options.listen, &service, &CONNECTION_LIMITS, &dialer)?;
        let lines = LineServer::start(&options.serial_lines, &dialer, |caps| {
            LoggerConnection::new(shared.clone(), caps)
        })?;
        Ok(Logger { server, machine: shared, lines })
    }

    /// The effective listening endpoints.
    pub fn endpoints(&self) -> &[Endpoint] {
        self.server.endpoints()
    }

    /// Numbers of accepted and refused connections.
    pub fn connection_counts(&self) -> (u64, u64) {
        let counters = self.server.counters();
        (counters.accepted.load(Relaxed), counters.refused.load(Relaxed))
    }

    /// The counters since the start.
    pub fn counters(&self) -> LoggerCounters {
        self.machine.lock().counters
    }

    /// Errors of lines that have failed, each once.
    pub fn line_errors(&self) -> impl Iterator<Item = LabError> {
        self.lines.errors()
    }

    /// Whether at least one endpoint or line works.
    pub fn is_reachable(&self) -> bool {
        !self.endpoints().is_empty() || self.lines.is_serving()
    }
}

#[cfg(test)]
mod downloads;
#[cfg(test)]
mod tests;
