//! `linkgauge lab shaper`.

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::PossibleValue;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::lab::netem::Netem;
use linkgauge::lab::shaper::{Options, PROFILES, Profile, Shaper, besides, carries_stream, usual_queue};
use linkgauge::link::Dialer;
use linkgauge::link::shaped::{Often, Shape, Tally};
use linkgauge::serve::raise_open_files;
use linkgauge::units::{
    BitRate, Bytes, Share, Span, plural, print_bit_rate, print_bytes, print_count, print_duration,
    print_nanoseconds,
};

use crate::cmd::Status;
use crate::cmd::measure::wait;
use crate::cmd::output::{put, tell};
use crate::cmd::signals::{on_interrupt, on_interrupt_only};

/// Make a link as slow as another one: a relay with delay, rate, queue and faults
///
/// Clients connect to --listen; each gets a connection of its own to --to, and all share one line each way. Up is from
/// the client to the far end. What holds for no direction in particular holds for each of them: --delay 500ms adds a
/// second to a round trip. Payload is counted, no headers. 10kBps is kilobytes per second (tc writes 10kbps for it), 10kbps
/// kilobits.
#[derive(Args)]
pub struct Flags {
    /// Where clients connect to
    #[arg(long, value_name = "URL", required_unless_present = "netem")]
    listen: Option<Endpoint>,
    /// Where their connections lead; the same kind of link, streams or messages
    #[arg(long, value_name = "URL", required_unless_present = "netem")]
    to: Option<Endpoint>,
    /// Instead of a relay, have the kernel shape all that leaves by this network device, as said for up; needs root and tc
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["listen", "to", "delay_down", "rate_down", "seed"])]
    netem: Option<String>,
    /// Begin with a link of this kind; other flags change it
    #[arg(long, value_name = "NAME", value_parser = profiles())]
    profile: Option<String>,
    /// One-way delay
    #[arg(long, value_name = "TIME")]
    delay: Option<Span>,
    #[arg(long, value_name = "TIME", help = "One-way delay from the client [default: --delay]")]
    delay_up: Option<Span>,
    #[arg(long, value_name = "TIME", help = "One-way delay to the client [default: --delay]")]
    delay_down: Option<Span>,
    /// Delays spread evenly over so much less and more; the order of a stream is kept
    #[arg(long, value_name = "TIME")]
    jitter: Option<Span>,
    /// Delays with a long tail: half of them grow by more than this, one in ten by more than 9 times this, one in a hundred
    /// by more than 99 times, none by more than 999 times
    #[arg(long, value_name = "TIME")]
    tail: Option<Span>,
    /// Some delays grow by so much, like 300ms@2%
    #[arg(long, value_name = "TIME@SHARE", value_parser = spike)]
    spike: Option<(Span, Share)>,
    /// What passes arrives when the clock is at a multiple of this, as in the slots of a radio
    #[arg(long, value_name = "TIME")]
    slot: Option<Span>,
    /// Rate of the line, like 10kBps or 1Mbit/s [default: unlimited]
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    #[arg(long, value_name = "RATE", help = "Rate from the client [default: --rate]")]
    rate_up: Option<BitRate>,
    #[arg(long, value_name = "RATE", help = "Rate to the client [default: --rate]")]
    rate_down: Option<BitRate>,
    /// Bytes that may wait for the line; beyond, datagrams are dropped and streams wait [default: 100 ms of the rate,
    /// at least 64Ki]
    #[arg(long, value_name = "SIZE", value_parser = queue)]
    queue: Option<Bytes>,
    /// Share of the datagrams that are lost
    #[arg(long, value_name = "SHARE")]
    loss: Option<Share>,
    /// Share of the datagrams that arrive twice
    #[arg(long, value_name = "SHARE")]
    duplicate: Option<Share>,
    /// Share of the datagrams that the next one overtakes, if it is sent before they have arrived
    #[arg(long, value_name = "SHARE")]
    reorder: Option<Share>,
    /// The same seed does the same to the same datagrams
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write down what is done to each datagram, a line each
    #[arg(long, value_name = "FILE", conflicts_with = "netem")]
    log: Option<PathBuf>,
    /// Stop by itself after this time
    #[arg(long, value_name = "TIME")]
    time: Option<Span>,
    /// Print neither what is shaped nor what has passed
    #[arg(long, short)]
    quiet: bool,
}

