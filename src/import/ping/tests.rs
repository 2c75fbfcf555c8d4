//! Output of several programs named ping.

use crate::import::tests::{import_bytes, import_options, warning_codes};
use crate::run::CaseResult;

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
    // As ping writes them in German.
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
fn quiet_output_has_the_figures_of_its_summary() {
    let quiet: String =
        IPUTILS.lines().filter(|line| !line.starts_with("64 ")).map(|line| format!("{line}\n")).collect();
    let case = cases(&quiet).unwrap().remove(0);
    let latency = case.figures.times.latency_ns.unwrap();
    assert_eq!((latency.count, latency.mean, latency.standard_deviation), (3, 4_593_000.0, 5_611_000.0));
    assert!(latency.percentiles.is_empty());
    let busybox: String =
        BUSYBOX.lines().filter(|line| !line.starts_with("64 ")).map(|line| format!("{line}\n")).collect();
    assert!(cases(&busybox).unwrap_err().ends_with("run ping without -q"));
}

#[test]
fn output_that_was_cut_off_has_no_loss() {
    let run =
        import_bytes("ping", IPUTILS.split("\n\n").next().unwrap().as_bytes(), &import_options()).unwrap();
    assert_eq!((run.cases[0].figures.counts.known_lost(), run.cases[0].figures.counts.received), (None, 3));
    assert_eq!(warning_codes(&run.warnings), ["imported", "losses_unknown"]);
    assert!(cases("hello\n").unwrap_err().starts_with("not the output of ping in English"));
    assert!(
        cases("PING gw (192.0.2.1) 56(84) bytes of data.\n")
            .unwrap_err()
            .contains("neither a reply nor a summary")
    );
}
