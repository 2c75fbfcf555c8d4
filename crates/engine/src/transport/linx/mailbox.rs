//! The mailbox of a local endpoint in one conversation: its partner, and the received messages.
//!
//! `node_connection` delivers the messages.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::doorbell::Doorbell;
use crate::link::{Batch, MAX_BATCH_MESSAGES, stamps};
use linkgauge_model::clock::Time;

/// Signal numbers of linkgauge, "LG" and one of these: payload; accepted at this endpoint; end of data.
pub(crate) const PAYLOAD_SIGNAL: u32 = 0x4C47_0001;
pub(crate) const ACCEPTED_SIGNAL: u32 = 0x4C47_0002;
pub(crate) const FINISHED_SIGNAL: u32 = 0x4C47_0003;

/// Bytes of a signal number.
pub(crate) const SIGNAL_NUMBER_BYTES: usize = 4;

/// Limit of a mailbox. Beyond it, reading from the connection stops.
const MAX_INBOX_BYTES: usize = 1 << 20;

/// Number of reads that serve only other endpoints before the owner leaves reading to their owners.
const MAX_READS_FOR_OTHERS: u32 = 8;

/// Format in which the bytes of a link become signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalFormat {
    /// Bytes with a linkgauge signal number in front.
    Numbered,
    /// Unchanged bytes, which begin with the sender's signal number.
    Raw,
}

/// The received messages of one endpoint, and its partner.
#[derive(Debug)]
pub(crate) struct Mailbox {
    /// Address of the local endpoint.
    pub(crate) own_address: u32,
    /// Format in which the bytes of the link become signals.
    pub(crate) signal_format: SignalFormat,
    /// Whether it accepts messages only from its partner. Otherwise the latest sender becomes the partner.
    is_partner_fixed: bool,
    partner: AtomicU32,
    inbox: Mutex<ReceivedSignals>,
    /// Messages in the inbox.
    message_count: AtomicUsize,
    /// Whether the partner sends no more.
    is_partner_finished: AtomicBool,
    /// Whether the partner has ended.
    is_partner_gone: AtomicBool,
    /// Reads by the owner since its last own message that served only other endpoints.
    reads_for_others: AtomicU32,
    /// Doorbells of the handles whose owners wait, and whether there are any.
    doorbells: Mutex<Vec<Arc<Doorbell>>>,
    has_doorbells: AtomicBool,
}

#[derive(Debug, Default)]
struct ReceivedSignals {
    /// Messages back to back, each after its length and its stamp.
    bytes: Vec<u8>,
    start: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mailbox {
    /// An empty mailbox; the latest sender becomes its partner.
    pub fn new(own: u32, partner: u32, style: SignalFormat) -> Mailbox {
        Mailbox {
            own_address: own,
            signal_format: style,
            is_partner_fixed: false,
            partner: AtomicU32::new(partner),
            inbox: Mutex::default(),
            message_count: AtomicUsize::new(0),
            is_partner_finished: AtomicBool::new(false),
            is_partner_gone: AtomicBool::new(false),
            reads_for_others: AtomicU32::new(0),
            doorbells: Mutex::default(),
            has_doorbells: AtomicBool::new(false),
        }
    }

    /// Makes the mailbox accept messages only from its partner.
    pub(crate) fn with_fixed_partner(self) -> Mailbox {
        Mailbox { is_partner_fixed: true, ..self }
    }

    /// Address of the partner.
    pub(crate) fn partner(&self) -> u32 {
        self.partner.load(Relaxed)
    }

    /// Whether a message waits.
    pub(crate) fn has_messages(&self) -> bool {
        self.message_count.load(SeqCst) > 0
    }

    /// Whether no further messages will arrive.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_partner_finished.load(SeqCst) || self.is_partner_gone.load(SeqCst)
    }

    /// Whether sent messages no longer reach the partner.
    pub(crate) fn is_partner_gone(&self) -> bool {
        self.is_partner_gone.load(Relaxed)
    }

    /// Records that the partner has ended: no further messages will arrive.
    pub(crate) fn set_partner_gone(&self) {
        self.is_partner_gone.store(true, SeqCst);
        self.ring();
    }

    /// Rings this doorbell from now on.
    pub(crate) fn add_doorbell(&self, doorbell: &Arc<Doorbell>) {
        lock(&self.doorbells).push(doorbell.clone());
        self.has_doorbells.store(true, SeqCst);
    }

