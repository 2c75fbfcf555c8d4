//! A serial line: its rate, frame and flow control, and the control of the port that drives it.
//!
//! Not for reaching one: `serial.rs` does that on this host, other transports through a network.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Caps, Facts, Fault, Line};
use crate::endpoint::{Endpoint, EndpointError};
use crate::units;

/// What both ends of a serial line must agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Bits per second on the line, start, parity and stop bits included.
    pub baud: u32,
    /// 5 to 8.
    pub data_bits: u8,
    pub parity: Parity,
    pub stop: StopBits,
    pub flow: Flow,
}

/// 9600 8N1 without flow control.
impl Default for Settings {
    fn default() -> Settings {
        Settings { baud: 9600, data_bits: 8, parity: Parity::None, stop: StopBits::One, flow: Flow::None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parity {
    None,
    Odd,
    Even,
    /// Always one.
    Mark,
    /// Always zero.
    Space,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopBits {
    One,
    /// With five data bits only, as UARTs have it.
    OneAndHalf,
    Two,
}

/// How the receiver holds up the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    None,
    /// Hardware: the RTS and CTS wires.
    RtsCts,
    /// In band: the characters XON and XOFF.
    XonXoff,
}

/// Stops the sender of a line with [`Flow::XonXoff`].
pub const XOFF: u8 = 0x13;
/// Lets it go on.
pub const XON: u8 = 0x11;

impl Parity {
    pub const ALL: [Parity; 5] = [Parity::None, Parity::Odd, Parity::Even, Parity::Mark, Parity::Space];

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
    pub const ALL: [StopBits; 3] = [StopBits::One, StopBits::OneAndHalf, StopBits::Two];

    pub fn name(self) -> &'static str {
        match self {
            StopBits::One => "1",
            StopBits::OneAndHalf => "1.5",
            StopBits::Two => "2",
        }
    }

    /// In halves of a bit.
    fn half_bits(self) -> u32 {
        match self {
            StopBits::One => 2,
            StopBits::OneAndHalf => 3,
            StopBits::Two => 4,
        }
    }
}

impl Flow {
    pub const ALL: [Flow; 3] = [Flow::None, Flow::RtsCts, Flow::XonXoff];

    pub fn name(self) -> &'static str {
        match self {
            Flow::None => "none",
            Flow::RtsCts => "rtscts",
            Flow::XonXoff => "xonxoff",
        }
    }
}

/// The options of an endpoint that name settings, for the lists of the transports that have them.
pub const BAUD: (&str, &str) = ("baud", "rate of the line in bits per second (9600)");
pub const DATA: (&str, &str) = ("data", "data bits of a character: 5, 6, 7 or 8 (8)");
pub const PARITY: (&str, &str) = ("parity", "none, odd, even, mark or space (none)");
pub const STOP: (&str, &str) = ("stop", "stop bits: 1, 1.5 (with 5 data bits) or 2 (1)");
pub const FLOW: (&str, &str) = ("flow", "flow control: none, rtscts or xonxoff (none)");

impl Settings {
    /// What an endpoint's options say; where they say nothing, the defaults.
    pub fn of(endpoint: &Endpoint) -> Result<Settings, EndpointError> {
        let otherwise = Settings::default();
        let settings = Settings {
            baud: endpoint
                .parsed(BAUD.0, "a rate in bits per second, like 9600", rate)?
                .unwrap_or(otherwise.baud),
            data_bits: endpoint
                .parsed(DATA.0, "5, 6, 7 or 8", |text| {
                    text.parse().ok().filter(|bits| (5..=8).contains(bits))
                })?
                .unwrap_or(otherwise.data_bits),
            parity: endpoint
                .parsed(PARITY.0, "none, odd, even, mark or space", |text| {
                    Parity::ALL.into_iter().find(|parity| parity.name() == text)
                })?
                .unwrap_or(otherwise.parity),
            stop: endpoint
                .parsed(STOP.0, "1, 1.5 or 2", |text| {
                    StopBits::ALL.into_iter().find(|stop| stop.name() == text)
                })?
                .unwrap_or(otherwise.stop),
            flow: endpoint
                .parsed(FLOW.0, "none, rtscts or xonxoff", |text| {
                    Flow::ALL.into_iter().find(|flow| flow.name() == text)
                })?
                .unwrap_or(otherwise.flow),
        };
        // A UART makes 1.5 stop bits of five data bits and 2 of more; there is no other choice.
        let five = settings.data_bits == 5;
        if five && settings.stop == StopBits::Two || !five && settings.stop == StopBits::OneAndHalf {
            let what = if five { "1 or 1.5 with 5 data bits" } else { "1 or 2 with more than 5 data bits" };
            endpoint.parsed(STOP.0, what, |_| None::<()>)?;
        }
        Ok(settings)
    }

