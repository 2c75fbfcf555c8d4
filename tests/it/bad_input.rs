//! Typing errors and missing remotes: one clear line on standard error, nothing on standard output, status 2.

use std::net::TcpListener;

use linkgauge::Registry;

use crate::program::{Ended, Serving, command, run};

/// Fails unless the program refused with just this line.
fn says(arguments: &[&str], line: &str) {
    let ended = run(arguments);
    assert_eq!(ended.stderr, format!("error: {line}\n"), "{arguments:?}");
    nothing_else(&ended, arguments);
}

fn nothing_else(ended: &Ended, arguments: &[&str]) {
    assert_eq!(ended.stdout, "", "{arguments:?}");
    assert_eq!(ended.status, Some(2), "{arguments:?}");
}

#[test]
fn invalid_endpoints_are_refused() {
    let known: Vec<&str> =
        Registry::standard().transports.0.iter().map(|transport| transport.scheme).collect();
    let line = format!("foo://x:1: unknown scheme 'foo' (known: {})", known.join(", "));
    says(&["latency", "foo://x:1"], &line);
    for (url, line) in [
        ("tcp://127.0.0.1:70000", "tcp://127.0.0.1:70000: '70000' is not a port: use 1 to 65535"),
        ("tcp://127.0.0.1:0", "tcp://127.0.0.1:0: port 0 cannot be connected to. Use 1 to 65535"),
        ("udp://127.0.0.1:0", "udp://127.0.0.1:0: port 0 cannot be connected to. Use 1 to 65535"),
        ("tcp://::1", "tcp://::1: write an IPv6 address in brackets, like tcp://[::1]:7100"),
        ("mem://x", "mem://x: this process has no server with this name"),
        (
            "tcp://missing.invalid:7",
            "tcp://missing.invalid:7: the name 'missing.invalid' was not found: check its spelling",
        ),
        (
            "unix:///nonexistent/x",
            "unix:///nonexistent/x: connect: No such file or directory (os error 2): no server has this endpoint. Start \
             'linkgauge serve' with it",
        ),
    ] {
        says(&["latency", url], line);
    }
    let ended = run(&["latency", "tcp://127.0.0.1:1?banana=1"]);
    assert!(ended.stderr.contains("unknown option 'banana' (known: nodelay, "), "{}", ended.stderr);
    nothing_else(&ended, &["an option that is none"]);
    says(
        &["latency", "127.0.0.1/24"],
        "invalid value '127.0.0.1/24' for '<URL>...': '127.0.0.1/24' is not an endpoint: write scheme://where, like \
         tcp://host:7100, or a host",
    );
    let ended = run(&["latency"]);
    assert!(ended.stderr.starts_with("Measure round-trip times\n\nExamples:\n"), "{}", ended.stderr);
    nothing_else(&ended, &["latency"]);
}

#[test]
fn web_addresses_are_refused_as_endpoints() {
    for (url, text) in [
        ("tcp://127.0.0.1/path", "/path"),
        ("tcp://127.0.0.1:7100/", "/"),
        ("tcp://me@127.0.0.1", "me@"),
        ("tcp://me:secret@127.0.0.1:7100", "me:secret@"),
    ] {
        let line =
            format!("{url}: '{text}' does not belong here: write tcp://host:port, and options behind '?'");
        says(&["latency", url], &line);
    }
    for (url, line) in [
        ("[fe80::1%nowhere]", "this host has no interface 'nowhere'. Its interfaces: "),
        ("fe80::1%nowhere", "this host has no interface 'nowhere'. Its interfaces: "),
        ("fe80::1", "a link-local address needs its interface: write [fe80::1%"),
    ] {
        let ended = run(&["latency", url]);
        assert!(ended.stderr.contains(line) && ended.stderr.lines().count() == 1, "{}", ended.stderr);
        nothing_else(&ended, &[url]);
    }
    let beginning = "invalid value '7100' for '<URL>...': '7100' is a port without its host: write host:7100, like \
                     127.0.0.1:7100";
    says(&["latency", "localhost", "7100"], beginning);
}

