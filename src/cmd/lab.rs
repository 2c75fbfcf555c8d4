//! `linkgauge lab …`: pieces of the lab on their own, until Ctrl-C.

mod device_server;
mod logger;
mod redirect;
mod shaper;
mod uart;
pub mod vm;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::Status;

/// Links made of software: run a piece of the lab until Ctrl-C
#[derive(Args)]
pub struct Flags {
    #[command(subcommand)]
    piece: Piece,
}

#[derive(Subcommand)]
enum Piece {
    Uart(uart::Flags),
    DeviceServer(device_server::Flags),
    Redirect(redirect::Flags),
    Shaper(shaper::Flags),
    Logger(logger::Flags),
    Vm(vm::Flags),
}

pub fn run(flags: Flags) -> Result<Status> {
    match flags.piece {
        Piece::Uart(flags) => uart::run(flags),
        Piece::DeviceServer(flags) => device_server::run(flags),
        Piece::Redirect(flags) => redirect::run(flags),
        Piece::Shaper(flags) => shaper::run(flags),
        Piece::Logger(flags) => logger::run(flags),
        Piece::Vm(flags) => vm::run(flags),
    }
}
