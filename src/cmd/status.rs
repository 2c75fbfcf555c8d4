//! How commands end, for the shell, and why some cannot begin.

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Complete,
    /// Everything was measured, but a threshold failed or a figure is worse than before.
    Failed,
    /// Part of the plan was not measured. The rest is saved.
    Incomplete,
    Interrupted,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> ExitCode {
        ExitCode::from(match status {
            Status::Complete => 0,
            Status::Failed => 1,
            Status::Incomplete => 2,
            Status::Interrupted => 130,
        })
    }
}

/// Why there is no HTTP/2.
#[cfg(not(feature = "http"))]
pub const WITHOUT_HTTP: &str =
    "this program was built without HTTP/2: install it with 'cargo install --path . --features http'";

/// Why there is no hub.
#[cfg(not(feature = "fleet"))]
pub const WITHOUT_FLEET: &str =
    "this program was built without hubs: install it with 'cargo install --path . --features fleet'";
