//! The option `one-way`: the server writes its times into round trips, which then have forward and reverse delays.

use crate::link::{Caps, Framing};
use crate::protocol::case::ONE_WAY_OPTION;
use crate::protocol::{CaseDraft, CaseError, ProtocolOptions};
use crate::units::format_bytes;
use crate::workload::latency::STAMPED_BYTES;

/// Name and meaning of the option.
pub const OPTION: (&str, &str) =
    (NAME, "1: forward and reverse delay, from times that the server writes into round trips");

const NAME: &str = ONE_WAY_OPTION;

/// Payload of a round trip with times, if the plan sets none.
const DEFAULT_BYTES: u32 = 32;

/// Whether the option is set.
pub fn is_requested(options: &ProtocolOptions) -> Result<bool, CaseError> {
    match options.get(NAME).map(String::as_str) {
        None | Some("0" | "false") => Ok(false),
        Some("1" | "true") => Ok(true),
        Some(other) => Err(CaseError::Option(format!("linkgauge: {NAME} '{other}' is neither 0 nor 1"))),
    }
}

/// Completes and checks a case with the option.
pub fn prepare_case(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    if caps.framing == Framing::Stream && !caps.is_reliable {
        let text = format!("linkgauge: {NAME} needs messages, or a stream that loses nothing");
        return Err(CaseError::Link(text));
    }
    // A load has any size: its probe carries the times.
    if !case.workload.is_round_trip() {
        return Ok(());
    }
    let bytes = *case.message_bytes.get_or_insert(DEFAULT_BYTES);
    if (bytes as usize) < STAMPED_BYTES {
        let text = format!(
            "linkgauge: {} have no room for the times of {NAME}: use a --size of {STAMPED_BYTES} and more",
            format_bytes(bytes.into())
        );
        return Err(CaseError::MessageSize(text));
    }
    Ok(())
}
