//! A serial line: its rate, frame and flow control, and the control of the port that drives it.
//!
//! `serial.rs` opens ports of this host; other transports reach ports through a network.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Caps, Facts, Fault, LinkRate};
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_model::units;

/// The settings that both ends of a serial line must share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SerialSettings {
    /// Bits per second on the line, start, parity and stop bits included.
    pub baud: u32,
    /// 5 to 8.
    pub data_bits: u8,
    /// The parity bit after the data bits.
    pub parity: Parity,
    /// The length of the idle time after each character.
    pub stop_bits: StopBits,
    /// How the receiver pauses the sender.
    pub flow_control: FlowControl,
}

/// 9600 8N1 without flow control.
impl Default for SerialSettings {
    fn default() -> SerialSettings {
        SerialSettings {
            baud: 9600,
            data_bits: 8,
            parity: Parity::None,
            stop_bits: StopBits::One,
            flow_control: FlowControl::None,
        }
    }
}

/// The parity bit of a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parity {
    /// No parity bit.
    None,
    /// Makes the number of ones odd.
    Odd,
    /// Makes the number of ones even.
    Even,
    /// Always one.
    Mark,
    /// Always zero.
    Space,
}

/// The minimum idle time after a character, in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopBits {
    /// 1 bit.
    One,
    /// With five data bits only, as in UARTs.
    OneAndHalf,
    /// 2 bits.
    Two,
}

/// How the receiver pauses the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowControl {
    /// The receiver cannot pause the sender.
    None,
    /// Hardware: the RTS and CTS wires.
    RtsCts,
    /// In band: the characters XON and XOFF.
    XonXoff,
}

/// Pauses the sender of a line with [`FlowControl::XonXoff`].
pub const XOFF: u8 = 0x13;
/// Resumes it.
pub const XON: u8 = 0x11;

impl Parity {
    /// All kinds, in the order of help texts.
    pub const ALL: [Parity; 5] = [Parity::None, Parity::Odd, Parity::Even, Parity::Mark, Parity::Space];

    /// The value of the endpoint option `parity`.
    pub fn name(self) -> &'static str {
        match self {
            Parity::None => "none",
            Parity::Odd => "odd",
            Parity::Even => "even",
            Parity::Mark => "mark",
            Parity::Space => "space",
        }
    }

    fn letter(self) -> &'static str {
        match self {
            Parity::None => "N",
            Parity::Odd => "O",
            Parity::Even => "E",
            Parity::Mark => "M",
            Parity::Space => "S",
        }
    }
}

impl StopBits {
    /// All lengths, in the order of help texts.
    pub const ALL: [StopBits; 3] = [StopBits::One, StopBits::OneAndHalf, StopBits::Two];

    /// The value of the endpoint option `stop`.
    pub fn name(self) -> &'static str {
        match self {
            StopBits::One => "1",
            StopBits::OneAndHalf => "1.5",
            StopBits::Two => "2",
        }
    }

    /// In half bits.
    pub fn half_bits(self) -> u32 {
        match self {
            StopBits::One => 2,
            StopBits::OneAndHalf => 3,
            StopBits::Two => 4,
        }
    }
}

impl FlowControl {
    /// All kinds, in the order of help texts.
    pub const ALL: [FlowControl; 3] = [FlowControl::None, FlowControl::RtsCts, FlowControl::XonXoff];

    /// The value of the endpoint option `flow`.
    pub fn name(self) -> &'static str {
        match self {
            FlowControl::None => "none",
            FlowControl::RtsCts => "rtscts",
            FlowControl::XonXoff => "xonxoff",
        }
    }
}

