//! Endpoint: the target of a link, as a URL. Parsed, checked for its form, printed as typed.
//!
//! The registry of the engine defines the schemes, and each link parses its own options.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// linkgauge's default port, unassigned at IANA.
pub const DEFAULT_PORT: u16 = 7100;

/// The error in a URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The text has no `://`.
    #[error("'{0}' is not an endpoint: write scheme://where, like tcp://host:7100, or a host")]
    MissingScheme(String),
    /// The scheme has other characters than small letters, digits and `+`.
    #[error("{url}: the scheme may hold small letters, digits and '+' only")]
    BadScheme {
        /// The URL as typed.
        url: String,
    },
    /// The address after `://` is missing.
    #[error("{url}: the address after '://' is missing")]
    EmptyAddress {
        /// The URL as typed.
        url: String,
    },
    /// The port is not a number from 1 to 65535.
    #[error("{url}: '{text}' is not a port: use 1 to 65535")]
    BadPort {
        /// The URL as typed.
        url: String,
        /// The invalid port.
        text: String,
    },
    /// The host before the port is missing.
    #[error("{url}: a host is missing")]
    MissingHost {
        /// The URL as typed.
        url: String,
    },
    /// The text is a port alone.
    #[error("'{0}' is a port without its host: write host:{0}, like 127.0.0.1:{0}")]
    PortAlone(String),
    /// The host part has a path, a user name or other text.
    #[error("{url}: '{text}' does not belong here: write {scheme}://host:port, and options behind '?'")]
    NotHost {
        /// The URL as typed.
        url: String,
        /// The unexpected text.
        text: String,
        /// The scheme of the URL.
        scheme: String,
    },
    /// An IPv6 address without brackets.
    #[error("{url}: write an IPv6 address in brackets, like tcp://[::1]:7100")]
    UnbracketedIpv6 {
        /// The URL as typed.
        url: String,
    },
    /// An IPv6 address without brackets whose last group may be a port.
    #[error(
        "'{host}:{port}' may be an address, or an address and a port. Write [{host}]:{port} for the port"
    )]
    UnbracketedPort {
        /// The text before the last colon.
        host: String,
        /// The text after the last colon.
        port: String,
    },
    /// The path or name of a serial port instead of a URL.
    #[error("'{text}' is a serial port, not a host. Write serial://{device}")]
    DeviceName {
        /// The text as typed.
        text: String,
        /// The path of the device.
        device: String,
    },
    /// An option without value.
    #[error("{url}: option '{option}' has no value: write {option}=…")]
    MissingValue {
        /// The URL as typed.
        url: String,
        /// The option's name.
        option: String,
    },
    /// An option that occurs twice.
    #[error("{url}: option '{option}' is given twice")]
    DuplicateOption {
        /// The URL as typed.
        url: String,
        /// The option's name.
        option: String,
    },
    /// An option with an invalid value.
    #[error("{url}: '{option}={value}' is not {wanted}")]
    BadOption {
        /// The URL as typed.
        url: String,
        /// The option's name.
        option: String,
        /// The invalid value.
        value: String,
        /// The values that are valid.
        wanted: &'static str,
    },
    /// An option that the transport does not have.
    #[error("{url}: unknown option '{option}' (known: {known})")]
    UnknownOption {
        /// The URL as typed.
        url: String,
        /// The option's name.
        option: String,
        /// The transport's options, separated by commas.
        known: String,
    },
    /// An address that the transport cannot parse.
    #[error("{url}: needed is {wanted}")]
    BadAddress {
        /// The URL as typed.
        url: String,
        /// The form that the transport expects.
        wanted: &'static str,
    },
    /// A further port cannot be counted from the number of this endpoint.
    #[error("{url}: no number to count ports from (or past the last one)")]
    NoCountableNumber {
        /// The URL as typed.
        url: String,
    },
    /// The URL has a control character.
    #[error("{url}: an endpoint cannot contain control characters")]
    ControlCharacter {
        /// The URL as typed.
        url: String,
    },
}

/// An endpoint as typed, with its parts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    text: String,
    scheme_end: usize,
    address_end: usize,
}

/// Maximum length of a URL, in bytes, longer than any path or name in the kernel (`PATH_MAX` is 4096).
const MAX_URL_BYTES: usize = 8192;

impl Endpoint {
    /// The word before `://`.
    pub fn scheme(&self) -> &str {
        &self.text[..self.scheme_end]
    }

