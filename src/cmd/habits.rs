//! Flags of ping, iperf3, irtt, sockperf and hyperfine: aliases for flags with the same meaning, and advice for the others.

use anyhow::bail;
use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use linkgauge::endpoint::Endpoint;
use linkgauge::units::{Count, parse_count};

use super::help::change_arguments;

/// The command line with the aliases of each command.
pub fn with_aliases(command: Command) -> Command {
    command
        .mut_subcommand("latency", with_latency_aliases)
        .mut_subcommand("throughput", with_throughput_aliases)
}

fn with_latency_aliases(command: Command) -> Command {
    change_arguments(
        with_measuring_aliases(command),
        &[
            // ping has a deadline, irtt a duration.
            ("time", &|time| time.short_aliases(['w', 'd'])),
            ("timeout", &|timeout| timeout.short_alias('W')),
            ("size", &|size| size.short_alias('m').alias("msg-size")),
            ("rate", &|rate| rate.alias("mps")),
        ],
    )
}

fn with_throughput_aliases(command: Command) -> Command {
    change_arguments(
        with_measuring_aliases(command),
        &[
            ("interval", &|interval| interval.short_alias('i')),
            ("pin", &|pin| pin.short_alias('A').alias("affinity")),
            ("volume", &|volume| volume.alias("bytes")),
            ("bit_rate", &|rate| rate.alias("bandwidth")),
            ("count", &|count| count.short_alias('k').alias("blockcount").value_parser(messages)),
        ],
    )
}

/// Aliases of all flags that both measuring commands have.
fn with_measuring_aliases(command: Command) -> Command {
    change_arguments(
        command,
        &[
            ("size", &|size| size.aliases(["len", "length"])),
            ("time", &|time| time.alias("duration")),
            ("warm_up", &|warm_up| warm_up.alias("warmup")),
            ("repeat", &|repeat| repeat.alias("runs")),
            ("title", &|title| title.short_alias('T')),
            ("bind", &|bind| bind.short_alias('B')),
        ],
    )
}

/// Parses a number of messages. A unit is ambiguous: `-n 10M` of iperf3 means bytes.
fn messages(text: &str) -> anyhow::Result<Count> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    match parse_count(text) {
        Ok(number) if digits => Ok(Count(number)),
        Ok(number) => {
            bail!("ambiguous: bytes or messages. Use --volume {text} for bytes, or {number} for messages")
        }
        Err(_) => bail!("'{text}' is not a number of messages (like 10000). A host has no flag"),
    }
}

/// Flags of other programs by command (an empty name: before any command), and the advice.
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
    habit(MEASURING, &["--tcp"], "leave it out: TCP is the default"),
    habit(
        MEASURING,
        &["-J", "--json-stream", "--export-json"],
        "write --json FILE, or --json - for standard output",
    ),
    habit(MEASURING, &["--export-csv"], "write --csv FILE"),
    habit(MEASURING, &["-o", "--output", "--logfile"], "write --json FILE, --csv FILE or --html FILE"),
    habit(MEASURING, &["-S", "-Q", "--tos"], "write --dscp CLASS"),
    habit(MEASURING, &["-r"], "write --repeat N"),
    habit(LATENCY, &["-v", "--verbose"], "write --each for a line per reply, --all for every figure"),
    habit(MEASURING, &["-v", "-V", "--verbose"], "write --notes or --all; --json FILE has every figure"),
    habit(MEASURING, &["-M", "--set-mss"], "leave it out: the kernel chooses the size of packets"),
    habit(MEASURING, &["--connect-timeout"], "write --timeout TIME"),
    habit(LATENCY, &["--hmac"], "write --authenticated --token-file FILE"),
    habit(LATENCY, &["-D"], "write --raw FILE, which has the time of each request"),
    habit(LATENCY, &["-f", "-A"], "write --rate max: the next request leaves when the reply has arrived"),
    habit(LATENCY, &["-I"], "write --device INTERFACE or --bind ADDRESS"),
    habit(LATENCY, &["-O"], "leave it out: requests without a reply count as lost"),
    habit(
        LATENCY,
        &["-b", "--bit-rate", "--bitrate", "-R", "--reverse", "--bidir"],
        "write linkgauge throughput HOST",
    ),
    habit(
        LATENCY,
        &["--until"],
        "write --precision SHARE for the length of the measurement, --reply-end BYTES for a device",
    ),
    habit(THROUGHPUT, &["--until"], "write --precision SHARE"),
    habit(THROUGHPUT, &["-w", "--window"], "write tcp://HOST?sndbuf=256Ki&rcvbuf=256Ki"),
    habit(THROUGHPUT, &["-C", "--congestion"], "write tcp://HOST?congestion=cubic"),
    habit(THROUGHPUT, &["-N", "--no-delay"], "leave it out: messages are sent at once unless ?nodelay=0"),
    habit(THROUGHPUT, &["-Z", "--zerocopy"], "leave it out: zero copy is not supported"),
    habit(THROUGHPUT, &["-f"], "leave it out: --json and --csv have bits per second"),
    habit(
        THROUGHPUT,
        &["--get-server-output"],
        "leave it out: the report has the counts of client and server",
    ),
    habit(THROUGHPUT, &["--forceflush"], "write --events -"),
    habit(THROUGHPUT, &["--rate", "--mps", "--pps"], "write --bit-rate RATE"),
    habit(SERVE, &["--hmac"], "write --token-file FILE"),
    habit(SERVE, &["-s", "--server"], "leave it out"),
    habit(SERVE, &["-D", "--daemon"], "write nohup linkgauge serve &"),
    habit(
        SERVE,
        &["-1", "--one-off"],
        "write --time TIME: the server accepts any number of clients until then",
    ),
    habit(
        SERVE,
        &["-B", "--bind", "-b", "-i", "--host", "-4", "-6"],
        "write the addresses: linkgauge serve tcp://0.0.0.0 udp://[::]",
    ),
    habit(SERVE, &["-u", "--udp", "--tcp"], "write the address: linkgauge serve udp://0.0.0.0"),
];

