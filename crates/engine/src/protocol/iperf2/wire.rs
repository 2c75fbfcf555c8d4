//! Messages of iperf 2: settings at the start of the data, the header of a datagram, and the report of a server. All
//! fields are big-endian, and times are seconds and microseconds of the wall clock.
//!
//! There is no control connection. The settings are 24 bytes, with an extension of 36 bytes since 2.0.10. On a stream
//! they come first; in each datagram they follow its header. Payload of other programs may stand in their place.

use std::time::Duration;

/// Bytes of the settings without their extension.
pub const BLOCK_BYTES: usize = 24;

/// Bytes of the extension that is sent here: that of 2.1.
const EXTENSION_BYTES: usize = 36;

/// Bytes of the settings with it.
pub(crate) const SETTINGS_BYTES: usize = BLOCK_BYTES + EXTENSION_BYTES;

/// Most bytes of settings: their length field has 8 bits.
pub(crate) const MAX_SETTINGS_BYTES: usize = 256;

/// Largest number of connections of a client.
pub(crate) const MAX_THREADS: u32 = 128;

const CALLS_BACK: u32 = 0x8000_0000;
const EXTENDED: u32 = 0x4000_0000;
const UDP_TESTS: u32 = 0x2000_0000;
const KEY_FOLLOWS: u32 = 0x1000_0000;
const WIDE_NUMBERS: u32 = 0x0800_0000;
const SAME_LINK: u32 = 0x0400_0000;
const BOUNCES: u32 = 0x0080_0000;
const HAS_LENGTH: u32 = 0x0001_0000;
const LENGTH_MASK: u32 = 0x0000_01fe;
const AT_ONCE: u32 = 1;

const NO_LAST_DATAGRAM: u16 = 0x0008;
const TRIP_TIMES: u16 = 0x0010;
const REVERSE: u16 = 0x0400;
const FULL_DUPLEX: u16 = 0x0800;

/// Version 2.1.8, the layout of which is sent.
const VERSION: [u32; 2] = [0x0002_0001, 0x0008_0003];

/// Senders of a test, and links on which they send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TestMode {
    /// The client sends.
    #[default]
    Plain,
    /// The client sends, and the server connects to the client at once and sends as well (`-d`).
    Dual,
    /// The client sends; once it has sent all, the server connects to the client and sends as well (`-r`).
    TradeOff,
    /// The server sends on the link of the client (`--reverse`).
    Reverse,
    /// Both send on the link of the client (`--full-duplex`).
    FullDuplex,
}

impl TestMode {
    /// The server opens a link to the client.
    pub(crate) fn calls_back(self) -> bool {
        matches!(self, TestMode::Dual | TestMode::TradeOff)
    }

    /// The server sends on the link of the client.
    pub(crate) fn answers(self) -> bool {
        matches!(self, TestMode::Reverse | TestMode::FullDuplex)
    }
}

/// Amount of data or time after which the sender stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// Number of bytes.
    Bytes(u32),
    /// Time, in steps of 10 ms.
    Time(Duration),
}

impl Amount {
    fn encode(self) -> i32 {
        match self {
            Amount::Bytes(bytes) => bytes.min(i32::MAX as u32) as i32,
            Amount::Time(time) => -(time.as_millis().div_ceil(10).clamp(1, i32::MAX as u128) as i32),
        }
    }

    fn decode(word: i32) -> Amount {
        match u32::try_from(word) {
            Ok(bytes) => Amount::Bytes(bytes),
            Err(_) => Amount::Time(Duration::from_millis(10 * u64::from(word.unsigned_abs()))),
        }
    }
}

