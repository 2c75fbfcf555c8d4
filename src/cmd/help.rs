//! The help pages: groups of commands and flags, and examples. The help of a flag stands with the flag.

use clap::builder::Styles;
use clap::{Arg, ArgAction, ArgGroup, Command};

// Headings of flags.
pub const TARGET: &str = "Target";
pub const TRAFFIC: &str = "Traffic";
pub const DURATION: &str = "Duration";
pub const SERVER: &str = "Server";
pub const LIMITS: &str = "Limits";
pub const OUTPUT: &str = "Output";
pub const STORAGE: &str = "Storage";
pub const ADVANCED: &str = "Advanced";

/// The commands in the order of the help page, by heading.
static COMMAND_GROUPS: &[(&str, &[&str])] = &[
    (
        "Measure",
        &[
            "latency",
            "throughput",
            "responsiveness",
            "download",
            "connect",
            "path",
            "run",
            "monitor",
            "mesh",
            "fleet",
            "ab",
            "demo",
            "reproduce",
        ],
    ),
    ("Server, lab and setup", &["serve", "agent", "lab", "doctor", "completions", "man"]),
    (
        "Results",
        &[
            "show", "history", "compare", "explain", "tag", "prune", "export", "import", "windows", "backup",
            "restore",
        ],
    ),
];

/// A command line without `linkgauge`, and what it does.
type Example = (&'static str, &'static str);

