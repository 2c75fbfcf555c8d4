//! Bytes as entered on a command line or in a plan: text with escapes, or hexadecimal after `hex:`.

/// Error of a text that does not describe what an option needs; the name of the option precedes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidText(pub String);

/// Parses the bytes of `text`: `\r \n \t \0 \\ \xHH`, all else as UTF-8; or `hex:01 03 …`. Never empty.
///
/// # Errors
///
/// Invalid escape, invalid hexadecimal digits, or no bytes at all.
pub(crate) fn parse_bytes(text: &str) -> Result<Vec<u8>, InvalidText> {
    let bytes = match text.strip_prefix("hex:") {
        Some(digits) => parse_hex(digits)?,
        None => parse_escaped(text)?,
    };
    if bytes.is_empty() { Err(InvalidText("is empty".to_owned())) } else { Ok(bytes) }
}

fn parse_escaped(text: &str) -> Result<Vec<u8>, InvalidText> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let after = &rest[at + 1..];
        let simple = match after.as_bytes().first() {
            Some(b'r') => Some(b'\r'),
            Some(b'n') => Some(b'\n'),
            Some(b't') => Some(b'\t'),
            Some(b'0') => Some(0),
            Some(b'\\') => Some(b'\\'),
            _ => None,
        };
        if let Some(byte) = simple {
            bytes.push(byte);
            rest = &after[1..];
            continue;
        }
        let pair = after.strip_prefix('x').and_then(|digits| digits.as_bytes().first_chunk::<2>());
        let byte = pair.and_then(|&[high, low]| Some(hex_digit(high)? << 4 | hex_digit(low)?));
        bytes.push(byte.ok_or_else(|| {
            let shown: String = after.chars().take(3).collect();
            InvalidText(format!(r"has '\{shown}', which is none of \r \n \t \0 \\ \xHH"))
        })?);
        rest = &after[3..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

fn parse_hex(digits: &str) -> Result<Vec<u8>, InvalidText> {
    let wrong =
        || InvalidText("needs pairs of hexadecimal digits after 'hex:', like hex:01 03 0A".to_owned());
    let mut bytes = Vec::new();
    for word in digits.split([' ', ':', '-']).filter(|word| !word.is_empty()) {
        let (pairs, rest) = word.as_bytes().as_chunks::<2>();
        if !rest.is_empty() {
            return Err(wrong());
        }
        for &[high, low] in pairs {
            let byte = hex_digit(high).zip(hex_digit(low)).map(|(high, low)| high << 4 | low);
            bytes.push(byte.ok_or_else(wrong)?);
        }
    }
    Ok(bytes)
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_and_hex_give_bytes() {
        for (text, expected) in [
            (r"AT\r", &b"AT\r"[..]),
            (r"*IDN?\n", b"*IDN?\n"),
            (r"\r\n\t\0\\\x41\xfF", b"\r\n\t\0\\A\xff"),
            ("hex:01 03 00 00 00 01 84 0A", &[1, 3, 0, 0, 0, 1, 0x84, 0x0a]),
            ("hex:0103000a", &[1, 3, 0, 10]),
            ("hex:DE-ad be:ef", &[0xde, 0xad, 0xbe, 0xef]),
            (r"\x68ex:", b"hex:"),
            ("µ", "µ".as_bytes()),
        ] {
            assert_eq!(parse_bytes(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn errors_are_explained() {
        let error = |text: &str| parse_bytes(text).unwrap_err().to_string();
        insta::assert_snapshot!(
            ["", "hex:", r"AT\q", r"\", r"\x4", r"\xzz", r"\xµ", "hex:1", "hex:0g"].map(error).join("\n"),
            @r"
        is empty
        is empty
        has '\q', which is none of \r \n \t \0 \\ \xHH
        has '\', which is none of \r \n \t \0 \\ \xHH
        has '\x4', which is none of \r \n \t \0 \\ \xHH
        has '\xzz', which is none of \r \n \t \0 \\ \xHH
        has '\xµ', which is none of \r \n \t \0 \\ \xHH
        needs pairs of hexadecimal digits after 'hex:', like hex:01 03 0A
        needs pairs of hexadecimal digits after 'hex:', like hex:01 03 0A
        "
        );
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_typed(wanted in prop::collection::vec(any::<u8>(), 1..60), upper: bool) {
            let escaped: String = wanted.iter().map(|byte| format!(r"\x{byte:02x}")).collect();
            prop_assert_eq!(parse_bytes(&escaped), Ok(wanted.clone()));
            let hex = wanted.iter().map(|byte| if upper { format!("{byte:02X} ") } else { format!("{byte:02x}") });
            prop_assert_eq!(parse_bytes(&format!("hex:{}", hex.collect::<String>())), Ok(wanted));
        }

        #[test]
        fn any_text_is_read_or_refused(text: String, tail in r"[\\xrn0-9a-f]{0,12}") {
            let _ = (parse_bytes(&text), parse_bytes(&format!("{text}{tail}")), parse_bytes(&format!("hex:{tail}{text}")));
        }
    }
}
