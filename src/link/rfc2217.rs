//! `rfc2217://host:port`: a serial port behind a network, with control of the port in the stream (RFC 2217, Telnet
//! option 44). And the other side of it, for whoever has the port: [`Server`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::line::{self, Settings};
use super::socket::SocketLink;
use super::{Fault, Link, Opening, Transport, internet, tcp};
use crate::endpoint::{Endpoint, EndpointError};
use client::Heard;
use command::{code, line_state};
use link::{PortLink, Shared};
use telnet::Agreement;

mod client;
mod command;
mod link;
mod server;
mod telnet;

pub use server::Server;
pub use telnet::escape;

pub const TRANSPORT: Transport = Transport {
    scheme: "rfc2217",
    summary: "serial port of a device server, with control of the port (Telnet, RFC 2217)",
    example: "rfc2217://192.0.2.7:7001?baud=115200&flow=rtscts",
    options: &[
        line::BAUD,
        line::DATA,
        line::PARITY,
        line::STOP,
        line::FLOW,
        (tcp::KEEPALIVE, "as with tcp://: 1s to 2h, or off (off)"),
        internet::FAMILY,
        internet::BIND,
        internet::DEVICE,
        internet::DSCP,
    ],
    check: |endpoint| {
        has_port(endpoint)?;
        (tcp::TRANSPORT.check)(endpoint)?;
        Settings::of(endpoint).map(|settings| settings.caps())
    },
    available: tcp::TRANSPORT.available,
    limit: || None,
    open,
    listen: None,
    loopback: |_| Vec::new(),
};

/// The endpoint for clients of a port that listens at `place`.
pub fn endpoint(place: &Endpoint, line: &Settings) -> Result<Endpoint, EndpointError> {
    format!("{}://{}?{}", TRANSPORT.scheme, place.place(), line.options()).parse()
}

/// How long an answer may take; where opening may take longer, so may this. As long as pyserial waits.
const PATIENCE: Duration = Duration::from_secs(3);

/// A port that has said nothing of Telnet by then is a raw one: others greet, or answer a first offer at once.
const SILENCE: Duration = Duration::from_secs(1);

/// Each make of device servers has another port.
fn has_port(endpoint: &Endpoint) -> Result<(), EndpointError> {
    match endpoint.host_port()? {
        (_, Some(_)) => Ok(()),
        _ => Err(EndpointError::BadPlace {
            url: endpoint.to_string(),
            wanted: "the device server's host and port, like rfc2217://host:7001",
        }),
    }
}

fn open(endpoint: &Endpoint, opening: &Opening) -> Result<Box<dyn Link>, Fault> {
    let asked = Settings::of(endpoint)?;
    let patience = opening.within.max(PATIENCE);
    let socket = tcp::connection(endpoint, opening).map_err(unreached)?;
    let socket = SocketLink::new(socket, asked.caps(), &opening.clock, opening.wait, tcp::facts);
    let mut link = PortLink { socket, shared: Arc::new(Shared::new(asked, patience)) };
    let granted = agree(&mut link, endpoint, patience)
        .and_then(|()| prepare(&mut link, &asked))
        .map_err(|fault| ended(fault, &link))?;
    line::check_granted(&asked, &granted)?;
    link.socket.caps = granted.caps();
    Ok(Box::new(link))
}

fn unreached(fault: Fault) -> Fault {
    match fault {
        Fault::System { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused => Fault::Other(
            "nobody listens there: is this the port of the device server, and no other client on it?"
                .to_owned(),
        ),
        fault => fault,
    }
}

/// Finds out whether there is a server that lets its port be controlled.
fn agree(link: &mut PortLink, endpoint: &Endpoint, patience: Duration) -> Result<(), Fault> {
    let raw = format!("tcp://{}?baud=…", endpoint.place());
    link.shared.say_with_heard(Heard::open);
    if !link.wait(SILENCE, |heard| heard.is_telnet)? {
        return Err(Fault::Other(format!(
            "this is a raw port, it does not speak Telnet (RFC 2217): use {raw}"
        )));
    }
    link.wait(patience, |heard| heard.agreement() != Agreement::Open)?;
    match link.shared.heard().agreement() {
        Agreement::Yes => Ok(()),
        Agreement::Refused => Err(Fault::Other(format!(
            "the far end refuses control of its port (RFC 2217): switch it on there, or use {raw}"
        ))),
        Agreement::No | Agreement::Open => Err(Fault::Other(format!(
            "the far end speaks Telnet, but did not agree to control of its port (RFC 2217) in {} s: \
             switch it on there, or use {raw}",
            patience.as_secs()
        ))),
    }
}

/// Sets the port up; what was on its way before is thrown away.
fn prepare(link: &mut PortLink, asked: &Settings) -> Result<Settings, Fault> {
    link.shared.say(|out| {
        command::write(code::SIGNATURE, &[], out);
        command::write(code::LINE_STATE_MASK, &[line_state::ERRORS], out);
    });
    link.ask(asked, true)?;
    link.shared.say(|out| command::write(code::PURGE, &[command::purge(line::Purge::Both)], out));
    // A server that does not answer has thrown nothing away, but is no reason to go without it.
    link.wait(SILENCE, |heard| heard.has_answered(code::PURGE))?;
    link.shared.take_inbox();
    Ok(link.shared.heard().settings)
}

/// A far end that closes has often said why.
fn ended(fault: Fault, link: &PortLink) -> Fault {
    if !matches!(fault, Fault::Closed) {
        return fault;
    }
    let said = String::from_utf8_lossy(&link.shared.take_inbox())
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(100)
        .collect::<String>();
    Fault::Other(match said.trim() {
        "" => "the far end closed the connection before its port was ready: does another client use it?"
            .to_owned(),
        said => format!("the far end said '{said}' and closed the connection"),
    })
}
