//! What people of ping, iperf3, irtt, sockperf and hyperfine type: names of their flags as aliases where ours mean the same,
//! and for other words a line that names ours.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use linkgauge::endpoint::Endpoint;
use linkgauge::units::{Count, parse_count};

/// The command line with the aliases of each command.
pub fn with_aliases(command: Command) -> Command {
    command
        .mut_subcommand("latency", |latency| {
            measuring(latency)
                // ping has a deadline, irtt a duration.
                .mut_arg("time", |time| time.short_aliases(['w', 'd']))
                .mut_arg("timeout", |timeout| timeout.short_alias('W'))
                .mut_arg("size", |size| size.short_alias('m').alias("msg-size"))
                .mut_arg("rate", |rate| rate.alias("mps"))
        })
        .mut_subcommand("throughput", |throughput| {
            measuring(throughput)
                .mut_arg("interval", |interval| interval.short_alias('i'))
                .mut_arg("pin", |pin| pin.short_alias('A').alias("affinity"))
                .mut_arg("volume", |volume| volume.alias("bytes"))
                .mut_arg("bit_rate", |rate| rate.alias("bandwidth"))
                .mut_arg("count", |count| count.short_alias('k').alias("blockcount").value_parser(messages))
        })
        .mut_subcommand("serve", |serve| serve.mut_arg("peer", protocol))
}

/// Aliases of all flags that both measuring commands have.
fn measuring(command: Command) -> Command {
    command
        .mut_arg("peer", protocol)
        .mut_arg("size", |size| size.aliases(["len", "length"]))
        .mut_arg("time", |time| time.alias("duration"))
        .mut_arg("warm_up", |warm_up| warm_up.alias("warmup"))
        .mut_arg("repeat", |repeat| repeat.alias("runs"))
        .mut_arg("title", |title| title.short_alias('T'))
        .mut_arg("bind", |bind| bind.short_alias('B'))
}

fn protocol(peer: Arg) -> Arg {
    peer.alias("protocol")
}

/// A number of messages. The one of iperf3 that looks like it, `-n 10M`, is of bytes: a unit could mean either.
fn messages(text: &str) -> Result<Count, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    match parse_count(text) {
        Ok(number) if digits => Ok(Count(number)),
        Ok(number) => Err(format!(
            "bytes or messages? Write --volume {text} for bytes, {number} for that many messages"
        )),
        Err(_) => {
            Err(format!("'{text}' is not a number of messages (like 10000); a host stands without a flag"))
        }
    }
}

/// Flags of other programs, by the commands that do not have them (an empty name: before any command), and what to do.
struct Habit {
    commands: &'static [&'static str],
    flags: &'static [&'static str],
    advice: &'static str,
}

const fn habit(
    commands: &'static [&'static str],
    flags: &'static [&'static str],
    advice: &'static str,
) -> Habit {
    Habit { commands, flags, advice }
}

const MEASURING: &[&str] = &["latency", "ping", "throughput"];
const LATENCY: &[&str] = &["latency", "ping"];
const THROUGHPUT: &[&str] = &["throughput"];
const SERVE: &[&str] = &["serve"];

static HABITS: &[Habit] = &[
    habit(&[""], &["-c", "--client"], "write linkgauge throughput HOST, or linkgauge latency HOST"),
    habit(&[""], &["-s", "--server"], "write linkgauge serve"),
    habit(MEASURING, &["-H", "--host", "--client"], "write the host without a flag"),
    habit(MEASURING, &["--server"], "write linkgauge serve"),
    habit(MEASURING, &["--tcp"], "leave it out: hosts are measured over TCP without -u"),
    habit(
        MEASURING,
        &["-J", "--json-stream", "--export-json"],
        "write --json FILE, or --json - for standard output",
    ),
    habit(MEASURING, &["--export-csv"], "write --csv FILE"),
    habit(MEASURING, &["-o", "--output", "--logfile"], "write --json FILE, --csv FILE or --html FILE"),
    habit(MEASURING, &["-S", "-Q", "--tos"], "write --dscp CLASS"),
    habit(MEASURING, &["-r"], "write --repeat N"),
    habit(MEASURING, &["-v", "-V", "--verbose"], "write --json FILE, which holds every figure"),
    habit(MEASURING, &["-M", "--set-mss"], "leave it out: the kernel chooses the size of packets"),
    habit(MEASURING, &["--connect-timeout"], "write --timeout TIME"),
    habit(LATENCY, &["-D"], "write --raw FILE, which holds the time of each request"),
    habit(LATENCY, &["-f", "-A"], "write --rate max: the next request leaves when the reply is here"),
    habit(LATENCY, &["-I"], "write --device INTERFACE or --bind ADDRESS"),
    habit(LATENCY, &["-O"], "leave it out: requests without a reply count as lost"),
    habit(
        LATENCY,
        &["-b", "--bit-rate", "--bitrate", "-R", "--reverse", "--bidir"],
        "write linkgauge throughput HOST",
    ),
    habit(THROUGHPUT, &["-w", "--window"], "write tcp://HOST?sndbuf=256Ki&rcvbuf=256Ki"),
    habit(THROUGHPUT, &["-C", "--congestion"], "write tcp://HOST?congestion=cubic"),
    habit(THROUGHPUT, &["-N", "--no-delay"], "leave it out: messages leave at once without ?nodelay=0"),
    habit(THROUGHPUT, &["-Z", "--zerocopy"], "leave it out: there is no zero copy"),
    habit(THROUGHPUT, &["-f"], "leave it out: --json and --csv have bits per second"),
    habit(THROUGHPUT, &["--get-server-output"], "leave it out: the report has the counts of both ends"),
    habit(THROUGHPUT, &["--forceflush"], "write --events -"),
    habit(THROUGHPUT, &["--rate", "--mps", "--pps"], "write --bit-rate RATE"),
    habit(SERVE, &["-s", "--server"], "leave it out"),
    habit(SERVE, &["-D", "--daemon"], "write nohup linkgauge serve &"),
    habit(SERVE, &["-1", "--one-off"], "write --time TIME: any number of clients is served until then"),
    habit(
        SERVE,
        &["-B", "--bind", "-b", "-i", "--host", "-4", "-6"],
        "write the addresses: linkgauge serve tcp://0.0.0.0 udp://[::]",
    ),
    habit(SERVE, &["-u", "--udp", "--tcp"], "write the address: linkgauge serve udp://0.0.0.0"),
];