    /// The part between `://` and the options: `host:port`, `/path`, `name`.
    pub fn address(&self) -> &str {
        &self.text[self.scheme_end + 3..self.address_end]
    }

    /// The options after `?`, in the order typed.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        let query = self.text.get(self.address_end + 1..).unwrap_or("");
        query.split('&').filter(|pair| !pair.is_empty()).filter_map(|pair| pair.split_once('='))
    }

    /// The value of one option.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options().find(|(option, _)| *option == name).map(|(_, value)| value)
    }

    /// Parses an option with `parse`; the error shows `wanted` as the expected value.
    ///
    /// # Errors
    ///
    /// Fails if `parse` returns `None` for the option's value.
    pub fn parse_option<T>(
        &self,
        name: &str,
        wanted: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, EndpointError> {
        self.option(name)
            .map(|value| {
                parse(value).ok_or_else(|| EndpointError::BadOption {
                    url: self.text.clone(),
                    option: name.to_owned(),
                    value: value.to_owned(),
                    wanted,
                })
            })
            .transpose()
    }

    /// Checks that all options are among `known`.
    ///
    /// # Errors
    ///
    /// Fails if the endpoint has an option that is not among `known`.
    pub fn check_options(&self, known: &[&str]) -> Result<(), EndpointError> {
        match self.options().find(|(option, _)| !known.contains(option)) {
            None => Ok(()),
            Some((option, _)) => Err(EndpointError::UnknownOption {
                url: self.text.clone(),
                option: option.to_owned(),
                known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
            }),
        }
    }

    /// Host and port of an Internet endpoint; IPv6 addresses have brackets. Port 0 is valid for listening on
    /// any port; a connection to it is refused.
    ///
    /// # Errors
    ///
    /// Fails if the host is missing, an IPv6 address has no brackets, the port is invalid, or other text follows.
    pub fn host_port(&self) -> Result<(&str, Option<u16>), EndpointError> {
        let url = || self.text.clone();
        let address = self.address();
        // Parts of a web address: the name of a user in front, a path or a fragment behind.
        if let Some(at) = address.find(['/', '@', '#', ' ']) {
            let text = if address[at..].starts_with('@') { &address[..=at] } else { &address[at..] };
            let (text, scheme) = (text.to_owned(), self.scheme().to_owned());
            return Err(EndpointError::NotHost { url: url(), text, scheme });
        }
        let (host, rest) = match address.strip_prefix('[') {
            Some(inner) => {
                let (host, rest) =
                    inner.split_once(']').ok_or_else(|| EndpointError::UnbracketedIpv6 { url: url() })?;
                (host, rest)
            }
            None if address.matches(':').count() > 1 => {
                return Err(EndpointError::UnbracketedIpv6 { url: url() });
            }
            None => address.split_at(address.find(':').unwrap_or(address.len())),
        };
        if host.is_empty() {
            return Err(EndpointError::MissingHost { url: url() });
        }
        if host.contains(['[', ']']) {
            return Err(EndpointError::UnbracketedIpv6 { url: url() });
        }
        let port = match rest.strip_prefix(':') {
            None if rest.is_empty() => None,
            Some(text) if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => {
                Some(text.parse().map_err(|_| EndpointError::BadPort { url: url(), text: text.to_owned() })?)
            }
            _ => {
                let text = rest.trim_start_matches(':').to_owned();
                return Err(EndpointError::BadPort { url: url(), text });
            }
        };
        Ok((host, port))
    }

    /// Returns the endpoint with its last number increased by `offset`: `tcp://box:7001` → `tcp://box:7004`,
    /// `serial:///dev/ttyS0` → `serial:///dev/ttyS3`. `--ports N` names its ports in this way.
    ///
    /// # Errors
    ///
    /// Fails if the endpoint has no number, or if the sum is too large.
    pub fn with_number_offset(&self, offset: u32) -> Result<Endpoint, EndpointError> {
        if offset == 0 {
            return Ok(self.clone());
        }
        let error = || EndpointError::NoCountableNumber { url: self.text.clone() };
        let (prefix, number) = offset_last_number(self.address(), offset).ok_or_else(error)?;
        // Only an Internet port has an upper limit.
        if matches!(self.host_port(), Ok((_, Some(_)))) && number > u32::from(u16::MAX) {
            return Err(error());
        }
        format!("{}://{prefix}{}", self.scheme(), &self.text[self.address_end..]).parse()
    }

    /// Returns the endpoint with a different port; host and options are unchanged.
    ///
    /// # Errors
    ///
    /// Fails if the endpoint does not name a host as [`Endpoint::host_port`] expects it.
    pub fn with_port(&self, port: u16) -> Result<Endpoint, EndpointError> {
        let (host, _) = self.host_port()?;
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        format!("{}://{host}:{port}{}", self.scheme(), &self.text[self.address_end..]).parse()
    }

    /// Returns the endpoint with this address and port instead of its host; options are unchanged.
    ///
    /// # Errors
    ///
    /// None: an address makes a valid endpoint.
    pub fn with_address(&self, address: SocketAddr) -> Result<Endpoint, EndpointError> {
        format!("{}://{address}{}", self.scheme(), &self.text[self.address_end..]).parse()
    }

    /// Returns the endpoint with one more option.
    ///
    /// # Errors
    ///
    /// Fails if the option is already present, or if its name or value is invalid.
    pub fn with_option(&self, name: &str, value: &str) -> Result<Endpoint, EndpointError> {
        let before = if self.address_end == self.text.len() { '?' } else { '&' };
        format!("{}{before}{name}={value}", self.text).parse()
    }

    /// Returns the endpoint without this option; unchanged if it has none.
    ///
    /// # Errors
    ///
    /// None: what is left of a valid endpoint is valid.
    pub fn without_option(&self, name: &str) -> Result<Endpoint, EndpointError> {
        let rest = self.text[self.address_end..].trim_start_matches('?').split('&');
        let left: Vec<&str> =
            rest.filter(|option| option.split_once('=').is_some_and(|(known, _)| known != name)).collect();
        let separator = if left.is_empty() { "" } else { "?" };
        format!("{}{separator}{}", &self.text[..self.address_end], left.join("&")).parse()
    }

    /// The text as typed.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// The text with its last number increased by `offset`, and that number; `None` without a number below 2³².
pub fn offset_last_number(text: &str, offset: u32) -> Option<(String, u32)> {
    let end = text.rfind(|c: char| c.is_ascii_digit())? + 1;
    let start = text[..end].trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let number = text[start..end].parse::<u32>().ok()?.checked_add(offset)?;
    Some((format!("{}{number}{}", &text[..start], &text[end..]), number))
}

/// Refuses texts that look like a host and mean something else.
fn check_bare_text(text: &str) -> Result<(), EndpointError> {
    let text = text.split('?').next().unwrap_or_default();
    let number = |prefix: &str| text.strip_prefix(prefix)?.parse::<u32>().ok();
    // Windows counts from COM1, Linux from ttyS0.
    let com = ["COM", "com"].into_iter().find_map(number).and_then(|number| number.checked_sub(1));
    let tty = ["ttyS", "ttyUSB", "ttyACM", "ttyAMA"].into_iter().find_map(number);
    let device = com.map(|number| format!("ttyS{number}")).or_else(|| tty.map(|_| text.to_owned()));
    if let Some(device) = device {
        return Err(EndpointError::DeviceName { text: text.to_owned(), device: format!("/dev/{device}") });
    }
    // Shorter numbers are more often the end of an address than a port.
    match text.rsplit_once(':') {
        Some((host, port))
            if (4..=5).contains(&port.len())
                && port.parse::<u16>().is_ok()
                && host.parse::<Ipv6Addr>().is_ok() =>
        {
            Err(EndpointError::UnbracketedPort { host: host.to_owned(), port: port.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Whether a path leads to a character device, as the link to a pseudo-terminal does.
fn is_path_of_device(path: &str) -> bool {
    path.starts_with(['/', '.']) && linkgauge_system::is_character_device(Path::new(path))
}

/// The URL for a text without a scheme: a device of this host, or a host with or without a port, reached over
/// TCP.
fn add_default_scheme(text: &str) -> Option<String> {
    if text.contains("://") {
        return None;
    }
    let path = text.split('?').next().unwrap_or_default();
    if path.starts_with("/dev/") || is_path_of_device(path) {
        return Some(format!("serial://{text}"));
    }
    // The interface of a link-local address may stand behind '%'.
    let address = path.split('%').next().unwrap_or_default();
    if address.parse::<Ipv6Addr>().is_ok() {
        return Some(format!("tcp://[{path}]{}", &text[path.len()..]));
    }
    // A scheme without its slashes, like udp:host.
    let behind = path.split_once(':').map_or("", |(_, behind)| behind);
    if !path.starts_with('[') && !behind.chars().all(char::is_alphanumeric) {
        return None;
    }
    let of_host = |c: char| c.is_alphanumeric() || "-._:[]%".contains(c);
    let is_host = path.starts_with(|c: char| c.is_alphanumeric() || c == '[') && path.chars().all(of_host);
    is_host.then(|| format!("tcp://{text}"))
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let port = text.strip_prefix(':').unwrap_or(text);
        if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(EndpointError::PortAlone(port.to_owned()));
        }
        check_bare_text(text)?;
        let completed = add_default_scheme(text);
        let text = completed.as_deref().unwrap_or(text);
        let Some(scheme_end) = text.find("://").filter(|&at| at > 0 && text.len() <= MAX_URL_BYTES) else {
            return Err(EndpointError::MissingScheme(text.chars().take(100).collect()));
        };
        let url = || text.to_owned();
        if text.chars().any(char::is_control) {
            return Err(EndpointError::ControlCharacter { url: text.escape_debug().to_string() });
        }
        if !text[..scheme_end].bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'+') {
            return Err(EndpointError::BadScheme { url: url() });
        }
        let address_end = text.find('?').unwrap_or(text.len()).max(scheme_end + 3);
        let endpoint = Endpoint { text: url(), scheme_end, address_end };
        if endpoint.address().is_empty() {
            return Err(EndpointError::EmptyAddress { url: url() });
        }
        if let Some(query) = text.get(address_end + 1..) {
            let mut seen: Vec<&str> = Vec::new();
            for pair in query.split('&').filter(|pair| !pair.is_empty()) {
                let option = pair.split_once('=').map(|(option, _)| option);
                match option {
                    None | Some("") => {
                        return Err(EndpointError::MissingValue { url: url(), option: pair.to_owned() });
                    }
                    Some(option) if seen.contains(&option) => {
                        return Err(EndpointError::DuplicateOption { url: url(), option: option.to_owned() });
                    }
                    Some(option) => seen.push(option),
                }
            }
        }
        Ok(endpoint)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Endpoint {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Endpoint, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Endpoint {
        text.parse().unwrap()
    }

    #[test]
    fn options_are_removed_and_replaced() {
        let url = parse("tcp://host:7?pacing_rate=20M&nodelay=0");
        let bare = url.without_option("pacing_rate").unwrap();
        assert_eq!(bare.as_str(), "tcp://host:7?nodelay=0");
        assert_eq!(bare.without_option("nodelay").unwrap().as_str(), "tcp://host:7");
        assert_eq!(bare.without_option("mss").unwrap(), bare);
        assert_eq!(bare.with_option("pacing_rate", "1M").unwrap().option("pacing_rate"), Some("1M"));
    }

    #[test]
    fn splits_urls() {
        let url = parse("serial:///dev/ttyS0?baud=9600&flow=rtscts");
        assert_eq!((url.scheme(), url.address()), ("serial", "/dev/ttyS0"));
        assert_eq!(url.option("baud"), Some("9600"));
        assert_eq!(url.option("parity"), None);
        assert_eq!(parse("tcp://[::1]:7100").host_port().unwrap(), ("::1", Some(7100)));
        assert_eq!(parse("tcp://host").host_port().unwrap(), ("host", None));
        assert_eq!(parse("unix://@abstract").address(), "@abstract");
    }

    #[test]
    fn a_scheme_may_be_left_out() {
        let completed = |text: &str| parse(text).to_string();
        assert_eq!(completed("192.0.2.7"), "tcp://192.0.2.7");
        assert_eq!(completed("box.example:7001?nodelay=0"), "tcp://box.example:7001?nodelay=0");
        assert_eq!(completed("[::1]:7100"), "tcp://[::1]:7100");
        assert_eq!(completed("fe80::1"), "tcp://[fe80::1]");
        assert_eq!(completed("fe80::1%eth0"), "tcp://[fe80::1%eth0]");
        assert_eq!(completed("/dev/ttyS0?baud=9600"), "serial:///dev/ttyS0?baud=9600");
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link").display().to_string();
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        assert_eq!(completed(&format!("{link}?baud=9600")), format!("serial://{link}?baud=9600"));
        for text in ["", "/tmp/x", "tcp:/host", "udp:192.0.2.7", "udp:host:7", "a b", "@name", "-n", "?a=1"] {
            assert!(matches!(text.parse::<Endpoint>(), Err(EndpointError::MissingScheme(_))), "{text}");
        }
    }

    #[test]
    fn offsets_the_port_number() {
        let counted = |text: &str, n| parse(text).with_number_offset(n).map(|url| url.to_string());
        assert_eq!(counted("tcp://box:7001?baud=9600", 15).unwrap(), "tcp://box:7016?baud=9600");
        assert_eq!(counted("serial:///dev/ttyS0", 3).unwrap(), "serial:///dev/ttyS3");
        assert_eq!(counted("unix:///tmp/µ9", 1).unwrap(), "unix:///tmp/µ10");
        assert_eq!(counted("mem://a", 0).unwrap(), "mem://a");
        assert!(counted("mem://a", 1).is_err());
        assert!(counted("tcp://box:65535", 1).is_err());
    }

    #[test]
    fn one_clear_error_for_each_mistake() {
        let error = |text: &str| {
            text.parse::<Endpoint>()
                .map(|url| url.host_port().map(|_| ()).unwrap_err())
                .unwrap_or_else(|e| e)
                .to_string()
        };
        insta::assert_snapshot!([
            "host/80", "80", ":80", "tcp://host:80/", "tcp://host/path", "udp://me@host:80", "tcp://me:secret@host", "tcp://h#x",
            "TCP://host", "tcp://", "tcp://host:99999", "tcp://host:abc", "tcp://:80", "tcp://::1:80",
            "tcp://[[::1]:80",
            "tcp://h?nodelay", "tcp://h?a=1&a=2", "tcp://h\n", "",
        ].map(error).join("\n"), @r"
        'host/80' is not an endpoint: write scheme://where, like tcp://host:7100, or a host
        '80' is a port without its host: write host:80, like 127.0.0.1:80
        '80' is a port without its host: write host:80, like 127.0.0.1:80
        tcp://host:80/: '/' does not belong here: write tcp://host:port, and options behind '?'
        tcp://host/path: '/path' does not belong here: write tcp://host:port, and options behind '?'
        udp://me@host:80: 'me@' does not belong here: write udp://host:port, and options behind '?'
        tcp://me:secret@host: 'me:secret@' does not belong here: write tcp://host:port, and options behind '?'
        tcp://h#x: '#x' does not belong here: write tcp://host:port, and options behind '?'
        TCP://host: the scheme may hold small letters, digits and '+' only
        tcp://: the address after '://' is missing
        tcp://host:99999: '99999' is not a port: use 1 to 65535
        tcp://host:abc: 'abc' is not a port: use 1 to 65535
        tcp://:80: a host is missing
        tcp://::1:80: write an IPv6 address in brackets, like tcp://[::1]:7100
        tcp://[[::1]:80: write an IPv6 address in brackets, like tcp://[::1]:7100
        tcp://h?nodelay: option 'nodelay' has no value: write nodelay=…
        tcp://h?a=1&a=2: option 'a' is given twice
        tcp://h\n: an endpoint cannot contain control characters
        '' is not an endpoint: write scheme://where, like tcp://host:7100, or a host
        ");
    }

    proptest! {
        #[test]
        fn prints_back_as_typed(text in "[a-z]{1,9}://[a-z0-9/:@\\[\\].]{1,30}(\\?[a-z]{1,5}=[a-z0-9]{0,5})?") {
            if let Ok(url) = text.parse::<Endpoint>() {
                prop_assert_eq!(url.to_string(), text);
            }
        }

        #[test]
        fn nothing_panics(text in ".{0,40}", n in 0u32..70000) {
            if let Ok(url) = text.parse::<Endpoint>() {
                let _ = (url.host_port(), url.with_number_offset(n), url.with_port(1), url.option("a"), url.check_options(&[]));
            }
        }
    }

    #[test]
    fn ports_and_devices_that_look_like_hosts_get_a_remedy() {
        let error = |text: &str| text.parse::<Endpoint>().unwrap_err().to_string();
        let texts = ["ttyS0", "ttyUSB3?baud=9600", "COM1", "::1:7100", "fe80::1:52001"];
        insta::assert_snapshot!(texts.map(error).join("\n"), @r"
        'ttyS0' is a serial port, not a host. Write serial:///dev/ttyS0
        'ttyUSB3' is a serial port, not a host. Write serial:///dev/ttyUSB3
        'COM1' is a serial port, not a host. Write serial:///dev/ttyS0
        '::1:7100' may be an address, or an address and a port. Write [::1]:7100 for the port
        'fe80::1:52001' may be an address, or an address and a port. Write [fe80::1]:52001 for the port
        ");
        assert_eq!(parse("com").as_str(), "tcp://com");
        assert_eq!(parse("2001:db8::10").as_str(), "tcp://[2001:db8::10]");
    }
}