/// The endpoint options for the settings, for the lists of the transports that have them.
pub(crate) const BAUD_OPTION: (&str, &str) = ("baud", "rate of the line in bits per second (9600)");
/// Option for [`SerialSettings::data_bits`].
pub(crate) const DATA_BITS_OPTION: (&str, &str) = ("data", "data bits of a character: 5, 6, 7 or 8 (8)");
/// Option for [`SerialSettings::parity`].
pub(crate) const PARITY_OPTION: (&str, &str) = ("parity", "none, odd, even, mark or space (none)");
/// Option for [`SerialSettings::stop_bits`].
pub(crate) const STOP_BITS_OPTION: (&str, &str) = ("stop", "stop bits: 1, 1.5 (with 5 data bits) or 2 (1)");
/// Option for [`SerialSettings::flow_control`].
pub(crate) const FLOW_CONTROL_OPTION: (&str, &str) = ("flow", "flow control: none, rtscts or xonxoff (none)");

impl SerialSettings {
    /// The settings of an endpoint's options, with defaults for missing ones.
    ///
    /// # Errors
    ///
    /// Fails if an option has an invalid value, or if the settings contradict each other.
    pub fn from_endpoint(endpoint: &Endpoint) -> Result<SerialSettings, EndpointError> {
        let otherwise = SerialSettings::default();
        let settings = SerialSettings {
            baud: endpoint
                .parse_option(BAUD_OPTION.0, "a rate in bits per second, like 9600", parse_baud)?
                .unwrap_or(otherwise.baud),
            data_bits: endpoint
                .parse_option(DATA_BITS_OPTION.0, "5, 6, 7 or 8", |text| {
                    text.parse().ok().filter(|bits| (5..=8).contains(bits))
                })?
                .unwrap_or(otherwise.data_bits),
            parity: endpoint
                .parse_option(PARITY_OPTION.0, "none, odd, even, mark or space", |text| {
                    Parity::ALL.into_iter().find(|parity| parity.name() == text)
                })?
                .unwrap_or(otherwise.parity),
            stop_bits: endpoint
                .parse_option(STOP_BITS_OPTION.0, "1, 1.5 or 2", |text| {
                    StopBits::ALL.into_iter().find(|stop| stop.name() == text)
                })?
                .unwrap_or(otherwise.stop_bits),
            flow_control: endpoint
                .parse_option(FLOW_CONTROL_OPTION.0, "none, rtscts or xonxoff", |text| {
                    FlowControl::ALL.into_iter().find(|flow| flow.name() == text)
                })?
                .unwrap_or(otherwise.flow_control),
        };
        // A UART makes 1.5 stop bits with five data bits and 2 with more; there is no other choice.
        let five = settings.data_bits == 5;
        if five && settings.stop_bits == StopBits::Two || !five && settings.stop_bits == StopBits::OneAndHalf
        {
            let what = if five { "1 or 1.5 with 5 data bits" } else { "1 or 2 with more than 5 data bits" };
            endpoint.parse_option(STOP_BITS_OPTION.0, what, |_| None::<()>)?;
        }
        Ok(settings)
    }

    /// The line behind the remote, if the endpoint names its rate.
    ///
    /// # Errors
    ///
    /// As [`SerialSettings::from_endpoint`].
    pub(crate) fn declared_in(endpoint: &Endpoint) -> Result<Option<SerialSettings>, EndpointError> {
        let settings = SerialSettings::from_endpoint(endpoint)?;
        Ok(endpoint.option(BAUD_OPTION.0).map(|_| settings))
    }

    /// The endpoint options for these settings: the rate, and all settings that differ from the default.
    pub fn endpoint_options(&self) -> String {
        let usual = SerialSettings::default();
        let mut options = format!("{}={}", BAUD_OPTION.0, self.baud);
        for ((name, _), value, otherwise) in [
            (DATA_BITS_OPTION, self.data_bits.to_string(), usual.data_bits.to_string()),
            (PARITY_OPTION, self.parity.name().to_owned(), usual.parity.name().to_owned()),
            (STOP_BITS_OPTION, self.stop_bits.name().to_owned(), usual.stop_bits.name().to_owned()),
            (FLOW_CONTROL_OPTION, self.flow_control.name().to_owned(), usual.flow_control.name().to_owned()),
        ] {
            if value != otherwise {
                options += &format!("&{name}={value}");
            }
        }
        options
    }

