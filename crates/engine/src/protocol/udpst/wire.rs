//! The messages of UDPST, protocol version 20. All numbers are big-endian.
//!
//! ```text
//! setup       ace1 version[2] index count test[2] command response bandwidth[2] port[2] modifier signature[41]
//! null        dead, ignored: it opens the firewall of a server
//! activation  ace2 version[2] command response parameters[22] row[28] period[2] 0[5] signature[41]
//! load        beef action stopped number[4] size[2] status gap[2] status time[8] time[8] status age[2] checksum[2] padding
//! status      feed action stopped number[4] row[28] sub-interval[60] trial interval[56] time[8] 0[3] signature[41]
//! ```

/// Version of the protocol.
pub(super) const VERSION: u16 = 20;

/// Bytes of the messages.
pub const SETUP_BYTES: usize = 56;
/// Bytes of an activation.
pub const ACTIVATION_BYTES: usize = 104;
/// Bytes of the header of a load.
pub(super) const LOAD_HEADER_BYTES: usize = 32;
/// Bytes of a status.
pub(super) const STATUS_BYTES: usize = 204;

const SETUP_ID: u16 = 0xace1;
const ACTIVATION_ID: u16 = 0xace2;
const LOAD_ID: u16 = 0xbeef;
const STATUS_ID: u16 = 0xfeed;

/// Action of loads and statuses: the test goes on, or it ends.
pub(super) const TEST: u8 = 0;
pub(super) const STOP: u8 = 2;

/// Reads numbers from the start of bytes.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    fn numbers<const COUNT: usize>(&mut self) -> Option<[u32; COUNT]> {
        let mut all = [0; COUNT];
        for number in &mut all {
            *number = self.u32()?;
        }
        Some(all)
    }
}

fn put_numbers(to: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|number| to.extend(number.to_be_bytes()));
}

/// Answers of a server to a setup request.
pub(super) mod refusal {
    pub(in super::super) const NONE: u8 = 0;
    pub(in super::super) const ACCEPTED: u8 = 1;
    pub(in super::super) const VERSION: u8 = 2;
    pub(in super::super) const JUMBO: u8 = 3;
    pub(in super::super) const NO_KEY: u8 = 4;
    pub(in super::super) const UNSIGNED: u8 = 5;
    pub(in super::super) const MODE: u8 = 6;
    pub(in super::super) const SIGNATURE: u8 = 7;
    pub(in super::super) const TIME: u8 = 8;
    pub(in super::super) const BANDWIDTH: u8 = 10;
    pub(in super::super) const MTU: u8 = 11;
    pub(in super::super) const CONNECTIONS: u8 = 12;

    /// The reason, for a message.
    pub(in super::super) fn reason(code: u8) -> &'static str {
        match code {
            VERSION => "it speaks another version of the protocol than 20",
            JUMBO => "its setting for jumbo datagrams differs",
            NO_KEY => "it has no key: leave out --authenticated",
            UNSIGNED => "it requires a key: use --authenticated and --token-file",
            MODE => "it lacks this mode of signatures",
            SIGNATURE => "its key is another one: see --token-file",
            TIME => "its clock differs by more than 5 s: set the clocks of both hosts",
            9 => "it requires the bandwidth of a test, which linkgauge does not announce",
            BANDWIDTH => "its bandwidth is used by other tests: try again later",
            MTU => "its setting for the MTU differs",
            CONNECTIONS => "it does not allow this number of connections: use a smaller --parallel",
            13 => "it has no room for another connection: try again later",
            _ => "it gives no known reason",
        }
    }
}

/// Bits of the modifier of a setup.
pub(super) const JUMBO: u8 = 1;
pub(super) const TRADITIONAL_MTU: u8 = 2;

/// Request for a connection, or the reply to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// Version of the sender.
    pub version: u16,
    /// Number of this connection of the test, from 0.
    pub index: u8,
    /// Connections of the test.
    pub count: u8,
    /// Number of the test.
    pub test: u16,
    /// 1: request; 2: response.
    pub command: u8,
    /// Answer of the server.
    pub response: u8,
    /// Bandwidth that the connection needs, in Mbit/s; the highest bit is the direction.
    pub bandwidth: u16,
    /// Port of the test at the server.
    pub port: u16,
    /// Sizes of datagrams.
    pub modifier: u8,
}

