//! `linkgauge lab …`: parts of the lab, each until Ctrl-C.

mod device_server;
pub mod like;
mod logger;
mod messages;
mod redirect;
mod router;
mod shaper;
mod trouble;
mod uart;
pub mod vm;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::status::Status;

/// Emulate serial ports, slow links, routers, device servers, data loggers and guests
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct Flags {
    /// Print the published systems that the parts of the lab can emulate, for --like STUDY/NAME
    #[arg(long, value_name = "list", value_parser = ["list"])]
    like: Option<String>,
    #[command(subcommand)]
    command: Option<LabCommand>,
}

#[derive(Subcommand)]
enum LabCommand {
    Uart(uart::Flags),
    DeviceServer(device_server::Flags),
    Redirect(redirect::Flags),
    Router(router::Flags),
    Shaper(Box<shaper::Flags>),
    Trouble(trouble::Flags),
    Logger(logger::Flags),
    Messages(messages::Flags),
    Vm(vm::Flags),
}

pub fn run(flags: Flags) -> Result<Status> {
    let Some(command) = flags.command else { return like::print_twins() };
    match command {
        LabCommand::Uart(flags) => uart::run(flags),
        LabCommand::DeviceServer(flags) => device_server::run(flags),
        LabCommand::Redirect(flags) => redirect::run(flags),
        LabCommand::Router(flags) => router::run(flags),
        LabCommand::Shaper(flags) => shaper::run(*flags),
        LabCommand::Trouble(flags) => trouble::run(flags),
        LabCommand::Logger(flags) => logger::run(flags),
        LabCommand::Messages(flags) => messages::run(flags),
        LabCommand::Vm(flags) => vm::run(flags),
    }
}