    /// Half bits that one character takes on the line: start, data, parity, stop.
    pub fn half_bits(&self) -> u32 {
        let parity = if self.parity == Parity::None { 0 } else { 1 };
        2 * (1 + u32::from(self.data_bits) + parity) + self.stop_bits.half_bits()
    }

    /// Bits that one character takes on the line (8N1: 10).
    pub(crate) fn bits_per_character(&self) -> f64 {
        f64::from(self.half_bits()) / 2.0
    }

    /// Time for this number of characters back to back, rounded up to the nanosecond.
    pub fn transmission_time(&self, characters: u64) -> Duration {
        let halves = u128::from(characters) * u128::from(self.half_bits()) * 1_000_000_000;
        let nanoseconds = halves.div_ceil(2 * u128::from(self.baud.max(1)));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Link rate of the line.
    pub fn link_rate(&self) -> LinkRate {
        LinkRate {
            bits_per_second: f64::from(self.baud),
            bits_per_byte: self.bits_per_character(),
            data_bits: self.data_bits,
            has_in_band_flow_control: self.flow_control == FlowControl::XonXoff,
        }
    }

    /// Capabilities of a link that ends in such a line. It has only one user at a time, and noise or a full
    /// buffer may lose bytes. Most device servers drop data on the line when their client has finished.
    pub fn caps(&self) -> Caps {
        Caps {
            is_device: true,
            can_signal_close: false,
            can_open_parallel: false,
            is_reliable: false,
            link_rate: Some(self.link_rate()),
            ..Caps::STREAM
        }
    }
}

/// A UART samples a bit in its middle: with ten bits per character the two ends may differ by 5 % in total,
/// shared by both ends and their clocks.
const BAUD_TOLERANCE_PERCENT: u64 = 2;

/// Checks that the remote understands the effective rate.
///
/// # Errors
///
/// Fails if the rates differ by more than receivers tolerate.
pub fn check_granted(requested: &SerialSettings, granted: &SerialSettings) -> Result<(), Fault> {
    let off = u64::from(granted.baud.abs_diff(requested.baud));
    if 100 * off <= BAUD_TOLERANCE_PERCENT * u64::from(requested.baud) {
        return Ok(());
    }
    Err(Fault::Unsupported(format!(
        "the port uses {} baud, {} were requested. Choose a rate that it supports",
        granted.baud, requested.baud
    )))
}

/// Adds the requested and the effective settings of the port to the facts of a link.
pub(crate) fn insert_line_facts(facts: &mut Facts, requested: &SerialSettings, granted: &SerialSettings) {
    facts.insert("line_requested".to_owned(), requested.to_string().into());
    facts.insert("line_granted".to_owned(), granted.to_string().into());
    facts.insert("line_requested_bits_per_byte".to_owned(), requested.bits_per_character().into());
}

fn parse_baud(text: &str) -> Option<u32> {
    units::parse_count(text).ok().and_then(|baud| u32::try_from(baud).ok()).filter(|&baud| baud > 0)
}

/// `8N1`: data bits, parity, stop bits.
fn parse_frame(text: &str) -> Option<(u8, Parity, StopBits)> {
    let (data, rest) = text.split_at_checked(1)?;
    let (parity, stop) = rest.split_at_checked(1)?;
    let data_bits = data.parse().ok().filter(|bits| (5..=8).contains(bits))?;
    let parity = Parity::ALL.into_iter().find(|other| other.letter() == parity)?;
    let stop = StopBits::ALL.into_iter().find(|other| other.name() == stop)?;
    let made = match data_bits {
        5 => stop != StopBits::Two,
        _ => stop != StopBits::OneAndHalf,
    };
    made.then_some((data_bits, parity, stop))
}

/// In the usual notation: `9600 8N1 rtscts`.
impl fmt::Display for SerialSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}{}", self.baud, self.data_bits, self.parity.letter(), self.stop_bits.name())?;
        match self.flow_control {
            FlowControl::None => Ok(()),
            flow => write!(f, " {}", flow.name()),
        }
    }
}