/// Commands of a setup.
pub(super) const REQUEST: u8 = 1;
pub(super) const RESPONSE: u8 = 2;

impl Setup {
    /// Encodes it without a signature.
    pub fn encode(&self) -> [u8; SETUP_BYTES] {
        let mut bytes = [0; SETUP_BYTES];
        for (at, number) in
            [(0, SETUP_ID), (2, self.version), (6, self.test), (10, self.bandwidth), (12, self.port)]
        {
            bytes[at..at + 2].copy_from_slice(&number.to_be_bytes());
        }
        (bytes[4], bytes[5]) = (self.index, self.count);
        (bytes[8], bytes[9], bytes[14]) = (self.command, self.response, self.modifier);
        bytes
    }

    /// Parses it; `None` if it is something else.
    pub fn parse(bytes: &[u8]) -> Option<Setup> {
        let mut reader = Reader(bytes);
        if bytes.len() != SETUP_BYTES || reader.u16()? != SETUP_ID {
            return None;
        }
        Some(Setup {
            version: reader.u16()?,
            index: reader.u8()?,
            count: reader.u8()?,
            test: reader.u16()?,
            command: reader.u8()?,
            response: reader.u8()?,
            bandwidth: reader.u16()?,
            port: reader.u16()?,
            modifier: reader.u8()?,
        })
    }
}

/// Row of the table of sending rates: two transmitters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Row {
    /// Microseconds between bursts; 0: none.
    pub intervals: [u32; 2],
    /// Bytes of a datagram.
    pub payloads: [u32; 2],
    /// Datagrams of a burst.
    pub bursts: [u32; 2],
    /// Bytes of a datagram after each burst of the second transmitter; 0: none. With `RANDOM_SIZE` it is the maximum.
    pub addon: u32,
}

/// Bit of a size: up to this size, at random.
pub(super) const RANDOM_SIZE: u32 = 1 << 31;

impl Row {
    /// The numbers of the row, in their order.
    pub(super) fn numbers(&self) -> [u32; 7] {
        let ([t1, t2], [p1, p2], [b1, b2]) = (self.intervals, self.payloads, self.bursts);
        [t1, p1, b1, t2, p2, b2, self.addon]
    }

    fn read(reader: &mut Reader) -> Option<Row> {
        let [t1, p1, b1, t2, p2, b2, addon] = reader.numbers()?;
        Some(Row { intervals: [t1, t2], payloads: [p1, p2], bursts: [b1, b2], addon })
    }
}

/// Commands of an activation.
pub(super) const UPSTREAM: u8 = 1;
pub(super) const DOWNSTREAM: u8 = 2;

/// Bit of the modifier of an activation: the search begins with the row index.
pub(super) const ROW_IS_START: u8 = 1;

/// Row index of a search from the slowest row.
pub(super) const SEARCH: u16 = u16::MAX;

/// Request for the start of a test, or the reply to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activation {
    /// Direction of the payload: 1 upstream, 2 downstream.
    pub command: u8,
    /// 1: accepted; 2: refused.
    pub response: u8,
    /// Delay variation below which an interval is good, in ms.
    pub low_delay: u16,
    /// Delay variation above which an interval is bad, in ms.
    pub high_delay: u16,
    /// Time between statuses, in ms.
    pub trial_interval: u16,
    /// Time of the test, in s.
    pub time: u16,
    /// Traffic class of the payload.
    pub traffic_class: u8,
    /// Row index.
    pub index: u16,
    /// Whether delays are those of one direction.
    pub is_one_way: u8,
    /// Rows of a fast step.
    pub fast_step: u8,
    /// Bad intervals after which the search is slow.
    pub slow_after: u16,
    /// Maximum missing datagrams of a good interval.
    pub max_missing: u16,
    /// Whether reordered and duplicate datagrams are no errors.
    pub ignores_reordered: u8,
    /// Meaning of the index, and content of the payload.
    pub modifier: u8,
    /// 0: B; 1: C.
    pub algorithm: u8,
    /// Row to send with at first, in a response.
    pub row: Row,
    /// Length of a sub-interval, in ms.
    pub period: u16,
}

