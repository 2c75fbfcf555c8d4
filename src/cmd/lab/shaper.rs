//! `linkgauge lab shaper`.

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::PossibleValue;
use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::host::raise_open_file_limit;
use linkgauge::lab::netem::Netem;
use linkgauge::lab::shaper::{
    LinkProfile, PROFILES, Shaper, ShaperOptions, default_queue_bytes, describe_impairments,
    is_stream_endpoint,
};
use linkgauge::link::Dialer;
use linkgauge::link::shaped::{Occurrence, PathCounters, PolicedRate, QueueManagement, Shape};
use linkgauge::twin::link_shapes;
use linkgauge::units::{
    BitRate, Bytes, Share, Span, format_bit_rate, format_bytes, format_count, format_duration,
    format_nanoseconds, format_plural,
};

use super::like::LikeTwin;
use crate::cmd::help::{DURATION, OUTPUT, TARGET};
use crate::cmd::measure::wait_until_interrupted;
use crate::cmd::output::{print_message, print_text};
use crate::cmd::signals::{interrupt_flag, protected_interrupt_flag};
use crate::cmd::status::Status;

/// Emulate a slower link: a relay with delay, rate, queue and faults
///
/// Clients connect to --listen. Each gets its own connection to --to, and all share one link per direction. Up is from the
/// client to the server. Settings without a direction apply to each direction: --delay 500ms adds 1 s to a round trip. Rates
/// count payload without headers. 10kBps is 10 kilobytes per second (10kbps for tc), 10kbps is 10 kilobits per second.
#[derive(Args)]
pub struct Flags {
    /// Where clients connect
    #[arg(long, help_heading = TARGET, value_name = "URL", required_unless_present = "netem")]
    listen: Option<Endpoint>,
    /// Target of their connections; the same kind of link, streams or messages
    #[arg(long, help_heading = TARGET, value_name = "URL", required_unless_present = "netem")]
    to: Option<Endpoint>,
    /// Let the kernel shape all traffic that leaves by this network device, instead of a relay; needs root and tc
    #[arg(
        long,
        help_heading = TARGET,
        value_name = "DEVICE",
        conflicts_with_all = ["listen", "to", "like", "delay_down", "rate_down", "wait_down", "seed"]
    )]
    netem: Option<String>,
    /// Start from a link of this kind; other flags change it
    #[arg(long, help_heading = LINK, value_name = "NAME", value_parser = profile_values())]
    profile: Option<String>,
    /// Start from a link of a published study, like wireless/udp; other flags change it [list: linkgauge lab --like list]
    #[arg(long, help_heading = LINK, value_name = "STUDY/NAME", conflicts_with = "profile")]
    like: Option<LikeTwin>,
    /// One-way delay
    #[arg(long, help_heading = LINK, value_name = "TIME")]
    delay: Option<Span>,
    #[arg(long, help_heading = LINK, value_name = "TIME", help = "One-way delay from the client [default: --delay]", hide_short_help = true)]
    delay_up: Option<Span>,
    #[arg(long, help_heading = LINK, value_name = "TIME", help = "One-way delay to the client [default: --delay]", hide_short_help = true)]
    delay_down: Option<Span>,
    /// Vary delays evenly by up to this in both directions of time; the order of a stream is preserved
    #[arg(long, help_heading = LINK, value_name = "TIME")]
    jitter: Option<Span>,
    /// Delays with a long tail: half of them grow by more than this time
    ///
    /// One in 10 grows by more than 9 times this, one in 100 by more than 99 times, none by more than 999 times.
    #[arg(long, help_heading = LINK, value_name = "TIME")]
    tail: Option<Span>,
    /// Add a time to some delays, like 300ms@2%
    #[arg(long, help_heading = LINK, value_name = "TIME@SHARE", value_parser = parse_time_share)]
    spike: Option<(Span, Share)>,
    /// Let some data wait for the medium, like 3ms@35%: the mean time and the share
    ///
    /// The times are exponentially distributed, as those of a station that waits for others in a radio cell.
    #[arg(long, help_heading = LINK, value_name = "TIME@SHARE", value_parser = parse_time_share, hide_short_help = true)]
    wait: Option<(Span, Share)>,
    #[arg(long, help_heading = LINK, value_name = "TIME@SHARE", value_parser = parse_time_share, help = "Waits of data from the client [default: --wait]", hide_short_help = true)]
    wait_up: Option<(Span, Share)>,
    #[arg(long, help_heading = LINK, value_name = "TIME@SHARE", value_parser = parse_time_share, help = "Waits of data to the client [default: --wait]", hide_short_help = true)]
    wait_down: Option<(Span, Share)>,
    /// Deliver only at multiples of this time, as in the slots of a radio
    #[arg(long, help_heading = LINK, value_name = "TIME")]
    slot: Option<Span>,
    /// Link rate, like 10kBps or 1Mbit/s [default: unlimited]
    #[arg(long, help_heading = LINK, value_name = "RATE")]
    rate: Option<BitRate>,
    #[arg(long, help_heading = LINK, value_name = "RATE", help = "Rate from the client [default: --rate]", hide_short_help = true)]
    rate_up: Option<BitRate>,
    #[arg(long, help_heading = LINK, value_name = "RATE", help = "Rate to the client [default: --rate]", hide_short_help = true)]
    rate_down: Option<BitRate>,
    /// Let this many bytes leave at once after an idle time, like tc tbf; only the mean rate is limited
    #[arg(long, help_heading = LINK, value_name = "SIZE", hide_short_help = true)]
    burst: Option<Bytes>,
    /// Bytes of headers that count for the rate, per message or segment
    #[arg(long, help_heading = LINK, value_name = "SIZE", hide_short_help = true)]
    overhead: Option<Bytes>,
    /// Queue size; a full queue drops datagrams and delays streams [default: 100 ms of the rate, at least 64Ki]
    #[arg(long, help_heading = LINK, value_name = "SIZE", value_parser = parse_queue)]
    queue: Option<Bytes>,
    /// Keep the queue short: codel (RFC 8289) drops datagrams, and delays streams, that wait longer than 5 ms
    #[arg(long, help_heading = LINK, value_name = "NAME", value_parser = ["codel"], conflicts_with = "netem")]
    aqm: Option<String>,
    /// Drop datagrams above this rate, without a queue, as a policer does; after idle times 100 ms of it pass at once
    #[arg(long, help_heading = LINK, value_name = "RATE", conflicts_with = "netem")]
    police: Option<BitRate>,
    /// Share of datagrams to drop
    #[arg(long, help_heading = LINK, value_name = "SHARE")]
    loss: Option<Share>,
    /// Share of datagrams to duplicate
    #[arg(long, help_heading = LINK, value_name = "SHARE")]
    duplicate: Option<Share>,
    /// Share of datagrams to deliver after the next one, if it is sent before they arrive
    #[arg(long, help_heading = LINK, value_name = "SHARE")]
    reorder: Option<Share>,
    /// Seed of the faults: the same seed has the same effect on the same datagrams
    #[arg(long, help_heading = LINK, value_name = "N", default_value_t = 1, hide_short_help = true)]
    seed: u64,
    /// Stop after this time [default: at Ctrl-C]
    #[arg(long, help_heading = DURATION, value_name = "TIME")]
    time: Option<Span>,
    /// Write a line per datagram with its treatment
    #[arg(long, help_heading = OUTPUT, value_name = "FILE", conflicts_with = "netem")]
    log: Option<PathBuf>,
    /// Print errors only
    #[arg(long, short, help_heading = OUTPUT)]
    quiet: bool,
}

