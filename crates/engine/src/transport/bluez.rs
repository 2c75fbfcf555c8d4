//! Registers a service with the Bluetooth daemon of this host (BlueZ), so that other devices find its
//! channel: `org.bluez.ProfileManager1.RegisterProfile` over the system bus (D-Bus), with a custom record.
//!
//! Implements only the part of D-Bus that this needs: two calls and their replies. Data never passes a
//! daemon.

use std::io::{Read, Write};
use std::time::Duration;

use super::sdp::Uuid;
use crate::link::fault::Fault;
use linkgauge_system::LocalStream;

/// Socket of the bus, by the specification of D-Bus.
const SYSTEM_BUS_PATH: &str = "/run/dbus/system_bus_socket";

/// The service stays registered while this value lives.
pub(crate) struct ServiceRegistration {
    _bus: LocalStream,
}

/// Registers the service with the RFCOMM channel of the listener. Waits `within` for each reply.
///
/// # Errors
///
/// Fails without a bus or a daemon, or if it refuses.
pub(crate) fn register_service(
    service: Uuid,
    channel: u8,
    within: Duration,
) -> Result<ServiceRegistration, Fault> {
    let failed = Fault::system(SYSTEM_BUS_PATH);
    let mut bus = LocalStream::connect(SYSTEM_BUS_PATH).map_err(&failed)?;
    let limit = Some(within.max(Duration::from_millis(1)));
    let set = bus.set_read_timeout(limit).and_then(|()| bus.set_write_timeout(limit));
    set.and_then(|()| bus.write_all(&auth_line())).map_err(&failed)?;
    let mut received = Vec::new();
    let result = read_until(&mut bus, &mut received, |received| {
        let end = received.windows(2).position(|end| end == b"\r\n")?;
        Some((received[..end].starts_with(b"OK"), end + 2))
    })?;
    if !result {
        return Err(Fault::NotPermitted("the system bus refuses this user".to_owned()));
    }
    bus.write_all(&registration_calls(service, channel)).map_err(&failed)?;
    loop {
        let reply = read_until(&mut bus, &mut received, DbusReply::parse)?;
        match reply {
            DbusReply { reply_serial: Some(_), error: Some(error) } => return Err(Fault::Refused(error)),
            DbusReply { reply_serial: Some(REGISTER_SERIAL), error: None } => {
                return Ok(ServiceRegistration { _bus: bus });
            }
            _ => {}
        }
    }
}

/// Maximum size of an awaited reply.
const MAX_REPLY_BYTES: usize = 64 << 10;

/// Reads until `find` returns a value and the number of bytes it used.
fn read_until<T>(
    bus: &mut LocalStream,
    received: &mut Vec<u8>,
    find: impl Fn(&[u8]) -> Option<(T, usize)>,
) -> Result<T, Fault> {
    let mut chunk = [0; 4096];
    loop {
        if let Some((found, used)) = find(received) {
            received.drain(..used.min(received.len()));
            return Ok(found);
        }
        match bus.read(&mut chunk) {
            Ok(0) => return Err(Fault::EndedEarly("the system bus closed the connection".to_owned())),
            Ok(length) if received.len() < MAX_REPLY_BYTES => received.extend_from_slice(&chunk[..length]),
            Ok(_) => return Err(Fault::UnexpectedData("the reply of the system bus is too long".to_owned())),
            Err(error) => return Err(Fault::NoReply(format!("the system bus does not reply: {error}"))),
        }
    }
}

/// States the user; the kernel confirms it to the bus.
fn auth_line() -> Vec<u8> {
    let user = linkgauge_system::real_user().to_string();
    let hex: String = user.bytes().map(|digit| format!("{digit:02x}")).collect();
    format!("\0AUTH EXTERNAL {hex}\r\n").into_bytes()
}

/// Serial numbers of the calls.
const HELLO_SERIAL: u32 = 1;
const REGISTER_SERIAL: u32 = 2;

