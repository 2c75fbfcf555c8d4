//! `rfc2217://host:port`: a serial port behind a network, with port control in the stream (RFC 2217, Telnet
//! option 44). [`PortServer`] implements the server side.

use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use super::socket::SocketLink;
use super::tcp_options::{self, TcpOptions};
use super::{internet, tcp};
use crate::link::serial_line::{self, SerialSettings};
use crate::link::{Caps, Fault, Link, LinkDescriptor, OpenContext, Transport};
use client::{ServerState, SettingsScope};
use command::{code, line_state_bit};
use link::{PortLink, PortLinkState};
use linkgauge_model::endpoint::{Endpoint, EndpointError};
use telnet::OptionAgreement;

mod client;
mod command;
mod link;
mod server;
mod telnet;

pub use server::PortServer;
pub use telnet::escape;

/// The transport `rfc2217` in the list of transports.
pub(crate) const TRANSPORT: Transport = Transport {
    scheme: "rfc2217",
    summary: "serial port of a device server, with control of the port (Telnet, RFC 2217)",
    example: "rfc2217://192.0.2.7:7001?baud=115200&flow=rtscts",
    options: &[
        serial_line::BAUD_OPTION,
        serial_line::DATA_BITS_OPTION,
        serial_line::PARITY_OPTION,
        serial_line::STOP_BITS_OPTION,
        serial_line::FLOW_CONTROL_OPTION,
        tcp::NO_DELAY_OPTION,
        tcp_options::QUICK_ACK_OPTION,
        tcp_options::DELAYED_ACK_OPTION,
        (tcp::KEEPALIVE_OPTION, "as with tcp://: 1s to 2h, or off (off)"),
        internet::FAMILY_OPTION,
        internet::BIND_OPTION,
        internet::DEVICE_OPTION,
        internet::DSCP_OPTION,
    ],
    parse_caps: |endpoint| {
        require_port(endpoint)?;
        (tcp::TRANSPORT.parse_caps)(endpoint)?;
        serial_line::settings_of(endpoint).map(|settings| port_caps(&settings))
    },
    resolve: Some(internet::resolve),
    available: tcp::TRANSPORT.available,
    limitation: || None,
    open,
    begin_open: None,
    listen: None,
    loopback_urls: |_| Vec::new(),
};

/// The endpoint for clients of a port server that listens at `listener`.
///
/// # Errors
///
/// Fails if the address of the listener is invalid.
pub fn client_endpoint(listener: &Endpoint, line: &SerialSettings) -> Result<Endpoint, EndpointError> {
    format!("{}://{}?{}", TRANSPORT.scheme, listener.address(), serial_line::endpoint_options(line)).parse()
}

/// Minimum timeout for a reply; longer if opening may take longer. pyserial uses the same time.
const MIN_REPLY_TIMEOUT: Duration = Duration::from_secs(3);

/// Timeout for Telnet: a port that has sent none by then is a raw one; others send a greeting, or reply to a first offer at once.
const TELNET_DETECTION_TIMEOUT: Duration = Duration::from_secs(1);

/// Time within which a server that reads a connection closes it after its end.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Requires a port in the endpoint: the default port differs between makes of device servers.
fn require_port(endpoint: &Endpoint) -> Result<(), EndpointError> {
    match endpoint.host_port()? {
        (_, Some(_)) => Ok(()),
        _ => Err(EndpointError::BadAddress {
            url: endpoint.to_string(),
            wanted: "the device server's host and port, like rfc2217://host:7001",
        }),
    }
}

/// Capabilities without a descriptor: the socket shows neither that commands arrive nor that received data waits in the inbox.
fn port_caps(line: &SerialSettings) -> Caps {
    Caps { descriptor: LinkDescriptor::None, ..serial_line::caps(line) }
}

fn open(endpoint: &Endpoint, context: &OpenContext) -> Result<Box<dyn Link>, Fault> {
    let requested = serial_line::settings_of(endpoint)?;
    let reply_timeout = context.timeout.max(MIN_REPLY_TIMEOUT);
    let socket = tcp::connect_any(endpoint, context).map_err(connect_fault)?;
    let mut socket = SocketLink::new(socket, port_caps(&requested), &context.clock, context.wait, tcp::facts);
    socket.rearms_quick_ack = TcpOptions::from_endpoint(endpoint)?.quick_ack == Some(true);
    let mut link = PortLink { socket, state: Arc::new(PortLinkState::new(requested, reply_timeout)) };
    let granted = negotiate_control(&mut link, endpoint, reply_timeout)
        .and_then(|()| configure_port(&mut link, &requested))
        .map_err(|fault| explain_close(fault, &link))?;
    serial_line::check_granted(&requested, &granted)?;
    link.socket.caps = port_caps(&granted);
    Ok(Box::new(link))
}