/// The settings of a test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Senders of the test, and links on which they send.
    pub mode: TestMode,
    /// Connections of the client.
    pub threads: u32,
    /// Port that a server that calls back connects to.
    pub port: u16,
    /// Bytes of a datagram or a write, if the client has chosen them.
    pub buffer_bytes: u32,
    /// Amount of data or time after which the sender stops.
    pub amount: Amount,
    /// Numbers of datagrams have 64 bits.
    pub has_wide_numbers: bool,
    /// The settings have their extension: the client is 2.0.10 or later.
    pub is_extended: bool,
    /// Bits per second of each sender; 0: not limited.
    pub rate_bps: u64,
    /// The clocks of both hosts agree, as far as the client knows.
    pub has_trip_times: bool,
    /// A server sends a report after the last datagram.
    pub wants_report: bool,
    /// The client proves that it knows a key.
    pub has_key: bool,
}

impl Settings {
    /// A plain test with the extension.
    pub(crate) fn new(mode: TestMode, port: u16, amount: Amount) -> Settings {
        Settings {
            mode,
            threads: 1,
            port,
            buffer_bytes: 0,
            amount,
            has_wide_numbers: false,
            is_extended: true,
            rate_bps: 0,
            has_trip_times: false,
            wants_report: !mode.answers(),
            has_key: false,
        }
    }

    /// The settings as they stand after `before` bytes of a datagram's header; 0 on a stream.
    pub(crate) fn encode(&self, before: usize) -> Vec<u8> {
        let mut flags = match self.mode {
            TestMode::Plain => 0,
            TestMode::Dual => CALLS_BACK | AT_ONCE,
            TestMode::TradeOff => CALLS_BACK,
            TestMode::Reverse | TestMode::FullDuplex => SAME_LINK,
        };
        if self.is_extended {
            flags |= EXTENDED | HAS_LENGTH | (((before + SETTINGS_BYTES) as u32) << 1 & LENGTH_MASK);
            flags |= if self.has_wide_numbers { WIDE_NUMBERS } else { 0 };
            flags |= if before > 0 && self.mode.answers() { UDP_TESTS } else { 0 };
        }
        let block =
            [flags, self.threads, self.port.into(), self.buffer_bytes, 0, self.amount.encode() as u32];
        let mut bytes: Vec<u8> = block.into_iter().flat_map(u32::to_be_bytes).collect();
        if self.is_extended {
            let upper = match self.mode {
                TestMode::Reverse => REVERSE,
                TestMode::FullDuplex if before > 0 => FULL_DUPLEX | NO_LAST_DATAGRAM,
                TestMode::FullDuplex => FULL_DUPLEX,
                TestMode::Plain | TestMode::Dual | TestMode::TradeOff => 0,
            };
            let rate = [self.rate_bps as u32, ((self.rate_bps >> 32) as u32) << 8, 0];
            let extension = [0, 0, u32::from(upper) << 16, VERSION[0], VERSION[1], 0].into_iter().chain(rate);
            bytes.extend(extension.flat_map(u32::to_be_bytes));
        }
        bytes
    }

    /// Reads settings at the start of `bytes`. `None`: other payload stands there, or less than all settings.
    pub fn parse(bytes: &[u8]) -> Option<Settings> {
        let flags = word(bytes, 0)?;
        let threads = word(bytes, 4)?;
        // Since 2.2 the number of a transfer stands in the upper bits.
        let threads = if threads >> 31 == 1 { threads & 0xf_ffff } else { threads };
        let port = u16::try_from(word(bytes, 8)?).ok().filter(|port| *port > 0)?;
        let upper = match flags & EXTENDED {
            0 => 0,
            _ => (word(bytes, 32)? >> 16) as u16,
        };
        let rate = |at: usize| (flags & EXTENDED != 0).then(|| word(bytes, at)).flatten().unwrap_or(0);
        let mode = match flags {
            _ if flags & SAME_LINK != 0 && upper & REVERSE != 0 => TestMode::Reverse,
            _ if flags & SAME_LINK != 0 && upper & FULL_DUPLEX != 0 => TestMode::FullDuplex,
            _ if flags & SAME_LINK != 0 || flags & CALLS_BACK == 0 => TestMode::Plain,
            _ if flags & AT_ONCE != 0 => TestMode::Dual,
            _ => TestMode::TradeOff,
        };
        Some(Settings {
            mode,
            threads: Some(threads).filter(|threads| *threads <= MAX_THREADS)?,
            port,
            buffer_bytes: word(bytes, 12)?,
            amount: Amount::decode(word(bytes, 20)? as i32),
            has_wide_numbers: flags & WIDE_NUMBERS != 0,
            is_extended: flags & EXTENDED != 0,
            rate_bps: u64::from(rate(48)) | u64::from(rate(52) >> 8) << 32,
            has_trip_times: upper & TRIP_TIMES != 0,
            wants_report: upper & NO_LAST_DATAGRAM == 0 && flags & SAME_LINK == 0,
            has_key: flags & KEY_FOLLOWS != 0,
        })
    }
}

