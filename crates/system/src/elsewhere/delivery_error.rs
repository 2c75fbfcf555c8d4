//! Errors of messages that were not delivered. This system keeps no records of them: a connected socket reports the last one in its next
//! call.

use std::io;

use crate::AsHandle;
use crate::delivery_error::{DeliveryError, QuotedError};
use crate::ip_family::IpFamily;

/// Does nothing: the next call reports an error.
pub fn set_receive_errors(_: impl AsHandle, _family: IpFamily, _is_on: bool) -> io::Result<()> {
    Ok(())
}

/// Returns `None`: there are no records.
pub fn take_delivery_error(_: impl AsHandle, _family: IpFamily) -> Option<DeliveryError> {
    None
}

/// Returns `None`: there are no records.
pub fn take_quoted_error(_: impl AsHandle, _family: IpFamily, _into: &mut [u8]) -> Option<QuotedError> {
    None
}

/// Whether this system keeps records of undelivered messages.
pub const HAS_DELIVERY_ERRORS: bool = false;