fn profiles() -> clap::builder::PossibleValuesParser {
    let help = |profile: &Profile| {
        let mut text = format!(
            "{}: {} each way, {} up, {} down",
            profile.summary,
            print_duration(profile.shape.delay),
            print_bit_rate(profile.rate_up),
            print_bit_rate(profile.rate_down)
        );
        besides(&profile.shape).iter().for_each(|word| text += &format!(", {word}"));
        text
    };
    PROFILES
        .iter()
        .map(|profile| PossibleValue::new(profile.name).help(help(profile)))
        .collect::<Vec<_>>()
        .into()
}

fn queue(text: &str) -> Result<Bytes, String> {
    match text.parse() {
        Ok(Bytes(0)) => Err("a queue of nothing lets nothing pass".to_owned()),
        parsed => parsed.map_err(|error: linkgauge::units::UnitError| error.to_string()),
    }
}

fn spike(text: &str) -> Result<(Span, Share), String> {
    let (length, share) = text.split_once('@').ok_or("a spike is a time and a share, like 300ms@2%")?;
    let told = |error: linkgauge::units::UnitError| error.to_string();
    Ok((length.parse().map_err(told)?, share.parse().map_err(told)?))
}

fn often(Share(share): Share) -> Often {
    if share > 0.0 { Often::Share(share) } else { Often::Never }
}

impl Flags {
    /// What happens up and down.
    fn shapes(&self) -> [Shape; 2] {
        let profile = PROFILES.iter().find(|profile| Some(profile.name) == self.profile.as_deref());
        let known = profile.map_or(Shape::NONE, |profile| profile.shape.clone());
        let time = |flag: Option<Span>, known: Duration| flag.map_or(known, |span| span.0);
        let share = |flag: Option<Share>, known: Often| flag.map_or(known, often);
        let shape = |delay: Option<Span>, rate: Option<BitRate>, rate_of: fn(&Profile) -> f64| {
            let rate = rate.or(self.rate).map(|rate| rate.0).or(profile.map(rate_of));
            Shape {
                delay: time(delay.or(self.delay), known.delay),
                jitter: time(self.jitter, known.jitter),
                tail: time(self.tail, known.tail),
                spike: time(self.spike.map(|(length, _)| length), known.spike),
                spikes: share(self.spike.map(|(_, share)| share), known.spikes),
                slot: time(self.slot, known.slot),
                rate: rate.unwrap_or(f64::INFINITY),
                queue: self.queue.map_or_else(|| rate.map_or(u64::MAX, usual_queue), |queue| queue.0),
                loss: share(self.loss, known.loss),
                duplicate: share(self.duplicate, known.duplicate),
                reorder: share(self.reorder, known.reorder),
            }
        };
        [
            shape(self.delay_up, self.rate_up, |profile| profile.rate_up),
            shape(self.delay_down, self.rate_down, |profile| profile.rate_down),
        ]
    }

    /// A stream loses nothing: what a profile loses, and nobody asked for, is left out. Returns it.
    fn leave_out(&self, options: &mut Options) -> Result<Option<Often>> {
        let loss = options.up.loss;
        if self.loss.is_some() || loss == Often::Never || !carries_stream(&options.listen)? {
            return Ok(None);
        }
        for shape in [&mut options.up, &mut options.down] {
            shape.loss = Often::Never;
        }
        Ok(Some(loss))
    }
}

pub fn run(flags: Flags) -> Result<Status> {
    let [up, down] = flags.shapes();
    match (&flags.netem, &flags.listen, &flags.to) {
        (Some(device), ..) => shape_device(device, &up, &flags),
        (None, Some(listen), Some(to)) => {
            let (listen, to, log) = (listen.clone(), to.clone(), flags.log.clone());
            let mut options = Options { listen, to, up, down, seed: flags.seed, log };
            let left_out = flags.leave_out(&mut options)?;
            relay(&options, left_out, &flags)
        }
        _ => bail!("clap demands --listen and --to"),
    }
}