const LINK: &str = "Link";

fn profile_values() -> clap::builder::PossibleValuesParser {
    let help = |profile: &LinkProfile| {
        let mut text = format!(
            "{}: {} each way, {} up, {} down",
            profile.summary,
            format_duration(profile.shape.delay),
            format_bit_rate(profile.rate_up),
            format_bit_rate(profile.rate_down)
        );
        describe_impairments(&profile.shape).iter().for_each(|word| text += &format!(", {word}"));
        text
    };
    PROFILES
        .iter()
        .map(|profile| PossibleValue::new(profile.name).help(help(profile)))
        .collect::<Vec<_>>()
        .into()
}

fn parse_queue(text: &str) -> Result<Bytes> {
    match text.parse()? {
        Bytes(0) => bail!("a queue of 0 bytes passes nothing. Use 1 or more"),
        bytes => Ok(bytes),
    }
}

pub fn parse_time_share(text: &str) -> Result<(Span, Share)> {
    let (length, share) = text.split_once('@').context("write a time and a share, like 300ms@2%")?;
    Ok((length.parse()?, share.parse()?))
}

/// A burst of 100 ms, at least a few packets.
fn policed_rate(BitRate(bits_per_second): BitRate) -> PolicedRate {
    let burst_bytes = ((bits_per_second / 8.0 * 0.1) as u64).max(8192);
    PolicedRate { bits_per_second, burst_bytes }
}