fn registration_calls(service: Uuid, channel: u8) -> Vec<u8> {
    let hello = DbusCall {
        serial: HELLO_SERIAL,
        destination: "org.freedesktop.DBus",
        path: "/org/freedesktop/DBus",
        interface: "org.freedesktop.DBus",
        member: "Hello",
        signature: None,
        body: Vec::new(),
    };
    let mut body = DbusBody::default();
    body.put_string("/linkgauge");
    // Known profiles make the daemon open listeners of its own. So the profile is new, and its record names
    // the service.
    body.put_string(&Uuid::random().to_full_text());
    body.put_dictionary(&[("ServiceRecord", &service_record(service, channel)), ("Role", "server")]);
    let register = DbusCall {
        serial: REGISTER_SERIAL,
        destination: "org.bluez",
        path: "/org/bluez",
        interface: "org.bluez.ProfileManager1",
        member: "RegisterProfile",
        signature: Some("osa{sv}"),
        body: body.0,
    };
    [b"BEGIN\r\n", &hello.encode()[..], &register.encode()].concat()
}

/// The service record, in the form that the daemon expects.
fn service_record(service: Uuid, channel: u8) -> String {
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

/// Encodes D-Bus values, each aligned to its size, in little-endian order.
#[derive(Default)]
struct DbusBody(Vec<u8>);

impl DbusBody {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn put_u32(&mut self, number: u32) {
        self.align(4);
        self.0.extend(number.to_le_bytes());
    }

    /// Adds a string, or the path of an object.
    fn put_string(&mut self, text: &str) {
        self.put_u32(text.len() as u32);
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    fn put_signature(&mut self, text: &str) {
        self.0.push(text.len() as u8);
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    /// Adds a dictionary of strings, `a{sv}`.
    fn put_dictionary(&mut self, options: &[(&str, &str)]) {
        self.put_u32(0);
        let length_at = self.0.len() - 4;
        // An entry is aligned; the length excludes the padding before the first one.
        self.align(8);
        let start = self.0.len();
        for (name, value) in options {
            self.align(8);
            self.put_string(name);
            self.put_signature("s");
            self.put_string(value);
        }
        let length = (self.0.len() - start) as u32;
        self.0[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }
}

/// Message types, and header fields.
const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR_MESSAGE: u8 = 3;
const FIELD_PATH: u8 = 1;
const FIELD_INTERFACE: u8 = 2;
const FIELD_MEMBER: u8 = 3;
const FIELD_ERROR_NAME: u8 = 4;
const FIELD_REPLY_SERIAL: u8 = 5;
const FIELD_DESTINATION: u8 = 6;
const FIELD_SIGNATURE: u8 = 8;

/// Flag: no daemon is started for this call.
const FLAG_NO_AUTO_START: u8 = 2;

struct DbusCall {
    serial: u32,
    destination: &'static str,
    path: &'static str,
    interface: &'static str,
    member: &'static str,
    signature: Option<&'static str>,
    body: Vec<u8>,
}

impl DbusCall {
    fn encode(&self) -> Vec<u8> {
        let mut head = DbusBody(vec![b'l', METHOD_CALL, FLAG_NO_AUTO_START, 1]);
        head.put_u32(self.body.len() as u32);
        head.put_u32(self.serial);
        head.put_u32(0);
        let texts = [
            (FIELD_PATH, "o", self.path),
            (FIELD_INTERFACE, "s", self.interface),
            (FIELD_MEMBER, "s", self.member),
            (FIELD_DESTINATION, "s", self.destination),
        ];
        for (field, kind, text) in texts {
            head.align(8);
            head.0.push(field);
            head.put_signature(kind);
            head.put_string(text);
        }
        if let Some(signature) = self.signature {
            head.align(8);
            head.0.push(FIELD_SIGNATURE);
            head.put_signature("g");
            head.put_signature(signature);
        }
        let fields = (head.0.len() - FIXED_HEADER_BYTES) as u32;
        head.0[FIXED_HEADER_BYTES - 4..FIXED_HEADER_BYTES].copy_from_slice(&fields.to_le_bytes());
        head.align(8);
        [&head.0[..], &self.body].concat()
    }
}

/// Bytes before the fields of a header.
const FIXED_HEADER_BYTES: usize = 16;

/// The used parts of a message.
#[derive(Debug, PartialEq, Eq)]
pub struct DbusReply {
    /// The serial number of the call that this replies to.
    reply_serial: Option<u32>,
    error: Option<String>,
}

impl DbusReply {
    /// The first message in `bytes`, and its length; `None` while it is incomplete. An invalid header gives a
    /// message that replies to no call.
    pub fn parse(bytes: &[u8]) -> Option<(DbusReply, usize)> {
        let order: fn([u8; 4]) -> u32 =
            if bytes.first() == Some(&b'l') { u32::from_le_bytes } else { u32::from_be_bytes };
        let number = |at: usize| Some(order(*bytes.get(at..)?.first_chunk()?) as usize);
        let (body, fields) = (number(4)?, number(12)?);
        let length =
            FIXED_HEADER_BYTES.checked_add(fields)?.checked_next_multiple_of(8)?.checked_add(body)?;
        // The reader limits messages that are too long.
        bytes.get(..length)?;
        let (mut to, mut error) = (None, None);
        let fields = &bytes[..FIXED_HEADER_BYTES + fields];
        let mut at = FIXED_HEADER_BYTES;
        while let Some((field, value, end)) = read_field(fields, at, order) {
            match field {
                FIELD_REPLY_SERIAL => to = value.first_chunk().map(|serial| order(*serial)),
                FIELD_ERROR_NAME => error = Some(String::from_utf8_lossy(value).into_owned()),
                _ => {}
            }
            at = end.next_multiple_of(8);
        }
        let (to, error) = match bytes[1] {
            METHOD_RETURN => (to, None),
            ERROR_MESSAGE => (to, Some(error.unwrap_or_else(|| "an error without a name".to_owned()))),
            _ => (None, None),
        };
        Some((DbusReply { reply_serial: to, error }, length))
    }
}

/// A header field: its number, its value, and its end. An unknown type ends the header.
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
    use crate::transport::sdp::SERIAL_PORT_UUID;

    #[test]
    fn a_call_is_encoded_as_the_bus_expects() {
        let hello = registration_calls(SERIAL_PORT_UUID, 5);
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

    /// A message as the bus and the daemon send it.
    fn message(kind: u8, fields: &[&[u8]], body: &[u8]) -> Vec<u8> {
        let fields = fields.concat();
        let mut message = DbusBody(vec![b'l', kind, 1, 1]);
        message.put_u32(body.len() as u32);
        message.put_u32(7);
        message.put_u32(fields.len() as u32);
        message.0.extend(fields);
        message.align(8);
        [&message.0, body].concat()
    }

    #[test]
    fn replies_name_their_call() {
        let serial = b"\x05\x01u\0\x02\0\0\0";
        let done = message(METHOD_RETURN, &[b"\x08\x01g\0\x02si\0", serial], b"body");
        assert_eq!(
            DbusReply::parse(&done),
            Some((DbusReply { reply_serial: Some(2), error: None }, done.len()))
        );
        let named = b"\x04\x01s\0\x05\0\0\0a.b.c\0\0\0";
        let refused = message(ERROR_MESSAGE, &[named, serial], b"");
        let reply = DbusReply { reply_serial: Some(2), error: Some("a.b.c".to_owned()) };
        assert_eq!(DbusReply::parse(&refused), Some((reply, refused.len())));
        let signal = message(4, &[serial], b"");
        assert_eq!(
            DbusReply::parse(&signal),
            Some((DbusReply { reply_serial: None, error: None }, signal.len()))
        );
        for cut in 0..refused.len() {
            assert_eq!(DbusReply::parse(&refused[..cut]), None);
        }
        // Lengths beyond the end, in the header and in a field.
        let long = message(METHOD_RETURN, &[b"\x04\x01s\0\xff\xff\xff\xff"], b"");
        assert_eq!(
            DbusReply::parse(&long),
            Some((DbusReply { reply_serial: None, error: None }, long.len()))
        );
        assert_eq!(
            DbusReply::parse(&[b'l', 2, 0, 1, 255, 255, 255, 255, 1, 0, 0, 0, 255, 255, 255, 255]),
            None
        );
    }
}
