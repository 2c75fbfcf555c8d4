//! Having the Bluetooth daemon of this host (BlueZ) tell others of a service of ours, so that they find its channel:
//! `org.bluez.ProfileManager1.RegisterProfile` over the system bus (D-Bus), with a record of our own.
//!
//! Only what that takes of D-Bus: two calls, and their answers. Not for the data, which never passes a daemon.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::sdp::Uuid;

/// Where the bus is, by its specification.
const BUS: &str = "/run/dbus/system_bus_socket";

/// A service that is told of for as long as this lives.
pub struct Told {
    _bus: UnixStream,
}

/// Has the service told of, on the RFCOMM channel on which we listen. Fails in words: there is no bus, no daemon, or it
/// refuses. Each answer is waited for `within`.
pub fn tell(service: Uuid, channel: u8, within: Duration) -> Result<Told, String> {
    let mut bus = UnixStream::connect(BUS).map_err(|error| format!("{BUS}: {error}"))?;
    let limit = Some(within.max(Duration::from_millis(1)));
    let set = bus.set_read_timeout(limit).and_then(|()| bus.set_write_timeout(limit));
    set.and_then(|()| bus.write_all(&greeting())).map_err(|error| error.to_string())?;
    let mut heard = Vec::new();
    let told = wait_for(&mut bus, &mut heard, |heard| {
        let end = heard.windows(2).position(|end| end == b"\r\n")?;
        Some((heard[..end].starts_with(b"OK"), end + 2))
    })?;
    if !told {
        return Err("the system bus lets nobody in".to_owned());
    }
    bus.write_all(&calls(service, channel)).map_err(|error| error.to_string())?;
    loop {
        let answer = wait_for(&mut bus, &mut heard, Answer::read)?;
        match answer {
            Answer { to: Some(_), error: Some(error) } => return Err(error),
            Answer { to: Some(REGISTER), error: None } => return Ok(Told { _bus: bus }),
            _ => {}
        }
    }
}

/// Most bytes of an answer that is waited for.
const LONGEST: usize = 64 << 10;

/// Reads until `find` sees something and says how many bytes it took.
fn wait_for<T>(
    bus: &mut UnixStream,
    heard: &mut Vec<u8>,
    find: impl Fn(&[u8]) -> Option<(T, usize)>,
) -> Result<T, String> {
    let mut piece = [0; 4096];
    loop {
        if let Some((found, used)) = find(heard) {
            heard.drain(..used.min(heard.len()));
            return Ok(found);
        }
        match bus.read(&mut piece) {
            Ok(0) => return Err("the system bus closed the connection".to_owned()),
            Ok(length) if heard.len() < LONGEST => heard.extend_from_slice(&piece[..length]),
            Ok(_) => return Err("the system bus says too much".to_owned()),
            Err(error) => return Err(format!("the system bus does not answer: {error}")),
        }
    }
}

/// Says who we are; the kernel tells the bus that it is true.
fn greeting() -> Vec<u8> {
    let user = rustix::process::getuid().as_raw().to_string();
    let hex: String = user.bytes().map(|digit| format!("{digit:02x}")).collect();
    format!("\0AUTH EXTERNAL {hex}\r\n").into_bytes()
}

/// Serial numbers of our calls.
const HELLO: u32 = 1;
const REGISTER: u32 = 2;

fn calls(service: Uuid, channel: u8) -> Vec<u8> {
    let hello = Call {
        serial: HELLO,
        to: "org.freedesktop.DBus",
        path: "/org/freedesktop/DBus",
        interface: "org.freedesktop.DBus",
        member: "Hello",
        signature: None,
        body: Vec::new(),
    };
    let mut body = Body::default();
    body.text("/linkgauge");
    // Profiles that the daemon knows bring listeners of its own: ours is a new one, and its record tells the service.
    body.text(&Uuid::random().long());
    body.options(&[("ServiceRecord", &record(service, channel)), ("Role", "server")]);
    let register = Call {
        serial: REGISTER,
        to: "org.bluez",
        path: "/org/bluez",
        interface: "org.bluez.ProfileManager1",
        member: "RegisterProfile",
        signature: Some("osa{sv}"),
        body: body.0,
    };
    [b"BEGIN\r\n", &hello.write()[..], &register.write()].concat()
}

