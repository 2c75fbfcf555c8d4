//! The Ethernet connection manager on a real device: a packet socket that receives one Ethernet type.
//!
//! A sender may have to process acknowledgements, so both sides work on one connection under one lock. If the
//! sending side receives something for the receiving side, it wakes that side.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::{SockAddr, Socket};

use super::carrier::{Carrier, CarrierControl, CarrierReader, CarrierWriter, ReceivedItem, poll_within};
use super::doorbell::Doorbell;
use super::endpoint_stamps::EndpointStamps;
use super::ethernet_cm::connection::{ConnectionEvent, EthernetConnection, split_first_message};
use super::ethernet_cm::{MAX_FRAME_BYTES, MacAddress, VERSION};
use super::{ConnectionRole, DisconnectReason};
use crate::link::own_interfaces::interface_facts;
use crate::link::stamps::{SendStamps, StampReader, await_arrival_stamps};
use crate::link::{Facts, Fault};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::plan::WaitMode;
use linkgauge_system::{self as system, Blocking, BorrowedHandle, Errno, PollFd, PollFlags, watch};

/// Location of the remote node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EthernetNode {
    pub(crate) device: String,
    pub(crate) remote: MacAddress,
    pub(crate) ethertype: u16,
}

/// Frames processed under one lock.
const MAX_FRAMES_PER_LOCK: usize = 64;

/// Requested receive buffer of the kernel: several windows.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Timeout for the remote node's reply to our close.
const CLOSE_REPLY_TIMEOUT: Duration = Duration::from_millis(20);

/// Opens a socket that receives this Ethernet type on this device, and the device.
pub(crate) fn open_socket(node: &EthernetNode) -> Result<(Socket, system::NetworkDevice), Fault> {
    let socket = system::packet_socket().map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => Fault::NotPermitted(
            "this user may not open packet sockets: LINX over Ethernet needs root or the capability CAP_NET_RAW"
                .to_owned(),
        ),
        _ => Fault::System { operation: "open a packet socket", source: error },
    })?;
    let device = system::find_device(&socket, &node.device).map_err(|error| {
        Fault::NotFound(format!("no network device '{}' here ({error}): see 'ip link'", node.device))
    })?;
    // If the kernel grants less, fewer frames are in flight at once.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    socket
        .bind(&system::packet_address(&device, node.ethertype, device.address))
        .map_err(Fault::system("bind to the network device"))?;
    Ok((socket, device))
}

struct EthernetControl {
    socket: Socket,
    remote_address: SockAddr,
    remote: MacAddress,
    device: String,
    clock: Clock,
    work: Mutex<EthernetWork>,
    has_outbox: AtomicBool,
    /// Whether frames wait for the device.
    is_device_blocked: AtomicBool,
    /// Wakes the receiving side when another thread has received something for it.
    wake: Doorbell,
}

