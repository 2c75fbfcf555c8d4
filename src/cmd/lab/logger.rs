//! `linkgauge lab logger`.

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::PossibleValue;
use linkgauge::endpoint::Endpoint;
use linkgauge::lab::logger::{self, Device, Full, Logger, Options, Wanted};
use linkgauge::link::line::Settings;
use linkgauge::serve::raise_open_files;
use linkgauge::units::{self, Bytes, Span, print_duration};

use super::device_server::serial_port;
use crate::cmd::Status;
use crate::cmd::measure::wait;
use crate::cmd::output::{put, tell};
use crate::cmd::signals::on_interrupt;

/// Be a data logger: an emulated CR1000 that answers PakBus on TCP and serial lines
///
/// It says hello and bye, tells its clock, settings and program, sends and takes files, and lets its tables be
/// collected, which grow by themselves. Without --listen and --serial it listens on TCP port 6785 of loop-back.
#[derive(Args)]
pub struct Flags {
    /// Where to listen, any number of times [default: tcp://127.0.0.1:6785]
    #[arg(long, value_name = "URL")]
    listen: Vec<Endpoint>,
    /// Serial port to answer on: /dev/ttyS0 (at 9600 8N1), or serial:///dev/ttyS0?baud=115200; any number of times
    #[arg(long, value_name = "DEV")]
    serial: Vec<String>,
    /// Its PakBus address
    #[arg(long, value_name = "N", default_value_t = Device::default().address)]
    address: u16,
    /// Security code that commands must carry; 0: none
    #[arg(long, value_name = "CODE", default_value_t = Device::default().security)]
    security: u16,
    /// File it holds: CPU:NAME=PATH, or CPU:NAME:SIZE of made-up bytes; any number of times
    #[arg(long, value_name = "FILE", default_values = ["CPU:bench.bin:600k", "CPU:data.dat:100k"])]
    file: Vec<String>,
    /// Table it keeps: NAME:INTERVAL:FIELD=TYPE,…[:RECORDS]; any number of times
    #[arg(
        long,
        value_name = "TABLE",
        default_values = ["Bench:1s:Seq=Int4,Batt=IEEE4,Temp=FP2", "Wind:10s:Speed=IEEE4,Direction=IEEE4"]
    )]
    table: Vec<Wanted>,
    /// What made-up bytes and values are made of
    #[arg(long, value_name = "N", default_value_t = Device::default().seed)]
    seed: u64,
    /// What each command keeps it busy
    #[arg(long, value_name = "TIME", default_value = "0s")]
    chunk_time: Span,
    /// Commands it bears at once, the one in work included
    #[arg(long, value_name = "N", default_value_t = Device::default().queue)]
    queue: usize,
    /// One command too many: refuse it, or drop it without a word
    #[arg(long, value_name = "WHAT", value_parser = full(), default_value = "refuse")]
    full: String,
    /// Say "please wait" after this time, where an answer takes longer
    #[arg(long, value_name = "TIME", default_value = please_wait())]
    please_wait: Span,
    /// Largest packet
    #[arg(long, value_name = "SIZE", default_value = "1000")]
    max_packet: Bytes,
    /// Leave a record out where a collection has to wait for other commands
    #[arg(long)]
    skip_records: bool,
    /// Stop by itself after this time
    #[arg(long, value_name = "TIME")]
    time: Option<Span>,
    /// Print neither where it answers nor what it did
    #[arg(long, short)]
    quiet: bool,
}

fn full() -> clap::builder::PossibleValuesParser {
    ["refuse", "drop"].map(PossibleValue::new).into()
}

fn please_wait() -> clap::builder::OsStr {
    print_duration(Device::default().please_wait).into()
}

impl Flags {
    fn options(&self) -> Result<Options> {
        let lines = self.serial.iter().map(|text| serial_port(text, &Settings::default()));
        let lines = lines.collect::<Result<Vec<_>>>()?;
        let listen = match (self.listen.as_slice(), lines.as_slice()) {
            ([], []) => vec!["tcp://127.0.0.1".parse()?],
            (listen, _) => listen.to_vec(),
        };
        let device = Device {
            address: self.address,
            security: self.security,
            files: self.files()?,
            tables: self.table.clone(),
            seed: self.seed,
            processing: self.chunk_time.0,
            queue: self.queue,
            full: if self.full == "drop" { Full::Drop } else { Full::Refuse },
            please_wait: self.please_wait.0,
            max_packet: u16::try_from(self.max_packet.0).unwrap_or(u16::MAX),
            skip_records: self.skip_records,
        };
        Ok(Options { listen, lines, device })
    }

    fn files(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let seeds = self.seed..;
        self.file.iter().zip(seeds).map(|(text, seed)| file(text, seed)).collect()
    }
}

/// More than any logger holds.
const LARGEST_FILE: u64 = 1 << 30;

/// Name and content of a file as typed.
fn file(text: &str, seed: u64) -> Result<(String, Vec<u8>)> {
    if let Some((name, path)) = text.split_once('=') {
        let bytes = std::fs::read(path).with_context(|| format!("{path}: cannot be read"))?;
        return Ok((name.to_owned(), bytes));
    }
    let parts = text.rsplit_once(':').and_then(|(name, size)| Some((name, units::bytes(size).ok()?)));
    match parts {
        Some((name, size)) if size <= LARGEST_FILE => {
            Ok((name.to_owned(), logger::content(seed, size as usize)))
        }
        Some(_) => bail!("--file {text}: at most 1 GiB"),
        None => bail!("--file {text}: write CPU:NAME=PATH, or CPU:NAME:SIZE, like CPU:bench.bin:600k"),
    }
}

pub fn run(flags: Flags) -> Result<Status> {
    let cancel = on_interrupt()?;
    raise_open_files();
    let options = flags.options()?;
    let logger = Logger::start(&options)?;
    if !flags.quiet {
        let mut places = logger.endpoints().iter().chain(&options.lines);
        put(|stdout| {
            places.try_for_each(|place| {
                writeln!(stdout, "emulated logger, address {}, on {place}", flags.address)
            })
        })?;
    }
    wait(&cancel, flags.time, || {
        logger.lost().for_each(tell);
        if !logger.is_reachable() {
            bail!("no line is left to answer on");
        }
        Ok(())
    })?;
    if !flags.quiet {
        tell(summary(&logger));
    }
    Ok(Status::Complete)
}

/// What it did; what did not happen is left out.
fn summary(logger: &Logger) -> String {
    let (counters, (accepted, refused)) = (logger.counters(), logger.connections());
    let mut text = format!(
        "served {}, answered {}",
        units::plural(accepted, "connection"),
        units::plural(counters.answered, "command")
    );
    for (count, thing, what) in [
        (refused, "connection", " refused"),
        (counters.overflowed, "command", " found the queue full"),
        (counters.repeated, "command", " came again"),
        (counters.skipped, "record", " left out"),
        (counters.damaged, "damaged frame", ""),
    ] {
        if count > 0 {
            text += &format!("; {}{what}", units::plural(count, thing));
        }
    }
    text
}