/// What others are told of the service, as the daemon wants to read it.
fn record(service: Uuid, channel: u8) -> String {
    let service = match service.to_string() {
        short if short.len() <= 8 => format!("0x{short}"),
        long => long,
    };
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><record>\
         <attribute id=\"0x0001\"><sequence><uuid value=\"{service}\"/></sequence></attribute>\
         <attribute id=\"0x0004\"><sequence><sequence><uuid value=\"0x0100\"/></sequence>\
         <sequence><uuid value=\"0x0003\"/><uint8 value=\"{channel:#04x}\"/></sequence></sequence></attribute>\
         <attribute id=\"0x0005\"><sequence><uuid value=\"0x1002\"/></sequence></attribute>\
         <attribute id=\"0x0100\"><text value=\"linkgauge\"/></attribute></record>"
    )
}

/// Values as D-Bus writes them, each aligned to its size, the smaller byte first.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, number: u32) {
        self.align(4);
        self.0.extend(number.to_le_bytes());
    }

    /// A string, or the path of an object.
    fn text(&mut self, text: &str) {
        self.number(text.len() as u32);
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    fn signature(&mut self, text: &str) {
        self.0.push(text.len() as u8);
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    /// A dictionary of strings, `a{sv}`.
    fn options(&mut self, options: &[(&str, &str)]) {
        self.number(0);
        let length_at = self.0.len() - 4;
        // An entry is aligned, and what stands before the first is not counted.
        self.align(8);
        let start = self.0.len();
        for (name, value) in options {
            self.align(8);
            self.text(name);
            self.signature("s");
            self.text(value);
        }
        let length = (self.0.len() - start) as u32;
        self.0[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }
}

/// Kinds of messages, and of what their headers tell.
const CALL: u8 = 1;
const RETURN: u8 = 2;
const ERROR: u8 = 3;
const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SIGNATURE: u8 = 8;

/// No daemon is to be started for it.
const NO_AUTO_START: u8 = 2;

struct Call {
    serial: u32,
    to: &'static str,
    path: &'static str,
    interface: &'static str,
    member: &'static str,
    signature: Option<&'static str>,
    body: Vec<u8>,
}

impl Call {
    fn write(&self) -> Vec<u8> {
        let mut head = Body(vec![b'l', CALL, NO_AUTO_START, 1]);
        head.number(self.body.len() as u32);
        head.number(self.serial);
        head.number(0);
        let texts = [
            (PATH, "o", self.path),
            (INTERFACE, "s", self.interface),
            (MEMBER, "s", self.member),
            (DESTINATION, "s", self.to),
        ];
        for (field, kind, text) in texts {
            head.align(8);
            head.0.push(field);
            head.signature(kind);
            head.text(text);
        }
        if let Some(signature) = self.signature {
            head.align(8);
            head.0.push(SIGNATURE);
            head.signature("g");
            head.signature(signature);
        }
        let fields = (head.0.len() - HEAD) as u32;
        head.0[HEAD - 4..HEAD].copy_from_slice(&fields.to_le_bytes());
        head.align(8);
        [&head.0[..], &self.body].concat()
    }
}

/// Before the fields of a header.
const HEAD: usize = 16;

/// What matters of a message to us.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The serial number of the call that it answers.
    to: Option<u32>,
    error: Option<String>,
}

impl Answer {
    /// The first message in `bytes`, and its length; None while it is not whole. One whose header makes no sense answers
    /// nothing.
    pub fn read(bytes: &[u8]) -> Option<(Answer, usize)> {
        let order: fn([u8; 4]) -> u32 =
            if bytes.first() == Some(&b'l') { u32::from_le_bytes } else { u32::from_be_bytes };
        let number = |at: usize| Some(order(*bytes.get(at..)?.first_chunk()?) as usize);
        let (body, fields) = (number(4)?, number(12)?);
        let whole = HEAD.checked_add(fields)?.checked_next_multiple_of(8)?.checked_add(body)?;
        // What is too long to be read whole is cut where the reader gives up.
        bytes.get(..whole)?;
        let (mut to, mut error) = (None, None);
        let fields = &bytes[..HEAD + fields];
        let mut at = HEAD;
        while let Some((field, value, end)) = read_field(fields, at, order) {
            match field {
                REPLY_SERIAL => to = value.first_chunk().map(|serial| order(*serial)),
                ERROR_NAME => error = Some(String::from_utf8_lossy(value).into_owned()),
                _ => {}
            }
            at = end.next_multiple_of(8);
        }
        let (to, error) = match bytes[1] {
            RETURN => (to, None),
            ERROR => (to, Some(error.unwrap_or_else(|| "an error without a name".to_owned()))),
            _ => (None, None),
        };
        Some((Answer { to, error }, whole))
    }
}

/// A field of a header: its number, its value, and where it ends. Those of unknown types end the header.
fn read_field(header: &[u8], at: usize, order: fn([u8; 4]) -> u32) -> Option<(u8, &[u8], usize)> {
    let &[field, 1, kind, 0] = header.get(at..)?.first_chunk()? else { return None };
    let at = at + 4;
    let number = || Some(order(*header.get(at..)?.first_chunk()?) as usize);
    let (start, length, end) = match kind {
        b'u' => (at, 4, at + 4),
        b's' | b'o' => (at + 4, number()?, at.checked_add(number()?)?.checked_add(5)?),
        b'g' => {
            let length = usize::from(*header.get(at)?);
            (at + 1, length, at + 2 + length)
        }
        _ => return None,
    };
    Some((field, header.get(start..start.checked_add(length)?)?, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::sdp::SERIAL_PORT;

    #[test]
    fn a_call_is_laid_out_as_the_bus_wants_it() {
        let hello = calls(SERIAL_PORT, 5);
        let hello = hello.strip_prefix(b"BEGIN\r\n").unwrap();
        let expected = [
            &b"l\x01\x02\x01\0\0\0\0\x01\0\0\0\x6d\0\0\0"[..],
            b"\x01\x01o\0\x15\0\0\0/org/freedesktop/DBus\0\0\0",
            b"\x02\x01s\0\x14\0\0\0org.freedesktop.DBus\0\0\0\0",
            b"\x03\x01s\0\x05\0\0\0Hello\0\0\0",
            b"\x06\x01s\0\x14\0\0\0org.freedesktop.DBus\0\0\0\0",
        ]
        .concat();
        assert_eq!(hello[..expected.len()], expected);
    }

    /// As the bus and the daemon answer.
    fn message(kind: u8, fields: &[&[u8]], body: &[u8]) -> Vec<u8> {
        let fields = fields.concat();
        let mut message = Body(vec![b'l', kind, 1, 1]);
        message.number(body.len() as u32);
        message.number(7);
        message.number(fields.len() as u32);
        message.0.extend(fields);
        message.align(8);
        [&message.0, body].concat()
    }

    #[test]
    fn answers_tell_to_what() {
        let serial = b"\x05\x01u\0\x02\0\0\0";
        let done = message(RETURN, &[b"\x08\x01g\0\x02si\0", serial], b"body");
        assert_eq!(Answer::read(&done), Some((Answer { to: Some(2), error: None }, done.len())));
        let named = b"\x04\x01s\0\x05\0\0\0a.b.c\0\0\0";
        let refused = message(ERROR, &[named, serial], b"");
        let answer = Answer { to: Some(2), error: Some("a.b.c".to_owned()) };
        assert_eq!(Answer::read(&refused), Some((answer, refused.len())));
        let signal = message(4, &[serial], b"");
        assert_eq!(Answer::read(&signal), Some((Answer { to: None, error: None }, signal.len())));
        for cut in 0..refused.len() {
            assert_eq!(Answer::read(&refused[..cut]), None);
        }
        // Lengths beyond the end, in the header and in a field.
        let long = message(RETURN, &[b"\x04\x01s\0\xff\xff\xff\xff"], b"");
        assert_eq!(Answer::read(&long), Some((Answer { to: None, error: None }, long.len())));
        assert_eq!(Answer::read(&[b'l', 2, 0, 1, 255, 255, 255, 255, 1, 0, 0, 0, 255, 255, 255, 255]), None);
    }
}
