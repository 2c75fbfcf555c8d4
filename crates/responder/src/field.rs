//! Fields of messages, big-endian, at fixed offsets.

/// The field at an offset; `None` if the message ends before its end.
pub(crate) fn read<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// A word of 32 bits.
pub(crate) fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    read(bytes, at).map(u32::from_be_bytes)
}

/// Writes the field, if the message has room for it.
pub(crate) fn write<const N: usize>(into: &mut [u8], at: usize, field: [u8; N]) {
    if let Some(place) = into.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = field;
    }
}
