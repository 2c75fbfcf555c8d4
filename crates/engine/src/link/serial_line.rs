//! A serial line: its rate, frame and flow control, and the control of the port that drives it.
//!
//! `serial.rs` opens ports of this host; other transports reach ports through a network.

use std::path::Path;

use super::{Caps, Facts, Fault, LinkRate};
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use linkgauge_model::units;

pub use linkgauge_system::{
    FlowControl, ModemLines, OutputSignal, Parity, PurgeTarget, SerialSettings, SerialSettingsError,
    StopBits, UartErrors, XOFF, XON,
};

/// The scheme of serial ports of this host.
pub(crate) const PORT_SCHEME: &str = "serial";

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

/// The settings of an endpoint's options, with defaults for missing ones.
///
/// # Errors
///
/// Fails if an option has an invalid value, or if the settings contradict each other.
pub fn settings_of(endpoint: &Endpoint) -> Result<SerialSettings, EndpointError> {
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
    if five && settings.stop_bits == StopBits::Two || !five && settings.stop_bits == StopBits::OneAndHalf {
        let what = if five { "1 or 1.5 with 5 data bits" } else { "1 or 2 with more than 5 data bits" };
        endpoint.parse_option(STOP_BITS_OPTION.0, what, |_| None::<()>)?;
    }
    Ok(settings)
}

/// The line behind the remote, if the endpoint names its rate.
///
/// # Errors
///
/// As [`settings_of`].
pub(crate) fn declared_in(endpoint: &Endpoint) -> Result<Option<SerialSettings>, EndpointError> {
    let settings = settings_of(endpoint)?;
    Ok(endpoint.option(BAUD_OPTION.0).map(|_| settings))
}

/// The endpoint options for these settings: the rate, and all settings that differ from the default.
pub fn endpoint_options(line: &SerialSettings) -> String {
    let usual = SerialSettings::default();
    let mut options = format!("{}={}", BAUD_OPTION.0, line.baud);
    for ((name, _), value, otherwise) in [
        (DATA_BITS_OPTION, line.data_bits.to_string(), usual.data_bits.to_string()),
        (PARITY_OPTION, line.parity.name().to_owned(), usual.parity.name().to_owned()),
        (STOP_BITS_OPTION, line.stop_bits.name().to_owned(), usual.stop_bits.name().to_owned()),
        (FLOW_CONTROL_OPTION, line.flow_control.name().to_owned(), usual.flow_control.name().to_owned()),
    ] {
        if value != otherwise {
            options += &format!("&{name}={value}");
        }
    }
    options
}

/// Link rate of the line.
pub fn link_rate(line: &SerialSettings) -> LinkRate {
    LinkRate {
        bits_per_second: f64::from(line.baud),
        bits_per_byte: line.bits_per_character(),
        data_bits: line.data_bits,
        has_in_band_flow_control: line.flow_control == FlowControl::XonXoff,
    }
}

/// Capabilities of a link that ends in such a line. It has only one user at a time, and noise or a full
/// buffer may lose bytes. Most device servers drop data on the line when their client has finished.
pub fn caps(line: &SerialSettings) -> Caps {
    Caps {
        is_device: true,
        can_signal_close: false,
        can_open_parallel: false,
        is_reliable: false,
        link_rate: Some(link_rate(line)),
        ..Caps::STREAM
    }
}

/// The endpoint of a port of this host with these line settings.
///
/// # Errors
///
/// Fails if the path does not fit an endpoint.
pub fn port_endpoint(path: &Path, line: &SerialSettings) -> Result<Endpoint, EndpointError> {
    format!("{PORT_SCHEME}://{}?{}", path.display(), endpoint_options(line)).parse()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_lists_settings_that_differ_from_the_defaults() {
        let path = Path::new("/dev/pts/7");
        let printed = |line| {
            let endpoint = port_endpoint(path, &line).unwrap();
            assert_eq!(settings_of(&endpoint).unwrap(), line);
            endpoint.to_string()
        };
        assert_eq!(printed(SerialSettings::default()), "serial:///dev/pts/7?baud=9600");
        let all = SerialSettings {
            baud: 75,
            data_bits: 5,
            parity: Parity::Mark,
            stop_bits: StopBits::OneAndHalf,
            flow_control: FlowControl::RtsCts,
        };
        assert_eq!(printed(all), "serial:///dev/pts/7?baud=75&data=5&parity=mark&stop=1.5&flow=rtscts");
    }

    fn parse(options: &str) -> Result<SerialSettings, EndpointError> {
        settings_of(&format!("serial:///dev/ttyS0{options}").parse().unwrap())
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
