//! `linkgauge lab logger`.

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::PossibleValue;
use linkgauge::endpoint::Endpoint;
use linkgauge::host::raise_open_file_limit;
use linkgauge::lab::logger::{self, FullQueuePolicy, Logger, LoggerConfig, LoggerOptions, TableSpec};
use linkgauge::link::serial_line::SerialSettings;
use linkgauge::twin::logger_config;
use linkgauge::units::{self, Bytes, Span, format_duration};

use super::device_server::parse_serial_port;
use super::like::LikeTwin;
use crate::cmd::help::{DURATION, OUTPUT, SERVER};
use crate::cmd::measure::wait_until_interrupted;
use crate::cmd::output::{print_message, print_text};
use crate::cmd::signals::interrupt_flag;
use crate::cmd::status::Status;

/// Emulate a data logger: a CR1000 that speaks PakBus over TCP and serial lines
///
/// It handles sessions, clock, settings, program, files and table collection. Its tables grow on their own. Without --listen and
/// --serial it listens on TCP port 6785 of this machine only.
#[derive(Args)]
pub struct Flags {
    /// Where to listen; may be repeated [default: tcp://127.0.0.1:6785]
    #[arg(long, help_heading = SERVER, value_name = "URL")]
    listen: Vec<Endpoint>,
    /// Serial port: /dev/ttyS0 (9600 8N1), or serial:///dev/ttyS0?baud=115200; may be repeated
    #[arg(long, help_heading = SERVER, value_name = "DEV")]
    serial: Vec<String>,
    /// PakBus address
    #[arg(long, help_heading = SERVER, value_name = "N", default_value_t = LoggerConfig::default().address)]
    address: u16,
    /// Security code that commands must carry; 0: none
    #[arg(long, help_heading = SERVER, value_name = "CODE", default_value_t = LoggerConfig::default().security_code)]
    security: u16,
    /// File: CPU:NAME=PATH, or CPU:NAME:SIZE with generated content; may be repeated
    #[arg(long, help_heading = "Content", value_name = "FILE", default_values = ["CPU:bench.bin:600k", "CPU:data.dat:100k"])]
    file: Vec<String>,
    /// Table: NAME:INTERVAL:FIELD=TYPE,…[:RECORDS]; may be repeated
    #[arg(
        long,
        help_heading = "Content",
        value_name = "TABLE",
        default_values = ["Bench:1s:Seq=Int4,Batt=IEEE4,Temp=FP2", "Wind:10s:Speed=IEEE4,Direction=IEEE4"]
    )]
    table: Vec<TableSpec>,
    /// Seed of generated content and values
    #[arg(long, help_heading = "Content", value_name = "N", default_value_t = LoggerConfig::default().seed)]
    seed: u64,
    /// Be like a logger of a published study: loggernet/CR1000; other flags change it
    #[arg(long, help_heading = "Behaviour", value_name = "STUDY/NAME")]
    like: Option<LikeTwin>,
    /// Processing time of each command [default: 0s]
    #[arg(long, help_heading = "Behaviour", value_name = "TIME")]
    chunk_time: Option<Span>,
    /// Commands accepted at the same time, including the one in progress
    #[arg(long, help_heading = "Behaviour", value_name = "N", default_value_t = LoggerConfig::default().queue_commands)]
    queue: usize,
    /// One command too many: refuse it, or drop it silently
    #[arg(long, help_heading = "Behaviour", value_name = "WHAT", value_parser = full_queue_values(), default_value = "refuse")]
    full: String,
    /// Send "please wait" if a reply takes longer than this
    #[arg(long, help_heading = "Behaviour", value_name = "TIME", default_value = default_please_wait())]
    please_wait: Span,
    /// Maximum packet size [default: 1000]
    #[arg(long, help_heading = "Behaviour", value_name = "SIZE")]
    max_packet: Option<Bytes>,
    /// Omit a record when a collection waits for other commands
    #[arg(long, help_heading = "Behaviour")]
    skip_records: bool,
    /// Stop after this time [default: at Ctrl-C]
    #[arg(long, help_heading = DURATION, value_name = "TIME")]
    time: Option<Span>,
    /// Print errors only
    #[arg(long, short, help_heading = OUTPUT)]
    quiet: bool,
}

fn full_queue_values() -> clap::builder::PossibleValuesParser {
    ["refuse", "drop"].map(PossibleValue::new).into()
}