/// Start of a stream, as its first four bytes show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamStart {
    /// Payload without settings.
    Payload,
    /// Settings of this number of bytes.
    Settings(usize),
    /// Messages that are to be returned.
    Bounceback,
}

impl StreamStart {
    /// Reads the first four bytes.
    pub fn of(flags: [u8; 4]) -> StreamStart {
        let flags = u32::from_be_bytes(flags);
        let length = match flags & HAS_LENGTH {
            0 if flags & EXTENDED != 0 => SETTINGS_BYTES,
            0 => BLOCK_BYTES,
            _ => ((flags & LENGTH_MASK) >> 1) as usize,
        };
        match flags {
            // Nothing but bit 23 is set for these.
            BOUNCES => StreamStart::Bounceback,
            _ if flags & (CALLS_BACK | SAME_LINK | EXTENDED) == 0 => StreamStart::Payload,
            _ if !(BLOCK_BYTES..=MAX_SETTINGS_BYTES).contains(&length) => StreamStart::Payload,
            _ => StreamStart::Settings(length),
        }
    }
}

/// Reply of a server since 2.0.10 to the settings of a plain test, so that the client learns its version. With trip times it
/// holds the times when the settings were sent, when they arrived, and when this reply leaves, in microseconds.
pub(crate) fn acknowledgement(times_us: Option<[u64; 3]>) -> Vec<u8> {
    let length = if times_us.is_some() { 52 } else { 28 };
    let times = times_us.into_iter().flatten().flat_map(seconds_and_micros);
    let words = [2, length, 0, VERSION[0], VERSION[1], 0, 0].into_iter().chain(times);
    words.flat_map(u32::to_be_bytes).collect()
}

/// Position of the start time of a test with trip times in the stream, in bytes.
const START_TIME_AT: usize = 64;

/// Time when a client with trip times sent its settings, in microseconds.
pub(crate) fn start_time_us(settings: &[u8]) -> Option<u64> {
    micros_at(settings, START_TIME_AT)
}

/// The layout of the datagrams of one sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramFormat {
    /// Numbers have 64 bits.
    pub is_wide: bool,
    /// Bytes before the settings: 16, or 12 up to 2.0.9 and in Zephyr's zperf. A report begins with this number of zeros.
    pub header_bytes: usize,
}

impl DatagramFormat {
    /// Format of 2.0.10 and later.
    pub const MODERN: DatagramFormat = DatagramFormat { is_wide: true, header_bytes: 16 };
    /// Format of older versions, and of other programs.
    pub const OLD: DatagramFormat = DatagramFormat { is_wide: false, header_bytes: 12 };

    /// The layout of a sender, as its first datagram shows.
    pub fn of(first: &[u8]) -> DatagramFormat {
        let has_settings_at = |at: usize| first.get(at..).and_then(Settings::parse).is_some();
        let at_16 = word(first, 16).unwrap_or(0);
        if at_16 & WIDE_NUMBERS != 0 && has_settings_at(16) {
            return DatagramFormat::MODERN;
        }
        let at_12 = word(first, 12).unwrap_or(0);
        let is_old = (at_12 == 0 || at_12 & CALLS_BACK != 0) && has_settings_at(12);
        match is_old || !has_settings_at(16) {
            true => DatagramFormat::OLD,
            false => DatagramFormat { is_wide: false, header_bytes: 16 },
        }
    }

