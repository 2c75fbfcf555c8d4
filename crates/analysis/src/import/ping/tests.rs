//! Output of several programs named ping.

use crate::import::tests::{import_bytes, import_options, warning_codes};
use linkgauge_model::run::CaseResult;

fn cases(text: &str) -> Result<Vec<CaseResult>, String> {
    import_bytes("ping", text.as_bytes(), &import_options()).map(|run| run.cases)
}

const IPUTILS: &str = "PING gw.example (192.0.2.1) 56(84) bytes of data.
64 bytes from gw.example (192.0.2.1): icmp_seq=1 ttl=64 time=0.031 ms
64 bytes from gw.example (192.0.2.1): icmp_seq=3 ttl=64 time=1.25 ms
64 bytes from gw.example (192.0.2.1): icmp_seq=3 ttl=64 time=1.27 ms (DUP!)
64 bytes from gw.example (192.0.2.1): icmp_seq=4 ttl=64 time=12.5 ms

--- gw.example ping statistics ---
4 packets transmitted, 3 received, +1 duplicates, 25% packet loss, time 3041ms
rtt min/avg/max/mdev = 0.031/4.593/12.500/5.611 ms
";

const BUSYBOX: &str = "PING 192.0.2.1 (192.0.2.1): 56 data bytes
64 bytes from 192.0.2.1: seq=0 ttl=64 time=0.031 ms
64 bytes from 192.0.2.1: seq=1 ttl=64 time=1.250 ms
64 bytes from 192.0.2.1: seq=2 ttl=64 time=12.500 ms

--- 192.0.2.1 ping statistics ---
4 packets transmitted, 3 packets received, 25% packet loss
round-trip min/avg/max = 0.031/4.593/12.500 ms
";

const MACOS: &str = "PING gw.example (192.0.2.1): 56 data bytes
64 bytes from 192.0.2.1: icmp_seq=0 ttl=57 time=0.031 ms
64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=1.250 ms
Request timeout for icmp_seq 2
64 bytes from 192.0.2.1: icmp_seq=3 ttl=57 time=12.500 ms
--- gw.example ping statistics ---
4 packets transmitted, 3 packets received, 25.0% packet loss
round-trip min/avg/max/stddev = 0.031/4.593/12.500/5.611 ms
";

#[test]
fn replies_and_losses_of_unix_programs() {
    for text in [IPUTILS, BUSYBOX, MACOS] {
        let case = cases(text).unwrap().remove(0);
        let (counts, latency) = (case.figures.counts, case.figures.times.latency_ns.unwrap());
        assert_eq!((counts.sent, counts.received, counts.lost), (4, 3, 1), "{text}");
        assert_eq!((latency.min, latency.max, case.message_bytes), (31_000, 12_500_000, 56), "{text}");
        assert_eq!(latency.percentile("p50"), Some(1_250_000), "{text}");
        assert!(case.endpoint.starts_with("icmp://"), "{}", case.endpoint);
    }
    assert_eq!(cases(IPUTILS).unwrap()[0].figures.counts.duplicate, 1);
    // Times as ping writes them in German.
    let with_commas =
        IPUTILS.replace("time=0.031 ms", "time=0,031 ms").replace("time=12.5 ms", "time=12,5 ms");
    let latency = cases(&with_commas).unwrap()[0].figures.times.latency_ns.clone().unwrap();
    assert_eq!((latency.min, latency.max), (31_000, 12_500_000));
    let to_itself = IPUTILS.replace("gw.example (192.0.2.1) 56(84) bytes of data.", "::1(::1) 56 data bytes");
    assert_eq!(cases(&to_itself).unwrap()[0].endpoint, "icmp://[::1]");
}