    pub(crate) fn remove_doorbell(&self, doorbell: &Arc<Doorbell>) {
        let mut doorbells = lock(&self.doorbells);
        doorbells.retain(|other| !Arc::ptr_eq(other, doorbell));
        self.has_doorbells.store(!doorbells.is_empty(), SeqCst);
    }

    /// Reports an event that the owner may wait for. Returns whether the owner waits for a doorbell.
    #[inline]
    pub(crate) fn ring(&self) -> bool {
        let has_doorbells = self.has_doorbells.load(SeqCst);
        if has_doorbells {
            lock(&self.doorbells).iter().for_each(|doorbell| doorbell.ring());
        }
        has_doorbells
    }

    /// Lets the doorbells show that the connection takes output again.
    pub(crate) fn accept_output(&self) {
        lock(&self.doorbells).iter().for_each(|doorbell| doorbell.accept_output());
    }

    /// Notes that the owner sent or received a message.
    #[inline]
    pub(crate) fn note_activity(&self) {
        self.reads_for_others.store(0, Relaxed);
    }

    /// Counts a read of the owner that served only others. Returns whether the owner should now leave reading to them.
    pub(crate) fn count_read_for_others(&self) -> bool {
        self.reads_for_others.fetch_add(1, Relaxed);
        self.leaves_reading_to_others()
    }

    /// Whether the owner leaves reading to others.
    pub(crate) fn leaves_reading_to_others(&self) -> bool {
        self.reads_for_others.load(Relaxed) >= MAX_READS_FOR_OTHERS
    }

    /// The owner's payload in a signal from `source`, if any.
    #[inline]
    pub(crate) fn payload_of<'a>(&self, source: u32, signal: &'a [u8]) -> Option<&'a [u8]> {
        if source != self.partner() {
            if self.is_partner_fixed {
                return None;
            }
            self.partner.store(source, Relaxed);
        }
        if self.signal_format == SignalFormat::Raw {
            return Some(signal);
        }
        let (number, payload) = signal.split_first_chunk::<SIGNAL_NUMBER_BYTES>()?;
        match u32::from_be_bytes(*number) {
            // Messages after the end of data are not received, and must not delay others.
            _ if self.is_partner_finished.load(SeqCst) => None,
            ACCEPTED_SIGNAL => None,
            FINISHED_SIGNAL => {
                self.is_partner_finished.store(true, SeqCst);
                None
            }
            _ => Some(payload),
        }
    }

    /// Stores a message, with the kernel's stamp, for the owner; `false` if there is no room.
    pub(crate) fn push_message(&self, message: &[u8], arrived: Option<Time>) -> bool {
        let mut inbox = lock(&self.inbox);
        let waiting = inbox.bytes.len() - inbox.start;
        if waiting > 0 && waiting + message.len() > MAX_INBOX_BYTES {
            return false;
        }
        if inbox.bytes.len() + message.len() > 2 * MAX_INBOX_BYTES {
            let start = std::mem::take(&mut inbox.start);
            inbox.bytes.copy_within(start.., 0);
            inbox.bytes.truncate(waiting);
        }
        inbox.bytes.extend_from_slice(&(message.len() as u32).to_ne_bytes());
        inbox.bytes.extend_from_slice(&stamps::stored(arrived));
        inbox.bytes.extend_from_slice(message);
        self.message_count.fetch_add(1, SeqCst);
        true
    }

    /// Moves as many messages as fit into `room`.
    pub(crate) fn take_messages(&self, target: &mut ReceiveTarget) {
        if !self.has_messages() {
            return;
        }
        let mut inbox = lock(&self.inbox);
        while let Some((length, rest)) = inbox.bytes[inbox.start..].split_first_chunk::<4>()
            && let Some((arrived, rest)) = rest.split_first_chunk()
        {
            let length = u32::from_ne_bytes(*length) as usize;
            if !target.put_message(&rest[..length], stamps::restored(arrived)) {
                return;
            }
            inbox.start += 4 + stamps::STORED_BYTES + length;
            self.message_count.fetch_sub(1, SeqCst);
        }
        inbox.bytes.clear();
        inbox.start = 0;
    }

    /// Whether the mailbox is empty enough for reading to continue.
    pub(crate) fn has_room(&self) -> bool {
        let inbox = lock(&self.inbox);
        inbox.bytes.len() - inbox.start <= MAX_INBOX_BYTES / 2
    }
}

