//! Counters of this host and of a thread, read before and after a measurement: what the kernel did meanwhile.
//!
//! The counters of the host include other programs. A counter that this kernel does not have is absent.

use super::{cpu, read};
use linkgauge_model::run::Counters;

/// The protocol counters that tell causes apart, by the kernel's group and name (snmp_counter.rst of the kernel).
const PROTOCOL_COUNTERS: &[(&str, &str)] = &[
    ("TcpExt", "DelayedACKs"),
    ("TcpExt", "DelayedACKLost"),
    ("TcpExt", "DelayedACKLocked"),
    ("TcpExt", "TCPTimeouts"),
    ("TcpExt", "TCPLossProbes"),
    ("TcpExt", "TCPLostRetransmit"),
    ("TcpExt", "TCPFastRetrans"),
    ("TcpExt", "TCPSlowStartRetrans"),
    ("TcpExt", "TCPSpuriousRtxHostQueues"),
    ("TcpExt", "TCPZeroWindowDrop"),
    ("TcpExt", "TCPToZeroWindowAdv"),
    ("TcpExt", "TCPRcvQDrop"),
    ("TcpExt", "TCPBacklogDrop"),
    ("TcpExt", "TCPAutoCorking"),
    ("TcpExt", "TCPDSACKRecv"),
    ("TcpExt", "TCPSACKReorder"),
    ("TcpExt", "TCPRcvCollapsed"),
    ("TcpExt", "PruneCalled"),
    ("TcpExt", "TCPOFOQueue"),
    ("TcpExt", "BusyPollRxPackets"),
    ("TcpExt", "ListenOverflows"),
    ("Tcp", "RetransSegs"),
    ("Tcp", "OutSegs"),
    ("Udp", "InErrors"),
    ("Udp", "RcvbufErrors"),
    ("Udp", "SndbufErrors"),
    ("Ip", "FragCreates"),
    ("Ip", "ReasmFails"),
    ("Ip", "InDiscards"),
    ("Ip", "OutDiscards"),
];

/// Columns of `/proc/net/softnet_stat`, the same in all kernels, and their names here.
const SOFTNET_COLUMNS: [(&str, usize); 3] =
    [("softnet_processed", 0), ("softnet_dropped", 1), ("softnet_time_squeezed", 2)];

/// The names that [`host_counters`] may return, so that those of another host can be checked.
pub(crate) fn is_known_host_counter(name: &str) -> bool {
    let of_protocol = name.split_once('.').is_some_and(|pair| PROTOCOL_COUNTERS.contains(&pair));
    of_protocol
        || SOFTNET_COLUMNS.iter().any(|(known, _)| *known == name)
        || CGROUP_FIELDS.iter().any(|(_, known, _)| *known == name)
        || name == STEAL_COUNTER
}

/// Counters of this host since its start.
pub(crate) fn host_counters() -> Counters {
    let mut counters = Counters::new();
    for path in ["/proc/net/netstat", "/proc/net/snmp"] {
        if let Some(text) = read::text(path) {
            counters.extend(parse_protocol_counters(&text));
        }
    }
    counters
        .extend(read::text("/proc/net/softnet_stat").map(|text| parse_softnet(&text)).unwrap_or_default());
    counters.extend(cpu::CpuTicks::now().map(|ticks| (STEAL_COUNTER.to_owned(), ticks.steal_ns())));
    counters.extend(cgroup_cpu_stat().map(|text| parse_cgroup(&text)).unwrap_or_default());
    counters
}

/// Time in which a runnable virtual CPU waited for the hypervisor.
const STEAL_COUNTER: &str = "cpu_steal_ns";

/// The change of each counter. Counters that only one reading has, and counters that have wrapped, are left out.
pub(crate) fn differences(before: &Counters, after: &Counters) -> Counters {
    let change =
        |(name, count): (&String, &u64)| Some((name.clone(), count.checked_sub(*before.get(name)?)?));
    after.iter().filter_map(change).collect()
}