impl Activation {
    /// Encodes it without a signature.
    pub fn encode(&self) -> [u8; ACTIVATION_BYTES] {
        let mut all = Vec::with_capacity(ACTIVATION_BYTES);
        let short = |all: &mut Vec<u8>, number: u16| all.extend(number.to_be_bytes());
        short(&mut all, ACTIVATION_ID);
        short(&mut all, VERSION);
        all.extend([self.command, self.response]);
        for number in [self.low_delay, self.high_delay, self.trial_interval, self.time] {
            short(&mut all, number);
        }
        all.extend([0, self.traffic_class]);
        short(&mut all, self.index);
        all.extend([self.is_one_way, self.fast_step]);
        short(&mut all, self.slow_after);
        short(&mut all, self.max_missing);
        all.extend([self.ignores_reordered, self.modifier, self.algorithm, 0]);
        put_numbers(&mut all, &self.row.numbers());
        short(&mut all, self.period);
        let mut bytes = [0; ACTIVATION_BYTES];
        bytes[..all.len()].copy_from_slice(&all);
        bytes
    }

    /// Parses it; `None` if it is something else.
    pub fn parse(bytes: &[u8]) -> Option<Activation> {
        let mut reader = Reader(bytes);
        if bytes.len() != ACTIVATION_BYTES || reader.u16()? != ACTIVATION_ID || reader.u16()? != VERSION {
            return None;
        }
        Some(Activation {
            command: reader.u8()?,
            response: reader.u8()?,
            low_delay: reader.u16()?,
            high_delay: reader.u16()?,
            trial_interval: reader.u16()?,
            time: reader.u16()?,
            traffic_class: reader.u16()? as u8,
            index: reader.u16()?,
            is_one_way: reader.u8()?,
            fast_step: reader.u8()?,
            slow_after: reader.u16()?,
            max_missing: reader.u16()?,
            ignores_reordered: reader.u8()?,
            modifier: reader.u8()?,
            algorithm: (reader.u16()? >> 8) as u8,
            row: Row::read(&mut reader)?,
            period: reader.u16()?,
        })
    }
}

/// Time of day as in loads and statuses: seconds and nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SplitTime {
    /// Seconds since 1970, modulo 2³².
    pub seconds: u32,
    /// Nanoseconds of the second.
    pub nanoseconds: u32,
}

impl SplitTime {
    /// Splits nanoseconds since 1970.
    pub(super) fn from_unix_ns(ns: i128) -> SplitTime {
        const SECOND: i128 = 1_000_000_000;
        SplitTime { seconds: ns.div_euclid(SECOND) as u32, nanoseconds: ns.rem_euclid(SECOND) as u32 }
    }

    /// Milliseconds from `earlier` to this time, as far as they fit.
    pub(super) fn ms_since(self, earlier: SplitTime) -> i32 {
        let seconds = i64::from(self.seconds.wrapping_sub(earlier.seconds) as i32);
        let ns = i64::from(self.nanoseconds) - i64::from(earlier.nanoseconds);
        let ms = seconds.saturating_mul(1000).saturating_add(ns.div_euclid(1_000_000));
        ms.clamp(i32::MIN.into(), i32::MAX.into()) as i32
    }
}

/// Header of a load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UdpstLoad {
    /// Whether the test goes on.
    pub action: u8,
    /// Number, from 1.
    pub number: u32,
    /// Bytes of the datagram.
    pub size: u16,
    /// Statuses that were missing before the last one.
    pub status_gap: u16,
    /// Time of the last status.
    pub status_time: SplitTime,
    /// Send time.
    pub time: SplitTime,
    /// Milliseconds since the last status arrived.
    pub status_age: u16,
}

