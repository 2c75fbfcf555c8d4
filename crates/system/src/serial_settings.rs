//! A serial line: its rate, frame and flow control, and what a port shows of it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The settings that both ends of a serial line must share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SerialSettings {
    /// Bits per second on the line, start, parity and stop bits included.
    pub baud: u32,
    /// Data bits of a character, 5 to 8.
    pub data_bits: u8,
    /// The parity bit after the data bits.
    pub parity: Parity,
    /// The length of the idle time after each character.
    pub stop_bits: StopBits,
    /// Way in which the receiver pauses the sender.
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
    /// 1.5 bits, with five data bits only, as in UARTs.
    OneAndHalf,
    /// 2 bits.
    Two,
}

/// Way in which the receiver pauses the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowControl {
    /// The receiver cannot pause the sender.
    None,
    /// Hardware: the RTS and CTS wires.
    RtsCts,
    /// In-band flow control: the characters XON and XOFF.
    XonXoff,
}

/// Pauses the sender of a line with [`FlowControl::XonXoff`].
pub const XOFF: u8 = 0x13;
/// Resumes the sender of a line with [`FlowControl::XonXoff`].
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

    /// Length in half bits.
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

impl SerialSettings {
    /// Half bits that one character takes on the line: start, data, parity, stop.
    pub fn half_bits(&self) -> u32 {
        let parity = if self.parity == Parity::None { 0 } else { 1 };
        2 * (1 + u32::from(self.data_bits) + parity) + self.stop_bits.half_bits()
    }

    /// Bits that one character takes on the line (8N1: 10).
    pub fn bits_per_character(&self) -> f64 {
        f64::from(self.half_bits()) / 2.0
    }

    /// Time for this number of characters back to back, rounded up to the nanosecond.
    pub fn transmission_time(&self, characters: u64) -> Duration {
        let halves = u128::from(characters) * u128::from(self.half_bits()) * 1_000_000_000;
        let nanoseconds = halves.div_ceil(2 * u128::from(self.baud.max(1)));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
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

/// Formats the settings in the usual notation: `9600 8N1 rtscts`.
impl fmt::Display for SerialSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}{}", self.baud, self.data_bits, self.parity.letter(), self.stop_bits.name())?;
        match self.flow_control {
            FlowControl::None => Ok(()),
            flow => write!(f, " {}", flow.name()),
        }
    }
}

/// Error of a text that does not describe a serial line.
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
            let baud = parts.next()?.parse().ok().filter(|&baud| baud > 0)?;
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
    pub dsr: bool,
    /// Ring indicator.
    pub ri: bool,
    /// Carrier detect.
    pub cd: bool,
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
