//! Client of Bluetooth's service discovery (SDP; Core, volume 3, part B): finds the RFCOMM channel of a
//! service on a device. Bytes in, bytes out.
//!
//! The daemon of a host is the server; `bluez.rs` registers services with it.

use std::fmt;
use std::str::FromStr;

use crate::link::fault::Fault;

/// The UUID of a service or a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uuid(u128);

/// The base of short UUIDs.
const BASE_UUID: u128 = 0x0000_0000_0000_1000_8000_0080_5F9B_34FB;

/// The profile of serial adapters.
pub const SERIAL_PORT_UUID: Uuid = Uuid::from_short(0x1101);
const RFCOMM_UUID: Uuid = Uuid::from_short(0x0003);

impl Uuid {
    const fn from_short(number: u32) -> Uuid {
        Uuid((number as u128) << 96 | BASE_UUID)
    }

    /// A random, unique UUID.
    pub fn random() -> Uuid {
        // Version 4, variant 1.
        let random = fastrand::u128(..) & !(0xF << 76) & !(0x3 << 62);
        Uuid(random | 0x4 << 76 | 0x2 << 62)
    }

    /// Formats the UUID in full length.
    pub(crate) fn to_full_text(self) -> String {
        let digits = format!("{:032x}", self.0);
        [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
    }

    fn to_short(self) -> Option<u32> {
        let number = (self.0 >> 96) as u32;
        (Uuid::from_short(number) == self).then_some(number)
    }

    /// The shortest data element for it.
    fn encode(self) -> Vec<u8> {
        match self.to_short().map(|number| number.to_be_bytes()) {
            Some([0, 0, high, low]) => vec![TYPE_UUID << 3 | 1, high, low],
            Some(number) => [&[TYPE_UUID << 3 | 2], &number[..]].concat(),
            None => [&[TYPE_UUID << 3 | 4], &self.0.to_be_bytes()[..]].concat(),
        }
    }
}

impl FromStr for Uuid {
    type Err = ();

    /// Parses `1101`, `0x1101`, eight digits, or the full form with hyphens.
    fn from_str(text: &str) -> Result<Uuid, ()> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let parts: Vec<&str> = digits.split('-').collect();
        let is_hex = parts.iter().all(|part| part.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        match lengths[..] {
            [4 | 8] if is_hex => u32::from_str_radix(digits, 16).map(Uuid::from_short).map_err(|_| ()),
            [8, 4, 4, 4, 12] if is_hex => u128::from_str_radix(&parts.concat(), 16).map(Uuid).map_err(|_| ()),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_short() {
            Some(number) => write!(f, "{number:04x}"),
            None => f.write_str(&self.to_full_text()),
        }
    }
}

/// Messages of the protocol.
const ERROR_RESPONSE: u8 = 0x01;
const SEARCH_ATTRIBUTE_REQUEST: u8 = 0x06;
const SEARCH_ATTRIBUTE_RESPONSE: u8 = 0x07;

/// The attribute that lists the protocols of a service, with their channels.
const PROTOCOL_DESCRIPTOR_LIST: u16 = 0x0004;

/// Limit of a whole response.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// The search for a service on one device. A response may come in parts, each with its own request.
#[derive(Debug)]
pub struct ServiceSearch {
    service: Uuid,
    transaction: u16,
    /// Attributes received so far.
    attribute_lists: Vec<u8>,
    /// Continuation state for the next request.
    continuation: Vec<u8>,
}

/// The next step after a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchProgress {
    /// The caller sends [`ServiceSearch::request`] for the next part.
    Continue,
    /// The channel, if the device offers the service on one.
    Done(Option<u8>),
}

impl ServiceSearch {
    /// A search for the RFCOMM channel of a service.
    pub fn new(service: Uuid) -> ServiceSearch {
        ServiceSearch { service, transaction: 1, attribute_lists: Vec::new(), continuation: vec![0] }
    }