#[test]
fn an_unreadable_file_is_an_error() {
    let ended = run(&["import", "iperf3", "/"]);
    assert_eq!(ended.stderr, "error: /: cannot be read: Is a directory (os error 21)\n");
    nothing_else(&ended, &["import", "iperf3", "/"]);
    says(
        &["import", "ping", "missing", "--unit", "ms"],
        "--unit is for samples, csv, hdr, not for ping: leave it out",
    );
    says(&["import", "hdr", "missing", "--by", "x"], "--by is for csv, not for hdr: leave it out");
}

#[test]
fn commands_of_other_programs_name_ours() {
    for (typed, line) in [
        ("-c 192.0.2.7", "unknown flag '-c': write linkgauge throughput HOST, or linkgauge latency HOST"),
        ("-s -p 5201", "unknown flag '-s': write linkgauge serve"),
        (
            "192.0.2.7",
            "unknown command '192.0.2.7': write linkgauge latency 192.0.2.7 or linkgauge throughput 192.0.2.7",
        ),
        ("server", "unknown command 'server': write linkgauge serve"),
        ("pp -i 192.0.2.7", "unknown command 'pp': write linkgauge latency HOST"),
        ("ping h -D", "unknown flag '-D': write --raw FILE, which has the time of each request"),
        ("ping -Q 16 h", "unknown flag '-Q': write --dscp CLASS"),
        ("latency h --tcp", "unknown flag '--tcp': leave it out: TCP is the default"),
        ("throughput h -J", "unknown flag '-J': write --json FILE, or --json - for standard output"),
        ("throughput h -w 256K", "unknown flag '-w': write tcp://HOST?sndbuf=256Ki&rcvbuf=256Ki"),
        ("serve -D", "unknown flag '-D': write nohup linkgauge serve &"),
        (
            "latency h --sze 3",
            "unknown flag '--sze'. Did you mean '--size'? 'linkgauge latency --help' lists all flags",
        ),
        ("lab uart --nonsense", "unknown flag '--nonsense'. 'linkgauge lab uart --help' lists all flags"),
        ("latency h --count -5", "'-5' is negative. Values are 0 or more"),
        ("serve --max-sessions -1", "'-1' is negative. Values are 0 or more"),
        (
            "serve -1",
            "unknown flag '-1': write --time TIME: the server accepts any number of clients until then",
        ),
        (
            "serve --max-sessions=-1",
            "invalid value '-1' for '--max-sessions <N>': use a whole number, 1 or more",
        ),
        (
            "serve --max-sessions 0",
            "invalid value '0' for '--max-sessions <N>': use a whole number, 1 or more",
        ),
        ("serve --max-flows x", "invalid value 'x' for '--max-flows <N>': use a whole number, 0 or more"),
        ("history --limit=-1", "invalid value '-1' for '--limit <N>': use a whole number, 0 or more"),
        (
            "latency h --seed 99999999999999999999",
            "invalid value '99999999999999999999' for '--seed <N>': this number is too large",
        ),
        ("lab uart --ports 0", "invalid value '0' for '--ports <N>': use 1 to 1024"),
    ] {
        says(&typed.split(' ').collect::<Vec<_>>(), line);
    }
    let bytes = "invalid value '10M' for '--count <N>': ambiguous: bytes or messages. Use --volume 10M for bytes, or \
                 10000000 for messages";
    says(&["throughput", "h", "-n", "10M"], bytes);
    let host = "invalid value '192.0.2.7' for '--count <N>': '192.0.2.7' is not a number of messages (like 10000). A host \
                has no flag";
    says(&["throughput", "-c", "192.0.2.7"], host);
}