    /// The least bytes of a datagram that says everything about its test.
    pub(crate) fn min_bytes(self) -> usize {
        self.header_bytes + if self.is_wide { SETTINGS_BYTES } else { BLOCK_BYTES }
    }

    /// Writes number and time over the start of a datagram.
    pub(crate) fn write(self, datagram: &mut [u8], number: i64, sent_us: u64) {
        let Some(head) = datagram.first_chunk_mut::<12>() else { return };
        let [seconds, micros] = seconds_and_micros(sent_us);
        for (field, value) in head.chunks_mut(4).zip([number as u32, seconds, micros]) {
            field.copy_from_slice(&value.to_be_bytes());
        }
        if let (true, Some(high)) = (self.header_bytes == 16, datagram.get_mut(12..16)) {
            let number = if self.is_wide { (number >> 32) as u32 } else { 0 };
            high.copy_from_slice(&number.to_be_bytes());
        }
    }

    /// Reads the start of a datagram.
    pub fn read(self, datagram: &[u8]) -> Option<DatagramHead> {
        let low = word(datagram, 0)?;
        let number = match self.is_wide {
            true => (u64::from(word(datagram, 12)?) << 32 | u64::from(low)) as i64,
            false => i64::from(low as i32),
        };
        let sent_us = micros_at(datagram, 4).unwrap_or(0);
        // The last number is negated; 2.0.10 to 2.0.13 only set its sign bit.
        let sign = if self.is_wide { i64::MAX } else { i64::from(i32::MAX) };
        let last = number.unsigned_abs().min((number & sign).unsigned_abs());
        Some(match number {
            0.. => DatagramHead { number: number as u64, is_last: false, sent_us },
            _ => DatagramHead { number: last, is_last: true, sent_us },
        })
    }
}

/// The start of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramHead {
    /// Number of the datagram, from 1 on, or from 0 in the old format.
    pub number: u64,
    /// The sender sends nothing after it, except the same again.
    pub is_last: bool,
    /// Time of sending by the sender's clock, in microseconds since 1970.
    pub sent_us: u64,
}

/// Report of a server after the last datagram, which the server counts like the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Received bytes.
    pub bytes: u64,
    /// First to last datagram.
    pub elapsed: Duration,
    /// Missing datagrams.
    pub lost: u64,
    /// Datagrams that arrived after a later one.
    pub reordered: u64,
    /// The highest number.
    pub highest: u64,
    /// Jitter, smoothed as in RFC 3550.
    pub jitter: Duration,
    /// One-way delays, if the clocks agree as far as the client knows.
    pub delays: Option<Delays>,
}

/// One-way delays of datagrams, in microseconds. They are as wrong as the difference of the two clocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delays {
    /// The shortest.
    pub min_us: u64,
    /// The longest.
    pub max_us: u64,
    /// The sum.
    pub sum_us: u64,
    /// Number of delays.
    pub count: u64,
}

impl Delays {
    /// The mean, if there are any.
    pub(crate) fn mean_us(&self) -> Option<u64> {
        self.sum_us.checked_div(self.count)
    }

    /// Adds one.
    pub(crate) fn add(&mut self, delay_us: u64) {
        self.min_us = if self.count == 0 { delay_us } else { self.min_us.min(delay_us) };
        self.max_us = self.max_us.max(delay_us);
        self.sum_us = self.sum_us.saturating_add(delay_us);
        self.count += 1;
    }
}

/// The report has the high halves of its counts.
const WIDE_COUNTS: u32 = 0x0800_0000;
/// The one-way delays of the report have a meaning.
const HAS_DELAYS: u32 = 0x4000_0000;
/// Bytes of the one-way delays.
const DELAY_BYTES: usize = 60;
/// Bytes of the counts.
const COUNT_BYTES: usize = 40;

