//! One connection between two nodes, shared by all endpoints of the local node.
//!
//! A thread that waits for a message reads the connection and delivers messages to other endpoints as well.
//! So a single receiver needs no other thread to wake it. If several threads wait, one of them reads for all;
//! one that has read only for others leaves reading to them. The keeper thread of the connection handles
//! timers, and reads if no other thread does (`node_connection/keeper.rs`).
//!
//! A message for a full mailbox stays in the connection, with everything behind it: memory is bounded, and
//! the remote node's system blocks its senders.

use std::ops::Deref;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
    fence,
};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::Builder;
use std::time::Duration;

use super::DisconnectReason;
use super::carrier::{Carrier, CarrierControl, CarrierReader, CarrierWriter, ReceivedItem};
use super::directory::{EndpointDirectory, ServedName, accepted_signal};
use super::doorbell::Doorbell;
use super::ethernet_cm::connection::ReceivedMessage;
use super::mailbox::{FINISHED_SIGNAL, Mailbox, PAYLOAD_SIGNAL, ReceiveTarget, SignalFormat};
use crate::link::stamps::SendStamps;
use crate::link::{Facts, Fault};
use keeper::run_keeper;
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::plan::WaitMode;

mod keeper;

/// Maximum interval between checks, for the keeper and for threads that wait for another reader.
const KEEPER_INTERVAL: Duration = Duration::from_millis(100);

/// Timeout for closing a connection. A real node notices our close only when two of its pings get no reply,
/// after at most 2 s; then it closes its side.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Stack size of the keeper thread.
const KEEPER_STACK_BYTES: usize = 128 * 1024;

/// Called with each new client, and with `None` at the end.
pub(crate) type ArrivalHandler = dyn Fn(Option<(Arc<NodeConnection>, Arc<Mailbox>)>) + Send + Sync;

/// A connection that lives as long as it has users. Dropping the last handle closes it and waits for the
/// close: if the process ended earlier it would reset the connection, and real nodes handle a reset badly.
pub(crate) struct NodeConnection(Arc<NodeConnectionCore>);

impl Deref for NodeConnection {
    type Target = NodeConnectionCore;

    fn deref(&self) -> &NodeConnectionCore {
        &self.0
    }
}

