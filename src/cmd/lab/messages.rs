//! `linkgauge lab messages`.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::host::raise_open_file_limit;
use linkgauge::lab::messages::MessageNodes;
use linkgauge::link::Dialer;
use linkgauge::link::shaped::{MessageFrames, NodeCosts, Shape};
use linkgauge::study::TwinModel;
use linkgauge::twin::node_costs;
use linkgauge::units::{BitRate, ByteTime, Span};

use super::like::LikeTwin;
use crate::cmd::help::{DURATION, OUTPUT, SERVER};
use crate::cmd::measure::wait_until_interrupted;
use crate::cmd::output::{print_message, print_text};
use crate::cmd::signals::interrupt_flag;
use crate::cmd::status::Status;

/// Emulate two nodes with LINX messages between them: slow processors and a line
///
/// A LINX node with the benchmark of LINX listens; each message takes the time of its frames on the line and that of the
/// processors at both ends. Measure it with: linkgauge latency linx://127.0.0.1/server --protocol linx-bmark
#[derive(Args)]
pub struct Flags {
    /// Where the node listens
    #[arg(long, help_heading = SERVER, value_name = "URL", default_value = "linx://127.0.0.1/server")]
    listen: Endpoint,
    /// Be as slow as the nodes of a published study, like linx/oseck-oseck; other flags change it [list: linkgauge lab --like list]
    #[arg(long, help_heading = "Delays", value_name = "STUDY/NAME")]
    like: Option<LikeTwin>,
    /// Time of each message, whatever its size
    #[arg(long, help_heading = "Delays", value_name = "TIME")]
    message_time: Option<Span>,
    /// Time to copy a byte of a message, like 2.1ns
    #[arg(long, help_heading = "Delays", value_name = "TIME")]
    byte_time: Option<ByteTime>,
    /// Time of the receiver for each frame of a message
    #[arg(long, help_heading = "Delays", value_name = "TIME")]
    frame_time: Option<Span>,
    /// Shortest time from one message to the next
    #[arg(long, help_heading = "Delays", value_name = "TIME")]
    busy: Option<Span>,
    /// Rate of the Ethernet between the nodes [default: no line]
    #[arg(long, help_heading = "Delays", value_name = "RATE")]
    rate: Option<BitRate>,
    /// Stop after this time [default: at Ctrl-C]
    #[arg(long, help_heading = DURATION, value_name = "TIME")]
    time: Option<Span>,
    /// Print errors only
    #[arg(long, short, help_heading = OUTPUT)]
    quiet: bool,
}

/// Header and payload of LINX in Ethernet frames of an MTU of 1500 bytes, in bytes.
const LINX_FRAMES: MessageFrames =
    MessageFrames { bits_per_second: 1e9, header_bytes: 20, first_payload_bytes: 1480, payload_bytes: 1488 };

/// Time limit for opening the link to the node, while a client waits.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

impl Flags {
    /// What a message costs: as in the twin of --like, unless another flag says so.
    fn costs(&self) -> Result<NodeCosts> {
        let known = match &self.like {
            None => NodeCosts { cache_bytes: f64::MAX, ..NodeCosts::default() },
            Some(LikeTwin { model: TwinModel::Messages(twin), .. }) => node_costs(twin),
            Some(other) => return Err(other.mismatch("pair of nodes")),
        };
        let time = |flag: Option<Span>, known: Duration| flag.map_or(known, |span| span.0);
        // A line sends the frames of a message once.
        let hops = if self.rate.is_some() { known.hops.max(1) } else { known.hops };
        let frames = match self.rate {
            None => known.frames,
            Some(BitRate(bits_per_second)) => {
                Some(MessageFrames { bits_per_second, ..known.frames.unwrap_or(LINX_FRAMES) })
            }
        };
        Ok(NodeCosts {
            message: time(self.message_time, known.message),
            frame: time(self.frame_time, known.frame),
            byte_ns: self.byte_time.map_or(known.byte_ns, |time| time.0),
            busy: time(self.busy, known.busy),
            hops,
            frames,
            ..known
        })
    }
}

pub fn run(flags: Flags) -> Result<Status> {
    let cancel = interrupt_flag()?;
    raise_open_file_limit();
    let dialer = Dialer { timeout: OPEN_TIMEOUT, ..Registry::standard().dialer(Clock::System) };
    let shape = Shape { costs: Some(flags.costs()?), ..Shape::NONE };
    let nodes = MessageNodes::start(&flags.listen, [shape.clone(), shape], &dialer)?;
    if !flags.quiet {
        print_text(|stdout| writeln!(stdout, "serving messages on {}", nodes.endpoint()))?;
    }
    wait_until_interrupted(&cancel, flags.time, || {
        nodes.events().filter(|_| !flags.quiet).for_each(print_message);
        Ok(())
    })?;
    Ok(Status::Complete)
}