#[test]
fn several_targets_of_windows() {
    let text = "\r\nPinging gw.example [192.0.2.1] with 32 bytes of data:\r
Reply from 192.0.2.1: bytes=32 time<1ms TTL=128\r
Reply from 192.0.2.1: bytes=32 time=3ms TTL=128\r
Request timed out.\r
\r
Ping statistics for 192.0.2.1:\r
    Packets: Sent = 3, Received = 2, Lost = 1 (33% loss),\r
Approximate round trip times in milli-seconds:\r
    Minimum = 0ms, Maximum = 3ms, Average = 1ms\r
\r
Pinging 192.0.2.9 with 32 bytes of data:\r
Reply from 192.0.2.7: Destination host unreachable.\r
\r
Ping statistics for 192.0.2.9:\r
    Packets: Sent = 1, Received = 0, Lost = 1 (100% loss),\r\n";
    let cases = cases(text).unwrap();
    let counts = |case: &CaseResult| {
        let counts = case.figures.counts;
        (case.endpoint.clone(), case.message_bytes, counts.sent, counts.received, counts.lost)
    };
    assert_eq!(counts(&cases[0]), ("icmp://gw.example".to_owned(), 32, 3, 2, 1));
    assert_eq!(cases[0].figures.times.latency_ns.as_ref().unwrap().max, 3_000_000);
    assert_eq!(counts(&cases[1]), ("icmp://192.0.2.9".to_owned(), 32, 1, 0, 1));
    assert_eq!(cases[1].figures.times.latency_ns, None);
}

#[test]
fn windows_counts_messages_of_routers_as_received() {
    // In the code page of a German console.
    let german = b"\r\nPing wird ausgef\x81hrt f\x81r gw.example [192.0.2.1] mit 32 Bytes Daten:\r
Antwort von 192.0.2.7: Zielhost nicht erreichbar.\r
Antwort von 192.0.2.1: Bytes=32 Zeit<1ms TTL=128\r
Zeit\x81berschreitung der Anforderung.\r
Antwort von 192.0.2.1: Bytes=32 Zeit=3ms TTL=128\r
\r
Ping-Statistik f\x81r 192.0.2.1:\r
    Pakete: Gesendet = 4, Empfangen = 3, Verloren = 1\r
    (25% Verlust),\r\n";
    let english = b"Pinging gw.example [192.0.2.1] with 32 bytes of data:
Reply from 192.0.2.7: Destination host unreachable.
Reply from 192.0.2.1: bytes=32 time<1ms TTL=128
Request timed out.
Reply from 192.0.2.1: bytes=32 time=3ms TTL=128

Ping statistics for 192.0.2.1:
    Packets: Sent = 4, Received = 3, Lost = 1 (25% loss),
";
    let without_summary = english.split(|byte| *byte == b'P').nth(1).unwrap();
    let without_summary = [b"P", without_summary].concat();
    for text in [&german[..], english, &without_summary] {
        let run = import_bytes("ping", text, &import_options()).unwrap();
        let case = &run.cases[0];
        let counts = case.figures.counts;
        assert_eq!((counts.sent, counts.received, counts.known_lost()), (4, 2, Some(2)));
        assert_eq!((case.endpoint.as_str(), case.message_bytes), ("icmp://gw.example", 32));
        assert_eq!(case.figures.times.latency_ns.as_ref().unwrap().max, 3_000_000);
        assert_eq!(warning_codes(&run.warnings), ["imported"]);
    }
    let only_routers = "Pinging 192.0.2.9 with 32 bytes of data:
Reply from 192.0.2.7: Destination host unreachable.
Reply from 192.0.2.7: TTL expired in transit.
    Packets: Sent = 2, Received = 2, Lost = 0 (0% loss),
";
    let counts = cases(only_routers).unwrap()[0].figures.counts;
    assert_eq!((counts.sent, counts.received, counts.lost), (2, 0, 2));
    let to_itself = "Pinging ::1 with 32 bytes of data:\nReply from ::1: time<1ms\n";
    assert_eq!(cases(to_itself).unwrap()[0].figures.counts.received, 1);
}

#[test]
fn german_output_of_iputils() {
    let text = "PING gw.example (192.0.2.1) 56(84) Bytes an Daten.
64 Bytes von gw.example (192.0.2.1): icmp_seq=1 ttl=64 Zeit=0,031 ms
Von 192.0.2.7 icmp_seq=2 Zielhost nicht erreichbar
64 Bytes von gw.example (192.0.2.1): icmp_seq=3 ttl=64 Zeit=12,5 ms

--- gw.example ping-Statistik ---
3 Pakete übertragen, 2 empfangen, +1 Fehler, 33,3333% Paketverlust, Zeit 2041ms
rtt min/avg/max/mdev = 0,031/6,265/12,500/6,234 ms
";
    let case = cases(text).unwrap().remove(0);
    let counts = case.figures.counts;
    assert_eq!((counts.sent, counts.received, counts.lost, case.message_bytes), (3, 2, 1, 56));
    assert_eq!(case.figures.times.latency_ns.unwrap().max, 12_500_000);
}