/// Commands of other programs, and the equivalent here.
static COMMANDS: &[(&[&str], &str)] = &[
    (&["client"], "linkgauge latency HOST or linkgauge throughput HOST"),
    (&["server", "listen", "daemon", "sr"], "linkgauge serve"),
    (
        &["iperf", "iperf3", "bandwidth", "bw", "rate", "speed", "speedtest", "tp"],
        "linkgauge throughput HOST",
    ),
    (&["irtt"], "linkgauge latency irtt://HOST"),
    (&["udpst"], "linkgauge throughput udpst://HOST --find-capacity"),
    (&["sockperf", "pp", "ping-pong", "rtt", "rr"], "linkgauge latency HOST"),
];

/// One line of advice on a wrong command line, where the message of clap is too short.
pub fn advice(error: &clap::Error, typed: &[String]) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            // A value may be joined to a short flag, or to a long one by '='.
            let flag = text(ContextKind::InvalidArg)?;
            flag.starts_with('-').then(|| on_flag(flag, text(ContextKind::SuggestedArg), typed))
        }
        ErrorKind::InvalidSubcommand => on_command(text(ContextKind::InvalidSubcommand)?),
        _ => None,
    }
}

/// The program and its command, as typed.
pub fn command_name(typed: &[String]) -> String {
    let mut words = typed.iter().map(String::as_str).take_while(|word| !word.starts_with('-'));
    match (words.next(), words.next()) {
        (None, _) => "linkgauge".to_owned(),
        (Some(command @ ("fleet" | "lab")), Some(part)) => format!("linkgauge {command} {part}"),
        (Some(command), _) => format!("linkgauge {command}"),
    }
}

fn on_flag(flag: &str, similar: Option<&str>, typed: &[String]) -> String {
    let command = typed.first().filter(|first| !first.starts_with('-')).map_or("", String::as_str);
    let is_number = flag[1..].starts_with(|first: char| first.is_ascii_digit());
    // `-1` is a flag of other programs, and the value of the flag before it.
    let before =
        typed.iter().position(|word| word.starts_with(flag)).and_then(|at| typed.get(at.checked_sub(1)?));
    let is_value = is_number && before.is_some_and(|before| before.starts_with('-'));
    if let Some(habit) = found(command, flag).filter(|_| !is_value) {
        return format!("unknown flag '{flag}': {}", habit.advice);
    }
    if is_number {
        return format!("'{flag}' is negative. Values are 0 or more");
    }
    let like = similar.map(|similar| format!("Did you mean '{similar}'? ")).unwrap_or_default();
    format!("unknown flag '{flag}'. {like}'{} --help' lists all flags", command_name(typed))
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
    Some(format!("unknown command '{word}': write {write}"))
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
