//! Counters of the system for the socket or the port of a link, read through a separate descriptor, so that one thread
//! reads while another measures.

use std::collections::BTreeMap;

use super::{Link, LinkDescriptor};
use linkgauge_model::clock::Time;
use linkgauge_model::run::{ConnectionEvidence, ConnectionReading, Counters, Gauge};
use linkgauge_system as system;
use linkgauge_system::{
    AsHandle, BorrowedHandle, OwnedHandle,
    tcp_info::{self, TcpInfo},
};

/// `SK_MEMINFO_…` of linux/sock_diag.h: nine numbers of `SO_MEMINFO`.
const MEMINFO_VALUES: usize = 9;

/// One reading of the counters of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkReading {
    /// The state of a TCP connection.
    pub tcp: Option<TcpInfo>,
    memory: Option<[u32; MEMINFO_VALUES]>,
    unread_bytes: Option<u64>,
    unacknowledged_bytes: Option<u64>,
    unsent_bytes: Option<u64>,
}

/// The numbers of `SO_MEMINFO` that are gauges: name and index.
const MEMORY_GAUGES: [(&str, usize); 5] = [
    ("socket_receive_memory_bytes", 0),
    ("socket_receive_buffer_bytes", 1),
    ("socket_send_buffer_bytes", 3),
    ("socket_send_memory_bytes", 5),
    ("socket_backlog_bytes", 7),
];

/// `SK_MEMINFO_DROPS`, the one that only grows.
const MEMORY_DROPS: usize = 8;

const DROPS_NAME: &str = "socket_drops";
const UNREAD_NAME: &str = "socket_unread_bytes";
const UNACKNOWLEDGED_NAME: &str = "socket_unacknowledged_bytes";
const UNSENT_NAME: &str = "socket_unsent_bytes";
const OTHER_NAMES: [&str; 4] = [DROPS_NAME, UNREAD_NAME, UNACKNOWLEDGED_NAME, UNSENT_NAME];

impl LinkReading {
    /// Reads the counters of a descriptor; those that it does not have are absent.
    pub fn of(descriptor: BorrowedHandle<'_>) -> LinkReading {
        LinkReading {
            tcp: system::tcp_info(descriptor),
            memory: system::socket_memory(descriptor),
            unread_bytes: system::unread_bytes(descriptor),
            unacknowledged_bytes: system::unacknowledged_bytes(descriptor),
            unsent_bytes: system::unsent_bytes(descriptor),
        }
    }

    /// Counters that only grow while the link is open: name and value.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let drops = self.memory.map(|memory| (DROPS_NAME, u64::from(memory[MEMORY_DROPS])));
        self.tcp.iter().flat_map(TcpInfo::counters).chain(drops)
    }

    /// The state of a TCP connection at this time.
    fn of_connection(&self, at: Time) -> Option<ConnectionReading> {
        let tcp = self.tcp?;
        Some(ConnectionReading {
            at_ns: at.0,
            rtt_ns: u64::from(tcp.rtt_us().unwrap_or_default()) * 1000,
            congestion_window_segments: tcp.congestion_window().unwrap_or_default().into(),
            retransmitted_segments: tcp.retransmits().unwrap_or_default().into(),
            delivery_rate_bps: tcp.delivery_rate_bps(),
        })
    }

    /// Gauges, which rise and fall: name and value.
    pub fn gauges(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let memory = self
            .memory
            .iter()
            .flat_map(|memory| MEMORY_GAUGES.iter().map(|(name, index)| (*name, u64::from(memory[*index]))));
        let queues = [
            (UNREAD_NAME, self.unread_bytes),
            (UNACKNOWLEDGED_NAME, self.unacknowledged_bytes),
            (UNSENT_NAME, self.unsent_bytes),
        ];
        let queues = queues.into_iter().filter_map(|(name, bytes)| Some((name, bytes?)));
        self.tcp.iter().flat_map(TcpInfo::gauges).chain(memory).chain(queues)
    }
}

/// A second descriptor of a link, for reading its counters. The link does not close before it is dropped.
pub(crate) struct LinkProbe(OwnedHandle);

impl LinkProbe {
    /// `None` if the link has no descriptor that stays its own.
    pub(crate) fn of(link: &dyn Link) -> Option<LinkProbe> {
        let is_lasting = link.caps().descriptor == LinkDescriptor::Lasting;
        let descriptor = is_lasting.then(|| link.descriptor()).flatten()?;
        descriptor.try_clone_to_owned().ok().map(LinkProbe)
    }

    /// Reads the counters now: five system calls.
    pub(crate) fn read(&self) -> LinkReading {
        LinkReading::of(self.0.as_handle())
    }
}

/// Maximum number of readings that are stored of a connection. Of more, every second one is dropped.
const MAX_READINGS: usize = 512;

/// The readings of one connection.
pub(crate) struct ConnectionLog {
    probe: LinkProbe,
    first: LinkReading,
    last: LinkReading,
    readings: Vec<(Time, LinkReading)>,
    /// Calls of [`ConnectionLog::read`] per stored reading, and calls so far.
    stride: usize,
    calls: usize,
}

