//! Packets signed with the token, for the protocols whose packets carry a signature.

use std::borrow::Cow;

use super::ask::text;
use super::{CaseError, ConnectContext, ProtocolOptions, ReadyCase};

/// Option that switches signatures on.
pub(super) const AUTHENTICATED_OPTION: &str = "authenticated";

/// Option [`AUTHENTICATED_OPTION`] with its meaning, for the list of a protocol.
pub(super) const AUTHENTICATED: (&str, &str) =
    (AUTHENTICATED_OPTION, "true: packets are signed with the token, and others are ignored (false)");

/// Key of a token: its bytes, or the bytes in hexadecimal after `hex:`.
pub(super) fn token_key(token: &str) -> Cow<'_, [u8]> {
    let spelt = token.starts_with("hex:").then(|| text::parse_bytes(token).ok()).flatten();
    spelt.map_or(Cow::Borrowed(token.as_bytes()), Cow::Owned)
}

/// Whether the packets of a case are signed.
pub(super) fn is_authenticated(protocol: &str, options: &ProtocolOptions) -> Result<bool, CaseError> {
    match options.get(AUTHENTICATED_OPTION).map(String::as_str) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(CaseError::Option(format!(
            "protocol {protocol}: authenticated '{other}' is neither true nor false"
        ))),
    }
}

/// Key that signs the packets of a case; `None`: they are not signed.
pub(super) fn case_key<'a>(
    case: &ReadyCase,
    context: &ConnectContext<'a>,
) -> Result<Option<Cow<'a, [u8]>>, CaseError> {
    let name = case.protocol.name;
    match (is_authenticated(name, &case.options)?, context.token) {
        (false, _) => Ok(None),
        (true, Some(token)) => Ok(Some(token_key(token))),
        (true, None) => Err(CaseError::Option(format!(
            "protocol {name}: signed packets need the key of the server: use --token-file"
        ))),
    }
}