#[test]
fn invalid_serial_ports_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let list = "'linkgauge doctor' lists those of this host";
    for (url, what) in [
        ("serial:///dev/no-such-port", "no such serial port"),
        (&format!("serial://{}/port", file.display()), "no such serial port"),
        (&format!("serial://{}", file.display()), "this is not a serial port"),
        ("serial:///dev/null", "this is not a serial port"),
        ("serial:///dev", "this is a directory, not a serial port"),
    ] {
        says(&["latency", url], &format!("{url}: {what}: {list}"));
    }
    says(
        &["latency", "serial://ttyS0"],
        "serial://ttyS0: needed is the path of a device, with the slash it begins with: serial:///dev/ttyS0",
    );
    says(
        &["serve", "serial:///dev/ttyS0"],
        "serial:///dev/ttyS0: serial cannot listen: its remote is a device or a kernel. The lab has stand-ins for devices (linkgauge lab)",
    );
    says(
        &["latency", "serial:///dev/ttyS0?baud=fast"],
        "serial:///dev/ttyS0?baud=fast: 'baud=fast' is not a rate in bits per second, like 9600",
    );
    says(
        &["latency", "tcp://127.0.0.1:1?keepalive=100ms"],
        "tcp://127.0.0.1:1?keepalive=100ms: 'keepalive=100ms' is not whole seconds from 1s to 2h, or off",
    );
}

#[test]
fn invalid_bluetooth_addresses_are_refused() {
    let rfcomm = "an address, and a channel from 1 to 30 unless it is to be looked up, like \
                  rfcomm://00:1A:7D:DA:71:13/1; to listen, the adapter's address or any, and channel 0 for a free one";
    for url in ["rfcomm://00:1A:7D/1", "rfcomm://00:1A:7D:DA:71:13/31", "rfcomm://headset"] {
        says(&["latency", url], &format!("{url}: needed is {rfcomm}"));
    }
    for url in ["rfcomm://any/1", "rfcomm://any"] {
        says(
            &["latency", url, "--protocol", "echo"],
            &format!("{url}: name the device, and one of its channels (1 to 30) or none"),
        );
    }
    says(
        &["latency", "rfcomm://00:1A:7D:DA:71:13?uuid=SP"],
        "rfcomm://00:1A:7D:DA:71:13?uuid=SP: 'uuid=SP' is not a UUID, like 1101 or all of its digits with hyphens",
    );
    let ended = run(&["latency", "l2cap://00:1A:7D:DA:71:13/4096"]);
    assert!(ended.stderr.contains("/4096: needed is an address and a PSM, like "), "{}", ended.stderr);
    nothing_else(&ended, &["an even PSM"]);
}

#[test]
fn nothing_listens_there() {
    // A port that was free a moment ago, and that the system gives to no other program meanwhile.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    drop(taken);
    let refused = |url: &str| {
        format!(
            "{url}: connection refused: no server listens on this port. Start one there, like 'linkgauge serve \
             {url}', or name another port"
        )
    };
    let tcp = format!("tcp://{address}");
    says(&["latency", &tcp], &refused(&tcp));
    let udp = format!("udp://{address}");
    says(&["latency", &udp], &refused(&udp));
    let port = address.port();
    for (url, protocol) in
        [(&tcp, "iperf3"), (&tcp, "sockperf"), (&tcp, "netio"), (&tcp, "discard"), (&udp, "stamp")]
    {
        let workload = if ["stamp", "sockperf"].contains(&protocol) { "latency" } else { "throughput" };
        let original = match protocol {
            "iperf3" => format!(" or 'iperf3 -s -p {port}'"),
            "sockperf" => format!(" or 'sockperf sr --tcp -p {port}'"),
            "netio" => format!(" or 'netio -s -p {port}'"),
            _ => String::new(),
        };
        let hint =
            format!("like 'linkgauge serve --protocol {protocol} {url}'{original}, or name another port");
        let ended = run(&[workload, url, "--protocol", protocol]);
        assert!(ended.stderr.contains(&hint), "{}", ended.stderr);
    }
    // Its server is a device.
    let ended = run(&["download", &format!("pakbus://{address}/1"), "--list"]);
    assert!(
        ended.stderr.contains("connection refused") && !ended.stderr.contains("'linkgauge serve"),
        "{}",
        ended.stderr
    );
    // With a document on standard output that contains the same.
    let ended = run(&["latency", &tcp, "--json", "-"]);
    assert_eq!(ended.status, Some(2));
    let document: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(document["cases"][0]["complete"], false);
    assert_eq!(document["cases"][0]["warnings"][0]["code"], "incomplete");
}

