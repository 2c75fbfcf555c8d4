//! The redirector: a local serial port (a pseudo-terminal) connected to a remote port, for programs without network
//! support. Settings that a program makes are applied to the remote port.
//!
//! This module does not know how a remote port is reached: its link does. Bytes move in `session.rs`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::LabError;
use super::uart::Symlink;
use linkgauge_engine::Registry;
use linkgauge_engine::link::serial_line::{self, SerialSettings};
use linkgauge_engine::link::{Dialer, Fault, Framing, Link, LinkError};
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::Endpoint;

mod session;
mod stand_in;

pub(crate) use stand_in::STAND_IN;

use linkgauge_system::Pty;
use session::RedirectSession;

/// Options of a redirector.
#[derive(Debug, Clone)]
pub struct RedirectorOptions {
    /// Any stream. If its port can be controlled, a program's settings are applied there. Settings that a
    /// pseudo-terminal cannot represent (data bits, even parity) come from this endpoint's options.
    pub remote: Endpoint,
    /// A symbolic link to the local port. It is removed at the end.
    pub link: Option<PathBuf>,
    /// Timeout for opening a connection.
    pub timeout: Duration,
    /// Whether the first connection is retried as well, not only a lost one.
    pub retry: bool,
    /// Ends after this time without a connection. `None`: never.
    pub give_up_after: Option<Duration>,
}

impl RedirectorOptions {
    /// Creates options with no symbolic link and one second to connect; the first connection has to succeed.
    pub fn new(remote: Endpoint) -> RedirectorOptions {
        RedirectorOptions {
            remote,
            link: None,
            timeout: Duration::from_secs(1),
            retry: false,
            give_up_after: None,
        }
    }
}

/// An event of a redirector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedirectorEvent {
    /// The connection to the remote port is open.
    Connected,
    /// The connection has ended. The redirector connects again.
    ConnectionLost {
        /// The reason, as printed.
        why: String,
    },
    /// A connection attempt failed and will be repeated. Reported once for each reason.
    ConnectFailed {
        /// The reason, as printed.
        why: String,
    },
    /// A program's settings are effective at the remote port.
    SettingsApplied {
        /// The effective settings.
        settings: SerialSettings,
    },
    /// The remote port rejected a program's settings.
    SettingsRejected {
        /// The settings that the program requested.
        wanted: SerialSettings,
        /// The reason, as printed.
        why: String,
    },
    /// The redirector ended because there was no connection for too long.
    GaveUp,
}

impl fmt::Display for RedirectorEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RedirectorEvent::Connected => write!(f, "connected"),
            RedirectorEvent::ConnectionLost { why } => write!(f, "connection lost: {why}; connecting again"),
            RedirectorEvent::ConnectFailed { why } => write!(f, "no connection: {why}; trying again"),
            RedirectorEvent::SettingsApplied { settings } => write!(f, "set to {settings}"),
            RedirectorEvent::SettingsRejected { wanted, why } => {
                write!(f, "could not be set to {wanted}: {why}")
            }
            RedirectorEvent::GaveUp => write!(f, "no connection for too long: giving up"),
        }
    }
}

/// Counters since the start.
#[derive(Debug, Default)]
pub struct RedirectorCounters {
    /// Connections since the start, the first one included.
    pub connections: AtomicU64,
    /// Bytes from programs that the connection accepted.
    pub to_remote: AtomicU64,
    /// Bytes for programs that the local port accepted.
    pub from_remote: AtomicU64,
    /// Received bytes that a program purged before the local port had room for them.
    pub(crate) purged: AtomicU64,
}

/// A running redirector; stops when it is dropped.
///
/// Without a connection, data that a program writes stays in the local port until that is full; then the program
/// blocks. Received data is buffered in the same way while no program has the port open.
pub struct Redirector {
    link: Option<Symlink>,
    state: Arc<RedirectorState>,
    events: Receiver<RedirectorEvent>,
    thread: Option<JoinHandle<()>>,
}

/// State that the threads share.
struct RedirectorState {
    options: RedirectorOptions,
    pty: Pty,
    /// The settings in the endpoint's options.
    line_settings: SerialSettings,
    dialer: Dialer,
    stop: AtomicBool,
    /// A connection attempt is in progress.
    is_connecting: AtomicBool,
    has_ended: AtomicBool,
    counters: RedirectorCounters,
    events: SyncSender<RedirectorEvent>,
}

/// Maximum number of unread events.
const MAX_QUEUED_EVENTS: usize = 1024;

/// Delay between connection attempts: it grows from the minimum to the maximum.
const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(100);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(5);