impl UdpstLoad {
    /// Writes the header over the start of a datagram.
    pub fn write(&self, datagram: &mut [u8]) {
        let mut bytes = [0; LOAD_HEADER_BYTES];
        bytes[..2].copy_from_slice(&LOAD_ID.to_be_bytes());
        bytes[2] = self.action;
        bytes[4..8].copy_from_slice(&self.number.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.size.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.status_gap.to_be_bytes());
        let times = [
            self.status_time.seconds,
            self.status_time.nanoseconds,
            self.time.seconds,
            self.time.nanoseconds,
        ];
        for (time, to) in times.iter().zip(bytes[12..28].chunks_mut(4)) {
            to.copy_from_slice(&time.to_be_bytes());
        }
        bytes[28..30].copy_from_slice(&self.status_age.to_be_bytes());
        datagram[..LOAD_HEADER_BYTES].copy_from_slice(&bytes);
    }

    /// The header of a load; `None` if it is none.
    pub fn parse(datagram: &[u8]) -> Option<UdpstLoad> {
        let mut reader = Reader(datagram);
        let [action, _stopped] = if reader.u16()? == LOAD_ID { reader.take()? } else { return None };
        let header = UdpstLoad {
            action,
            number: reader.u32()?,
            size: reader.u16()?,
            status_gap: reader.u16()?,
            status_time: SplitTime { seconds: reader.u32()?, nanoseconds: reader.u32()? },
            time: SplitTime { seconds: reader.u32()?, nanoseconds: reader.u32()? },
            status_age: reader.u16()?,
        };
        (action <= STOP && datagram.len() >= LOAD_HEADER_BYTES).then_some(header)
    }
}

/// Delay of which nothing is known.
pub(super) const UNKNOWN_DELAY: u32 = u32::MAX;

/// Counts of received datagrams in a trial interval or a sub-interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Datagrams, with duplicates.
    pub datagrams: u32,
    /// Payload bytes.
    pub bytes: u64,
    /// Missing datagrams.
    pub lost: u32,
    /// Datagrams that arrived after a later one.
    pub reordered: u32,
    /// Datagrams that arrived again.
    pub duplicate: u32,
    /// Shortest delay variation, in ms.
    pub delay_min: u32,
    /// Longest delay variation, in ms.
    pub delay_max: u32,
    /// Sum of the delay variations, in ms.
    pub delay_sum: u32,
    /// Number of the delay variations.
    pub delay_count: u32,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            datagrams: 0,
            bytes: 0,
            lost: 0,
            reordered: 0,
            duplicate: 0,
            delay_min: UNKNOWN_DELAY,
            delay_max: 0,
            delay_sum: 0,
            delay_count: 0,
        }
    }
}

impl Tally {
    fn delays(&self) -> [u32; 4] {
        [self.delay_min, self.delay_max, self.delay_sum, self.delay_count]
    }
}

/// Message of the receiver of a load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatusMessage {
    /// Whether the test goes on.
    pub action: u8,
    /// Whether no load arrives.
    pub has_stopped: bool,
    /// Number, from 1.
    pub number: u32,
    /// Row to send with from now on.
    pub row: Row,
    /// Number of the last complete sub-interval, from 1; 0: none.
    pub sub_interval: u32,
    /// Counts of the last complete sub-interval.
    pub sub_tally: Tally,
    /// Its length, in µs.
    pub sub_us: u32,
    /// Its shortest and longest variation of the round trip, in ms.
    pub sub_round_trips: [u32; 2],
    /// Time of the test up to its end, in ms.
    pub elapsed_ms: u32,
    /// Counts of the trial interval.
    pub tally: Tally,
    /// Its length, in µs.
    pub trial_us: u32,
    /// Shortest difference of the clocks, in ms.
    pub clock_delta_min: i32,
    /// Shortest round trip, in ms.
    pub round_trip_min: u32,
    /// Last variation of the round trip, in ms.
    pub round_trip_variation: u32,
    /// Whether a minimum has changed.
    pub has_new_minimum: bool,
    /// Send time.
    pub time: SplitTime,
}