impl ConnectionLog {
    /// Bytes of a log that is full.
    pub(crate) const MAX_BYTES: usize = (MAX_READINGS + 1) * size_of::<(Time, LinkReading)>();

    /// Takes the first reading.
    pub(crate) fn start(probe: LinkProbe) -> ConnectionLog {
        let first = probe.read();
        let readings = Vec::with_capacity(MAX_READINGS + 1);
        ConnectionLog { probe, first, last: first, readings, stride: 1, calls: 0 }
    }

    /// Reads the counters now, which is this time on the time line of the caller. Returns the reading.
    pub(crate) fn read(&mut self, now: Time) -> LinkReading {
        let reading = self.probe.read();
        self.last = reading;
        if self.calls.is_multiple_of(self.stride) {
            self.readings.push((now, reading));
        }
        self.calls += 1;
        if self.readings.len() > MAX_READINGS {
            let mut index = 0;
            self.readings.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride *= 2;
        }
        reading
    }

    /// Sent bytes that TCP has not delivered, by the last reading.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.last.tcp.and(self.last.unacknowledged_bytes).unwrap_or(0)
    }

    /// The change of the counters until the last reading, the gauges of all readings, and those of a TCP connection one by one.
    pub(crate) fn evidence(&self) -> ConnectionEvidence {
        let readings: Vec<LinkReading> = self.readings.iter().map(|(_, reading)| *reading).collect();
        let of_connection = |(at, reading): &(Time, LinkReading)| reading.of_connection(*at);
        let series = self.readings.iter().filter_map(of_connection).collect();
        ConnectionEvidence { series, ..connection_evidence(Some(&self.first), &self.last, &readings) }
    }
}

/// The change of the counters since `first`, or since the link was opened, and the gauges of these readings.
pub(crate) fn connection_evidence(
    first: Option<&LinkReading>,
    last: &LinkReading,
    readings: &[LinkReading],
) -> ConnectionEvidence {
    let before: Counters = first.iter().flat_map(|first| first.counters()).map(named).collect();
    let change = |(name, count): (&str, u64)| {
        let earlier = before.get(name).copied().unwrap_or(0);
        // A counter of 32 bits that has wrapped shows nothing.
        Some((name.to_owned(), count.checked_sub(earlier)?))
    };
    let mut gauges = BTreeMap::<&str, Vec<u64>>::new();
    for (name, value) in readings.iter().flat_map(LinkReading::gauges) {
        gauges.entry(name).or_default().push(value);
    }
    let gauges = gauges.into_iter().filter_map(|(name, values)| Some((name.to_owned(), Gauge::of(&values)?)));
    ConnectionEvidence {
        count: 1,
        counters: last.counters().filter_map(change).collect(),
        gauges: gauges.collect(),
        series: Vec::new(),
    }
}

fn named((name, count): (&str, u64)) -> (String, u64) {
    (name.to_owned(), count)
}

/// Whether readings of links have this counter or gauge, so that the names of another host can be checked.
pub(crate) fn is_known(name: &str) -> bool {
    let memory = MEMORY_GAUGES.iter().map(|(name, _)| *name);
    tcp_info::names().chain(memory).chain(OTHER_NAMES).any(|known| known == name)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn bytes_that_wait_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        let own = |stream: &TcpStream| LinkProbe(stream.try_clone().unwrap().into());
        let (mut sending, mut receiving) =
            (ConnectionLog::start(own(&sender)), ConnectionLog::start(own(&receiver)));
        sender.write_all(&[1; 1000]).unwrap();
        while receiving.read(Time(0)).unread_bytes < Some(1000) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let received = receiving.evidence();
        assert_eq!(received.gauges["socket_unread_bytes"].max, 1000);
        assert_eq!(received.counters["tcp_received_bytes"], 1000);
        assert_eq!(received.counters["socket_drops"], 0);
        sending.read(Time(7));
        let sent = sending.evidence();
        assert_eq!(sent.series.iter().map(|reading| reading.at_ns).collect::<Vec<u64>>(), [7]);
        assert_eq!(sent.counters["tcp_sent_bytes"], 1000);
        assert!(sent.gauges["tcp_rtt_ns"].max > 0 && sent.gauges["socket_send_buffer_bytes"].min > 0);
        let names = sent.counters.keys().chain(sent.gauges.keys());
        assert!(names.chain(received.gauges.keys()).all(|name| is_known(name)), "{sent:?}");
    }

    #[test]
    fn other_descriptors_have_no_counters() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut log = ConnectionLog::start(LinkProbe(file.into()));
        log.read(Time(0));
        let evidence = log.evidence();
        assert_eq!((evidence.counters.len(), evidence.gauges.len()), (0, 0), "{evidence:?}");
        assert!(evidence.series.is_empty());
    }

    #[test]
    fn a_long_log_is_thinned() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut log = ConnectionLog::start(LinkProbe(socket.into()));
        for _ in 0..3 * MAX_READINGS {
            log.read(Time(0));
        }
        assert!((MAX_READINGS / 2..=MAX_READINGS).contains(&log.readings.len()), "{}", log.readings.len());
        assert_eq!(log.stride, 4);
    }
}