/// The longest report with all fields.
pub(crate) const REPORT_BYTES: usize = 16 + COUNT_BYTES + DELAY_BYTES + 12;

impl Report {
    /// The report for a client with this format.
    pub fn encode(&self, format: DatagramFormat) -> Vec<u8> {
        let high = |value: u64| (value >> 32) as u32;
        let has_more = format.header_bytes == 16;
        let mut flags = CALLS_BACK;
        flags |= if has_more { WIDE_COUNTS } else { 0 };
        flags |= if has_more && self.delays.is_some() { HAS_DELAYS } else { 0 };
        let [seconds, micros] = seconds_and_micros(self.elapsed.as_micros() as u64);
        let [jitter_seconds, jitter_micros] = seconds_and_micros(self.jitter.as_micros() as u64);
        let counts = [flags, high(self.bytes), self.bytes as u32, seconds, micros];
        let counts = counts.into_iter().chain([self.lost as u32, self.reordered as u32, self.highest as u32]);
        let mut bytes = vec![0; format.header_bytes];
        bytes.extend(counts.chain([jitter_seconds, jitter_micros]).flat_map(u32::to_be_bytes));
        if has_more {
            let delays = self.delays.unwrap_or_default();
            let times = [delays.min_us, delays.max_us, delays.sum_us, delays.mean_us().unwrap_or(0), 0, 0];
            bytes.extend(times.into_iter().flat_map(seconds_and_micros).flat_map(u32::to_be_bytes));
            let seconds = self.elapsed.as_secs_f64().round().max(1.0) as u32;
            bytes.extend(
                [delays.count as u32, delays.count.saturating_sub(2) as u32, seconds]
                    .into_iter()
                    .flat_map(u32::to_be_bytes),
            );
            let highs = [high(self.lost), high(self.reordered), high(self.highest)];
            bytes.extend(highs.into_iter().flat_map(u32::to_be_bytes));
        }
        bytes
    }

    /// Reads a report. It stands after 16 bytes, or after 12 from programs with the old format.
    pub fn parse(datagram: &[u8]) -> Option<Report> {
        let is_at = |at: &usize| word(datagram, *at).is_some_and(|flags| flags & CALLS_BACK != 0);
        let at = [16, 12].into_iter().find(is_at)?;
        let flags = word(datagram, at)?;
        let field = |index: usize| word(datagram, at + 4 * index).map(u64::from);
        let time = |index: usize| micros_at(datagram, at + 4 * index).map(Duration::from_micros);
        let more = |index: usize| match flags & WIDE_COUNTS {
            0 => Some(0),
            _ => word(datagram, at + COUNT_BYTES + DELAY_BYTES + 4 * index).map(|high| u64::from(high) << 32),
        };
        let delay = |index: usize| micros_at(datagram, at + COUNT_BYTES + 8 * index);
        let delays = || {
            let count = word(datagram, at + COUNT_BYTES + 48)?.into();
            Some(Delays { min_us: delay(0)?, max_us: delay(1)?, sum_us: delay(2)?, count })
        };
        Some(Report {
            bytes: field(1)? << 32 | field(2)?,
            elapsed: time(3)?,
            lost: field(5)? | more(0)?,
            reordered: field(6)? | more(1)?,
            highest: field(7)? | more(2)?,
            jitter: time(8)?,
            delays: if flags & HAS_DELAYS == 0 { None } else { delays() },
        })
    }
}

/// A 32-bit field.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

/// A time in microseconds.
pub(crate) fn micros_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(word(bytes, at)?) * 1_000_000 + u64::from(word(bytes, at + 4)?))
}

/// A time as its two fields.
pub(crate) fn seconds_and_micros(micros: u64) -> [u32; 2] {
    [(micros / 1_000_000) as u32, (micros % 1_000_000) as u32]
}

pub(crate) mod bounceback;
#[cfg(test)]
mod tests;
