//! The option `one-way`: the server writes its times into round trips, which then have forward and reverse delays.

use crate::link::{Caps, Framing};
use crate::protocol::case::ONE_WAY_OPTION;
use crate::protocol::{CaseDraft, CaseError, ProtocolOptions};
use crate::workload::latency::{STAGED_BYTES, STAMPED_BYTES};
use linkgauge_model::units::format_bytes;

/// Name and meaning of the option.
pub(crate) const OPTION: (&str, &str) =
    (NAME, "1: forward and reverse delay, from times that the server writes into round trips");

const NAME: &str = ONE_WAY_OPTION;

/// Payload of a round trip with times, if the plan sets none, and of one with stamps of the kernels.
const DEFAULT_BYTES: u32 = 32;
const DEFAULT_STAGED_BYTES: u32 = 64;

/// Whether the option is set.
pub(crate) fn is_requested(options: &ProtocolOptions) -> Result<bool, CaseError> {
    match options.get(NAME).map(String::as_str) {
        None | Some("0" | "false") => Ok(false),
        Some("1" | "true") => Ok(true),
        Some(other) => Err(CaseError::Option(format!("linkgauge: {NAME} '{other}' is neither 0 nor 1"))),
    }
}

/// Completes and checks a case with the option, or with stamps of the kernels.
pub(crate) fn prepare_case(case: &mut CaseDraft, caps: &Caps) -> Result<(), CaseError> {
    if caps.framing == Framing::Stream && !caps.is_reliable {
        let text = format!("linkgauge: {} needs messages, or a stream that loses nothing", name_of(case));
        return Err(CaseError::Link(text));
    }
    // A load has any size: its probe carries the times.
    if !case.workload.is_round_trip() {
        return Ok(());
    }
    let (default, least) = match case.stamps {
        true => (DEFAULT_STAGED_BYTES, STAGED_BYTES),
        false => (DEFAULT_BYTES, STAMPED_BYTES),
    };
    let bytes = *case.message_bytes.get_or_insert(default);
    if (bytes as usize) < least {
        let text = format!(
            "linkgauge: {} have no room for the times of {}: use a --size of {least} and more",
            format_bytes(bytes.into()),
            name_of(case)
        );
        return Err(CaseError::MessageSize(text));
    }
    Ok(())
}

/// The flag that needs the times.
fn name_of(case: &CaseDraft) -> &'static str {
    if case.stamps { "stamps" } else { NAME }
}