#[test]
fn another_program_listens_there() {
    let server = Serving::start(&["--protocol", "echo"]);
    let tcp = server.tcp.as_str();
    says(
        &["latency", tcp, "--protocol", "linkgauge"],
        &format!("{tcp}: the server is an echo: try --protocol echo"),
    );
    for peer in ["auto", "echo"] {
        says(
            &["throughput", tcp, "--protocol", peer, "--direction", "send"],
            &format!("{tcp}: the protocol echo does not support the direction send: use loop"),
        );
    }
    says(
        &["latency", tcp, "--protocol", "discard"],
        &format!("{tcp}: the protocol discard does not support latency: use throughput"),
    );
    let known: Vec<&str> =
        Registry::standard().protocols_with("latency").map(|protocol| protocol.name).collect();
    let known = known.join(", ");
    let line = format!("invalid value 'banana' for '--protocol <PROTOCOL>'. Use one of auto, {known}");
    says(&["latency", tcp, "--protocol", "banana"], &line);
    says(
        &["serve", tcp],
        &format!(
            "{tcp}: bind: Address already in use (os error 98): another program uses it. Choose another one, or \
             stop that program"
        ),
    );
}

#[test]
fn numbers_that_measure_nothing() {
    let url = "tcp://127.0.0.1:1";
    let bad = |flag: &str, value: &str, name: &str, why: &str| {
        let beginning = format!("invalid value '{value}' for '{flag} <{name}>': '{value}' is not {why}");
        says(&["latency", url, flag, value], &beginning);
    };
    bad("--timeout", "5x", "TIME", "a duration (like 250ms, 10s, 2min; seconds without a unit)");
    bad("--rate", "0/s", "RATE|max", "a message rate above zero (like 100/s or 60Hz)");
    bad("--rate", "0", "RATE|max", "a message rate above zero (like 100/s or 60Hz)");
    bad("--count", "1.5", "N", "a count (like 10000 or 10k)");
    says(&["latency", url, "--count", "0"], "a count or volume of 0 measures nothing: use 1 or more");
    says(&["throughput", url, "--volume", "0"], "a count or volume of 0 measures nothing: use 1 or more");
    says(&["latency", url, "--time", "0s"], "a time of 0 measures nothing: use a longer time");
    says(&["latency", url, "--size", "0"], "a message of 0 bytes: use 1 to 1Gi");
    says(&["latency", url, "--ports", "70000"], "ports = 70000: use 1 to 16384");
    says(&["latency", url, "--parallel", "0"], "parallel = 0: use 1 to 16384");
    says(&["latency", url, "--repeat", "0"], "case 1: repeat = 0: use 1 to 100000");
    let line = "missing: --rate <RATE|max> or --every <TIME>. 'linkgauge latency --help' shows how to use it";
    says(&["latency", url, "--poisson"], line);
    let line = "unknown command 'latenzy'. Did you mean 'latency'? 'linkgauge --help' lists all commands";
    says(&["latenzy"], line);
    let last = "tcp://127.0.0.1:65535";
    let expected = format!("{last}: no number to count ports from (or past the last one)");
    says(&["latency", last, "--ports", "2"], &expected);
}

#[test]
fn messages_too_large_for_the_link_are_refused() {
    let udp = "udp://127.0.0.1:1";
    let expected = format!("{udp}: a message of 70000 bytes does not fit: use a --size of at most 65507");
    says(&["latency", udp, "--size", "70000"], &expected);
    let unix = "unix:///tmp/x?type=seqpacket";
    let ended = run(&["latency", unix, "--size", "100M"]);
    let beginning =
        format!("error: {unix}: a message of 100000000 bytes does not fit: use a --size of at most ");
    assert!(ended.stderr.starts_with(&beginning) && ended.stderr.lines().count() == 1, "{}", ended.stderr);
    nothing_else(&ended, &[unix]);
    // With several cases the number identifies the case.
    let expected =
        format!("case 2: {udp}: a message of 70000 bytes does not fit: use a --size of at most 65507");
    says(&["latency", udp, "--size", "1,70000"], &expected);
}