#[test]
fn output_of_fping() {
    let lines = "192.0.2.1 : [0], 64 bytes, 0.031 ms (0.031 avg, 0% loss)
gw        : [0], timed out (NaN avg, 100% loss)
192.0.2.1 : [1], 64 bytes, 12.5 ms (6.26 avg, 0% loss)
gw        : [1], 64 bytes, 0.5 ms (0.5 avg, 50% loss)
";
    let summary = "
192.0.2.1 : xmt/rcv/%loss = 2/2/0%, min/avg/max = 0.031/6.26/12.5
gw        : xmt/rcv/%loss = 2/1/50%, min/avg/max = 0.500/0.500/0.500
";
    let of_all = "192.0.2.1 : 0.031 12.5\ngw        : - 0.50\n";
    for text in [lines, &format!("{lines}{summary}"), of_all, &format!("{lines}{of_all}")] {
        let cases = cases(text).unwrap();
        let figures = cases.iter().map(|case| {
            let (counts, latency) = (case.figures.counts, case.figures.times.latency_ns.as_ref().unwrap());
            (case.endpoint.as_str(), counts.sent, counts.received, counts.lost, latency.max)
        });
        let expected = [("icmp://192.0.2.1", 2, 2, 0, 12_500_000), ("icmp://gw", 2, 1, 1, 500_000)];
        assert_eq!(figures.collect::<Vec<_>>(), expected, "{text}");
    }
    assert_eq!(cases(lines).unwrap()[0].message_bytes, 56);
}

#[test]
fn a_summary_that_contradicts_the_lines_counts_for_nothing() {
    for (from, to) in [
        ("4 packets transmitted, 3 received", "4 packets transmitted, 2 received"),
        ("4 packets", "2 packets"),
    ] {
        let run = import_bytes("ping", IPUTILS.replace(from, to).as_bytes(), &import_options()).unwrap();
        let figures = &run.cases[0].figures;
        assert_eq!((figures.counts.known_lost(), figures.counts.received), (None, 3));
        assert_eq!(figures.times.latency_ns.as_ref().unwrap().max, 12_500_000);
        assert_eq!(warning_codes(&run.warnings), ["imported", "contradiction"]);
        assert!(run.warnings[1].text.contains("3 replies are listed"), "{}", run.warnings[1].text);
    }
    // The figures of a summary are those of all replies, also of those without a line.
    let of_two = BUSYBOX.replacen("64 bytes from 192.0.2.1: seq=0 ttl=64 time=0.031 ms\n", "", 1);
    let case = cases(&of_two).unwrap().remove(0);
    assert_eq!(warning_codes(&case.warnings), ["skipped_text"], "two of three");
    assert_eq!((case.figures.counts.received, case.figures.times.latency_ns.unwrap().min), (3, 31_000));
}

#[test]
fn a_target_without_a_result_leaves_the_others() {
    let text = format!("PING other (192.0.2.2) 56(84) bytes of data.\n{IPUTILS}");
    let run = import_bytes("ping", text.as_bytes(), &import_options()).unwrap();
    assert_eq!((run.cases.len(), warning_codes(&run.warnings)), (1, vec!["imported", "incomplete"]));
}

#[test]
fn quiet_output_has_the_figures_of_its_summary() {
    let quiet: String =
        IPUTILS.lines().filter(|line| !line.starts_with("64 ")).map(|line| format!("{line}\n")).collect();
    let case = cases(&quiet).unwrap().remove(0);
    let latency = case.figures.times.latency_ns.unwrap();
    assert_eq!(
        (latency.count, latency.mean, latency.standard_deviation),
        (3, 4_593_000.0, Some(5_611_000.0))
    );
    assert!(latency.percentiles.is_empty());
    let quiet_busybox: String =
        BUSYBOX.lines().filter(|line| !line.starts_with("64 ")).map(|line| format!("{line}\n")).collect();
    let quiet_fping = "192.0.2.1 : xmt/rcv/%loss = 4/3/25%, min/avg/max = 0.031/4.593/12.5\n";
    for text in [quiet_busybox.as_str(), quiet_fping] {
        let case = cases(text).unwrap().remove(0);
        let (counts, latency) = (case.figures.counts, case.figures.times.latency_ns.unwrap());
        assert_eq!((counts.sent, counts.lost, latency.mean), (4, 1, 4_593_000.0), "{text}");
        assert_eq!(
            (latency.min, latency.max, latency.standard_deviation),
            (31_000, 12_500_000, None),
            "{text}"
        );
    }
}