fn default_please_wait() -> clap::builder::OsStr {
    format_duration(LoggerConfig::default().please_wait).into()
}

impl Flags {
    fn options(&self) -> Result<LoggerOptions> {
        let lines = self.serial.iter().map(|text| parse_serial_port(text, &SerialSettings::default()));
        let lines = lines.collect::<Result<Vec<_>>>()?;
        let listen = match (self.listen.as_slice(), lines.as_slice()) {
            ([], []) => vec!["tcp://127.0.0.1".parse()?],
            (listen, _) => listen.to_vec(),
        };
        let LoggerConfig { command_time, max_packet_bytes, .. } = self.known_config()?;
        let device = LoggerConfig {
            address: self.address,
            security_code: self.security,
            files: self.load_files()?,
            tables: self.table.clone(),
            seed: self.seed,
            command_time: self.chunk_time.map_or(command_time, |time| time.0),
            queue_commands: self.queue,
            full_queue_policy: if self.full == "drop" {
                FullQueuePolicy::Drop
            } else {
                FullQueuePolicy::Refuse
            },
            please_wait: self.please_wait.0,
            max_packet_bytes: self
                .max_packet
                .map_or(max_packet_bytes, |size| u16::try_from(size.0).unwrap_or(u16::MAX)),
            skip_records: self.skip_records,
        };
        Ok(LoggerOptions { listen, serial_lines: lines, config: device })
    }

    /// The defaults, or the logger of --like.
    fn known_config(&self) -> Result<LoggerConfig> {
        match &self.like {
            None => Ok(LoggerConfig::default()),
            Some(like) => logger_config(&like.model).ok_or_else(|| like.mismatch("logger")),
        }
    }

    fn load_files(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let seeds = self.seed..;
        self.file.iter().zip(seeds).map(|(text, seed)| load_file(text, seed)).collect()
    }
}

/// More than any logger holds.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Name and content of a file as typed.
fn load_file(text: &str, seed: u64) -> Result<(String, Vec<u8>)> {
    if let Some((name, path)) = text.split_once('=') {
        let bytes = std::fs::read(path).with_context(|| format!("{path}: cannot be read"))?;
        return Ok((name.to_owned(), bytes));
    }
    let parts = text.rsplit_once(':').and_then(|(name, size)| Some((name, units::parse_bytes(size).ok()?)));
    match parts {
        Some((name, size)) if size <= MAX_FILE_BYTES => {
            Ok((name.to_owned(), logger::generate_content(seed, size as usize)))
        }
        Some(_) => bail!("--file {text}: at most 1 GiB"),
        None => {
            bail!("--file {text}: not a file. Write CPU:NAME=PATH, or CPU:NAME:SIZE, like CPU:bench.bin:600k")
        }
    }
}

pub fn run(flags: Flags) -> Result<Status> {
    let cancel = interrupt_flag()?;
    raise_open_file_limit();
    let options = flags.options()?;
    let logger = Logger::start(&options)?;
    if !flags.quiet {
        let mut places = logger.endpoints().iter().chain(&options.serial_lines);
        print_text(|stdout| {
            places.try_for_each(|place| {
                writeln!(stdout, "emulated logger, address {}, on {place}", flags.address)
            })
        })?;
    }
    wait_until_interrupted(&cancel, flags.time, || {
        logger.line_errors().for_each(print_message);
        if !logger.is_reachable() {
            bail!("all lines have failed");
        }
        Ok(())
    })?;
    if !flags.quiet {
        print_message(summary(&logger));
    }
    Ok(Status::Complete)
}

/// What it did; what did not happen is left out.
fn summary(logger: &Logger) -> String {
    let (counters, (accepted, refused)) = (logger.counters(), logger.connection_counts());
    let mut text = format!(
        "served {}, replied to {}",
        units::format_plural(accepted, "connection"),
        units::format_plural(counters.replies, "command")
    );
    for (count, thing, what) in [
        (refused, "connection", " refused"),
        (counters.overflowed, "command", " found the queue full"),
        (counters.repeated, "command", " repeated"),
        (counters.skipped, "record", " omitted"),
        (counters.damaged, "damaged frame", ""),
    ] {
        if count > 0 {
            text += &format!("; {}{what}", units::format_plural(count, thing));
        }
    }
    text
}