/// Examples by command. A subcommand is named after its command: `lab uart`.
static EXAMPLES: &[(&str, &[Example])] = &[
    (
        "",
        &[
            ("demo", "measure the links inside this machine"),
            ("serve tcp://0.0.0.0", "on the remote machine: accept measurements"),
            ("latency 192.0.2.7", "round-trip time to that machine"),
            ("throughput 192.0.2.7 --bidir", "rate in both directions, and latency under load"),
        ],
    ),
    (
        "latency",
        &[
            ("latency 192.0.2.7", "10000 round trips over TCP"),
            ("latency -u 192.0.2.7 --rate 100 -t 60", "100 UDP requests per second"),
            ("latency icmp://192.0.2.7", "kernel echo, like ping"),
            ("latency /dev/ttyS0 --size 1,64", "serial port with a plug, 2 sizes"),
        ],
    ),
    (
        "throughput",
        &[
            ("throughput 192.0.2.7", "upload over TCP for 10 s"),
            ("throughput 192.0.2.7 -R -P 4", "download over 4 connections"),
            ("throughput -u 192.0.2.7 -b 100M", "UDP at 100 Mbit/s, with loss"),
            ("throughput 192.0.2.7 --protocol iperf3", "against an iperf3 server"),
        ],
    ),
    (
        "responsiveness",
        &[
            ("responsiveness 192.0.2.7", "does an upload delay other traffic?"),
            ("responsiveness 192.0.2.7 -R", "does a download?"),
            ("responsiveness /dev/ttyS0 -t 30", "a serial port with a plug, at most 30 s of load"),
            ("responsiveness https://192.0.2.7:4043", "over HTTP/2, as networkQuality does"),
        ],
    ),
    (
        "download",
        &[
            ("download pakbus://192.0.2.7/1 --list", "list files and tables"),
            ("download pakbus://192.0.2.7/1 --file CPU:data.dat", "download a file"),
            ("download serial:///dev/ttyS0?baud=115200 --table Wind", "download a table as CSV"),
            ("download 192.0.2.7 --file CPU:data.dat --window 1,4 --no-output", "compare two window sizes"),
        ],
    ),
    (
        "connect",
        &[
            ("connect 192.0.2.7:80", "time to connect, one after the other"),
            ("connect 192.0.2.7:80 -P 8", "connections per second of 8 flows"),
            ("connect 192.0.2.7:80 --rate 100/s -t 60", "100 connections per second for a minute"),
        ],
    ),
    (
        "path",
        &[
            ("path 192.0.2.7", "the routers to that host, with their round trips"),
            ("path 192.0.2.7:443", "the path of TCP connections to port 443"),
            ("path 192.0.2.7 --flows 8", "which of them share the load over several paths?"),
            ("path 192.0.2.7 --mtu -n", "how large may packets be? without names"),
        ],
    ),
    (
        "run",
        &[
            ("run office.toml", "run every case of the plan"),
            ("run office.toml --repeat 10 --html office.html", "10 repetitions, and a page"),
            ("run office.toml --junit gauge.xml", "thresholds of the plan as CI tests"),
        ],
    ),
    (
        "monitor",
        &[
            ("monitor 192.0.2.7 192.0.2.8", "probe two hosts, 10 times a second"),
            ("monitor links.toml", "links, tests and alarms of a file"),
            ("monitor links.toml --tui", "the links on the whole terminal"),
            ("monitor links.toml --check", "how fast would its alarms be?"),
        ],
    ),
    (
        "mesh",
        &[
            ("mesh hosts.toml --check", "how long would it take?"),
            ("mesh hosts.toml --html mesh.html", "measure every pair, and write a page"),
            ("mesh hosts.toml --resume last", "measure what the last run lacks"),
        ],
    ),
    (
        "fleet",
        &[
            ("fleet key operator.seed", "make a key, and print its public half"),
            ("fleet apply fleet.toml --seed operator.seed", "define streams on the hub, and sign the list"),
            ("fleet run fleet.toml --seed operator.seed --rounds 24 --every 1h", "order 24 rounds"),
            ("fleet collect fleet.toml --seed operator.seed", "save results as they arrive"),
            ("fleet report fleet.toml --html fleet.html", "matrix of the latest results"),
        ],
    ),
    ("fleet key", &[("fleet key a.seed", "the key of a host or of the operator")]),
    (
        "fleet apply",
        &[("fleet apply fleet.toml --seed operator.seed", "first, and after each change of the file")],
    ),
    (
        "fleet run",
        &[
            ("fleet run fleet.toml --seed operator.seed", "one round, now"),
            ("fleet run fleet.toml --seed operator.seed --rounds 24 --every 1h", "order 24 rounds"),
        ],
    ),
    ("fleet status", &[("fleet status fleet.toml --seed operator.seed", "which agents are there?")]),
    (
        "fleet collect",
        &[
            ("fleet collect fleet.toml --seed operator.seed", "until Ctrl-C"),
            (
                "fleet collect fleet.toml --seed operator.seed --metrics 127.0.0.1:9464",
                "with metrics for Prometheus",
            ),
            (
                "fleet collect fleet.toml --seed operator.seed --database postgresql://collector@db.example/links",
                "into PostgreSQL",
            ),
        ],
    ),
    (
        "fleet report",
        &[
            ("fleet report fleet.toml", "who has the worst links, and why?"),
            ("fleet report fleet.toml --html fleet.html", "the same as a page"),
        ],
    ),
    (
        "agent",
        &[
            ("agent --stdio", "what 'linkgauge mesh' starts on each host"),
            ("agent --stdio --allow 192.0.2.0/24 --max-rate 100M", "with limits that no order exceeds"),
            (
                "agent --hub tls://hub.example --name a --seed a.seed --limits limits.toml",
                "orders from a hub",
            ),
        ],
    ),
    (
        "ab",
        &[
            ("ab --a tcp://192.0.2.7 --b tcp://192.0.2.8", "is B slower than A?"),
            ("ab --a before.toml --b after.toml --repeat 20", "two plans, 20 repetitions each"),
            ("ab --a tcp://192.0.2.7 --b tcp://192.0.2.8 --workload throughput", "compare rates"),
        ],
    ),
    (
        "demo",
        &[
            ("demo", "every kind of link, one row each"),
            ("demo --quick", "the same in about 5 s"),
            ("demo --all", "every case, with all notes"),
        ],
    ),
    (
        "serve",
        &[
            ("serve tcp://0.0.0.0 udp://0.0.0.0", "accept clients from other machines"),
            ("serve", "accept clients of this machine only"),
            ("serve tcp://0.0.0.0 --token-file secret --max-rate 100M", "with a token and a rate limit"),
            ("serve tcp://0.0.0.0 --protocol iperf3", "serve iperf3 clients"),
        ],
    ),
    (
        "lab",
        &[
            ("lab uart --link /tmp/ttyV0", "a serial port without hardware"),
            ("lab shaper --listen tcp://127.0.0.1:7200 --to tcp://192.0.2.7 --delay 50ms", "a slower link"),
            ("lab device-server --serial /dev/ttyS0", "share a serial port over TCP"),
            ("lab logger", "an emulated data logger"),
        ],
    ),
    (
        "lab uart",
        &[
            ("lab uart --link /tmp/ttyV0", "one port with a loopback plug"),
            ("lab uart --null-modem --link /tmp/ttyV", "two ports that are connected"),
            ("lab uart --bit-errors 1e-6", "a line with bit errors"),
        ],
    ),
    (
        "lab device-server",
        &[
            ("lab device-server --serial /dev/ttyS0", "raw bytes on TCP port 7001"),
            ("lab device-server --serial /dev/ttyS0 --rfc2217", "clients control the port (RFC 2217)"),
            ("lab device-server --plug --ports 4", "4 emulated ports with loopback plugs"),
        ],
    ),
    (
        "lab trouble",
        &[
            ("lab trouble --split-write 10 --nagle", "Nagle's algorithm waits for a delayed ACK"),
            ("lab trouble --poll 20ms", "the server looks for input 50 times a second"),
            ("lab trouble --stall 50ms@1s", "pauses of the whole program, like garbage collection"),
        ],
    ),
    (
        "lab redirect",
        &[
            ("lab redirect rfc2217://192.0.2.7:7001 --link /tmp/ttyV0", "a remote port as a local one"),
            ("lab redirect tcp://192.0.2.7:4001?baud=9600", "a port that cannot be controlled"),
        ],
    ),
    (
        "lab router",
        &[
            ("lab router --rate 2:10Mbit/s --queue 2:64Ki", "link 2 is the bottleneck"),
            ("lab router --routers 5 --silent 2 --mtu 4:1400", "a silent router, a smaller MTU"),
        ],
    ),
    (
        "lab shaper",
        &[
            (
                "lab shaper --listen tcp://127.0.0.1:7200 --to tcp://192.0.2.7 --delay 50ms",
                "100 ms more round-trip time",
            ),
            (
                "lab shaper --listen udp://127.0.0.1:7200 --to udp://192.0.2.7 --loss 1% --rate 10M",
                "loss and a limited rate",
            ),
            ("lab shaper --netem eth0 --delay 20ms", "shape all traffic of a device; needs root"),
        ],
    ),
    (
        "lab logger",
        &[
            ("lab logger", "on TCP port 6785 of this machine"),
            ("lab logger --listen tcp://0.0.0.0 --file CPU:big.dat:10M", "with a file of 10 MB"),
            ("lab logger --serial /dev/ttyS0 --chunk-time 20ms", "on a serial port, 20 ms a command"),
        ],
    ),
    (
        "lab messages",
        &[
            (
                "lab messages --like linx/oseck-oseck",
                "two DSPs on Ethernet of 100 Mbit/s, as published in 2006",
            ),
            ("lab messages --message-time 50us --rate 10M", "nodes and a line of your own"),
        ],
    ),
    (
        "lab vm",
        &[
            ("lab vm --modules sctp -- linkgauge doctor", "check the transports with SCTP loaded"),
            ("lab vm --modules tipc -- linkgauge demo --quick", "the demo in a guest"),
        ],
    ),
    (
        "show",
        &[
            ("show", "the last run"),
            ("show 84181a --html report.html", "a saved run as a page"),
            ("show last --notes", "with every note and warning"),
            ("show tag:before,tag:after --html both.html", "several runs on one page"),
        ],
    ),
    (
        "history",
        &[
            ("history", "the last 20 runs"),
            ("history --endpoint 192.0.2.7 --since 7d", "one target, last 7 days"),
            ("history --metric p99", "p99 over time, with a chart"),
        ],
    ),
    (
        "compare",
        &[
            ("compare", "the last two runs"),
            ("compare tag:before tag:after", "two sets of runs"),
            ("compare a.json b.json --metric p99,loss", "two files, other metrics"),
            ("compare 84181a last --html compared.html", "with a page"),
        ],
    ),
    (
        "explain",
        &[
            ("explain tcp://192.0.2.7", "measure a link, name the causes of its latency"),
            ("explain", "the last run"),
            ("explain 84181a --line '1Gbit/s*1488/1538'", "with the rate of the link"),
            ("explain loggernet", "published figures of a study"),
        ],
    ),
    (
        "tag",
        &[
            ("tag last before", "name the last run"),
            ("tag 84181a release-1.2 lab", "two names"),
            ("tag last before --remove", "remove the name"),
            ("tag tag:before --remove", "remove all names of these runs"),
        ],
    ),
    (
        "prune",
        &[
            ("prune --before 90d --dry-run", "list what would be removed"),
            ("prune --before 90d", "remove runs older than 90 days, except tagged ones"),
            ("prune --keep 100", "keep the newest 100"),
        ],
    ),
    (
        "export",
        &[
            ("export runs", "all runs, one file each"),
            ("export runs tag:before", "a set of runs"),
            ("export runs last 84181a", "two runs"),
        ],
    ),
    (
        "windows",
        &[
            ("windows > windows.csv", "the hours of all watched links"),
            ("windows uplink --since 1d --length 1min", "a link, minute by minute"),
            ("windows --incidents --since 30d", "outages, alarms and other changes"),
        ],
    ),
    ("backup", &[("backup /backup/today.sqlite", "everything, also while a monitor runs")]),
    ("restore", &[("restore /backup/today.sqlite", "add what the store does not have")]),
    (
        "import",
        &[
            ("import samples study.log --unit ms", "one round-trip time a line"),
            ("import iperf3 result.json --html result.html", "a result of iperf3"),
            ("import run runs/*.json", "documents written by 'export'"),
        ],
    ),
    (
        "reproduce",
        &[
            ("reproduce sena --list", "list the cells and their cases"),
            ("reproduce sena --quick --html sena.html", "in minutes, in the lab"),
            ("reproduce wireless --vm", "in a guest with its own kernel"),
            ("reproduce sena --on tcp/4=tcp://192.0.2.7:7001", "on hardware"),
        ],
    ),
    ("doctor", &[("doctor", "what would distort a measurement"), ("doctor --all", "every check")]),
    (
        "completions",
        &[("completions bash", "print completions for bash"), ("completions fish", "the same for fish")],
    ),
    ("man", &[("man man1", "write the manual pages to the directory man1")]),
];