impl StatusMessage {
    /// Encodes it without a signature.
    pub fn encode(&self) -> [u8; STATUS_BYTES] {
        let mut all = Vec::with_capacity(STATUS_BYTES);
        all.extend(STATUS_ID.to_be_bytes());
        all.extend([self.action, self.has_stopped.into()]);
        put_numbers(&mut all, &[self.number]);
        put_numbers(&mut all, &self.row.numbers());
        let sub = &self.sub_tally;
        put_numbers(&mut all, &[self.sub_interval, sub.datagrams]);
        all.extend(sub.bytes.to_be_bytes());
        put_numbers(&mut all, &[self.sub_us, sub.lost, sub.reordered, sub.duplicate]);
        put_numbers(&mut all, &sub.delays());
        put_numbers(&mut all, &self.sub_round_trips);
        let Tally { lost, reordered, duplicate, datagrams, bytes, .. } = self.tally;
        put_numbers(&mut all, &[self.elapsed_ms, lost, reordered, duplicate, self.clock_delta_min as u32]);
        put_numbers(&mut all, &self.tally.delays());
        put_numbers(&mut all, &[self.round_trip_min, self.round_trip_variation]);
        all.extend([self.has_new_minimum.into(), 0, 0, 0]);
        put_numbers(&mut all, &[self.trial_us, datagrams, bytes.min(u32::MAX.into()) as u32]);
        put_numbers(&mut all, &[self.time.seconds, self.time.nanoseconds]);
        let mut encoded = [0; STATUS_BYTES];
        encoded[..all.len()].copy_from_slice(&all);
        encoded
    }

    /// Parses a status; `None` if it is something else. Checksums are not checked: some programs write them to the wrong
    /// place, and UDP has its own.
    pub fn parse(bytes: &[u8]) -> Option<StatusMessage> {
        let mut reader = Reader(bytes);
        if bytes.len() != STATUS_BYTES || reader.u16()? != STATUS_ID {
            return None;
        }
        let [action, has_stopped] = reader.take()?;
        let (number, row) = (reader.u32()?, Row::read(&mut reader)?);
        let [sub_interval, sub_datagrams] = reader.numbers()?;
        let sub_bytes = reader.u64()?;
        let [sub_us, sub_lost, sub_reordered, sub_duplicate] = reader.numbers()?;
        let sub_delays: [u32; 4] = reader.numbers()?;
        let (sub_round_trips, [elapsed_ms]) = (reader.numbers()?, reader.numbers()?);
        let [lost, reordered, duplicate, clock_delta_min] = reader.numbers()?;
        let delays: [u32; 4] = reader.numbers()?;
        let [round_trip_min, round_trip_variation] = reader.numbers()?;
        let [has_new_minimum, ..] = reader.take::<4>()?;
        let [trial_us, datagrams, bytes] = reader.numbers()?;
        let time = SplitTime { seconds: reader.u32()?, nanoseconds: reader.u32()? };
        let tally = |[lost, reordered, duplicate]: [u32; 3], datagrams, bytes, delays: [u32; 4]| Tally {
            datagrams,
            bytes,
            lost,
            reordered,
            duplicate,
            delay_min: delays[0],
            delay_max: delays[1],
            delay_sum: delays[2],
            delay_count: delays[3],
        };
        (action <= STOP).then_some(StatusMessage {
            action,
            has_stopped: has_stopped != 0,
            number,
            row,
            sub_interval,
            sub_tally: tally([sub_lost, sub_reordered, sub_duplicate], sub_datagrams, sub_bytes, sub_delays),
            sub_us,
            sub_round_trips,
            elapsed_ms,
            tally: tally([lost, reordered, duplicate], datagrams, bytes.into(), delays),
            trial_us,
            clock_delta_min: clock_delta_min as i32,
            round_trip_min,
            round_trip_variation,
            has_new_minimum: has_new_minimum != 0,
            time,
        })
    }
}