#[test]
fn more_links_than_open_files_are_refused() {
    let server = Serving::start(&[]);
    for (url, peer) in
        [(server.tcp.as_str(), "echo"), (server.udp.as_str(), "echo"), ("icmp://127.0.0.1", "auto")]
    {
        let program = command(&["latency", url, "--parallel", "64", "--count", "10", "--protocol", peer]);
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "ulimit -n \"$0\"; exec \"$@\"", "24"]);
        shell.arg(program.get_program()).args(program.get_args()).env("LINKGAUGE_STORE", "");
        let output = shell.output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{printed}");
        let line =
            format!("error: {url}: 64 links need a file each, and this process may open 0 more: use fewer ");
        assert!(printed.starts_with(&line) && printed.lines().count() == 1, "{printed}");
        assert!(printed.ends_with("sudo prlimit --nofile=1000 --pid $$\n"), "{printed}");
    }
}

#[test]
fn links_that_a_server_cannot_use_are_refused() {
    for (peer, url, why) in [
        (
            "linx-bmark",
            "tcp://127.0.0.1:0",
            "protocol linx-bmark: signals need a link with messages, like linx://host/server",
        ),
        (
            "linx-bmark",
            "unix:///tmp/linkgauge-none",
            "protocol linx-bmark: signals need a link with messages, like linx://host/server",
        ),
        ("stamp", "tcp://127.0.0.1:0", "test packets need messages, not a stream: use udp"),
    ] {
        says(&["serve", "--protocol", peer, url, "--time", "1s"], &format!("{url}: {why}"));
    }
}

#[test]
fn unknown_cpus_are_refused() {
    let server = Serving::start(&[]);
    let tcp = server.tcp.as_str();
    let ended = run(&["latency", tcp, "--pin", "900"]);
    let beginning = "error: this program may not run on CPU 900: choose one of 0";
    assert!(ended.stderr.starts_with(beginning) && ended.stderr.lines().count() == 1, "{}", ended.stderr);
    nothing_else(&ended, &["--pin", "900"]);
    says(
        &["latency", tcp, "--pin", "0,900"],
        &format!(
            "{tcp}: the server refused: it may not run on CPU 900: choose another CPU for the server (--pin)"
        ),
    );
}

#[test]
fn tokens() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(&path, text).unwrap();
        path
    };
    let (right, wrong, empty) = (file("right", "secret\n"), file("wrong", "guess"), file("empty", "\n"));
    let server = Serving::start(&["--token-file", &right]);
    let tcp = server.tcp.as_str();
    let refused = format!("{tcp}: the server refused:");
    says(&["latency", tcp], &format!("{refused} it requires a token: use --token-file"));
    says(
        &["latency", tcp, "--token-file", &wrong],
        &format!("{refused} the token is wrong: use that of the server (--token-file)"),
    );
    says(&["latency", tcp, "--token-file", &empty], "the token is empty");
    says(
        &["latency", tcp, "--token-file", "/nonexistent"],
        "/nonexistent: the token cannot be read: No such file or directory (os error 2)",
    );
    let ended = run(&["latency", tcp, "--token-file", &right, "--count", "10", "--quiet"]);
    assert_eq!((ended.status, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
}

#[test]
fn plans() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plan.toml");
    let name = path.to_str().unwrap();
    let missing = format!("{name}: the plan cannot be read: No such file or directory (os error 2)");
    says(&["run", name], &missing);
    std::fs::write(&path, "[[case]]\nurl = \"tcp://a:1\"\nbanana = 1\n").unwrap();
    let ended = run(&["run", name]);
    let shown = "line 3: unknown field `banana`, expected";
    assert!(ended.stderr.starts_with(&format!("error: {name}: {shown}")), "{}", ended.stderr);
    nothing_else(&ended, &["an unknown key"]);
    std::fs::write(&path, "").unwrap();
    says(&["run", name], &format!("{name}: the plan has no case: add a [[case]] with a url"));
    std::fs::write(&path, "[[case]]\nurl = \"tcp://a:1\"\nworkload = \"flight\"\n").unwrap();
    says(
        &["run", name],
        &format!(
            "{name}: line 1: unknown workload 'flight' (known: latency, throughput, responsiveness, capacity, download, connect)"
        ),
    );
}