    /// The next request.
    pub fn request(&self) -> Vec<u8> {
        let pattern = encode_sequence(&self.service.encode());
        let attribute = encode_sequence(
            &[&[TYPE_UNSIGNED << 3 | 1], &PROTOCOL_DESCRIPTOR_LIST.to_be_bytes()[..]].concat(),
        );
        let max_bytes = u16::MAX.to_be_bytes();
        let body = [&pattern[..], &max_bytes, &attribute, &self.continuation].concat();
        let length = (body.len() as u16).to_be_bytes();
        [&[SEARCH_ATTRIBUTE_REQUEST], &self.transaction.to_be_bytes()[..], &length, &body].concat()
    }

    /// Handles the response to the last request.
    ///
    /// # Errors
    ///
    /// Fails if the device refuses, or if its response is invalid.
    pub fn handle_response(&mut self, response: &[u8]) -> Result<SearchProgress, Fault> {
        let wrong = || Fault::UnexpectedData("the reply is not valid".to_owned());
        let (kind, transaction, body) = split_message(response).ok_or_else(wrong)?;
        if transaction != self.transaction {
            return Err(wrong());
        }
        if kind == ERROR_RESPONSE {
            let code = body.first_chunk().map_or(0, |code| u16::from_be_bytes(*code));
            return Err(Fault::Refused(format!("the device refused the request (SDP error {code})")));
        }
        let (part, continuation) =
            split_attributes(body).filter(|_| kind == SEARCH_ATTRIBUTE_RESPONSE).ok_or_else(wrong)?;
        // Without the first check a device could continue endlessly.
        if (part.is_empty() && continuation != [0])
            || self.attribute_lists.len() + part.len() > MAX_RESPONSE_BYTES
        {
            return Err(wrong());
        }
        self.attribute_lists.extend_from_slice(part);
        if continuation == [0] {
            return Ok(SearchProgress::Done(find_channel(&self.attribute_lists)));
        }
        self.continuation = continuation.to_vec();
        self.transaction = self.transaction.wrapping_add(1);
        Ok(SearchProgress::Continue)
    }
}

/// Type, transaction and parameters of a message.
fn split_message(message: &[u8]) -> Option<(u8, u16, &[u8])> {
    let (&[kind, high, low, length_high, length_low], body) = message.split_first_chunk()?;
    let length = u16::from_be_bytes([length_high, length_low]);
    Some((kind, u16::from_be_bytes([high, low]), body.get(..length.into())?))
}

/// The attributes in a response, and the continuation state for more of them (a single zero: no more).
fn split_attributes(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = body.split_first_chunk()?;
    let (part, continuation) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    let length = usize::from(*continuation.first()?);
    // The continuation state has at most 16 bytes.
    (length <= 16).then_some((part, continuation.get(..=length)?))
}

/// Types of data elements.
const TYPE_UNSIGNED: u8 = 1;
const TYPE_UUID: u8 = 3;
const TYPE_SEQUENCE: u8 = 6;
const TYPE_ALTERNATIVE: u8 = 7;

/// Encodes a short sequence of bytes.
fn encode_sequence(body: &[u8]) -> Vec<u8> {
    [&[TYPE_SEQUENCE << 3 | 5, body.len() as u8], body].concat()
}

/// A data element: a value with its type and length.
#[derive(Clone, Copy)]
struct DataElement<'a> {
    kind: u8,
    body: &'a [u8],
}

impl<'a> DataElement<'a> {
    /// The first element of `bytes`, and the rest.
    fn parse_first(bytes: &'a [u8]) -> Option<(DataElement<'a>, &'a [u8])> {
        let (&head, rest) = bytes.split_first()?;
        let (kind, size) = (head >> 3, head & 7);
        let parse_length = |bytes: usize| {
            let (length, rest) = rest.split_at_checked(bytes)?;
            Some((length.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)), rest))
        };
        let (length, rest) = match size {
            0 if kind == 0 => (0, rest),
            0..=4 => (1 << size, rest),
            _ => parse_length(1 << (size - 5))?,
        };
        let (body, rest) = rest.split_at_checked(length)?;
        Some((DataElement { kind, body }, rest))
    }

    fn as_number(self) -> Option<u32> {
        let fits = self.kind == TYPE_UNSIGNED && self.body.len() <= 4;
        fits.then(|| self.body.iter().fold(0, |number, &byte| number << 8 | u32::from(byte)))
    }

    fn as_uuid(self) -> Option<Uuid> {
        let short = |number| Some(Uuid::from_short(number));
        match (self.kind, self.body) {
            (TYPE_UUID, &[a, b]) => short(u32::from_be_bytes([0, 0, a, b])),
            (TYPE_UUID, &[a, b, c, d]) => short(u32::from_be_bytes([a, b, c, d])),
            (TYPE_UUID, long) => Some(Uuid(u128::from_be_bytes(long.try_into().ok()?))),
            _ => None,
        }
    }
}