#[test]
fn impossible_times_of_a_summary_leave_its_counts() {
    let quiet: String =
        IPUTILS.lines().filter(|line| !line.starts_with("64 ")).map(|line| format!("{line}\n")).collect();
    let case = cases(&quiet.replace("0.031/4.593/", "10.000/9.000/")).unwrap().remove(0);
    let counts = case.figures.counts;
    assert_eq!((counts.sent, counts.received, counts.lost), (4, 3, 1));
    assert_eq!((case.figures.times.latency_ns, warning_codes(&case.warnings)), (None, vec!["contradiction"]));
    assert!(case.warnings[0].text.contains("min 10, avg 9, max 12.5 ms"), "{:?}", case.warnings);
}

#[test]
fn the_summary_counts_replies_with_changed_content() {
    let text = IPUTILS.replace("+1 duplicates", "+1 corrupted").replace(" (DUP!)", "");
    let text = text.replace("4 packets transmitted, 3", "5 packets transmitted, 4").replace("25%", "20%");
    assert_eq!(cases(&text).unwrap()[0].figures.counts.corrupt_messages, 1);
}

#[test]
fn output_in_another_language_has_a_hint() {
    let spanish = "PING h (192.0.2.1) 56(84) bytes de datos.
64 bytes desde 192.0.2.1: icmp_seq=1 ttl=56 tiempo=11.6 ms

1 paquetes transmitidos, 1 recibidos, 0% packet loss, time 0ms\n";
    assert!(cases(spanish).unwrap_err().ends_with("Try: LC_ALL=C ping"));
}

#[test]
fn output_that_was_cut_off_has_no_loss() {
    let lines = format!("{}\n", IPUTILS.split("\n\n").next().unwrap());
    let run = import_bytes("ping", lines.as_bytes(), &import_options()).unwrap();
    assert_eq!((run.cases[0].figures.counts.known_lost(), run.cases[0].figures.counts.received), (None, 3));
    assert_eq!(warning_codes(&run.warnings), ["imported", "losses_unknown"]);
    assert!(cases("hello\n").unwrap_err().starts_with("not the output of ping in English or German"));
    assert!(
        cases("PING gw (192.0.2.1) 56(84) bytes of data.\n")
            .unwrap_err()
            .contains("neither a reply nor a summary")
    );
}

#[test]
fn a_line_that_is_cut_off_counts_for_nothing() {
    let head =
        "PING gw (192.0.2.1) 56(84) bytes of data.\n64 bytes from 192.0.2.1: icmp_seq=1 ttl=64 time=2.5 ms\n";
    for end in ["time=12.345 m", "time=1", "time=12.", "time=12.345 ms"] {
        let text = format!("{head}64 bytes from 192.0.2.1: icmp_seq=2 ttl=64 {end}");
        let run = import_bytes("ping", text.as_bytes(), &import_options()).unwrap();
        let figures = &run.cases[0].figures;
        assert_eq!((figures.counts.received, figures.counts.known_lost()), (1, None), "{end}");
        assert_eq!(figures.times.latency_ns.as_ref().unwrap().max, 2_500_000, "{end}");
        assert_eq!(warning_codes(&run.warnings), ["imported", "skipped_text", "losses_unknown"]);
    }
    assert!(cases("192.0.2.1 : 12.5 12.6 1").unwrap_err().contains("no line end"));
    // A text as a shell or an editor leaves it: the last line of a summary is whole.
    let run = import_bytes("ping", IPUTILS.trim_end().as_bytes(), &import_options()).unwrap();
    assert_eq!(warning_codes(&run.warnings), ["imported"]);
}

#[test]
fn impossible_times_count_for_nothing() {
    let zero = IPUTILS.replace("time=0.031 ms", "time=0.000 ms");
    let negative = IPUTILS.replace("time=0.031 ms", "time=-3.00 ms");
    let others =
        ["time=nan ms", "time=inf", "time=1e2 ms", "time=1 min", "time=1,234.5 ms", "time=99999999999 ms"];
    let others = others.map(|time| IPUTILS.replace("time=0.031 ms", time));
    for text in [zero, negative].into_iter().chain(others) {
        let case = cases(&text).unwrap().remove(0);
        let counts = case.figures.counts;
        assert_eq!((counts.sent, counts.received, counts.known_lost()), (4, 3, Some(1)), "{text}");
        assert_eq!(case.figures.times.latency_ns, None, "{text}");
        assert_eq!(warning_codes(&case.warnings), ["contradiction"], "{text}");
    }
    // Messages that are too short for a time.
    let short = IPUTILS.replace(" time=0.031 ms", "").replace(" time=1.25 ms", "");
    let case = cases(&short).unwrap().remove(0);
    assert_eq!((case.figures.counts.received, case.figures.counts.known_lost()), (3, Some(1)));
    assert!(case.warnings[0].text.contains("too short"), "{:?}", case.warnings);
}

