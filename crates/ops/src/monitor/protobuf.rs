//! The part of protobuf that metrics need: messages of numbers, texts and messages. `prometheus-client` writes another schema, and
//! prost would bring a compiler and 29 packages.

/// A field of variable length, eight bytes, or a length and its bytes.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;

/// A message with its fields so far.
#[derive(Debug, Default, Clone)]
pub(super) struct ProtobufMessage(Vec<u8>);

fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Encodes small numbers of both signs as small numbers.
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

impl ProtobufMessage {
    fn key(&mut self, field: u32, wire_type: u64) {
        push_varint(&mut self.0, u64::from(field) << 3 | wire_type);
    }

    /// A number without sign, an enumeration, or an `int64` that is not negative.
    pub(super) fn unsigned(&mut self, field: u32, value: u64) {
        self.key(field, VARINT);
        push_varint(&mut self.0, value);
    }

    /// An `sint32` or `sint64`.
    pub(super) fn signed(&mut self, field: u32, value: i64) {
        self.unsigned(field, zigzag(value));
    }

    pub(super) fn double(&mut self, field: u32, value: f64) {
        self.key(field, FIXED_64);
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    pub(super) fn message(&mut self, field: u32, message: &ProtobufMessage) {
        self.bytes(field, &message.0);
    }

    /// Several `sint64`, packed.
    pub(super) fn packed_signed(&mut self, field: u32, values: &[i64]) {
        let mut packed = Vec::new();
        values.iter().for_each(|value| push_varint(&mut packed, zigzag(*value)));
        self.bytes(field, &packed);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, BYTES);
        push_varint(&mut self.0, bytes.len() as u64);
        self.0.extend(bytes);
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Appends the message after its length, as in a stream of messages.
    pub(super) fn append_delimited(&self, stream: &mut Vec<u8>) {
        push_varint(stream, self.0.len() as u64);
        stream.extend(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the specification (protobuf.dev, Encoding).
    #[test]
    fn fields_are_encoded_as_specified() {
        let encoded = |fill: &dyn Fn(&mut ProtobufMessage)| {
            let mut message = ProtobufMessage::default();
            fill(&mut message);
            message.into_bytes()
        };
        assert_eq!(encoded(&|message| message.unsigned(1, 150)), [0x08, 0x96, 0x01]);
        assert_eq!(encoded(&|message| message.text(2, "testing")), b"\x12\x07testing");
        let mut inner = ProtobufMessage::default();
        inner.unsigned(1, 150);
        assert_eq!(encoded(&|message| message.message(3, &inner)), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!([0, -1, 1, -2].map(zigzag), [0, 1, 2, 3]);
        assert_eq!(zigzag(i64::MIN), u64::MAX);
        assert_eq!(encoded(&|message| message.packed_signed(6, &[3, -270])), [0x32, 0x03, 0x06, 0x9b, 0x04]);
        assert_eq!(encoded(&|message| message.double(1, 1.0)), [0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        let mut stream = Vec::new();
        inner.append_delimited(&mut stream);
        assert_eq!(stream, [3, 0x08, 0x96, 0x01]);
    }
}