fn connect_fault(fault: Fault) -> Fault {
    match fault {
        Fault::System { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused => Fault::Refused(
            "the port is closed. Check the port of the device server, and that no other client uses it"
                .to_owned(),
        ),
        fault => fault,
    }
}

/// The URL for a server that speaks Telnet on a port that was opened as a raw one.
pub(crate) fn telnet_url(endpoint: &Endpoint) -> Option<String> {
    let rest = endpoint.as_str().strip_prefix("tcp://")?;
    let with_rate = if endpoint.option("baud").is_none() { "?baud=9600" } else { "" };
    Some(format!("{}://{rest}{with_rate}", TRANSPORT.scheme))
}

/// Whether these first bytes of a server agree on options of Telnet, as those of a device server do.
pub(crate) fn begins_with_telnet(received: &[u8]) -> bool {
    matches!(received, [telnet::IAC, verb, ..] if telnet::TelnetVerb::from_byte(*verb).is_some())
}

/// Checks whether the server supports port control.
fn negotiate_control(link: &mut PortLink, endpoint: &Endpoint, reply_timeout: Duration) -> Result<(), Fault> {
    let raw = format!("tcp://{}?baud=…", endpoint.address());
    link.state.queue_with_state(ServerState::write_offers);
    if !link.wait_until(TELNET_DETECTION_TIMEOUT, |state| state.is_telnet)? {
        return Err(match is_read_by_a_program(link) {
            true => Fault::Unsupported(format!("this is a raw port without Telnet (RFC 2217). Use {raw}")),
            false => Fault::Refused(format!(
                "the system of the server accepted the connection, but no program reads it: it probably serves another \
                 client. Disconnect that one; for a raw port use {raw}"
            )),
        });
    }
    link.wait_until(reply_timeout, |state| state.control_agreement() != OptionAgreement::Pending)?;
    match link.state.server_state().control_agreement() {
        OptionAgreement::Yes => Ok(()),
        OptionAgreement::Refused => Err(Fault::Refused(format!(
            "the server refuses control of its port (RFC 2217). Enable it there, or use {raw}"
        ))),
        OptionAgreement::No | OptionAgreement::Pending => Err(Fault::Unsupported(format!(
            "the server uses Telnet, but did not agree to control of its port (RFC 2217) in {} s: \
             enable it there, or use {raw}",
            reply_timeout.as_secs()
        ))),
    }
}

/// Whether the server closes a connection that has ended here. One that waits behind another client stays open.
fn is_read_by_a_program(link: &mut PortLink) -> bool {
    link.socket.socket.shutdown(Shutdown::Write).is_err()
        || link.wait_until(CLOSE_TIMEOUT, |_| false).is_err()
}

/// Sets up the port and discards its old data.
fn configure_port(link: &mut PortLink, requested: &SerialSettings) -> Result<SerialSettings, Fault> {
    link.state.queue_output(|out| {
        command::write_command(code::SIGNATURE, &[], out);
        command::write_command(code::LINE_STATE_MASK, &[line_state_bit::ERRORS], out);
    });
    link.apply_settings(requested, SettingsScope::All)?;
    link.state.queue_output(|out| {
        command::write_command(code::PURGE, &[command::encode_purge(serial_line::PurgeTarget::Both)], out)
    });
    // A server that does not reply has discarded nothing; the link is used all the same.
    link.wait_until(TELNET_DETECTION_TIMEOUT, |state| state.has_reply(code::PURGE))?;
    link.state.take_inbox();
    Ok(link.state.server_state().settings)
}

/// Adds the reason for a close, if the server sent one.
fn explain_close(fault: Fault, link: &PortLink) -> Fault {
    if !matches!(fault, Fault::Closed) {
        return fault;
    }
    let text = String::from_utf8_lossy(&link.state.take_inbox())
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(100)
        .collect::<String>();
    Fault::EndedEarly(match text.trim() {
        "" => {
            "the server closed the connection before its port was ready. Check whether another client uses it"
                .to_owned()
        }
        text => format!("the server sent '{text}' and closed the connection"),
    })
}