/// Changes arguments by id. Unlike `Command::mut_arg` it preserves their order, which is that of the help page.
pub fn change_arguments(command: Command, changes: &[(&str, &dyn Fn(Arg) -> Arg)]) -> Command {
    for (id, _) in changes {
        debug_assert!(command.get_arguments().any(|argument| argument.get_id() == id), "no argument {id}");
    }
    command.mut_args(|argument| match changes.iter().find(|(id, _)| argument.get_id() == id) {
        Some((_, change)) => change(argument),
        None => argument,
    })
}

/// The examples of a command, as lines with their comments aligned.
fn example_lines(path: &str) -> Option<String> {
    let (_, examples) = EXAMPLES.iter().find(|(command, _)| *command == path)?;
    let longest = examples.iter().map(|(line, _)| line.len()).filter(|length| *length <= MAX_ALIGNED).max();
    let longest = longest.unwrap_or(0);
    let line = |(line, comment): &Example| format!("  linkgauge {line:longest$}  # {comment}");
    Some(examples.iter().map(line).collect::<Vec<_>>().join("\n"))
}

/// A longer example does not move the comments of the others.
const MAX_ALIGNED: usize = 56;

/// The command line with its help pages.
pub fn with_help(command: Command) -> Command {
    let overview = command_overview(&command);
    let page = |rest: &str| {
        let examples = heading("Examples");
        let lines = example_lines("").unwrap_or_default();
        format!("{{about-with-newline}}\n{examples}\n{lines}\n\n{{usage-heading}} {{usage}}\n\n{rest}")
    };
    let options = heading("Options");
    let template = page(&format!("{overview}{options}\n{{options}}{{after-help}}"));
    with_pages_of_subcommands(command, "").help_template(template)
}