/// Parses pairs of lines: `Group: name name …`, then `Group: number number …`.
fn parse_protocol_counters(text: &str) -> Counters {
    let mut counters = Counters::new();
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (Some((group, names)), Some((_, values))) = (names.split_once(':'), values.split_once(':'))
        else {
            continue;
        };
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            // Some gauges of these files are negative.
            if PROTOCOL_COUNTERS.contains(&(group, name))
                && let Ok(value) = value.parse()
            {
                counters.insert(format!("{group}.{name}"), value);
            }
        }
    }
    counters
}

/// Sums over the CPUs, one line each, in hexadecimal.
fn parse_softnet(text: &str) -> Counters {
    let mut counters = Counters::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        for (name, column) in SOFTNET_COLUMNS {
            if let Some(value) = fields.get(column).and_then(|field| u64::from_str_radix(field, 16).ok()) {
                *counters.entry(name.to_owned()).or_default() += value;
            }
        }
    }
    counters
}

/// Fields of `cpu.stat`: the kernel's name, the name here, and the factor to its unit.
const CGROUP_FIELDS: [(&str, &str, u64); 3] = [
    ("nr_periods", "cgroup_periods", 1),
    ("nr_throttled", "cgroup_throttled_periods", 1),
    ("throttled_usec", "cgroup_throttled_ns", 1000),
];

fn parse_cgroup(text: &str) -> Counters {
    let fields = text.lines().filter_map(|line| {
        let (name, value) = line.split_once(' ')?;
        let (_, own_name, factor) = CGROUP_FIELDS.iter().find(|(field, ..)| *field == name)?;
        Some(((*own_name).to_owned(), value.trim().parse::<u64>().ok()?.saturating_mul(*factor)))
    });
    fields.collect()
}

/// `cpu.stat` of the control group of this process (version 2).
fn cgroup_cpu_stat() -> Option<String> {
    let groups = read::text("/proc/self/cgroup")?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?.to_owned();
    read::text(format!("/sys/fs/cgroup{}/cpu.stat", path.trim_end_matches('/')))
}

/// Whether [`ThreadCounters::named`] has this name.
pub(crate) fn is_known_thread_counter(name: &str) -> bool {
    let all = ThreadCounters {
        cpu_ns: Some(0),
        run_queue_wait_ns: Some(0),
        voluntary_switches: Some(0),
        involuntary_switches: Some(0),
    };
    all.named().contains_key(name)
}

/// Counters of the scheduler for one thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadCounters {
    /// Time on a CPU.
    pub(crate) cpu_ns: Option<u64>,
    /// Time runnable, waiting for a CPU.
    pub(crate) run_queue_wait_ns: Option<u64>,
    /// Times that the thread waited for something.
    pub(crate) voluntary_switches: Option<u64>,
    /// Times that the kernel took the CPU away.
    pub(crate) involuntary_switches: Option<u64>,
}

impl ThreadCounters {
    /// The counters of the current thread: two small files.
    pub fn now() -> ThreadCounters {
        let schedule = read::text("/proc/thread-self/schedstat").unwrap_or_default();
        let status = read::text("/proc/thread-self/status").unwrap_or_default();
        ThreadCounters::parse(&schedule, &status)
    }

    /// Reads the files `schedstat` and `status` of a thread.
    pub(super) fn parse(schedule: &str, status: &str) -> ThreadCounters {
        let mut times = schedule.split_whitespace().map(|number| number.parse().ok());
        let field = |name| read::field(status, name)?.parse().ok();
        ThreadCounters {
            cpu_ns: times.next().flatten(),
            run_queue_wait_ns: times.next().flatten(),
            voluntary_switches: field("voluntary_ctxt_switches"),
            involuntary_switches: field("nonvoluntary_ctxt_switches"),
        }
    }