struct EthernetWork {
    connection: EthernetConnection,
    receive_buffer: Vec<u8>,
    /// Short messages that go before all others.
    outbox: VecDeque<(u32, u32, Vec<u8>)>,
    /// Whether the connection has come up, but this has not been reported yet.
    is_newly_up: bool,
    disconnect_reason: Option<DisconnectReason>,
    /// Stamps, present only while endpoints are measured with stamps.
    stamps: Option<Box<EndpointStamps>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a connection on a socket of [`open_socket`].
pub(crate) fn make_carrier(
    socket: &Socket,
    device: &system::NetworkDevice,
    node: &EthernetNode,
    side: ConnectionRole,
    clock: &Clock,
) -> Result<Carrier, Fault> {
    // Stops the stamps of an earlier connection on this socket. Once that connection has ended it leaves the socket alone.
    stop_stamps(socket);
    let wake = Doorbell::new()?;
    wake.start_watching();
    let connection = EthernetConnection::new(
        side,
        [device.address, node.remote],
        device.mtu,
        fastrand::u64(..),
        clock.now(),
    );
    let shared = Arc::new(EthernetControl {
        socket: socket.try_clone().map_err(Fault::system("clone the socket"))?,
        remote_address: system::packet_address(device, node.ethertype, node.remote),
        remote: node.remote,
        device: node.device.clone(),
        clock: clock.clone(),
        work: Mutex::new(EthernetWork {
            connection,
            receive_buffer: vec![0; MAX_FRAME_BYTES + 1],
            outbox: VecDeque::new(),
            is_newly_up: false,
            disconnect_reason: None,
            stamps: None,
        }),
        has_outbox: AtomicBool::new(false),
        is_device_blocked: AtomicBool::new(false),
        wake,
    });
    let incoming = EthernetReader {
        shared: shared.clone(),
        messages: Vec::new(),
        start: 0,
        is_newly_up: false,
        disconnect_reason: None,
    };
    let outgoing = EthernetWriter { shared: shared.clone() };
    Ok(Carrier { reader: Box::new(incoming), writer: Box::new(outgoing), control: shared })
}

/// Makes the kernel stamp nothing more on this socket, and removes the stamps that were not read.
fn stop_stamps(socket: &Socket) {
    // A socket that refuses has no stamps.
    let _ = system::stop_stamps(socket);
    StampReader::discard(socket);
}

impl EthernetControl {
    /// Sends the frames of the connection if the device takes them now. Waiting here would keep other threads
    /// from replying to the remote node. Any other failure counts as a loss in the network.
    fn frame_sink<'a>(
        &'a self,
        stamps: &'a mut Option<Box<EndpointStamps>>,
    ) -> impl FnMut(&[u8], Option<u32>) -> bool + 'a {
        |frame, message_of| {
            let sent = match stamps.as_deref_mut().zip(message_of) {
                Some((stamps, source)) if stamps.includes(source) => {
                    stamps.send(source, frame, &self.socket, &self.remote_address)
                }
                _ => system::send_to(&self.socket, frame, &self.remote_address, None, Blocking::Never),
            };
            !matches!(sent, Err(Errno::AGAIN | Errno::NOBUFS))
        }
    }

    fn apply_event(&self, work: &mut EthernetWork, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Nothing => {}
            ConnectionEvent::Up => work.is_newly_up = true,
            ConnectionEvent::Down(ending) => work.disconnect_reason = Some(ending),
        }
    }

    /// Processes the frames that are ready.
    fn receive_frames(&self, work: &mut EthernetWork) {
        let now = self.clock.now();
        for _ in 0..MAX_FRAMES_PER_LOCK {
            // Frames after the end belong to the next connection on this socket.
            if work.disconnect_reason.is_some() {
                break;
            }
            let arrival = match system::receive_frame(&self.socket, &mut work.receive_buffer) {
                Ok(arrival) => arrival,
                Err(error) => {
                    if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) {
                        work.disconnect_reason = Some(DisconnectReason::System(format!(
                            "receive from '{}': {error}",
                            self.device
                        )));
                    }
                    break;
                }
            };
            if system::source_mac(&arrival.from) != Some(self.remote) {
                continue;
            }
            let frame = &work.receive_buffer[..arrival.length.min(MAX_FRAME_BYTES)];
            let stamps = work.stamps.as_deref();
            let arrived = arrival.arrived_wall_ns.and_then(|wall_ns| stamps?.time_of(wall_ns));
            let event = work.connection.handle_stamped_frame(
                frame,
                arrived,
                now,
                &mut self.frame_sink(&mut work.stamps),
            );
            self.apply_event(work, event);
        }
        work.connection.transmit(&mut self.frame_sink(&mut work.stamps));
        self.is_device_blocked.store(work.connection.is_device_blocked(), SeqCst);
        let news = work.connection.has_messages() || work.is_newly_up || work.disconnect_reason.is_some();
        if news {
            self.wake.ring();
        }
    }

    /// Sends the outbox as far as the connection takes it.
    fn flush_outbox(&self, work: &mut EthernetWork) {
        while work.connection.can_queue()
            && let Some((source, destination, bytes)) = work.outbox.pop_front()
        {
            work.connection.queue_message(
                source,
                destination,
                [&[], &bytes],
                &mut self.frame_sink(&mut work.stamps),
            );
        }
        self.is_device_blocked.store(work.connection.is_device_blocked(), SeqCst);
        self.has_outbox.store(!work.outbox.is_empty() && work.connection.is_up(), SeqCst);
    }

    /// Waits for frames, or for a device that takes some again.
    fn wait_ready(&self, within: Duration) {
        let mut watched = [self.watch_socket()];
        poll_within(&mut watched, within);
        self.read_stamps_that_woke(&watched[0]);
    }

    /// Waits like [`EthernetControl::wait_ready`], and for frames that another thread received for us.
    fn wait_ready_or_woken(&self, within: Duration) {
        let mut watched = [self.watch_socket(), watch(&self.wake, PollFlags::IN)];
        poll_within(&mut watched, within);
        self.read_stamps_that_woke(&watched[0]);
    }

    /// Stamps of sent frames end every wait until they are read, also those that come after the last measurement.
    fn read_stamps_that_woke(&self, socket: &PollFd) {
        if !socket.revents().contains(PollFlags::ERR) {
            return;
        }
        let work = &mut *lock(&self.work);
        match &mut work.stamps {
            _ if work.disconnect_reason.is_some() => {}
            Some(stamps) => stamps.collect(&self.socket),
            None => {
                StampReader::discard(&self.socket);
            }
        }
    }

    fn watch_socket(&self) -> PollFd<'_> {
        let writable = if self.is_device_blocked.load(SeqCst) { PollFlags::OUT } else { PollFlags::empty() };
        watch(&self.socket, PollFlags::IN | writable)
    }
}