/// The same with the examples at the end, for manual pages, which have no template.
pub fn with_examples_after(command: Command) -> Command {
    fn add(command: Command, path: &str) -> Command {
        let command = command.mut_subcommands(|subcommand| {
            let path = format!("{path} {}", subcommand.get_name());
            add(subcommand, path.trim_start())
        });
        match example_lines(path) {
            Some(lines) => command.after_help(format!("Examples:\n{lines}")),
            None => command,
        }
    }
    add(command, "")
}

fn with_pages_of_subcommands(command: Command, path: &str) -> Command {
    command.mut_subcommands(|subcommand| {
        let path = format!("{path} {}", subcommand.get_name()).trim_start().to_owned();
        let examples = example_lines(&path)
            .map_or(String::new(), |lines| format!("{}\n{lines}\n\n", heading("Examples")));
        let template = format!(
            "{{about-with-newline}}\n{examples}{{usage-heading}} {{usage}}\n\n{{all-args}}{{after-help}}"
        );
        // Without any argument the short help is more useful than the name of the missing one.
        let has_required = subcommand.get_arguments().any(Arg::is_required_set)
            || subcommand.get_groups().any(ArgGroup::is_required_set);
        let subcommand = subcommand.arg_required_else_help(has_required);
        with_pages_of_subcommands(with_help_flag(subcommand), &path).help_template(template)
    })
}

