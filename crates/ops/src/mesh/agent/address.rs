//! Ranges of addresses that an agent may measure.

use std::net::IpAddr;
use std::str::FromStr;

/// An address, or all addresses with the same first bits: `192.0.2.0/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    first: IpAddr,
    bits: u8,
}

/// Error of a text that is not a range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a range of addresses: write it like 192.0.2.0/24, or one address")]
pub struct InvalidAddressRange(String);

impl FromStr for AddressRange {
    type Err = InvalidAddressRange;

    fn from_str(text: &str) -> Result<AddressRange, InvalidAddressRange> {
        let wrong = || InvalidAddressRange(text.to_owned());
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let first: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = width(first);
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if bits > most { Err(wrong()) } else { Ok(AddressRange { first, bits }) }
    }
}

impl AddressRange {
    /// Whether an address is in the range. An IPv4 address that is written as IPv6 counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let [first, address] = [self.first.to_canonical(), address.to_canonical()];
        width(first) == width(address)
            && self.bits <= width(first)
            && prefix(first, self.bits) == prefix(address, self.bits)
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The first bits of an address.
fn prefix(address: IpAddr, bits: u8) -> u128 {
    let value = match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => u128::from(address),
    };
    value.checked_shr(128 - u32::from(bits)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_a_prefix() {
        for (range, address, is_inside) in [
            ("192.0.2.0/24", "192.0.2.9", true),
            ("192.0.2.0/24", "192.0.3.9", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("0.0.0.0/0", "203.0.113.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("192.0.2.0/24", "::ffff:192.0.2.9", true),
        ] {
            let range: AddressRange = range.parse().unwrap();
            assert_eq!(range.contains(address.parse().unwrap()), is_inside, "{range:?} {address}");
        }
        for text in ["", "x", "192.0.2.0/33", "192.0.2.0/", "::/129", "/8"] {
            assert!(text.parse::<AddressRange>().is_err(), "{text}");
        }
    }
}