fn to_occurrence(Share(share): Share) -> Occurrence {
    if share > 0.0 { Occurrence::Share(share) } else { Occurrence::Never }
}

/// The flags of one direction.
#[derive(Clone, Copy)]
struct DirectionFlags {
    delay: Option<Span>,
    rate: Option<BitRate>,
    wait: Option<(Span, Share)>,
}

impl Flags {
    /// What happens up and down: as in the profile or the twin, unless another flag says so.
    fn shapes(&self) -> Result<[Shape; 2]> {
        let profile = PROFILES.iter().find(|profile| Some(profile.name) == self.profile.as_deref());
        let known = match (&self.like, profile) {
            (Some(like), _) => link_shapes(&like.model, None).ok_or_else(|| like.mismatch("link"))?,
            (None, Some(profile)) => [profile.rate_up, profile.rate_down]
                .map(|bits_per_second| Shape { bits_per_second, ..profile.shape.clone() }),
            (None, None) => [Shape::NONE, Shape::NONE],
        };
        let [up, down] = known;
        let (delay, rate, wait) = (self.delay_up, self.rate_up, self.wait_up);
        let up = self.shape_direction(up, DirectionFlags { delay, rate, wait });
        let (delay, rate, wait) = (self.delay_down, self.rate_down, self.wait_down);
        Ok([up, self.shape_direction(down, DirectionFlags { delay, rate, wait })])
    }

    /// A known shape with the changes of the flags.
    fn shape_direction(&self, known: Shape, direction: DirectionFlags) -> Shape {
        let time = |flag: Option<Span>, known: Duration| flag.map_or(known, |span| span.0);
        let share = |flag: Option<Share>, known: Occurrence| flag.map_or(known, to_occurrence);
        let rate = direction.rate.or(self.rate).map_or(known.bits_per_second, |rate| rate.0);
        let wait = direction.wait.or(self.wait);
        let queue = if rate.is_finite() { default_queue_bytes(rate) } else { u64::MAX };
        Shape {
            delay: time(direction.delay.or(self.delay), known.delay),
            jitter: time(self.jitter, known.jitter),
            tail: time(self.tail, known.tail),
            spike_delay: time(self.spike.map(|(length, _)| length), known.spike_delay),
            spike_occurrence: share(self.spike.map(|(_, share)| share), known.spike_occurrence),
            mean_wait: time(wait.map(|(mean, _)| mean), known.mean_wait),
            wait_occurrence: share(wait.map(|(_, share)| share), known.wait_occurrence),
            slot: time(self.slot, known.slot),
            bits_per_second: rate,
            burst_bytes: self.burst.map_or(known.burst_bytes, |burst| burst.0),
            overhead_bytes: self.overhead.map_or(known.overhead_bytes, |overhead| overhead.0),
            queue_bytes: self.queue.map_or(queue, |queue| queue.0),
            costs: known.costs,
            loss: share(self.loss, known.loss),
            duplicate: share(self.duplicate, known.duplicate),
            reorder: share(self.reorder, known.reorder),
            police: self.police.map(policed_rate),
            queue_management: match self.aqm {
                Some(_) => QueueManagement::Codel,
                None => known.queue_management,
            },
        }
    }

    /// Removes the loss of a profile from a stream, which is reliable. Returns it. Loss from a flag is an error.
    fn drop_profile_loss(&self, options: &mut ShaperOptions) -> Result<Option<Occurrence>> {
        let loss = options.up.loss;
        if self.loss.is_some() || loss == Occurrence::Never || !is_stream_endpoint(&options.listen)? {
            return Ok(None);
        }
        for shape in [&mut options.up, &mut options.down] {
            shape.loss = Occurrence::Never;
        }
        Ok(Some(loss))
    }
}

pub fn run(flags: Flags) -> Result<Status> {
    let [up, down] = flags.shapes()?;
    match (&flags.netem, &flags.listen, &flags.to) {
        (Some(device), ..) => shape_device(device, &up, &flags),
        (None, Some(listen), Some(to)) => {
            let (listen, to, log) = (listen.clone(), to.clone(), flags.log.clone());
            let mut options = ShaperOptions { listen, to, up, down, seed: flags.seed, log };
            let left_out = flags.drop_profile_loss(&mut options)?;
            run_relay(&options, left_out, &flags)
        }
        _ => bail!("--listen and --to are required"),
    }
}