/// The elements stored back to back, up to a truncated one.
fn elements(mut bytes: &[u8]) -> impl Iterator<Item = DataElement<'_>> {
    std::iter::from_fn(move || {
        let (element, rest) = DataElement::parse_first(bytes)?;
        bytes = rest;
        Some(element)
    })
}

/// The first channel in lists of attributes, one list per service.
fn find_channel(lists: &[u8]) -> Option<u8> {
    elements(elements(lists).next()?.body).find_map(|service| service_channel(service.body))
}

fn service_channel(service: &[u8]) -> Option<u8> {
    let mut attributes = elements(service);
    while let (Some(name), Some(value)) = (attributes.next(), attributes.next()) {
        if name.as_number() != Some(PROTOCOL_DESCRIPTOR_LIST.into()) {
            continue;
        }
        // A service with several protocol stacks lists all of them.
        let stacks: Vec<DataElement> = match value.kind {
            TYPE_ALTERNATIVE => elements(value.body).collect(),
            _ => vec![value],
        };
        let mut protocols = stacks.iter().flat_map(|stack| elements(stack.body));
        return protocols.find_map(|protocol| {
            let mut parts = elements(protocol.body);
            let is_it = parts.next()?.as_uuid()? == RFCOMM_UUID;
            u8::try_from(parts.next().filter(|_| is_it)?.as_number()?).ok()
        });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two services, as BlueZ lists the requested attributes: one over L2CAP alone, one on channel 7.
    const LISTS: &[u8] = &[
        0x35, 0x27, //
        0x35, 0x10, 0x09, 0x00, 0x04, 0x35, 0x0b, 0x35, 0x06, 0x19, 0x01, 0x00, 0x09, 0x00, 0x1f, 0x09, 0x00,
        0x07, //
        0x35, 0x13, 0x09, 0x00, 0x04, 0x35, 0x0e, 0x35, 0x03, 0x19, 0x01, 0x00, 0x35, 0x07, 0x1a, 0x00, 0x00,
        0x00, 0x03, 0x08, 0x07,
    ];

    fn response(kind: u8, transaction: u16, body: &[&[u8]]) -> Vec<u8> {
        let body = body.concat();
        let length = (body.len() as u16).to_be_bytes();
        [&[kind], &transaction.to_be_bytes()[..], &length, &body].concat()
    }

    #[test]
    fn service_names_are_parsed() {
        for (text, printed) in [
            ("1101", "1101"),
            ("0x1101", "1101"),
            ("00001101-0000-1000-8000-00805F9B34FB", "1101"),
            ("12345678", "12345678"),
            ("8ce255c0-200a-11e0-ac64-0800200c9a66", "8ce255c0-200a-11e0-ac64-0800200c9a66"),
        ] {
            assert_eq!(text.parse::<Uuid>().unwrap().to_string(), printed);
        }
        assert_eq!(SERIAL_PORT_UUID.to_full_text(), "00001101-0000-1000-8000-00805f9b34fb");
        for wrong in ["", "SP", "110", "11011", "+101", "0x", "8ce255c0-200a-11e0-ac64-0800200c9a6", "1101-"]
        {
            assert!(wrong.parse::<Uuid>().is_err(), "{wrong}");
        }
        assert_eq!(Uuid::random().to_full_text().as_bytes()[14], b'4');
    }

    #[test]
    fn a_request_is_encoded_as_specified() {
        let request = ServiceSearch::new(SERIAL_PORT_UUID).request();
        let expected =
            [0x06, 0, 1, 0, 13, 0x35, 3, 0x19, 0x11, 0x01, 0xff, 0xff, 0x35, 3, 0x09, 0x00, 0x04, 0];
        assert_eq!(request, expected);
        let long = ServiceSearch::new("8ce255c0-200a-11e0-ac64-0800200c9a66".parse().unwrap()).request();
        assert_eq!(long[5..9], [0x35, 17, 0x1c, 0x8c]);
    }

    #[test]
    fn the_channel_is_that_of_the_first_service_with_one() {
        let mut search = ServiceSearch::new(SERIAL_PORT_UUID);
        let whole = response(SEARCH_ATTRIBUTE_RESPONSE, 1, &[&[0, LISTS.len() as u8], LISTS, &[0]]);
        assert_eq!(search.handle_response(&whole).unwrap(), SearchProgress::Done(Some(7)));
        // Several stacks; the second has the channel.
        let stacks = [0x3d, 16, 0x35, 5, 0x35, 3, 0x19, 1, 0, 0x35, 7, 0x35, 5, 0x19, 0, 3, 0x08, 9];
        let service = [&[0x35, 3 + stacks.len() as u8, 0x09, 0, 4], &stacks[..]].concat();
        assert_eq!(find_channel(&[&[0x35, service.len() as u8], &service[..]].concat()), Some(9));
        assert_eq!(find_channel(&[0x35, 0]), None);
    }

    #[test]
    fn continuations_are_requested_until_the_last() {
        let mut search = ServiceSearch::new(SERIAL_PORT_UUID);
        let (first, second) = LISTS.split_at(20);
        let part = response(SEARCH_ATTRIBUTE_RESPONSE, 1, &[&[0, 20], first, &[2, 0xaa, 0xbb]]);
        assert_eq!(search.handle_response(&part).unwrap(), SearchProgress::Continue);
        let request = search.request();
        assert_eq!((request[2], &request[request.len() - 3..]), (2, &[2, 0xaa, 0xbb][..]));
        let rest = response(SEARCH_ATTRIBUTE_RESPONSE, 2, &[&[0, second.len() as u8], second, &[0]]);
        assert_eq!(search.handle_response(&rest).unwrap(), SearchProgress::Done(Some(7)));
    }

    #[test]
    fn malformed_responses_are_refused() {
        let wrong = [
            response(SEARCH_ATTRIBUTE_RESPONSE, 2, &[&[0, 0], &[0]]),
            response(SEARCH_ATTRIBUTE_REQUEST, 1, &[&[0, 0], &[0]]),
            response(SEARCH_ATTRIBUTE_RESPONSE, 1, &[&[0, 9], &[0]]),
            response(SEARCH_ATTRIBUTE_RESPONSE, 1, &[&[0, 0], &[2, 1]]),
            response(SEARCH_ATTRIBUTE_RESPONSE, 1, &[&[0, 0], &[1, 1]]),
            response(SEARCH_ATTRIBUTE_RESPONSE, 1, &[&[0, 0], &[17], &[0; 17]]),
            vec![SEARCH_ATTRIBUTE_RESPONSE, 0, 1, 0, 9, 0],
            vec![],
        ];
        for response in &wrong {
            assert_eq!(
                ServiceSearch::new(SERIAL_PORT_UUID).handle_response(response).unwrap_err().to_string(),
                "the reply is not valid"
            );
        }
        let refused = ServiceSearch::new(SERIAL_PORT_UUID)
            .handle_response(&response(ERROR_RESPONSE, 1, &[&[0, 3]]))
            .unwrap_err();
        assert_eq!(refused.to_string(), "the device refused the request (SDP error 3)");
        // A length beyond the end, at every depth.
        for cut in 0..LISTS.len() {
            assert!(matches!(find_channel(&LISTS[..cut]), None | Some(7)));
        }
    }

    #[test]
    fn an_endless_response_is_refused() {
        let mut search = ServiceSearch::new(SERIAL_PORT_UUID);
        let request_count = (1u16..).take_while(|&transaction| {
            let part = response(
                SEARCH_ATTRIBUTE_RESPONSE,
                transaction,
                &[&600u16.to_be_bytes(), &[0x35; 600], &[1, 1]],
            );
            matches!(search.handle_response(&part), Ok(SearchProgress::Continue))
        });
        assert_eq!(request_count.count(), MAX_RESPONSE_BYTES / 600);
    }
}