/// Commands of other programs, and ours.
static COMMANDS: &[(&[&str], &str)] = &[
    (&["client"], "linkgauge latency HOST or linkgauge throughput HOST"),
    (&["server", "listen", "daemon", "sr"], "linkgauge serve"),
    (
        &["iperf", "iperf3", "bandwidth", "bw", "rate", "speed", "speedtest", "tp"],
        "linkgauge throughput HOST",
    ),
    (&["irtt", "sockperf", "pp", "ping-pong", "rtt", "rr"], "linkgauge latency HOST"),
];

/// One line on what was wrong in a command line, if there is more to say than clap does.
pub fn advice(error: &clap::Error, typed: &[String]) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            // A value may be glued to a short flag, or to a long one by '='.
            let flag = text(ContextKind::InvalidArg)?;
            flag.starts_with('-').then(|| on_flag(flag, text(ContextKind::SuggestedArg), typed))
        }
        ErrorKind::InvalidSubcommand => on_command(text(ContextKind::InvalidSubcommand)?),
        _ => None,
    }
}

fn on_flag(flag: &str, similar: Option<&str>, typed: &[String]) -> String {
    let mut words = typed.iter().filter(|word| !word.starts_with('-')).map(String::as_str);
    let command = typed.first().filter(|first| !first.starts_with('-')).map_or("", String::as_str);
    if let Some(habit) = found(command, flag) {
        return format!("there is no flag '{flag}' here: {}", habit.advice);
    }
    if flag[1..].starts_with(|first: char| first.is_ascii_digit()) {
        return format!("'{flag}' is below zero: no value can be");
    }
    let name = match (command, words.nth(1)) {
        ("", _) => "linkgauge".to_owned(),
        ("lab", Some(piece)) => format!("linkgauge lab {piece}"),
        _ => format!("linkgauge {command}"),
    };
    let like = similar.map(|similar| format!("did you mean '{similar}'? ")).unwrap_or_default();
    format!("there is no flag '{flag}' here: {like}'{name} --help' lists all")
}

fn found(command: &str, flag: &str) -> Option<&'static Habit> {
    HABITS.iter().find(|habit| habit.commands.contains(&command) && habit.flags.contains(&flag))
}

fn on_command(word: &str) -> Option<String> {
    let known = COMMANDS.iter().find(|(words, _)| words.contains(&word)).map(|(_, ours)| (*ours).to_owned());
    let host = || {
        let is_place = word.contains(['.', ':', '/']) && word.parse::<Endpoint>().is_ok();
        is_place.then(|| format!("linkgauge latency {word} or linkgauge throughput {word}"))
    };
    let write = known.or_else(host)?;
    Some(format!("there is no command '{word}': write {write}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_habit_is_a_flag_of_ours() {
        let command = with_aliases(<super::super::Cli as clap::CommandFactory>::command());
        for habit in HABITS {
            for name in habit.commands.iter().filter(|name| !name.is_empty()) {
                let ours = command.find_subcommand(name).unwrap();
                for word in habit.flags {
                    let is_ours = ours.get_arguments().any(|argument| match word.strip_prefix("--") {
                        Some(long) => {
                            argument.get_long_and_visible_aliases().is_some_and(|all| all.contains(&long))
                        }
                        None => argument
                            .get_short_and_visible_aliases()
                            .is_some_and(|all| all.contains(&word.chars().nth(1).unwrap())),
                    });
                    assert!(!is_ours, "{name} {word}");
                }
            }
        }
    }
}
