//! Shared code of the test programs. Not every program uses all of it.

#[allow(dead_code)]
pub mod client;
#[allow(dead_code)]
pub mod device;
#[allow(dead_code)]
pub mod echo_server;
#[allow(dead_code)]
pub mod lab_logger;
#[allow(dead_code)]
pub mod local_port;
#[allow(dead_code)]
pub mod program;
#[allow(dead_code)]
pub mod study;
// Each trial must be in its list: there no warning is allowed.
pub mod trials;