/// The receiver's buffer for messages.
pub(crate) enum ReceiveTarget<'a> {
    /// The length and the stamp are those of the message, once there is one.
    One {
        into: &'a mut [u8],
        length: Option<usize>,
        arrived: Option<Time>,
    },
    Many {
        batch: &'a mut Batch,
        used: usize,
    },
}

impl ReceiveTarget<'_> {
    pub(crate) fn has_messages(&self) -> bool {
        match self {
            ReceiveTarget::One { length, .. } => length.is_some(),
            ReceiveTarget::Many { batch, .. } => !batch.is_empty(),
        }
    }

    /// Copies a message in, truncated to the buffer's length, with its stamp; `false` if there is no room for one more.
    #[inline]
    pub(crate) fn put_message(&mut self, message: &[u8], stamp: Option<Time>) -> bool {
        match self {
            ReceiveTarget::One { length: Some(_), .. } => false,
            ReceiveTarget::One { into, length, arrived } => {
                let fits = message.len().min(into.len());
                into[..fits].copy_from_slice(&message[..fits]);
                (*length, *arrived) = (Some(fits), stamp);
                true
            }
            ReceiveTarget::Many { batch, used } => {
                let fits = message.len().min(batch.slot_bytes);
                if batch.len() >= MAX_BATCH_MESSAGES || *used + fits > batch.bytes.len() {
                    return false;
                }
                batch.bytes[*used..*used + fits].copy_from_slice(&message[..fits]);
                batch.push_span(*used, fits);
                batch.arrived = stamp;
                *used += fits;
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_one(mailbox: &Mailbox) -> Option<(Vec<u8>, Option<Time>)> {
        let mut into = [0; 100];
        let mut target = ReceiveTarget::One { into: &mut into, length: None, arrived: None };
        mailbox.take_messages(&mut target);
        let ReceiveTarget::One { length, arrived, .. } = target else { return None };
        length.map(|length| (into[..length].to_vec(), arrived))
    }

    #[test]
    fn messages_come_out_as_they_went_in_and_memory_is_bounded() {
        let mailbox = Mailbox::new(1, 2, SignalFormat::Raw).with_fixed_partner();
        let mut random = fastrand::Rng::with_seed(5);
        let (mut sent, mut received) = (0u32, 0u32);
        for _ in 0..200_000 {
            let stamp = |number: u32| number.is_multiple_of(2).then_some(Time(1 + u64::from(number)));
            if random.bool() && mailbox.push_message(&sent.to_be_bytes(), stamp(sent)) {
                sent += 1;
            } else if random.u8(..) < 120
                && let Some((message, arrived)) = take_one(&mailbox)
            {
                assert_eq!((&message[..], arrived), (&received.to_be_bytes()[..], stamp(received)));
                received += 1;
            }
        }
        assert!(received > 40_000);
        while mailbox.push_message(&[7; 1000], None) {}
        assert!(lock(&mailbox.inbox).bytes.len() <= 2 * MAX_INBOX_BYTES + 1012);
        assert!(!mailbox.has_room());
        // A message larger than the free space passes through an empty mailbox.
        while take_one(&mailbox).is_some() {}
        assert!(
            mailbox.push_message(&vec![1; MAX_INBOX_BYTES + 1], None) && !mailbox.push_message(&[1], None)
        );
    }

    #[test]
    fn a_server_has_one_partner_and_a_client_follows_the_replying_one() {
        let signal = [&PAYLOAD_SIGNAL.to_be_bytes()[..], b"hello"].concat();
        let client = Mailbox::new(1, 1, SignalFormat::Numbered);
        assert_eq!(client.payload_of(1, &signal), Some(&b"hello"[..]));
        assert_eq!(client.payload_of(7, &ACCEPTED_SIGNAL.to_be_bytes()), None);
        assert_eq!(client.partner(), 7);
        assert_eq!(client.payload_of(7, &FINISHED_SIGNAL.to_be_bytes()), None);
        assert!(client.is_ended() && !client.is_partner_gone());
        assert_eq!(client.payload_of(7, &signal), None, "it had sent its last message");
        let server = Mailbox::new(1, 1, SignalFormat::Numbered).with_fixed_partner();
        assert_eq!(server.payload_of(7, &signal), None);
        assert_eq!(server.payload_of(1, b"abc"), None, "shorter than a signal number");
        assert_eq!(
            Mailbox::new(1, 1, SignalFormat::Raw).with_fixed_partner().payload_of(1, &signal),
            Some(&signal[..])
        );
    }
}