/// The state shared by the users of a connection and its keeper.
pub(crate) struct NodeConnectionCore {
    clock: Clock,
    reader: Mutex<Box<dyn CarrierReader>>,
    writer: Mutex<Box<dyn CarrierWriter>>,
    control: Arc<dyn CarrierControl>,
    directory: Mutex<EndpointDirectory>,
    arrival_handler: Option<Box<ArrivalHandler>>,
    weak_self: OnceLock<Weak<NodeConnection>>,
    /// Whether a thread is reading.
    has_reader: AtomicBool,
    /// The local address whose mailbox is full; 0: none.
    full_mailbox: AtomicU32,
    /// Number of the keeper's round, and of the round with the last read.
    keeper_round: AtomicU32,
    last_read_round: AtomicU32,
    /// Whether a thread other than the keeper has read since the keeper last looked.
    was_read: AtomicBool,
    /// Links whose owners wait for a doorbell, and whether one of them got a message in this round of the keeper.
    watched_links: AtomicUsize,
    has_rung: AtomicBool,
    /// Whether a full socket has left output that no thread waits to send.
    has_unsent: AtomicBool,
    /// Ends the rest of the keeper; it rings as well when no thread reads any more, if the keeper waits for that.
    keeper_bell: Doorbell,
    keeper_awaits_reader: AtomicBool,
    /// Threads that wait for another reader: all, and those that could read themselves.
    waiters: AtomicUsize,
    ready_readers: AtomicUsize,
    turn_lock: Mutex<()>,
    reader_free: Condvar,
    changed: Condvar,
    disconnect_reason: OnceLock<DisconnectReason>,
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Outcome of an attempt to read.
enum ReadOutcome {
    /// The reader got nothing in the time allowed.
    NothingCame,
    /// The state has changed: try again.
    Retry,
    /// The thread should leave reading to another one.
    LeaveToOther,
}

/// Contents of the dispatched messages.
#[derive(Default)]
struct DispatchResult {
    /// Data for the calling thread.
    is_for_caller: bool,
    /// Data for another endpoint.
    is_for_other: bool,
    /// A change that other threads may wait for.
    has_news: bool,
}

impl NodeConnection {
    /// Takes a connection over and starts its keeper.
    pub(crate) fn start(
        carrier: Carrier,
        clock: &Clock,
        service: Option<ServedName>,
        arrivals: Option<Box<ArrivalHandler>>,
    ) -> Result<Arc<NodeConnection>, Fault> {
        let Carrier { reader: incoming, writer: outgoing, control } = carrier;
        let keeper_bell = Doorbell::new()?;
        keeper_bell.start_watching();
        let core = Arc::new(NodeConnectionCore {
            clock: clock.clone(),
            reader: Mutex::new(incoming),
            writer: Mutex::new(outgoing),
            control,
            directory: Mutex::new(EndpointDirectory::new(service)),
            arrival_handler: arrivals,
            weak_self: OnceLock::new(),
            has_reader: AtomicBool::new(false),
            full_mailbox: AtomicU32::new(0),
            keeper_round: AtomicU32::new(2),
            last_read_round: AtomicU32::new(0),
            was_read: AtomicBool::new(false),
            watched_links: AtomicUsize::new(0),
            has_rung: AtomicBool::new(false),
            has_unsent: AtomicBool::new(false),
            keeper_bell,
            keeper_awaits_reader: AtomicBool::new(false),
            waiters: AtomicUsize::new(0),
            ready_readers: AtomicUsize::new(0),
            turn_lock: Mutex::new(()),
            reader_free: Condvar::new(),
            changed: Condvar::new(),
            disconnect_reason: OnceLock::new(),
        });
        let node_connection = Arc::new(NodeConnection(core.clone()));
        let _ = core.weak_self.set(Arc::downgrade(&node_connection));
        core.flush_pending();
        Builder::new()
            .name("linx keeper".to_owned())
            .stack_size(KEEPER_STACK_BYTES)
            .spawn(move || run_keeper(&core))
            .map_err(Fault::system("start a thread"))?;
        Ok(node_connection)
    }
}

impl Drop for NodeConnection {
    fn drop(&mut self) {
        self.close_until(self.clock.now() + CLOSE_TIMEOUT);
    }
}

impl NodeConnectionCore {
    /// Closes the connection, which has no more users, after the last messages are sent, at `until` at the latest.
    pub(crate) fn close_until(&self, until: Time) {
        if self.disconnect_reason.set(DisconnectReason::Closed).is_err() {
            return;
        }
        self.notify_waiters();
        self.keeper_bell.ring();
        {
            let mut outgoing = lock(&self.writer);
            let _ = outgoing.flush(WaitMode::Block, until.since(self.clock.now()));
        }
        self.control.close(until);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.disconnect_reason.get().is_some()
    }

    /// Whether another link may use the connection.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_over() && !self.control.is_closed_by_remote()
    }

    fn fault(&self) -> Option<Fault> {
        self.disconnect_reason.get().map(DisconnectReason::fault)
    }

    fn disconnect(&self, ending: DisconnectReason) -> Fault {
        let _ = self.disconnect_reason.set(ending);
        self.control.abort();
        self.notify_waiters();
        self.keeper_bell.ring();
        if let Some(arrivals) = &self.arrival_handler {
            arrivals(None);
        }
        self.fault().unwrap_or(Fault::Closed)
    }

    /// Ends the connection after a failed operation of the socket, but not after a timeout.
    fn handle_fault(&self, fault: Fault) -> Fault {
        match fault {
            Fault::TimedOut => Fault::TimedOut,
            Fault::Closed => self.disconnect(DisconnectReason::Closed),
            fault => self.disconnect(DisconnectReason::System(fault.to_string())),
        }
    }