/// Interval at which a waiting thread checks for its end, and for settings without data after them.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl Redirector {
    /// Creates the local port and connects it.
    ///
    /// # Errors
    ///
    /// Fails if the remote is not a stream, or if the local port cannot be created. Without `retry`, also if the
    /// remote cannot be reached.
    pub fn start(options: &RedirectorOptions) -> Result<Redirector, LabError> {
        let remote = &options.remote;
        let fault = |fault| LinkError::new(remote, fault);
        let caps = Registry::standard().transports.caps(remote).map_err(fault)?;
        if caps.framing != Framing::Stream {
            return Err(LabError::Invalid(format!("{remote}: a serial port needs a stream")));
        }
        let line = serial_line::settings_of(remote)?;
        let pty = Pty::open().map_err(|error| fault(Fault::system("make a pseudo-terminal")(error)))?;
        linkgauge_system::set_line(&pty.master, &line)
            .map_err(|error| fault(Fault::system("set the line")(error)))?;
        let link =
            options.link.as_ref().map(|path| Symlink::new(path.clone(), pty.path.clone())).transpose()?;
        let mut dialer = Registry::standard().dialer(Clock::System);
        dialer.timeout = options.timeout;
        let first = match dialer.open(remote) {
            Err(error) if !options.retry => return Err(error.into()),
            opened => opened,
        };
        let (sender, events) = sync_channel(MAX_QUEUED_EVENTS);
        let common = Arc::new(RedirectorState {
            options: options.clone(),
            pty,
            line_settings: line,
            dialer,
            stop: AtomicBool::new(false),
            is_connecting: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            counters: RedirectorCounters::default(),
            events: sender,
        });
        let runner = common.clone();
        let thread = Builder::new()
            .name("redirector".to_owned())
            .spawn(move || runner.run(first))
            .map_err(LabError::system("start a thread"))?;
        Ok(Redirector { link, state: common, events, thread: Some(thread) })
    }

    /// Path of the local port: the symbolic link, or the terminal.
    pub fn path(&self) -> &Path {
        self.link.as_ref().map_or(&self.state.pty.path, |link| &link.path)
    }

    /// The counters since the start.
    pub fn counters(&self) -> &RedirectorCounters {
        &self.state.counters
    }

    /// Events since the last call. If events are not read in time, the newest are dropped.
    pub fn events(&self) -> impl Iterator<Item = RedirectorEvent> {
        self.events.try_iter()
    }

    /// Whether the redirector has given up.
    pub fn has_ended(&self) -> bool {
        self.state.has_ended.load(Relaxed)
    }
}

impl Drop for Redirector {
    fn drop(&mut self) {
        self.state.stop.store(true, Relaxed);
        // A thread that waits for an unresponsive host ends by itself and has nothing left to do.
        if !self.state.is_connecting.load(Relaxed)
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

impl RedirectorState {
    /// Connects and runs sessions repeatedly.
    fn run(&self, first: Result<Box<dyn Link>, LinkError>) {
        let mut opened = first;
        let mut pause = MIN_RECONNECT_DELAY;
        let mut alone_since = self.dialer.now();
        let mut last_reason = String::new();
        while !self.is_stopping() {
            match opened {
                Ok(link) => {
                    let start = self.dialer.now();
                    self.run_session(link);
                    alone_since = self.dialer.now();
                    // The delay also applies to a remote that accepts connections and closes them at once.
                    if alone_since.since(start) >= MAX_RECONNECT_DELAY {
                        pause = MIN_RECONNECT_DELAY;
                    }
                    last_reason.clear();
                }
                Err(error) => {
                    let why = error.to_string();
                    if why != last_reason {
                        self.emit(RedirectorEvent::ConnectFailed { why: why.clone() });
                        last_reason = why;
                    }
                }
            }
            let alone = self.dialer.now().since(alone_since);
            if self.options.give_up_after.is_some_and(|most| alone >= most) {
                self.emit(RedirectorEvent::GaveUp);
                break;
            }
            self.sleep(pause);
            pause = (2 * pause).min(MAX_RECONNECT_DELAY);
            self.is_connecting.store(true, Relaxed);
            opened = self.dialer.open(&self.options.remote);
            self.is_connecting.store(false, Relaxed);
        }
        self.has_ended.store(true, Relaxed);
    }

    /// Runs one session until the connection is lost.
    fn run_session(&self, link: Box<dyn Link>) {
        self.counters.connections.fetch_add(1, Relaxed);
        self.emit(RedirectorEvent::Connected);
        let why = RedirectSession::new(self).run(link);
        if let Some(fault) = why.filter(|_| !self.is_stopping()) {
            let why = match fault {
                Fault::Closed => "the remote closed it".to_owned(),
                fault => fault.to_string(),
            };
            self.emit(RedirectorEvent::ConnectionLost { why });
        }
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn emit(&self, event: RedirectorEvent) {
        // Events that are not read in time are dropped.
        let _ = self.events.try_send(event);
    }

    fn sleep(&self, pause: Duration) {
        let until = self.dialer.now() + pause;
        while !self.is_stopping() && self.dialer.now() < until {
            std::thread::sleep(POLL_INTERVAL.min(until.since(self.dialer.now())));
        }
    }
}