/// Why a text does not describe a serial line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' does not describe a serial line. Write it like 115200,8N1,rtscts")]
pub struct SerialSettingsError {
    text: String,
}

/// Parses the notation above, with commas for spaces: `115200`, `9600,7E1`, `230400,8N1,rtscts`.
impl FromStr for SerialSettings {
    type Err = SerialSettingsError;

    fn from_str(text: &str) -> Result<SerialSettings, SerialSettingsError> {
        let mut parts = text.split([',', ' ']);
        let otherwise = SerialSettings::default();
        let mut read = || {
            let baud = parse_baud(parts.next()?)?;
            let (data_bits, parity, stop) = match parts.next() {
                Some(text) => parse_frame(text)?,
                None => (otherwise.data_bits, otherwise.parity, otherwise.stop_bits),
            };
            let flow = match parts.next() {
                Some(text) => FlowControl::ALL.into_iter().find(|flow| flow.name() == text)?,
                None => otherwise.flow_control,
            };
            parts.next().is_none().then_some(SerialSettings {
                baud,
                data_bits,
                parity,
                stop_bits: stop,
                flow_control: flow,
            })
        };
        read().ok_or_else(|| SerialSettingsError { text: text.to_owned() })
    }
}

/// Control of the serial port that drives a link's line, local or remote.
pub trait PortControl: Send {
    /// The effective settings.
    ///
    /// # Errors
    ///
    /// Fails if the port cannot be read.
    fn settings(&mut self) -> Result<SerialSettings, Fault>;

    /// Requests settings; returns the effective ones, which a driver may have rounded.
    ///
    /// # Errors
    ///
    /// Fails if the port refuses the settings or does not reply.
    fn configure(&mut self, wanted: &SerialSettings) -> Result<SerialSettings, Fault>;

    /// Sets or clears an output. Does nothing if the port lacks the wire.
    ///
    /// # Errors
    ///
    /// Fails if the port refuses or does not reply.
    fn set_signal(&mut self, signal: OutputSignal, on: bool) -> Result<(), Fault>;

    /// The inputs, if the port has any.
    fn modem_lines(&mut self) -> Option<ModemLines>;

    /// Discards the contents of the port's own buffers.
    ///
    /// # Errors
    ///
    /// Fails if the port refuses or does not reply.
    fn purge(&mut self, purge: PurgeTarget) -> Result<(), Fault>;

    /// Line errors since the port was opened, if the port counts them.
    fn uart_errors(&mut self) -> Option<UartErrors>;
}

/// An output of a serial port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputSignal {
    /// Data terminal ready.
    Dtr,
    /// Request to send.
    Rts,
    /// Holds the line at zero.
    Break,
}

/// The inputs of a serial port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModemLines {
    /// Clear to send.
    pub cts: bool,
    /// Data set ready.
    pub(crate) dsr: bool,
    /// Ring indicator.
    pub(crate) ri: bool,
    /// Carrier detect.
    pub(crate) cd: bool,
}

/// The buffers that a purge empties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurgeTarget {
    /// Characters that arrived and were not read.
    Received,
    /// Characters that were written and not sent.
    ToSend,
    /// Both directions.
    Both,
}

/// Error counters of a UART.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UartErrors {
    /// Characters without a valid stop bit.
    pub framing: u64,
    /// Characters with the wrong parity bit.
    pub parity: u64,
    /// Breaks: the line was at zero for longer than a character.
    pub breaks: u64,
    /// Characters lost because the UART or the driver's buffer was full.
    pub overruns: u64,
}

