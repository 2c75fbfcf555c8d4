//! `linkgauge lab …`: pieces of the lab on their own, until Ctrl-C.

mod device_server;
mod redirect;
mod shaper;
mod uart;
mod vm;

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
    DeviceServer(device_server::Flags),
    Redirect(redirect::Flags),
    Shaper(shaper::Flags),
    Uart(uart::Flags),
    Vm(vm::Flags),
}

pub fn run(flags: Flags) -> Result<Status> {
    match flags.piece {
        Piece::DeviceServer(flags) => device_server::run(flags),
        Piece::Redirect(flags) => redirect::run(flags),
        Piece::Shaper(flags) => shaper::run(flags),
        Piece::Uart(flags) => uart::run(flags),
        Piece::Vm(flags) => vm::run(flags),
    }
}
