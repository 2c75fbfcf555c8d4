//! Serial ports behind a network, with control of the port in the stream (RFC 2217, Telnet option 44).

mod command;
mod server;
mod telnet;

pub use server::Server;