/// `-h` stands with the flags of the output, where a command has such.
fn with_help_flag(command: Command) -> Command {
    let has_more = command.get_arguments().any(|argument| argument.is_hide_short_help_set());
    let text = if has_more { "Print this summary; --help prints all flags" } else { "Print help" };
    let group = command.get_arguments().any(|argument| argument.get_help_heading() == Some(OUTPUT));
    let help =
        Arg::new("help").short('h').long("help").action(ArgAction::Help).help(text).long_help("Print help");
    command.disable_help_flag(true).arg(help.help_heading(group.then_some(OUTPUT)))
}

/// The commands by group, each with the first sentence of its help.
fn command_overview(command: &Command) -> String {
    let mut out = String::new();
    for (title, names) in COMMAND_GROUPS {
        out += &heading(title);
        out.push('\n');
        for subcommand in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
            let aliases: Vec<&str> = subcommand.get_visible_aliases().collect();
            let aliases =
                if aliases.is_empty() { String::new() } else { format!(" [alias: {}]", aliases.join(", ")) };
            out += &format!("  {:<14}  {about}{aliases}\n", subcommand.get_name());
        }
        out.push('\n');
    }
    out
}

/// In the style of clap's own headings.
fn heading(title: &str) -> String {
    let styles = Styles::default();
    let style = styles.get_header();
    format!("{style}{title}:{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits at spaces; quotes hold a word together.
    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(|word| word.trim_matches('\'').to_owned()).collect()
    }

    fn each_page(command: &mut Command, path: &str, look: &mut dyn FnMut(&mut Command, &str)) {
        look(command, path);
        for subcommand in command.get_subcommands_mut() {
            if subcommand.get_name() != "help" && !subcommand.is_hide_set() {
                let path = format!("{path} {}", subcommand.get_name());
                each_page(subcommand, path.trim_start(), look);
            }
        }
    }

    #[test]
    fn each_command_has_one_group_and_examples() {
        let mut command = super::super::definition();
        command.build();
        each_page(&mut command, "", &mut |_, path| {
            assert!(EXAMPLES.iter().any(|(name, _)| *name == path), "no examples: {path}");
            let groups = COMMAND_GROUPS.iter().filter(|(_, names)| names.contains(&path)).count();
            assert_eq!(groups, usize::from(!path.is_empty() && !path.contains(' ')), "{path}");
        });
    }

    #[test]
    fn examples_are_accepted() {
        for (_, examples) in EXAMPLES {
            for (line, _) in *examples {
                let typed = [vec!["linkgauge".to_owned()], words(line)].concat();
                let read = super::super::definition().try_get_matches_from(typed);
                assert!(read.is_ok(), "{line}: {}", read.unwrap_err());
            }
        }
    }

    #[test]
    fn short_help_fits_a_screen() {
        let mut command = super::super::definition().term_width(100);
        command.build();
        each_page(&mut command, "", &mut |command, path| {
            let page = command.render_help().to_string();
            let lines = page.lines().count();
            assert!(lines <= 50, "{path}: {lines} lines\n{page}");
        });
    }
}