/// How long opening the far side may take: a client waits for it.
const OPENING: Duration = Duration::from_secs(10);

fn relay(options: &Options, left_out: Option<Often>, flags: &Flags) -> Result<Status> {
    let cancel = on_interrupt()?;
    raise_open_files();
    let dialer = Dialer { timeout: OPENING, ..Dialer::new(Clock::System) };
    let shaper = Shaper::start(options, &dialer)?;
    if !flags.quiet {
        put(|stdout| {
            writeln!(stdout, "shaping {} on {}", options.to, shaper.endpoint())?;
            writeln!(stdout, "  up:   {}", describe(&options.up))?;
            writeln!(stdout, "  down: {}", describe(&options.down))?;
            match left_out.map(|loss| besides(&Shape { loss, ..Shape::NONE }).concat()) {
                Some(loss) => writeln!(stdout, "  left out, because a stream loses nothing: {loss}"),
                None => Ok(()),
            }
        })?;
    }
    let mut said = String::new();
    wait(&cancel, flags.time, || {
        for event in shaper.events() {
            // A far end that is gone is the same news with every datagram; the account counts them.
            if !flags.quiet && event != said {
                tell(&event);
            }
            said = event;
        }
        Ok(())
    })?;
    if !flags.quiet {
        let counters = shaper.counters();
        let [accepted, refused, failed] =
            [&counters.accepted, &counters.refused, &counters.failed].map(|counter| counter.load(Relaxed));
        let [up, down] = shaper.tallies();
        tell(format_args!("relayed {}, refused {refused}, failed {failed}", plural(accepted, "connection")));
        tell(format_args!("  up:   {}", account(&up)));
        tell(format_args!("  down: {}", account(&down)));
    }
    Ok(Status::Complete)
}

fn shape_device(device: &str, shape: &Shape, flags: &Flags) -> Result<Status> {
    // Neither a second Ctrl-C nor a terminal that is closed may leave the device shaped.
    let cancel = on_interrupt_only()?;
    let netem = Netem::start(device, shape)?;
    let told = put(|stdout| match flags.quiet {
        true => Ok(()),
        false => writeln!(stdout, "shaping what leaves by {device}: {}", describe(shape)),
    });
    if told.is_ok() {
        wait(&cancel, flags.time, || Ok(()))?;
    }
    netem.remove()?;
    told.map(|()| Status::Complete)
}

fn describe(shape: &Shape) -> String {
    let mut text = match shape.delay {
        Duration::ZERO => "no delay".to_owned(),
        delay => format!("delay {}", print_duration(delay)),
    };
    if !shape.jitter.is_zero() {
        text += &format!(" ± {}", print_duration(shape.jitter));
    }
    if shape.rate.is_finite() {
        let bytes = print_bytes((shape.rate / 8.0).round() as u64);
        text += &format!(", {bytes}/s ({})", print_bit_rate(shape.rate));
    }
    if shape.queue != u64::MAX {
        text += &format!(", queue {}", print_bytes(shape.queue));
    }
    besides(shape).iter().for_each(|word| text += &format!(", {word}"));
    text
}

fn account(tally: &Tally) -> String {
    let mut text = print_bytes(tally.bytes);
    for (count, word) in [
        (tally.dropped, "dropped by the full queue"),
        (tally.lost, "lost"),
        (tally.duplicated, "duplicated"),
        (tally.overtaken, "overtaken"),
    ] {
        if count > 0 {
            text += &format!(", {} {word}", print_count(count));
        }
    }
    if tally.receipts > 0 {
        let mean = tally.late.as_nanos() as f64 / tally.receipts as f64;
        let worst = tally.latest.as_nanos() as f64;
        text += &format!("; late by {}, at most {}", print_nanoseconds(mean), print_nanoseconds(worst));
    }
    text
}