#[test]
fn a_percentage_that_contradicts_its_counts_is_no_loss() {
    for (from, to) in [("25% packet loss", "50% packet loss"), ("4 packets", "18446744073709551616 packets")]
    {
        let run = import_bytes("ping", IPUTILS.replace(from, to).as_bytes(), &import_options()).unwrap();
        assert_eq!(run.cases[0].figures.counts.known_lost(), None, "{to}");
        assert_eq!(warning_codes(&run.warnings), ["imported", "contradiction"], "{to}");
        assert_eq!(run.cases[0].figures.times.latency_ns.as_ref().unwrap().max, 12_500_000);
    }
    let fping = "gw : [0], 64 bytes, 0.5 ms (0.5 avg, 0% loss)\ngw : xmt/rcv/%loss = 1/1/50%, min/avg/max = 0.5/0.5/0.5\n";
    assert_eq!(cases(fping).unwrap()[0].figures.counts.known_lost(), None);
}

#[test]
fn a_time_below_a_limit_is_an_upper_bound() {
    let text = "Pinging gw [192.0.2.1] with 32 bytes of data:
Reply from 192.0.2.1: bytes=32 time<1ms TTL=128
Reply from 192.0.2.1: bytes=32 time=3ms TTL=128
";
    let case = cases(text).unwrap().remove(0);
    let latency = case.figures.times.latency_ns.as_ref().unwrap();
    assert_eq!(
        (latency.min, latency.below_ns, latency.standard_deviation),
        (1_000_000, Some(1_000_000), None)
    );
    assert_eq!((latency.mean, case.figures.times.jitter_ns), (2_000_000.0, None));
    assert_eq!(warning_codes(&case.warnings), ["upper_bound"]);
    assert!(
        case.warnings[0].text.starts_with("1 of 2 times are known to be below 1 ms only"),
        "{:?}",
        case.warnings
    );
}

#[test]
fn a_time_of_zero_is_below_the_last_digit_of_its_text() {
    let whole = IPUTILS.replace("time=0.031 ms", "time=0 ms");
    let fping =
        "gw : [0], 64 bytes, 0.00 ms (0.00 avg, 0% loss)\ngw : [1], 64 bytes, 12.5 ms (6.2 avg, 0% loss)\n";
    for (text, limit) in [(whole.as_str(), 1_000_000), (fping, 10_000)] {
        let case = cases(text).unwrap().remove(0);
        let latency = case.figures.times.latency_ns.unwrap();
        assert_eq!((latency.min, latency.below_ns, latency.max), (limit, Some(limit), 12_500_000), "{text}");
        assert_eq!(warning_codes(&case.warnings), ["upper_bound"]);
    }
}

#[test]
fn an_impossible_deviation_leaves_the_other_times_of_a_summary() {
    let quiet: String =
        IPUTILS.lines().filter(|line| !line.starts_with("64 ")).map(|line| format!("{line}\n")).collect();
    let case = cases(&quiet.replace("/5.611 ms", "/99.000 ms")).unwrap().remove(0);
    let latency = case.figures.times.latency_ns.unwrap();
    assert_eq!((latency.min, latency.mean, latency.max), (31_000, 4_593_000.0, 12_500_000));
    assert_eq!(latency.standard_deviation, None);
    assert_eq!(warning_codes(&case.warnings), ["contradiction"]);
}

