//! Runs a server party on each of several serial lines, in threads of their own, until it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use super::LabError;
use linkgauge_engine::link::party::{CANCEL_CHECK_INTERVAL, Party, drive};
use linkgauge_engine::link::{Caps, Dialer, Fault, Link, LinkError};
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::Endpoint;

/// The threads of the lines.
pub(crate) struct LineServer {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    errors: Receiver<LabError>,
}

impl LineServer {
    /// Opens all lines, then starts a party on each.
    ///
    /// # Errors
    ///
    /// Fails if a line cannot be opened or a thread cannot be started; no line is served then.
    pub(crate) fn start<P: Party + 'static>(
        lines: &[Endpoint],
        dialer: &Dialer,
        new_party: impl Fn(&Caps) -> P,
    ) -> Result<LineServer, LabError> {
        let open = lines.iter().map(|line| Ok((line, dialer.open(line)?)));
        let open = open.collect::<Result<Vec<_>, LinkError>>()?;
        let (report, errors) = sync_channel(lines.len());
        let mut server = LineServer { stop: Arc::default(), threads: Vec::new(), errors };
        for (endpoint, link) in open {
            let party = new_party(link.caps());
            server.start_line(endpoint, link, party, (&dialer.clock, report.clone()))?;
        }
        Ok(server)
    }

    fn start_line(
        &mut self,
        endpoint: &Endpoint,
        mut link: Box<dyn Link>,
        mut party: impl Party + 'static,
        (clock, report): (&Clock, SyncSender<LabError>),
    ) -> Result<(), LabError> {
        let (stop, clock, line) = (self.stop.clone(), clock.clone(), endpoint.clone());
        let run = move || {
            let ended = drive(&mut party, link.as_mut(), &clock, &stop, CANCEL_CHECK_INTERVAL);
            if !stop.load(Relaxed) {
                let fault = ended.err().unwrap_or(Fault::Closed);
                // The channel has room for each line. A send fails only without a receiver.
                let _ = report.try_send(LinkError::new(&line, fault).into());
            }
        };
        let thread = Builder::new().name("lab line".to_owned()).spawn(run);
        let thread = thread.map_err(Fault::system("start a thread"));
        self.threads.push(thread.map_err(|fault| LinkError::new(endpoint, fault))?);
        Ok(())
    }

    /// Errors of lines that have failed, each once.
    pub(crate) fn errors(&self) -> impl Iterator<Item = LabError> {
        self.errors.try_iter()
    }

    /// Whether a line is still served.
    pub(crate) fn is_serving(&self) -> bool {
        self.threads.iter().any(|line| !line.is_finished())
    }
}

impl Drop for LineServer {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for line in self.threads.drain(..) {
            // A thread that panicked has already printed its message.
            let _ = line.join();
        }
    }
}