    /// The line behind a far end, where an endpoint names its rate.
    pub fn declared(endpoint: &Endpoint) -> Result<Option<Settings>, EndpointError> {
        let settings = Settings::of(endpoint)?;
        Ok(endpoint.option(BAUD.0).map(|_| settings))
    }

    /// The options of an endpoint that say the same: the rate, and whatever is not usual.
    pub fn options(&self) -> String {
        let usual = Settings::default();
        let mut options = format!("{}={}", BAUD.0, self.baud);
        for ((name, _), value, otherwise) in [
            (DATA, self.data_bits.to_string(), usual.data_bits.to_string()),
            (PARITY, self.parity.name().to_owned(), usual.parity.name().to_owned()),
            (STOP, self.stop.name().to_owned(), usual.stop.name().to_owned()),
            (FLOW, self.flow.name().to_owned(), usual.flow.name().to_owned()),
        ] {
            if value != otherwise {
                options += &format!("&{name}={value}");
            }
        }
        options
    }

    /// Halves of a bit that one character takes on the line: start, data, parity, stop.
    pub fn half_bits(&self) -> u32 {
        let parity = if self.parity == Parity::None { 0 } else { 1 };
        2 * (1 + u32::from(self.data_bits) + parity) + self.stop.half_bits()
    }

    /// Bits that one character takes on the line (8N1: 10).
    pub fn bits_per_character(&self) -> f64 {
        f64::from(self.half_bits()) / 2.0
    }

    /// How long so many characters take on the line, one after the other, rounded up to the nanosecond.
    pub fn time_of(&self, characters: u64) -> Duration {
        let halves = u128::from(characters) * u128::from(self.half_bits()) * 1_000_000_000;
        let nanoseconds = halves.div_ceil(2 * u128::from(self.baud.max(1)));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// What is known of the line.
    pub fn line(&self) -> Line {
        Line {
            bits_per_second: f64::from(self.baud),
            bits_per_byte: self.bits_per_character(),
            data_bits: self.data_bits,
            in_band: self.flow == Flow::XonXoff,
        }
    }

    /// What a link can do that ends in such a line. Whoever opens it is alone there, and noise or a full buffer may
    /// take bytes away; most device servers drop what is on the line when their client has finished.
    pub fn caps(&self) -> Caps {
        Caps {
            device: true,
            closes: false,
            many: false,
            reliable: false,
            line: Some(self.line()),
            ..Caps::STREAM
        }
    }
}

/// A UART samples a bit in its middle: with ten bits a character the two ends may be 5 % apart in all, of which each
/// end and its clock take their part.
const RATE_TOLERANCE_PERCENT: u64 = 2;

/// Fails where the rate that was granted is so far from the one asked for that the far end would not understand.
pub fn check_granted(asked: &Settings, granted: &Settings) -> Result<(), Fault> {
    let off = u64::from(granted.baud.abs_diff(asked.baud));
    if 100 * off <= RATE_TOLERANCE_PERCENT * u64::from(asked.baud) {
        return Ok(());
    }
    Err(Fault::Other(format!(
        "the port makes {} baud of the {} asked for: choose a rate that it can make",
        granted.baud, asked.baud
    )))
}

/// Notes among the facts of a link what was asked of the port behind it, and what was granted.
pub fn note(facts: &mut Facts, asked: &Settings, granted: &Settings) {
    facts.insert("line_asked".to_owned(), asked.to_string().into());
    facts.insert("line_granted".to_owned(), granted.to_string().into());
    facts.insert("line_asked_bits_per_byte".to_owned(), asked.bits_per_character().into());
}

fn rate(text: &str) -> Option<u32> {
    units::count(text).ok().and_then(|baud| u32::try_from(baud).ok()).filter(|&baud| baud > 0)
}

/// `8N1`: data bits, parity, stop bits.
fn frame(text: &str) -> Option<(u8, Parity, StopBits)> {
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

/// As people write it: `9600 8N1 rtscts`.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}{}", self.baud, self.data_bits, self.parity.letter(), self.stop.name())?;
        match self.flow {
            Flow::None => Ok(()),
            flow => write!(f, " {}", flow.name()),
        }
    }
}

/// Reads what is printed above, with commas for spaces: `115200`, `9600,7E1`, `230400,8N1,rtscts`.
impl FromStr for Settings {
    type Err = String;