    /// Wakes threads that wait for another reader: something arrived.
    fn notify_waiters(&self) {
        fence(SeqCst);
        if self.waiters.load(SeqCst) > 0 {
            drop(lock(&self.turn_lock));
            self.changed.notify_all();
            self.reader_free.notify_all();
        }
    }

    /// Wakes the threads that could read: no thread is reading.
    fn wake_readers(&self) {
        fence(SeqCst);
        if self.ready_readers.load(SeqCst) > 0 {
            drop(lock(&self.turn_lock));
            self.reader_free.notify_all();
        }
        if self.keeper_awaits_reader.load(SeqCst) && self.keeper_awaits_reader.swap(false, SeqCst) {
            self.keeper_bell.ring();
        }
    }

    /// Sends pending output. Does nothing if another thread is sending, because that thread sends it.
    fn flush_pending(&self) {
        while self.control.has_pending() {
            let Ok(mut outgoing) = self.writer.try_lock() else { return };
            if let Err(fault) = outgoing.flush(WaitMode::Block, Duration::ZERO) {
                drop(outgoing);
                self.handle_fault(fault);
                return;
            }
        }
    }

    /// Runs `act` on the directory and sends the resulting messages.
    pub(crate) fn with_directory<T>(&self, act: impl FnOnce(&mut EndpointDirectory) -> T) -> T {
        let (result, arrived) = {
            let mut directory = lock(&self.directory);
            let result = act(&mut directory);
            self.queue_outbox(&mut directory);
            (result, std::mem::take(&mut directory.arrivals))
        };
        self.flush_pending();
        self.announce_clients(arrived);
        result
    }

    fn queue_outbox(&self, directory: &mut EndpointDirectory) {
        for message in directory.outbox.drain(..) {
            self.control.queue_message(0, 0, &message.encode());
        }
        for mailbox in &directory.arrivals {
            if let Some(signal) = accepted_signal(mailbox) {
                self.control.queue_message(mailbox.own_address, mailbox.partner(), &signal);
            }
        }
    }

    /// Announces new clients.
    fn announce_clients(&self, arrived: Vec<Arc<Mailbox>>) {
        for mailbox in arrived {
            match (&self.arrival_handler, self.weak_self.get().and_then(Weak::upgrade)) {
                (Some(arrivals), Some(this)) => arrivals(Some((this, mailbox))),
                _ => self.remove_endpoint(mailbox.own_address),
            }
        }
    }

    // ---- receiving ----

    /// Receives messages for the owner of a mailbox.
    pub(crate) fn receive(
        &self,
        mailbox: &Mailbox,
        target: &mut ReceiveTarget,
        wait: WaitMode,
        within: Duration,
    ) -> Result<(), Fault> {
        let until = self.clock.now() + within;
        let mut left = within;
        loop {
            match self.take_delivered(mailbox, target) {
                Err(Fault::TimedOut) => {}
                outcome => return outcome,
            }
            match self.try_read(Some((mailbox, target)), wait, left) {
                // Messages from before the end are still delivered.
                Err(_) if target.has_messages() => {}
                Err(fault) => return Err(fault),
                Ok(ReadOutcome::Retry) => {}
                Ok(ReadOutcome::NothingCame | ReadOutcome::LeaveToOther) if left.is_zero() => {
                    return Err(Fault::TimedOut);
                }
                Ok(ReadOutcome::NothingCame) => {}
                Ok(ReadOutcome::LeaveToOther) => self.wait_for_reader(mailbox, left),
            }
            if target.has_messages() {
                return Ok(());
            }
            left = until.since(self.clock.now());
        }
    }