#[test]
fn jitter_compares_consecutive_requests_only() {
    let jitter = |text: &str| cases(text).unwrap()[0].figures.times.jitter_ns;
    let unix = |numbers: &[(u64, u64)]| {
        let lines = numbers.iter().map(|(number, time)| {
            format!("64 bytes from 192.0.2.1: icmp_seq={} ttl=64 time={time} ms\n", number % 65_536)
        });
        format!("PING gw (192.0.2.1): 56 data bytes\n{}", String::from_iter(lines))
    };
    // The third request was lost.
    assert_eq!(jitter(&unix(&[(1, 10), (2, 11), (4, 31), (5, 32)])), Some(1e6));
    assert_eq!(jitter(&unix(&[(65_534, 10), (65_535, 11), (65_537, 31), (65_538, 32)])), Some(1e6));
    // The third reply is late: 2, then 20, then 16.
    assert_eq!(jitter(&unix(&[(1, 10), (2, 12), (4, 16), (3, 32)])), Some(38e6 / 3.0));
    let windows = "Pinging 192.0.2.1 with 32 bytes of data:
Reply from 192.0.2.1: bytes=32 time=10ms TTL=64
Reply from 192.0.2.1: bytes=32 time=11ms TTL=64
Request timed out.
Reply from 192.0.2.1: bytes=32 time=31ms TTL=64
Reply from 192.0.2.1: bytes=32 time=32ms TTL=64
";
    assert_eq!(jitter(windows), Some(1e6));
    assert_eq!(jitter("gw : 10.0 11.0 - 31.0 32.0\n"), Some(1e6));
    let with_lines = "gw : [0], 64 bytes, 10.0 ms (10.0 avg, 0% loss)
gw : [1], 64 bytes, 11.0 ms (10.5 avg, 0% loss)
gw : [3], 64 bytes, 31.0 ms (17.3 avg, 25% loss)
gw : [4], 64 bytes, 32.0 ms (21.0 avg, 20% loss)
gw : [2], timed out (21.0 avg, 20% loss)
";
    assert_eq!(jitter(with_lines), Some(1e6));
}

/// Output of hping3 3.a2 in a file: its summary stands in front of the replies, which it buffers.
const HPING: &str = "
--- 10.77.0.2 hping statistic ---
4 packets transmitted, 4 packets received, 0% packet loss
round-trip min/avg/max = 0.1/1.7/6.3 ms
HPING 10.77.0.2 (usa 10.77.0.2): S set, 40 headers + 0 data bytes
len=40 ip=10.77.0.2 ttl=64 DF id=0 sport=80 flags=RA seq=0 win=0 rtt=6.3 ms
len=40 ip=10.77.0.2 ttl=64 DF id=0 sport=80 flags=RA seq=1 win=0 rtt=0.2 ms
len=40 ip=10.77.0.2 ttl=64 DF id=0 sport=80 flags=RA seq=2 win=0 rtt=0.1 ms
len=40 ip=10.77.0.2 ttl=64 DF id=0 sport=80 flags=RA seq=3 win=0 rtt=0.4 ms
HPING 10.77.0.2 (usa 10.77.0.2): icmp mode set, 28 headers + 56 data bytes
len=84 ip=10.77.0.2 ttl=64 id=30172 icmp_seq=0 rtt=0.4 ms
len=84 ip=10.77.0.2 ttl=64 id=30203 icmp_seq=1 rtt=0.1 ms
DUP! len=84 ip=10.77.0.2 ttl=64 id=30203 icmp_seq=1 rtt=0.3 ms

--- 10.77.0.2 hping statistic ---
3 packets transmitted, 2 packets received, 34% packet loss
round-trip min/avg/max = 0.1/0.5/1.0 ms

--- 10.77.0.77 hping statistic ---
2 packets transmitted, 0 packets received, 100% packet loss
round-trip min/avg/max = 0.0/0.0/0.0 ms
HPING 10.77.0.77 (usa 10.77.0.77): udp mode set, 28 headers + 4 data bytes
";

#[test]
fn targets_of_hping_have_their_transport() {
    let cases = cases(HPING).unwrap();
    let of = |index: usize| {
        let case: &CaseResult = &cases[index];
        let counts = &case.figures.counts;
        (case.endpoint.as_str(), case.message_bytes, counts.sent, counts.received, counts.lost)
    };
    assert_eq!(of(0), ("tcp://10.77.0.2", 0, 4, 4, 0));
    assert_eq!(of(1), ("icmp://10.77.0.2", 56, 3, 2, 1));
    assert_eq!(of(2), ("udp://10.77.0.77", 4, 2, 0, 2));
    assert_eq!(cases[1].figures.counts.duplicate, 1);
    let times = cases[0].figures.times.latency_ns.as_ref().unwrap();
    assert_eq!((times.count, times.min, times.max), (4, 100_000, 6_300_000));
    assert!(cases[2].figures.times.latency_ns.is_none());
}
