//! `linkgauge lab …`: pieces of the lab on their own, until Ctrl-C.

mod shaper;
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
    Shaper(shaper::Flags),
    Vm(vm::Flags),
}

pub fn run(flags: Flags) -> Result<Status> {
    match flags.piece {
        Piece::Shaper(flags) => shaper::run(flags),
        Piece::Vm(flags) => vm::run(flags),
    }
}