    /// Receives what a reader has delivered to the mailbox.
    #[inline]
    pub(crate) fn take_delivered(&self, mailbox: &Mailbox, target: &mut ReceiveTarget) -> Result<(), Fault> {
        let ended = mailbox.is_ended();
        if mailbox.has_messages() {
            mailbox.take_messages(target);
            mailbox.note_activity();
            self.resume_reading(mailbox);
        }
        match (target.has_messages(), ended) {
            (true, _) => Ok(()),
            (false, true) => Err(Fault::Closed),
            (false, false) => Err(self.fault().unwrap_or(Fault::TimedOut)),
        }
    }

    /// Lets reading continue, if the mailbox was full and has room again.
    fn resume_reading(&self, mailbox: &Mailbox) {
        if self.full_mailbox.load(SeqCst) == mailbox.own_address && mailbox.has_room() {
            self.full_mailbox.store(0, SeqCst);
            self.notify_waiters();
            self.keeper_bell.ring();
        }
    }

    /// Whether the owner of a mailbox should read.
    fn can_read(&self, mailbox: Option<&Mailbox>) -> bool {
        let is_unread =
            || self.keeper_round.load(Relaxed).wrapping_sub(self.last_read_round.load(Relaxed)) > 1;
        self.full_mailbox.load(SeqCst) == 0
            && (mailbox.is_none_or(|mailbox| !mailbox.leaves_reading_to_others()) || is_unread())
    }

    /// Reads, unless another thread should.
    fn try_read(
        &self,
        receiver: Option<(&Mailbox, &mut ReceiveTarget)>,
        wait: WaitMode,
        left: Duration,
    ) -> Result<ReadOutcome, Fault> {
        if !self.can_read(receiver.as_ref().map(|(mailbox, _)| *mailbox)) {
            return Ok(ReadOutcome::LeaveToOther);
        }
        let Ok(mut incoming) = self.reader.try_lock() else { return Ok(ReadOutcome::LeaveToOther) };
        self.has_reader.store(true, SeqCst);
        self.was_read.store(true, Relaxed);
        self.last_read_round.store(self.keeper_round.load(Relaxed), Relaxed);
        let outcome = self.read_until_found(incoming.as_mut(), receiver, wait, left);
        self.has_reader.store(false, SeqCst);
        drop(incoming);
        if self.control.has_pending() {
            self.flush_pending();
        }
        self.wake_readers();
        outcome
    }

    /// Reads until something arrives for the caller, or for another thread that waits.
    fn read_until_found(
        &self,
        incoming: &mut dyn CarrierReader,
        mut receiver: Option<(&Mailbox, &mut ReceiveTarget)>,
        wait: WaitMode,
        left: Duration,
    ) -> Result<ReadOutcome, Fault> {
        // Data that arrived before this thread became the reader lies in the mailbox.
        if receiver.as_ref().is_some_and(|(mailbox, _)| mailbox.has_messages() || mailbox.is_ended()) {
            return Ok(ReadOutcome::Retry);
        }
        for tries in 0.. {
            let found = self.dispatch(incoming, receiver.as_mut())?;
            if found.is_for_caller || receiver.as_ref().is_some_and(|(mailbox, _)| mailbox.is_ended()) {
                return Ok(ReadOutcome::Retry);
            }
            if self.full_mailbox.load(SeqCst) != 0 {
                return Ok(ReadOutcome::LeaveToOther);
            }
            if let Some((mailbox, _)) = receiver.as_ref().filter(|_| found.is_for_other)
                && mailbox.count_read_for_others()
            {
                return Ok(ReadOutcome::LeaveToOther);
            }
            if found.has_news {
                return Ok(ReadOutcome::Retry);
            }
            if tries > 0 {
                break;
            }
            match incoming.receive(wait, left) {
                Ok(()) => {}
                Err(Fault::TimedOut) => return Ok(ReadOutcome::NothingCame),
                // Data from before the end is still delivered.
                Err(fault) => return Err(self.handle_fault(fault)),
            }
        }
        Ok(ReadOutcome::Retry)
    }