impl UartErrors {
    /// The errors since an earlier state of the counters.
    pub fn since(&self, before: &UartErrors) -> UartErrors {
        UartErrors {
            framing: self.framing.saturating_sub(before.framing),
            parity: self.parity.saturating_sub(before.parity),
            breaks: self.breaks.saturating_sub(before.breaks),
            overruns: self.overruns.saturating_sub(before.overruns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &str) -> Result<SerialSettings, EndpointError> {
        SerialSettings::from_endpoint(&format!("serial:///dev/ttyS0{options}").parse().unwrap())
    }

    #[test]
    fn options_give_serial_settings() {
        assert_eq!(parse("").unwrap(), SerialSettings::default());
        let all = parse("?baud=115200&data=7&parity=even&stop=2&flow=rtscts").unwrap();
        assert_eq!(all.to_string(), "115200 7E2 rtscts");
        assert_eq!(all.bits_per_character(), 11.0);
        assert_eq!(parse("?data=5&stop=1.5").unwrap().bits_per_character(), 7.5);
        insta::assert_snapshot!(
            ["?baud=0", "?data=9", "?parity=N", "?stop=1.5", "?data=5&stop=2", "?flow=hard"]
                .map(|options| parse(options).unwrap_err().to_string())
                .join("\n"),
            @r"
            serial:///dev/ttyS0?baud=0: 'baud=0' is not a rate in bits per second, like 9600
            serial:///dev/ttyS0?data=9: 'data=9' is not 5, 6, 7 or 8
            serial:///dev/ttyS0?parity=N: 'parity=N' is not none, odd, even, mark or space
            serial:///dev/ttyS0?stop=1.5: 'stop=1.5' is not 1 or 2 with more than 5 data bits
            serial:///dev/ttyS0?data=5&stop=2: 'stop=2' is not 1 or 1.5 with 5 data bits
            serial:///dev/ttyS0?flow=hard: 'flow=hard' is not none, rtscts or xonxoff
            "
        );
    }

    #[test]
    fn a_rate_beyond_tolerance_is_refused() {
        let check = |granted| {
            let (requested, granted) = (
                SerialSettings { baud: 1_000_000, ..SerialSettings::default() },
                SerialSettings { baud: granted, ..SerialSettings::default() },
            );
            check_granted(&requested, &granted).map_err(|fault| fault.to_string())
        };
        assert!([980_000, 1_000_000, 1_020_000].into_iter().all(|granted| check(granted).is_ok()));
        assert!(check(979_999).is_err() && check(1_020_001).is_err() && check(0).is_err());
        insta::assert_snapshot!(check(115_200).unwrap_err(), @"the port uses 115200 baud, 1000000 were requested. Choose a rate that it supports");
    }

    #[test]
    fn settings_parse_back_as_printed() {
        for text in ["115200 7E2 rtscts", "75 5N1.5", "9600 8N1", "4000000 8M1 xonxoff"] {
            assert_eq!(text.parse::<SerialSettings>().unwrap().to_string(), text);
            assert_eq!(text.replace(' ', ",").parse::<SerialSettings>().unwrap().to_string(), text);
        }
        assert_eq!("115200".parse::<SerialSettings>().unwrap().to_string(), "115200 8N1");
        for text in [
            "",
            "fast",
            "0",
            "9600,",
            "9600,9N1",
            "9600,8N1.5",
            "9600,5N2",
            "9600,8N1,hard",
            "9600,8N1,none,1",
            "1,µ",
        ] {
            let error = text.parse::<SerialSettings>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("'{text}' does not describe a serial line. Write it like 115200,8N1,rtscts")
            );
        }
    }

    #[test]
    fn transmission_time_follows_the_frame() {
        let nanoseconds = |baud, characters| {
            SerialSettings { baud, ..SerialSettings::default() }.transmission_time(characters).as_nanos()
        };
        assert_eq!(nanoseconds(9600, 1), 1_041_667);
        assert_eq!(nanoseconds(9600, 960), 1_000_000_000);
        assert_eq!(nanoseconds(4_000_000, 1), 2_500);
        assert_eq!(nanoseconds(75, 1), 133_333_334);
    }
}
