//! Options of the protocol: settings of the sockets at the server.

use super::wire::SessionRefusal;
use crate::link::{Link, LinkError, own_socket, socket_settings};
use crate::protocol::{CaseError, ProtocolError, ProtocolOptions, ReadyCase};
use crate::transport::internet::requested_traffic_class;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::SocketSettings;
use linkgauge_model::units;

/// The capability of servers that apply [`SocketSettings`].
pub(crate) const CAPABILITY: &str = "socket_settings";

/// Names and meanings of the options.
pub(crate) const OPTIONS: &[(&str, &str); 4] = &[
    ("server-nodelay", "1: the server sends at once; 0: its kernel gathers small writes (Nagle)"),
    ("server-quickack", "1: the server acknowledges at once; 0: its kernel delays acknowledgements"),
    ("server-sndbuf", "send buffer of each flow at the server, in bytes"),
    ("server-rcvbuf", "receive buffer of each flow at the server, in bytes"),
];

/// The largest buffer that a client may request. The kernel of the server limits it further.
const MAX_BUFFER_BYTES: u64 = 64 << 20;

/// Reads the options.
pub fn parse(options: &ProtocolOptions) -> Result<SocketSettings, CaseError> {
    let flag = |name: &str| match options.get(name).map(String::as_str) {
        None => Ok(None),
        Some("1" | "true") => Ok(Some(true)),
        Some("0" | "false") => Ok(Some(false)),
        Some(other) => Err(CaseError::Option(format!("linkgauge: {name} '{other}' is neither 0 nor 1"))),
    };
    let size = |name: &str| {
        let Some(text) = options.get(name) else { return Ok(None) };
        let bytes = units::parse_bytes(text).ok().filter(|bytes| (1..=MAX_BUFFER_BYTES).contains(bytes));
        let bytes = bytes.and_then(|bytes| u32::try_from(bytes).ok());
        let wrong =
            || CaseError::Option(format!("linkgauge: {name} '{text}' is not a size from 1 to 64Mi bytes"));
        bytes.map(Some).ok_or_else(wrong)
    };
    Ok(SocketSettings {
        nodelay: flag("server-nodelay")?,
        quick_ack: flag("server-quickack")?,
        send_buffer_bytes: size("server-sndbuf")?,
        receive_buffer_bytes: size("server-rcvbuf")?,
        traffic_class: None,
    })
}

/// The requested settings, if the server and this kind of link support them. `control` is the control connection.
pub(crate) fn requested(
    case: &ReadyCase,
    control: &dyn Link,
    endpoint: &Endpoint,
    capabilities: &[String],
) -> Result<SocketSettings, ProtocolError> {
    let mut settings = parse(&case.options)?;
    let is_able = capabilities.iter().any(|name| name == CAPABILITY);
    if is_able {
        // Replies get the class of requests, so that both directions can be judged.
        settings.traffic_class = requested_traffic_class(endpoint);
    }
    if settings.is_empty() {
        return Ok(settings);
    }
    if !is_able {
        let what = "the server does not set socket options: use the same version of linkgauge on both hosts";
        return Err(ProtocolError::unexpected_reply(endpoint, what));
    }
    // The flows have the same kind of socket as this connection, which no figure includes.
    socket_settings::apply(own_socket(control), &settings)
        .map_err(|fault| LinkError::new(endpoint, fault))?;
    Ok(settings)
}

/// The settings that a server accepts from a client.
pub fn check(settings: &SocketSettings) -> Result<(), SessionRefusal> {
    let buffers = [settings.send_buffer_bytes, settings.receive_buffer_bytes];
    match buffers.into_iter().flatten().find(|bytes| *bytes == 0 || u64::from(*bytes) > MAX_BUFFER_BYTES) {
        Some(bytes) => {
            Err(SessionRefusal(format!("a socket buffer of {bytes} bytes: its limit is {MAX_BUFFER_BYTES}")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_settings() {
        let options = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let all = options(&[("server-nodelay", "0"), ("server-quickack", "1"), ("server-rcvbuf", "64Ki")]);
        let expected = SocketSettings {
            nodelay: Some(false),
            quick_ack: Some(true),
            receive_buffer_bytes: Some(65_536),
            ..SocketSettings::default()
        };
        assert_eq!(parse(&all), Ok(expected));
        assert_eq!(check(&expected), Ok(()));
        for wrong in [("server-quickack", "2"), ("server-rcvbuf", "0"), ("server-sndbuf", "65Mi")] {
            assert!(parse(&options(&[wrong])).is_err(), "{wrong:?}");
        }
        assert!(check(&SocketSettings { send_buffer_bytes: Some(u32::MAX), ..expected }).is_err());
    }
}