#[test]
fn files_that_cannot_be_written_are_found_before_anything_is_measured() {
    let server = Serving::start(&["--max-sessions", "1"]);
    let tcp = server.tcp.as_str();
    for flag in ["--json", "--html", "--csv", "--raw", "--events"] {
        // Were it measured first, this would take an hour.
        says(
            &["latency", tcp, "--time", "1h", flag, "/nonexistent/x"],
            "/nonexistent/x: cannot be written: No such file or directory (os error 2)",
        );
    }
    let one = "only one result can go to standard output. Use files for the others";
    says(&["latency", tcp, "--time", "1h", "--json", "-", "--csv", "-"], one);
    says(&["latency", tcp, "--time", "1h", "--json", "-", "--events", "-"], one);
    says(&["latency", tcp, "--time", "1h", "--json", "-", "--format", "text"], one);
    says(&["report", "/nonexistent"], "/nonexistent: cannot be read: No such file or directory (os error 2)");
}

#[test]
fn an_error_of_a_plan_names_its_file_and_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plan.toml");
    let name = file.to_str().unwrap();
    for (keys, what) in [
        ("protocol = \"lingauge\"", "line 1: unknown protocol 'lingauge'"),
        (
            "[[case]]\nurl = \"tcp://a\"\nworkload = \"latency\"\nprotocol = \"lingauge\"",
            "line 4: case 2: unknown protocol 'lingauge'",
        ),
        ("size = []", "line 4: case 1: size is an empty list"),
        ("thresholds = [\"rate > 10\"]", "line 4: thresholds: 'rate > 10': '10' is not a rate with its unit"),
    ] {
        let plan = format!("[[case]]\nurl = \"tcp://127.0.0.1:9\"\nworkload = \"latency\"\n{keys}\n");
        std::fs::write(&file, plan).unwrap();
        let ended = run(&["run", name, "--no-store"]);
        assert!(ended.stderr.starts_with(&format!("error: {name}: ")), "{}", ended.stderr);
        assert!(ended.stderr.contains(what), "{}", ended.stderr);
        nothing_else(&ended, &[keys]);
    }
}

#[test]
fn settings_that_cannot_work_are_refused_by_check() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("watch.toml");
    let name = file.to_str().unwrap();
    let watch = "[[watch]]\nurl = \"tcp://192.0.2.1\"\n";
    for (more, what) in [
        (
            "[[action]]\ncommand = [\"/nonexistent/prog\"]",
            "the command '/nonexistent/prog' of an action is no program",
        ),
        (
            "[[action]]\ncommand = [\"nonexistent-prog\"]",
            "the command 'nonexistent-prog' of an action is no program",
        ),
        ("[[action]]\nwebhook = \"http://me:secret@192.0.2.1:99999/\"", "use 1 to 65535"),
    ] {
        std::fs::write(&file, format!("{watch}{more}\n")).unwrap();
        let ended = run(&["monitor", name, "--check"]);
        assert!(ended.stderr.contains(what) && !ended.stderr.contains("secret"), "{}", ended.stderr);
        nothing_else(&ended, &[more]);
    }
    std::fs::write(&file, format!("{watch}[[action]]\nwebhook = \"http://me:secret@192.0.2.1/\"\n")).unwrap();
    let ended = run(&["monitor", name, "--check"]);
    assert!(ended.stdout.contains("posts to http://…@192.0.2.1/"), "{}", ended.stdout);
    for limit in [["--idle", "0"], ["--max-memory", "1"]] {
        nothing_else(&run(&[&["serve"], &limit[..]].concat()), &limit);
    }
}