    /// The change since an earlier reading of the same thread.
    pub fn since(&self, earlier: &ThreadCounters) -> ThreadCounters {
        let change = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        ThreadCounters {
            cpu_ns: change(self.cpu_ns, earlier.cpu_ns),
            run_queue_wait_ns: change(self.run_queue_wait_ns, earlier.run_queue_wait_ns),
            voluntary_switches: change(self.voluntary_switches, earlier.voluntary_switches),
            involuntary_switches: change(self.involuntary_switches, earlier.involuntary_switches),
        }
    }

    /// The counters by name; those that the kernel does not have are left out.
    pub(crate) fn named(&self) -> Counters {
        let named = [
            ("thread_cpu_ns", self.cpu_ns),
            ("thread_run_queue_wait_ns", self.run_queue_wait_ns),
            ("thread_voluntary_switches", self.voluntary_switches),
            ("thread_involuntary_switches", self.involuntary_switches),
        ];
        named.into_iter().filter_map(|(name, count)| Some((name.to_owned(), count?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(pairs: &[(&str, u64)]) -> Counters {
        pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn protocol_counters_are_found_by_name() {
        let text = "TcpExt: SyncookiesSent DelayedACKs New\nTcpExt: 1 40 3\nUdp: InDatagrams RcvbufErrors\nUdp: 9 2\n\
                    Tcp: MaxConn RetransSegs\nTcp: -1 5\nhalf: x";
        let expected =
            counters(&[("Tcp.RetransSegs", 5), ("TcpExt.DelayedACKs", 40), ("Udp.RcvbufErrors", 2)]);
        assert_eq!(parse_protocol_counters(text), expected);
        for wrong in ["", "x", "Tcp: RetransSegs\nTcp: many", "Tcp:\nTcp:"] {
            assert_eq!(parse_protocol_counters(wrong), Counters::new(), "{wrong}");
        }
    }

    #[test]
    fn softnet_is_summed_over_the_cpus() {
        let text = "0000000a 00000001 00000002 0 0\n00000010 00000000 00000003 0 0\n";
        let expected =
            counters(&[("softnet_dropped", 1), ("softnet_processed", 26), ("softnet_time_squeezed", 5)]);
        assert_eq!(parse_softnet(text), expected);
        assert_eq!(parse_softnet("zz"), Counters::new());
    }

    #[test]
    fn a_control_group_reports_its_throttling() {
        let text = "usage_usec 5\nnr_periods 10\nnr_throttled 3\nthrottled_usec 7\n";
        let expected = counters(&[
            ("cgroup_periods", 10),
            ("cgroup_throttled_ns", 7000),
            ("cgroup_throttled_periods", 3),
        ]);
        assert_eq!(parse_cgroup(text), expected);
        assert_eq!(parse_cgroup("usage_usec 5"), Counters::new(), "without a quota");
    }

    #[test]
    fn only_counters_of_both_readings_have_a_change() {
        let (before, after) = (counters(&[("a", 1), ("b", 5)]), counters(&[("a", 4), ("b", 2), ("c", 9)]));
        assert_eq!(differences(&before, &after), counters(&[("a", 3)]));
    }

    #[test]
    fn a_thread_has_counters() {
        let text = "voluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        let thread = ThreadCounters::parse("1000 200 7", text);
        assert_eq!((thread.cpu_ns, thread.run_queue_wait_ns), (Some(1000), Some(200)));
        assert_eq!((thread.voluntary_switches, thread.involuntary_switches), (Some(12), Some(3)));
        assert_eq!(ThreadCounters::parse("", "").named(), Counters::new());
        let before = ThreadCounters::now();
        std::thread::sleep(std::time::Duration::from_millis(1));
        let switches = ThreadCounters::now().since(&before).voluntary_switches;
        assert!(switches.is_none_or(|switches| switches > 0), "{switches:?}");
    }

    #[test]
    fn this_host_is_read() {
        let counters = host_counters();
        assert!(counters.contains_key("softnet_processed") && counters.contains_key("Tcp.RetransSegs"));
        assert!(counters.keys().all(|name| is_known_host_counter(name)), "{counters:?}");
        assert!(!is_known_host_counter("TcpExt.<script>"));
    }
}