struct EthernetReader {
    shared: Arc<EthernetControl>,
    messages: Vec<u8>,
    start: usize,
    is_newly_up: bool,
    disconnect_reason: Option<DisconnectReason>,
}

impl EthernetReader {
    /// Collects received messages; `false` if there are none.
    fn collect_messages(&mut self, work: &mut EthernetWork) -> bool {
        if self.start == self.messages.len() {
            self.messages.clear();
            self.start = 0;
            if let Err(ending) = work
                .connection
                .take_messages(&mut self.messages, &mut self.shared.frame_sink(&mut work.stamps))
            {
                work.disconnect_reason = Some(ending);
            }
        }
        self.is_newly_up |= std::mem::take(&mut work.is_newly_up);
        self.disconnect_reason = work.disconnect_reason.clone();
        self.is_newly_up || self.disconnect_reason.is_some() || !self.messages.is_empty()
    }
}

impl CarrierReader for EthernetReader {
    #[inline]
    fn peek(&mut self) -> Result<Option<ReceivedItem<'_>>, DisconnectReason> {
        if self.is_newly_up {
            return Ok(Some(ReceivedItem::Up));
        }
        match (split_first_message(&self.messages[self.start..]), &self.disconnect_reason) {
            (Some((message, _)), _) => Ok(Some(ReceivedItem::Message(message))),
            (None, Some(ending)) => Err(ending.clone()),
            (None, None) => Ok(None),
        }
    }

    #[inline]
    fn advance(&mut self) {
        if std::mem::take(&mut self.is_newly_up) {
            return;
        }
        if let Some((_, rest)) = split_first_message(&self.messages[self.start..]) {
            self.start = self.messages.len() - rest.len();
        }
    }

    fn receive(&mut self, wait: WaitMode, within: Duration) -> Result<(), Fault> {
        let shared = self.shared.clone();
        let (mut left, mut until) = (within, None);
        loop {
            shared.wake.silence();
            let has_received = {
                let mut work = lock(&shared.work);
                shared.receive_frames(&mut work);
                self.collect_messages(&mut work)
            };
            if has_received {
                return Ok(());
            }
            if left.is_zero() {
                return Err(Fault::TimedOut);
            }
            if wait == WaitMode::Block {
                shared.wait_ready_or_woken(left);
            }
            let now = shared.clock.now();
            left = until.get_or_insert(now + within).since(now);
        }
    }
}

struct EthernetWriter {
    shared: Arc<EthernetControl>,
}

impl CarrierWriter for EthernetWriter {
    fn queue(&mut self, source: u32, destination: u32, head: &[u8], bytes: &[u8]) -> bool {
        let work = &mut *lock(&self.shared.work);
        self.shared.flush_outbox(work);
        if work.connection.has_unsent_frames() {
            self.shared.receive_frames(work);
        }
        if !work.outbox.is_empty() || !work.connection.can_queue() {
            return false;
        }
        work.connection.queue_message(
            source,
            destination,
            [head, bytes],
            &mut self.shared.frame_sink(&mut work.stamps),
        );
        self.shared.is_device_blocked.store(work.connection.is_device_blocked(), SeqCst);
        true
    }

    fn flush(&mut self, wait: WaitMode, within: Duration) -> Result<(), Fault> {
        let (mut left, mut until) = (within, None);
        loop {
            {
                let work = &mut *lock(&self.shared.work);
                self.shared.flush_outbox(work);
                if let Some(ending) = &work.disconnect_reason {
                    return Err(ending.fault());
                }
                if !work.connection.is_up() || work.outbox.is_empty() && work.connection.can_queue() {
                    return Ok(());
                }
                self.shared.receive_frames(work);
                if work.connection.can_queue() {
                    continue;
                }
            }
            if left.is_zero() {
                return Err(Fault::TimedOut);
            }
            if wait == WaitMode::Block {
                self.shared.wait_ready(left);
            }
            let now = self.shared.clock.now();
            left = until.get_or_insert(now + within).since(now);
        }
    }
}

impl CarrierControl for EthernetControl {
    fn queue_message(&self, source: u32, destination: u32, message: &[u8]) {
        lock(&self.work).outbox.push_back((source, destination, message.to_vec()));
        self.has_outbox.store(true, SeqCst);
    }