    fn from_str(text: &str) -> Result<Settings, String> {
        let mut parts = text.split([',', ' ']);
        let otherwise = Settings::default();
        let mut read = || {
            let baud = rate(parts.next()?)?;
            let (data_bits, parity, stop) = match parts.next() {
                Some(text) => frame(text)?,
                None => (otherwise.data_bits, otherwise.parity, otherwise.stop),
            };
            let flow = match parts.next() {
                Some(text) => Flow::ALL.into_iter().find(|flow| flow.name() == text)?,
                None => otherwise.flow,
            };
            parts.next().is_none().then_some(Settings { baud, data_bits, parity, stop, flow })
        };
        read().ok_or_else(|| format!("'{text}' is no line: write it like 115200,8N1,rtscts"))
    }
}

/// Control of the serial port that drives a link's line, wherever it is.
pub trait Port: Send {
    /// What is in force.
    fn settings(&mut self) -> Result<Settings, Fault>;

    /// Asks for settings; returns what is in force then, which a driver may have rounded.
    fn set(&mut self, wanted: &Settings) -> Result<Settings, Fault>;

    /// Raises or drops an output. Ports that have no such wire do nothing.
    fn signal(&mut self, signal: Signal, on: bool) -> Result<(), Fault>;

    /// The inputs, where the port has any.
    fn modem(&mut self) -> Option<Modem>;

    /// Throws away what lies in the port's own buffers.
    fn purge(&mut self, purge: Purge) -> Result<(), Fault>;

    /// What went wrong on the line since the port was opened, where it counts that.
    fn errors(&mut self) -> Option<Errors>;
}

/// An output of a serial port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Dtr,
    Rts,
    /// The line is held at zero.
    Break,
}

/// The inputs of a serial port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Modem {
    pub cts: bool,
    pub dsr: bool,
    pub ri: bool,
    pub cd: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purge {
    Received,
    ToSend,
    Both,
}

/// What a UART counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Errors {
    pub framing: u64,
    pub parity: u64,
    pub breaks: u64,
    /// Characters lost because the UART or the driver's buffer was full.
    pub overruns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(options: &str) -> Result<Settings, String> {
        let endpoint: Endpoint = format!("serial:///dev/ttyS0{options}").parse().unwrap();
        Settings::of(&endpoint).map_err(|error| error.to_string())
    }

    #[test]
    fn a_line_is_what_its_options_say() {
        assert_eq!(of("").unwrap(), Settings::default());
        let all = of("?baud=115200&data=7&parity=even&stop=2&flow=rtscts").unwrap();
        assert_eq!(all.to_string(), "115200 7E2 rtscts");
        assert_eq!(all.bits_per_character(), 11.0);
        assert_eq!(of("?data=5&stop=1.5").unwrap().bits_per_character(), 7.5);
        insta::assert_snapshot!(
            ["?baud=0", "?data=9", "?parity=N", "?stop=1.5", "?data=5&stop=2", "?flow=hard"]
                .map(|options| of(options).unwrap_err())
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
    fn a_rate_that_is_off_is_refused() {
        let check = |granted| {
            let (asked, granted) = (
                Settings { baud: 1_000_000, ..Settings::default() },
                Settings { baud: granted, ..Settings::default() },
            );
            check_granted(&asked, &granted).map_err(|fault| fault.to_string())
        };
        assert!([980_000, 1_000_000, 1_020_000].into_iter().all(|granted| check(granted).is_ok()));
        assert!(check(979_999).is_err() && check(1_020_001).is_err() && check(0).is_err());
        insta::assert_snapshot!(check(115_200).unwrap_err(), @"the port makes 115200 baud of the 1000000 asked for: choose a rate that it can make");
    }

    #[test]
    fn a_line_reads_back_as_printed() {
        for text in ["115200 7E2 rtscts", "75 5N1.5", "9600 8N1", "4000000 8M1 xonxoff"] {
            assert_eq!(text.parse::<Settings>().unwrap().to_string(), text);
            assert_eq!(text.replace(' ', ",").parse::<Settings>().unwrap().to_string(), text);
        }
        assert_eq!("115200".parse::<Settings>().unwrap().to_string(), "115200 8N1");
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
            let error = text.parse::<Settings>().unwrap_err();
            assert_eq!(error, format!("'{text}' is no line: write it like 115200,8N1,rtscts"));
        }
    }

    #[test]
    fn characters_take_their_time() {
        let nanoseconds =
            |baud, characters| Settings { baud, ..Settings::default() }.time_of(characters).as_nanos();
        assert_eq!(nanoseconds(9600, 1), 1_041_667);
        assert_eq!(nanoseconds(9600, 960), 1_000_000_000);
        assert_eq!(nanoseconds(4_000_000, 1), 2_500);
        assert_eq!(nanoseconds(75, 1), 133_333_334);
    }
}
