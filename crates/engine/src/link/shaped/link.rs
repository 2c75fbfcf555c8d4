//! A link wrapper that delays received data on a shaped path. Sent data passes unchanged.
//!
//! Wrapped around both links of a relay it shapes both directions. The receiving thread does all the work: it
//! records each arrival, and delivers it when it is due.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{MessageLog, PathCounters, Shape, ShapedPath, ShapedPipe};
use crate::link::batch::receive_single;
use crate::link::delegate::{delegate_link, plain_link};
use crate::link::{Batch, Caps, Fault, Framing, Link, LinkDescriptor, LinkStatus};
use linkgauge_model::clock::{BUSY_POLL_LEAD, Clock, Time};

/// A path shared by several links. Clones are handles of the same path.
#[derive(Debug, Clone)]
pub struct SharedPath(Arc<Mutex<ShapedPath>>);

impl SharedPath {
    /// An idle path; the same seed has the same effect on the same messages.
    pub fn new(shape: Shape, seed: u64) -> SharedPath {
        SharedPath(Arc::new(Mutex::new(ShapedPath::new(shape, seed))))
    }

    /// The counters of the path since it was made.
    pub fn counters(&self) -> PathCounters {
        self.lock().counters
    }

    /// Reports each message to `log` from now on; `None` stops this.
    pub fn set_log(&self, log: Option<MessageLog>) {
        self.lock().log = log;
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ShapedPath> {
        // The lock guards only counters, which stay valid after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A link whose received bytes pass a shaped path.
pub struct ShapedLink {
    inner: Box<dyn Link>,
    clock: Clock,
    caps: Caps,
    path: SharedPath,
    in_flight: Arc<Mutex<InFlight>>,
    receive_buffer: Vec<u8>,
}

/// Data in flight to the handles of one link.
struct InFlight {
    pipe: ShapedPipe,
    path: SharedPath,
    sender: SenderState,
}

/// Whether the sender of a stream has more than the queue takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SenderState {
    Drained,
    HeldUp,
}

impl InFlight {
    /// Counts the link among those that share the queue, or not.
    fn set_sender(&mut self, path: &mut ShapedPath, sender: SenderState) {
        let count = |state| usize::from(state == SenderState::HeldUp);
        path.held_up_streams = path.held_up_streams + count(sender) - count(self.sender);
        self.sender = sender;
    }

    /// Whether the link may put more into the queue: streams that are held up have equal shares of it, so they also have equal
    /// shares of the rate.
    fn has_share_left(&self, path: &ShapedPath, now: Time) -> bool {
        let streams = path.held_up_streams + usize::from(self.sender == SenderState::Drained);
        if streams < 2 {
            return true;
        }
        let share = usize::try_from(path.stream_queue_bytes()).unwrap_or(usize::MAX) / streams;
        self.pipe.bytes_after(now + path.shape().delay, share.max(1)) < share.max(1)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let path = self.path.clone();
        let mut path = path.lock();
        self.set_sender(&mut path, SenderState::Drained);
        path.in_flight_bytes -= self.pipe.memory_bytes();
    }
}

/// Limit of the data in flight on one link: 130 MB/s at 500 ms. Beyond it, the sender of a stream waits and
/// messages are dropped.
pub(crate) const MAX_LINK_IN_FLIGHT_BYTES: usize = 64 << 20;

/// Limit of the data in flight on one path, because it occupies memory of this process.
pub(crate) const MAX_PATH_IN_FLIGHT_BYTES: usize = 512 << 20;

/// Payload of a full segment over Ethernet: the unit of a stream on a slow line.
const SEGMENT_BYTES: usize = 1460;

/// Maximum chunk of a stream per read, and the longest time that one chunk may occupy the line.
const MAX_STREAM_CHUNK_BYTES: usize = 64 * 1024;
const MAX_CHUNK_TIME: Duration = Duration::from_millis(1);

/// Interval of checks for changes by other links of the path.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The last part of a wait is busy-polled, because a sleeping thread wakes late. The share of busy-polled
/// time per path is limited to one part in this many, to bound its cost.
const BUSY_POLL_DIVISOR: u32 = 20;

/// Next action of the receiving thread.
enum ReceiveAction {
    Received(usize),
    Ended,
    /// Reads at most this number of bytes for at most this time.
    Receive(usize, Duration),
    SleepUntil(Time),
}

impl ShapedLink {
    /// Wraps a link whose received data crosses `path`.
    pub fn new(inner: Box<dyn Link>, clock: &Clock, path: &SharedPath) -> ShapedLink {
        let pipe = ShapedPipe::new(inner.caps().framing);
        let passage =
            Arc::new(Mutex::new(InFlight { pipe, path: path.clone(), sender: SenderState::Drained }));
        ShapedLink::with_in_flight(inner, clock, path, passage)
    }

    fn with_in_flight(
        inner: Box<dyn Link>,
        clock: &Clock,
        path: &SharedPath,
        passage: Arc<Mutex<InFlight>>,
    ) -> ShapedLink {
        let mut caps = inner.caps().clone();
        caps.has_kernel_stamps = false;
        // Data that arrives there is not due yet.
        caps.descriptor = LinkDescriptor::None;
        let shape = path.lock().shape().clone();
        caps.is_reliable &=
            !shape.has_faults() && (caps.framing == Framing::Stream || !shape.may_drop_from_queue());
        // A stream on a slow line arrives segment by segment, not all at once after a long silence.
        let grain = (shape.bits_per_second / 8.0 * MAX_CHUNK_TIME.as_secs_f64())
            .clamp(1.0, MAX_STREAM_CHUNK_BYTES as f64);
        let free = caps.max_message_bytes.unwrap_or(SEGMENT_BYTES.max(grain as usize));
        ShapedLink {
            inner,
            clock: clock.clone(),
            caps,
            path: path.clone(),
            in_flight: passage,
            receive_buffer: vec![0; free],
        }
    }

    /// Whether no data is in flight.
    pub fn is_empty(&self) -> bool {
        self.lock_in_flight().pipe.next_due().is_none()
    }

    fn lock_in_flight(&self) -> MutexGuard<'_, InFlight> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_action(&self, into: &mut [u8], now: Time, until: Time) -> ReceiveAction {
        let mut passage = self.lock_in_flight();
        let mut path = self.path.lock();
        let (due, before) = (passage.pipe.next_due(), passage.pipe.memory_bytes());
        if let Some(length) = passage.pipe.receive(into, now) {
            path.in_flight_bytes -= before - passage.pipe.memory_bytes();
            path.counters.record(length, now - due.unwrap_or(now));
            return ReceiveAction::Received(length);
        }
        if passage.pipe.is_ended(now) {
            return ReceiveAction::Ended;
        }
        if passage.pipe.is_finished() {
            return ReceiveAction::SleepUntil(due.or(passage.pipe.end_after_last()).unwrap_or(Time::NEVER));
        }
        let due = due.unwrap_or(Time::NEVER);
        let max_wait = if due == Time::NEVER {
            until - now
        } else if self.should_busy_poll(&mut path, due, now) {
            // Close to the due time the thread polls.
            (due - now).saturating_sub(BUSY_POLL_LEAD).min(until - now)
        } else {
            due.min(until) - now
        };
        if self.caps.framing == Framing::Message {
            return ReceiveAction::Receive(self.receive_buffer.len(), max_wait);
        }
        let in_flight = MAX_LINK_IN_FLIGHT_BYTES
            .saturating_sub(before)
            .min(MAX_PATH_IN_FLIGHT_BYTES.saturating_sub(path.in_flight_bytes));
        let enough = self.receive_buffer.len().min((path.stream_queue_bytes() / 2).max(1) as usize);
        let free = usize::try_from(path.free_bytes(now)).unwrap_or(usize::MAX);
        let limit = self.receive_buffer.len();
        if in_flight < enough {
            // Other links receive the data in flight without a notification.
            return ReceiveAction::SleepUntil(due.min(now + POLL_INTERVAL));
        }
        let has_share_left = passage.has_share_left(&path, now);
        if free >= enough && has_share_left {
            return ReceiveAction::Receive(free.min(limit), max_wait);
        }
        // A large load keeps the queue full, but does not keep the little of other connections out.
        let little = enough.min(SEGMENT_BYTES);
        if passage.pipe.bytes_after(now + path.shape().delay, little) < little {
            return ReceiveAction::Receive(little, max_wait);
        }
        passage.set_sender(&mut path, SenderState::HeldUp);
        let may_continue_at = if has_share_left { path.half_empty_at() } else { now + MAX_CHUNK_TIME };
        ReceiveAction::SleepUntil(due.min(may_continue_at))
    }

    /// The sender has nothing more: others may use its share of the queue.
    fn release_share(&self) {
        let mut passage = self.lock_in_flight();
        passage.set_sender(&mut self.path.lock(), SenderState::Drained);
    }

    /// Whether the end of the wait is busy-polled.
    fn should_busy_poll(&self, path: &mut ShapedPath, due: Time, now: Time) -> bool {
        let may =
            path.last_busy_polled == due || due >= path.last_busy_polled + BUSY_POLL_DIVISOR * BUSY_POLL_LEAD;
        let busy_polls = may && matches!(self.clock, Clock::System);
        if busy_polls && due - now <= BUSY_POLL_LEAD {
            path.last_busy_polled = due;
        }
        busy_polls
    }

    /// Puts received data on the path.
    fn enqueue(&mut self, length: usize) {
        let now = self.clock.now();
        let mut passage = self.lock_in_flight();
        let mut path = self.path.lock();
        let before = passage.pipe.memory_bytes();
        let full = before + length > MAX_LINK_IN_FLIGHT_BYTES
            || path.in_flight_bytes + length > MAX_PATH_IN_FLIGHT_BYTES;
        if full && self.caps.framing == Framing::Message {
            path.drop_message(length, now);
            return;
        }
        passage.pipe.send(&mut path, &self.receive_buffer[..length], now);
        path.in_flight_bytes += passage.pipe.memory_bytes() - before;
    }

    fn enqueue_end(&mut self) {
        let now = self.clock.now();
        let mut passage = self.lock_in_flight();
        let end = self.path.lock().transit_end(now);
        passage.pipe.finish(end);
    }
}

impl Link for ShapedLink {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Status of the inner link: bytes in flight on the path count as received.
    fn status(&self) -> LinkStatus {
        self.inner.status()
    }

    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        let until = self.clock.now() + within;
        let mut has_tried = false;
        loop {
            let now = self.clock.now();
            let next = self.next_action(into, now, until);
            if matches!(next, ReceiveAction::Receive(..) | ReceiveAction::SleepUntil(_))
                && has_tried
                && now >= until
            {
                return Err(Fault::TimedOut);
            }
            has_tried = true;
            match next {
                ReceiveAction::Received(length) => return Ok(length),
                ReceiveAction::Ended => return Err(Fault::Closed),
                ReceiveAction::SleepUntil(due) => self.clock.sleep_until(due.min(until)),
                ReceiveAction::Receive(free, max_wait) => {
                    match self.inner.receive(&mut self.receive_buffer[..free], max_wait) {
                        Ok(length) => {
                            if length < free {
                                self.release_share();
                            }
                            self.enqueue(length);
                        }
                        Err(Fault::TimedOut) => self.release_share(),
                        Err(Fault::Closed) => {
                            self.release_share();
                            self.enqueue_end();
                        }
                        Err(fault) => return Err(fault),
                    }
                }
            }
        }
    }

    /// Receives one message: each leaves the path on its own.
    fn receive_batch(&mut self, into: &mut Batch, within: Duration) -> Result<(), Fault> {
        receive_single(self, into, within)
    }

    fn reopen(&mut self, within: Duration) -> Result<(), Fault> {
        self.inner.reopen(within)?;
        let mut in_flight = self.lock_in_flight();
        self.path.lock().in_flight_bytes -= in_flight.pipe.memory_bytes();
        in_flight.pipe = ShapedPipe::new(self.caps.framing);
        Ok(())
    }

    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        let inner = self.inner.second_handle()?;
        Ok(Box::new(ShapedLink::with_in_flight(inner, &self.clock, &self.path, self.in_flight.clone())))
    }

    // Commands to the port pass without delay.
    delegate_link!(self => self.inner; facts tune send send_batch finish_sending abort port_control);
    // Stamps of the kernel would not include the delay of the shape.
    plain_link!(read_send_stamps descriptor);
}