    fn has_pending(&self) -> bool {
        self.has_outbox.load(SeqCst)
    }

    fn tick(&self, now: Time) -> Result<Time, DisconnectReason> {
        let work = &mut *lock(&self.work);
        // An unread frame is a sign of life.
        self.receive_frames(work);
        let event = work.connection.tick(now, &mut self.frame_sink(&mut work.stamps));
        self.apply_event(work, event);
        work.disconnect_reason.clone().map_or(Ok(work.connection.next_due()), Err)
    }

    fn wait_readable(&self, wake: BorrowedHandle<'_>, within: Duration) -> bool {
        let wake = watch(&wake, PollFlags::IN);
        // The writer may receive something.
        let mut watched = [self.watch_socket(), watch(&self.wake, PollFlags::IN), wake];
        let is_ready = lock(&self.work).connection.has_messages() || poll_within(&mut watched, within);
        self.read_stamps_that_woke(&watched[0]);
        is_ready
    }

    fn start_stamps(&self, address: u32) {
        {
            let work = &mut *lock(&self.work);
            if work.stamps.is_none() && work.disconnect_reason.is_none() {
                work.stamps = EndpointStamps::enable(&self.socket, &self.clock).map(Box::new);
            }
            if let Some(stamps) = &mut work.stamps {
                stamps.add_endpoint(address, work.connection.unsent_messages(address));
            }
        }
        await_arrival_stamps(&self.clock);
    }

    fn read_send_stamps(&self, address: u32, into: &mut SendStamps) {
        let work = &mut *lock(&self.work);
        if let (Some(stamps), None) = (&mut work.stamps, &work.disconnect_reason) {
            stamps.collect(&self.socket);
            stamps.take(address, into);
        }
    }

    fn stop_stamps(&self, address: u32) {
        let work = &mut *lock(&self.work);
        if work.stamps.as_mut().is_some_and(|stamps| !stamps.remove_endpoint(address)) {
            work.stamps = None;
            if work.disconnect_reason.is_none() {
                stop_stamps(&self.socket);
            }
        }
    }

    fn facts(&self, facts: &mut Facts) {
        facts.insert("connection_manager".to_owned(), "Ethernet".into());
        facts.insert("connection_manager_version".to_owned(), VERSION.into());
        facts.insert("remote".to_owned(), format_mac(self.remote).into());
        facts.insert("frame_bytes".to_owned(), lock(&self.work).connection.mtu().into());
        let interface = interface_facts(&self.socket, &self.device);
        facts.insert("interface".to_owned(), interface.into());
    }

    fn close(&self, until: Time) {
        // While our data is unacknowledged, data of the remote node may arrive as well.
        loop {
            let now = self.clock.now();
            let mut guard = lock(&self.work);
            let work = &mut *guard;
            self.flush_outbox(work);
            self.receive_frames(work);
            let event = work.connection.tick(now, &mut self.frame_sink(&mut work.stamps));
            self.apply_event(work, event);
            if work.disconnect_reason.is_some() {
                return;
            }
            if !work.connection.is_up() || work.connection.is_all_acknowledged() || now >= until {
                work.connection.send_reset(&mut self.frame_sink(&mut work.stamps));
                break;
            }
            drop(guard);
            self.wait_ready(CLOSE_REPLY_TIMEOUT);
        }
        let until = self.clock.now() + CLOSE_REPLY_TIMEOUT;
        loop {
            let left = until.since(self.clock.now());
            let mut work = lock(&self.work);
            self.receive_frames(&mut work);
            if left.is_zero() || work.disconnect_reason.is_some() {
                work.disconnect_reason.get_or_insert(DisconnectReason::Closed);
                return;
            }
            drop(work);
            self.wait_ready(left);
        }
    }

    fn abort(&self) {
        let work = &mut *lock(&self.work);
        if work.disconnect_reason.is_none() {
            work.connection.send_reset(&mut self.frame_sink(&mut work.stamps));
            work.disconnect_reason = Some(DisconnectReason::Closed);
        }
    }
}

/// Formats an address, for example `52:54:00:00:00:0a`.
pub(crate) fn format_mac(mac: MacAddress) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Parses six hexadecimal bytes separated by colons.
pub(crate) fn parse_mac(text: &str) -> Option<MacAddress> {
    let mut bytes = text.split(':').map(|part| match part.len() {
        2 => u8::from_str_radix(part, 16).ok(),
        _ => None,
    });
    let mac =
        [bytes.next()??, bytes.next()??, bytes.next()??, bytes.next()??, bytes.next()??, bytes.next()??];
    bytes.next().is_none().then_some(mac)
}
