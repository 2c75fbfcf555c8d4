//! `auto`: finds out what the far end speaks before anything is measured, on a connection of its own.
//!
//! One hello goes out and as many bytes are waited for. Nothing is ever sent to an endpoint behind which an unknown
//! device may be: there the peer is `echo`, unless one was named.

use std::time::Duration;

use super::{PEERS, Peer, PeerError, linkgauge, peer};
use crate::endpoint::Endpoint;
use crate::link::{Caps, Dialer, Fault, Framing, Link};

/// The name under which a plan leaves the choice to us.
pub const NAME: &str = "auto";

/// Datagrams get lost: so many hellos before silence counts as silence.
const TRIES: u32 = 3;

/// The peer at `endpoint`.
pub fn find(endpoint: &Endpoint, dialer: &Dialer) -> Result<&'static Peer, PeerError> {
    let named = |name: &str| peer(name).ok_or_else(|| PeerError::Unfit(format!("no peer {name}")));
    let caps = crate::link::caps(endpoint).map_err(|fault| crate::link::LinkError::new(endpoint, fault))?;
    if caps.device {
        return named("echo");
    }
    let hello = linkgauge::Hello::new();
    let mut link = dialer.open(endpoint)?;
    let answer = ask(link.as_mut(), &caps, hello.bytes(), dialer)
        .map_err(|fault| crate::link::LinkError::new(endpoint, fault))?;
    if hello.is_answered_by(&answer) {
        return named("linkgauge");
    }
    if answer == hello.bytes() {
        return named("echo");
    }
    Err(PeerError::protocol(endpoint, complaint(&answer)))
}

/// What came back in answer to the hello: at most as many bytes.
fn ask(link: &mut dyn Link, caps: &Caps, hello: &[u8], dialer: &Dialer) -> Result<Vec<u8>, Fault> {
    let tries = if caps.reliable { 1 } else { TRIES };
    let mut answer = Vec::new();
    let mut chunk = vec![0; caps.max_message.unwrap_or(hello.len()).max(hello.len())];
    for _ in 0..tries {
        let mut sent = 0;
        while sent < hello.len() {
            sent += link.send(&hello[sent..], dialer.timeout)?;
        }
        let until = dialer.now() + dialer.timeout / tries;
        while answer.len() < hello.len() {
            let left = until.since(dialer.now());
            if left == Duration::ZERO {
                break;
            }
            let room = if caps.framing == Framing::Stream { hello.len() - answer.len() } else { chunk.len() };
            match link.receive(&mut chunk[..room], left) {
                Ok(length) => answer.extend_from_slice(&chunk[..length]),
                Err(Fault::TimedOut | Fault::Closed) => break,
                Err(fault) => return Err(fault),
            }
            if caps.framing == Framing::Message {
                break;
            }
        }
        if !answer.is_empty() {
            break;
        }
    }
    Ok(answer)
}

/// So much of an unknown answer tells what sent it.
const SHOWN: usize = 16;

/// One line on what the far end is not.
fn complaint(answer: &[u8]) -> String {
    let names: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
    let choose = format!("name what it speaks with --peer ({})", names.join(", "));
    if answer.is_empty() {
        return format!("nothing came back from the far end: {choose}");
    }
    let mut first = String::new();
    for &byte in answer.iter().take(SHOWN) {
        match byte {
            b' '..=b'~' => first.push(char::from(byte)),
            _ => first.extend(byte.escape_ascii().map(char::from)),
        }
    }
    let more = if answer.len() > SHOWN { "…" } else { "" };
    format!("the far end is neither linkgauge nor an echo, it says '{first}{more}': {choose}")
}