    /// Delivers received messages as far as there is room for them.
    #[inline]
    fn dispatch(
        &self,
        incoming: &mut dyn CarrierReader,
        mut receiver: Option<&mut (&Mailbox, &mut ReceiveTarget)>,
    ) -> Result<DispatchResult, Fault> {
        let mut found = DispatchResult::default();
        let mut directory = lock(&self.directory);
        loop {
            let message = match incoming.peek().map_err(|ending| self.disconnect(ending))? {
                None => break,
                Some(ReceivedItem::Up) => {
                    let EndpointDirectory { node, outbox: control_output, .. } = &mut *directory;
                    node.start(control_output);
                    incoming.advance();
                    continue;
                }
                Some(ReceivedItem::Message(message)) => message,
            };
            let ReceivedMessage { source, destination, arrived, bytes } = message;
            if destination == 0 {
                found.has_news |=
                    directory.handle_control(bytes).map_err(|ending| self.disconnect(ending))?;
            } else if let Some(mailbox) = directory.mailbox_for(source, destination, bytes) {
                if let Some(message) = mailbox.payload_of(source, bytes) {
                    match &mut receiver {
                        Some((receiver, target)) if receiver.own_address == mailbox.own_address => {
                            if !target.put_message(message, arrived) {
                                break;
                            }
                            found.is_for_caller = true;
                            mailbox.note_activity();
                        }
                        _ if !self.deliver_to_other(mailbox, message, arrived) => break,
                        _ => found.is_for_other = true,
                    }
                } else if mailbox.is_ended() {
                    mailbox.ring();
                    found.has_news = true;
                }
            }
            incoming.advance();
        }
        self.queue_outbox(&mut directory);
        let arrived = std::mem::take(&mut directory.arrivals);
        drop(directory);
        if !arrived.is_empty() {
            self.announce_clients(arrived);
        }
        if found.has_news || found.is_for_other {
            self.notify_waiters();
        }
        Ok(found)
    }

    /// `false` if the mailbox is full: then reading stops until its owner has made room.
    #[inline]
    fn deliver_to_other(&self, mailbox: &Mailbox, message: &[u8], arrived: Option<Time>) -> bool {
        if !mailbox.push_message(message, arrived) {
            self.full_mailbox.store(mailbox.own_address, SeqCst);
            return false;
        }
        if mailbox.ring() {
            self.has_rung.store(true, SeqCst);
        }
        true
    }

    /// Waits until another reader delivers something, or this thread may read.
    fn wait_for_reader(&self, mailbox: &Mailbox, left: Duration) {
        let would_read = !mailbox.leaves_reading_to_others();
        self.waiters.fetch_add(1, SeqCst);
        self.ready_readers.fetch_add(usize::from(would_read), SeqCst);
        let turn = lock(&self.turn_lock);
        let ready = mailbox.has_messages()
            || mailbox.is_ended()
            || self.is_over()
            || self.can_read(Some(mailbox)) && !self.has_reader.load(SeqCst);
        if !ready {
            let condition = if would_read { &self.reader_free } else { &self.changed };
            drop(condition.wait_timeout(turn, left.min(KEEPER_INTERVAL)));
        }
        self.ready_readers.fetch_sub(usize::from(would_read), SeqCst);
        self.waiters.fetch_sub(1, SeqCst);
    }

    /// Waits until `ready` returns a value from the directory; reads meanwhile if no other thread does.
    pub(crate) fn await_directory<T>(
        &self,
        within: Duration,
        mut ready: impl FnMut(&mut EndpointDirectory) -> Option<T>,
    ) -> Result<T, Fault> {
        let until = self.clock.now() + within;
        loop {
            if let Some(fault) = self.fault() {
                return Err(fault);
            }
            if let Some(result) = self.with_directory(&mut ready) {
                return Ok(result);
            }
            let left = until.since(self.clock.now());
            if left.is_zero() {
                return Err(Fault::TimedOut);
            }
            if let ReadOutcome::LeaveToOther =
                self.try_read(None, WaitMode::Block, left.min(KEEPER_INTERVAL))?
            {
                self.waiters.fetch_add(1, SeqCst);
                let turn = lock(&self.turn_lock);
                // A reader signals changes; a short time later this thread checks for itself.
                drop(self.changed.wait_timeout(turn, left.min(KEEPER_INTERVAL / 20)));
                self.waiters.fetch_sub(1, SeqCst);
            }
        }
    }