/// Time limit for opening the link to the server, while a client waits.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

fn run_relay(options: &ShaperOptions, left_out: Option<Occurrence>, flags: &Flags) -> Result<Status> {
    let cancel = interrupt_flag()?;
    raise_open_file_limit();
    let dialer = Dialer { timeout: OPEN_TIMEOUT, ..Registry::standard().dialer(Clock::System) };
    let shaper = Shaper::start(options, &dialer)?;
    if !flags.quiet {
        print_text(|stdout| {
            writeln!(stdout, "shaping {} on {}", options.to, shaper.endpoint())?;
            writeln!(stdout, "  up:   {}", describe_shape(&options.up))?;
            writeln!(stdout, "  down: {}", describe_shape(&options.down))?;
            match left_out.map(|loss| describe_impairments(&Shape { loss, ..Shape::NONE }).concat()) {
                Some(loss) => writeln!(stdout, "  ignored, because streams are reliable: {loss}"),
                None => Ok(()),
            }
        })?;
    }
    let mut printed_news = String::new();
    wait_until_interrupted(&cancel, flags.time, || {
        for event in shaper.events() {
            // After the server has stopped every datagram fails alike. The counters hold the number.
            // The kernel reports it to the next call on the socket, whichever that is.
            let news = event.replacen(": send: ", ": receive: ", 1);
            if !flags.quiet && news != printed_news {
                print_message(&event);
            }
            printed_news = news;
        }
        Ok(())
    })?;
    if !flags.quiet {
        let counters = shaper.counters();
        let [accepted, refused, failed] =
            [&counters.accepted, &counters.refused, &counters.failed].map(|counter| counter.load(Relaxed));
        let [up, down] = shaper.tallies();
        print_message(format_args!(
            "relayed {}, refused {refused}, failed {failed}",
            format_plural(accepted, "connection")
        ));
        print_message(format_args!("  up:   {}", describe_counters(&up)));
        print_message(format_args!("  down: {}", describe_counters(&down)));
    }
    Ok(Status::Complete)
}

fn shape_device(device: &str, shape: &Shape, flags: &Flags) -> Result<Status> {
    // Neither a second Ctrl-C nor a terminal that is closed may leave the device shaped.
    let cancel = protected_interrupt_flag()?;
    let netem = Netem::start(device, shape)?;
    let printed = print_text(|stdout| match flags.quiet {
        true => Ok(()),
        false => writeln!(stdout, "shaping outgoing traffic of {device}: {}", describe_shape(shape)),
    });
    if printed.is_ok() {
        wait_until_interrupted(&cancel, flags.time, || Ok(()))?;
    }
    netem.remove()?;
    printed.map(|()| Status::Complete)
}

fn describe_shape(shape: &Shape) -> String {
    let mut text = match shape.delay {
        Duration::ZERO => "no delay".to_owned(),
        delay => format!("delay {}", format_duration(delay)),
    };
    if !shape.jitter.is_zero() {
        text += &format!(" ± {}", format_duration(shape.jitter));
    }
    if shape.bits_per_second.is_finite() {
        let bytes = format_bytes((shape.bits_per_second / 8.0).round() as u64);
        text += &format!(", {bytes}/s ({})", format_bit_rate(shape.bits_per_second));
    }
    if shape.queue_bytes != u64::MAX {
        text += &format!(", queue {}", format_bytes(shape.queue_bytes));
    }
    describe_impairments(shape).iter().for_each(|word| text += &format!(", {word}"));
    text
}

fn describe_counters(tally: &PathCounters) -> String {
    let mut text = format_bytes(tally.bytes);
    for (count, word) in [
        (tally.dropped, "dropped by the full queue"),
        (tally.policed, "dropped above the policed rate"),
        (tally.managed, "dropped by CoDel"),
        (tally.lost, "lost"),
        (tally.duplicated, "duplicated"),
        (tally.overtaken, "overtaken"),
    ] {
        if count > 0 {
            text += &format!(", {} {word}", format_count(count));
        }
    }
    if tally.receive_count > 0 {
        let mean = tally.total_lateness.as_nanos() as f64 / tally.receive_count as f64;
        let worst = tally.max_lateness.as_nanos() as f64;
        text += &format!("; late by {}, at most {}", format_nanoseconds(mean), format_nanoseconds(worst));
    }
    text
}