    // ---- sending ----

    /// Sends messages of `message` bytes stored back to back. Returns the number of bytes taken.
    #[inline]
    pub(crate) fn send(
        &self,
        mailbox: &Mailbox,
        messages: &[u8],
        message: usize,
        wait: WaitMode,
        within: Duration,
    ) -> Result<usize, Fault> {
        if let Some(fault) = self.fault() {
            return Err(fault);
        }
        if mailbox.is_partner_gone() {
            return Err(Fault::Closed);
        }
        let number = PAYLOAD_SIGNAL.to_be_bytes();
        let head = if mailbox.signal_format == SignalFormat::Numbered { &number[..] } else { &[] };
        let partner = mailbox.partner();
        mailbox.note_activity();
        let mut outgoing = lock(&self.writer);
        let put = |outgoing: &mut dyn CarrierWriter| {
            let (mut taken, mut any) = (0, false);
            loop {
                let rest = &messages[taken..];
                let one = &rest[..rest.len().min(message)];
                if !outgoing.queue(mailbox.own_address, partner, head, one) {
                    return any.then_some(taken);
                }
                (taken, any) = (taken + one.len(), true);
                if taken == messages.len() || one.is_empty() {
                    return Some(taken);
                }
            }
        };
        let taken = match put(outgoing.as_mut()) {
            Some(taken) => taken,
            None => {
                // The buffer is full of earlier messages.
                outgoing.flush(wait, within).map_err(|fault| self.handle_fault(fault))?;
                put(outgoing.as_mut()).ok_or(Fault::TimedOut)?
            }
        };
        match outgoing.flush(wait, within) {
            Ok(()) => {}
            // The rest is sent before anything else.
            Err(Fault::TimedOut) => self.leave_unsent(),
            Err(fault) => return Err(self.handle_fault(fault)),
        }
        drop(outgoing);
        if self.control.has_pending() {
            self.flush_pending();
        }
        Ok(taken)
    }

    /// Announces the end of data to the partner, if it supports that.
    pub fn finish(&self, mailbox: &Mailbox) {
        if mailbox.signal_format == SignalFormat::Numbered && !mailbox.is_partner_gone() && !self.is_over() {
            self.control.queue_message(
                mailbox.own_address,
                mailbox.partner(),
                &FINISHED_SIGNAL.to_be_bytes(),
            );
            self.flush_pending();
        }
    }

    /// Makes the kernel stamp the messages of a local endpoint from now on, where the connection supports it.
    pub(crate) fn start_stamps(&self, own: u32) {
        self.control.start_stamps(own);
    }

    /// Moves the stamps of the endpoint's sent messages to `into`.
    pub(crate) fn read_send_stamps(&self, own: u32, into: &mut SendStamps) {
        self.control.read_send_stamps(own, into);
    }

    /// Removes a local endpoint.
    pub(crate) fn remove_endpoint(&self, own: u32) {
        self.control.stop_stamps(own);
        self.with_directory(|directory| directory.remove_endpoint(own));
        let _ = self.full_mailbox.compare_exchange(own, 0, SeqCst, SeqCst);
        self.notify_waiters();
        self.keeper_bell.ring();
    }

    pub(crate) fn stop_serving(&self) {
        self.with_directory(EndpointDirectory::stop_serving);
    }

    pub(crate) fn facts(&self) -> Facts {
        let mut facts = Facts::new();
        self.control.facts(&mut facts);
        facts
    }
}
