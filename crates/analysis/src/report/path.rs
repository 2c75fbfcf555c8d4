//! The path to a host: its table of hops, and what it says in sentences.

use super::wording::{ABSENT, brief_time, format_share, printable, shorten};
use linkgauge_engine::path::REPLY_INTERVAL;
use linkgauge_engine::transport::ProbeKind;
use linkgauge_model::plan::Direction;
use linkgauge_model::run::{
    CaseResult, HopTimes, PathEnd, PathHop, PathMtu, PathQueue, PathResult, QueueVerdict,
};
use linkgauge_model::units::{format_nanoseconds, format_plural};
use serde_json::Value;

/// Minimum agreement of the resamplings; below it, a place is uncertain.
const SURE_AGREEMENT: f64 = 0.9;

/// A growth below these, alone and of the whole path, is noise of a queue that varies.
const NOISE_NS: f64 = 1e6;
const NOISE_SHARE: f64 = 0.15;

/// Minimum number of replies at which the 99th percentile is not the slowest one.
const P99_REPLIES: u64 = 100;

/// A hop answers all probes, as far as it is worth a mention.
const ANSWERS_ALL: f64 = 0.995;

/// Whether the case measured a path, and not a load beside it.
pub(crate) fn is_path(case: &CaseResult) -> bool {
    case.workload == "path"
}

/// The path of a case whose workload it is: `4 hops to 10.77.4.2, 18.2 ms; nothing wrong`. `target`: the host, as typed.
pub(crate) fn path_answer(case: &CaseResult, path: &PathResult, target: &str) -> String {
    let count = format_plural(path.hops.len() as u64, "hop");
    let last = path.hops.iter().rev().find(|hop| hop.answered > 0);
    let time = last.and_then(|hop| hop.latency_ns).map(|times| brief_time(times.p50 as f64));
    let time = time.map_or(String::new(), |time| format!(", {time}"));
    let start = match path.end {
        PathEnd::Reached => format!("{count} to {target}{time}"),
        PathEnd::Refused => {
            let router = path.refused_by.map_or("a router".to_owned(), |address| address.to_string());
            format!("{target} is not reached: {router} behind {count} does not forward the probes")
        }
        PathEnd::Silent => match last {
            Some(last) => {
                format!("{target} is not reached: nothing replies behind {}", hop_name(path, last.hop))
            }
            None => format!("{target} is not reached: no hop replies"),
        },
    };
    let findings: Vec<String> =
        [loss_finding(case, path), lost_at_end(case, path), path.mtu.as_ref().map(|mtu| mtu_text(path, mtu))]
            .into_iter()
            .flatten()
            .collect();
    let is_reached = path.end == PathEnd::Reached;
    let is_fine = is_reached && path.loss.is_none() && case.figures.counts.lost == 0;
    let is_fine = is_fine && path.mtu.as_ref().is_none_or(|mtu| !mtu.is_black_hole);
    let nothing = is_fine.then(|| "nothing wrong".to_owned());
    [start].into_iter().chain(nothing).chain(findings).collect::<Vec<_>>().join("; ")
}

/// Text such as `loss begins at hop 4 (10.77.4.2, 3.1 %)`.
fn loss_finding(case: &CaseResult, path: &PathResult) -> Option<String> {
    let loss = path.loss?;
    let share = format_share(loss.share);
    let at = hop_address(path, loss.hop).map_or(String::new(), |address| format!("{address}, "));
    // The host's own replies can be limited, as those of a router.
    let is_of_end = usize::from(loss.hop) == path.hops.len()
        && path.probe == ProbeKind::Udp.name()
        && path.hops.len() > 1;
    Some(match is_of_end {
        true => format!(
            "only the host misses probes ({share}): loss on the last link, or a limit of its replies. Try --probe icmp"
        ),
        false => format!("loss begins at hop {} ({at}{share}){}", loss.hop, loss_at_host(case)),
    })
}

/// Losses of the whole path, in words, if there are any.
fn loss_at_host(case: &CaseResult) -> String {
    let share = case.figures.loss_share().filter(|share| *share > 0.0);
    share.map_or(String::new(), |share| {
        format!("; {} of the probes to the host are lost", format_share(share))
    })
}

/// Lost probes to the host that have no place: too few, or too fast for the replies.
fn lost_at_end(case: &CaseResult, path: &PathResult) -> Option<String> {
    let counts = &case.figures.counts;
    let is_reached = path.end == PathEnd::Reached;
    let interval_ns = case.requested.get("interval_ns").and_then(Value::as_u64).unwrap_or(u64::MAX);
    let is_fast = u128::from(interval_ns) < REPLY_INTERVAL.as_nanos();
    let has_loss = |hop: &PathHop| hop.answered < hop.sent;
    let all_miss = path.hops.iter().filter(|hop| hop.answered > 0).all(has_loss);
    let may_be_limit = path.probe == ProbeKind::Udp.name() && (is_fast || all_miss);
    (is_reached && counts.lost > 0 && path.loss.is_none()).then(|| {
        let lost = format!("{} of {} probes to the host", counts.lost, counts.sent);
        match may_be_limit {
            true => {
                format!("{lost} had no reply: loss, or limits of replies. Try --probe icmp")
            }
            false => format!("{lost} lost, too few to say where"),
        }
    })
}

/// Text such as `packets above 1400 bytes vanish between hop 2 (10.77.2.2) and hop 3 (10.77.3.2) without a report`.
fn mtu_text(path: &PathResult, mtu: &PathMtu) -> String {
    let bytes = mtu.bytes;
    if mtu.is_local {
        return format!("packets of {bytes} bytes fit, as on the local interface");
    }
    if let Some(router) = mtu.reported_by {
        let is_of = |hop: &&PathHop| hop.hosts.iter().any(|host| host.address == router);
        let hop = path.hops.iter().find(is_of).map(|hop| hop_name(path, hop.hop));
        let router = hop.unwrap_or_else(|| router.to_string());
        return format!("packets of {bytes} bytes fit: {router} reports a smaller link behind it");
    }
    let last = mtu.last_hop.unwrap_or(0);
    let next = path.hops.iter().find(|hop| hop.hop > last && hop.answered > 0);
    let place = match next {
        Some(next) => format!("between {} and {}", hop_name(path, last), hop_name(path, next.hop)),
        None => format!("behind {}", hop_name(path, last)),
    };
    format!("packets above {bytes} bytes vanish {place} without a report (a black hole)")
}

/// Name of a hop: `hop 2 (10.77.2.2)`.
fn hop_name(path: &PathResult, hop: u8) -> String {
    match (hop, hop_address(path, hop)) {
        (0, _) => "this host".to_owned(),
        (hop, Some(address)) => format!("hop {hop} ({address})"),
        (hop, None) => format!("hop {hop}"),
    }
}

/// The address of a hop that answers most.
fn hop_address(path: &PathResult, hop: u8) -> Option<String> {
    let hop = path.hops.iter().find(|other| other.hop == hop)?;
    hop.hosts.first().map(|host| host.address.to_string())
}

/// `Your upload queues between hop 1 (10.77.1.2) and hop 2 (10.77.2.2): 64 ms; beyond it nothing grows.`
pub(crate) fn queue_sentence(case: &CaseResult) -> Option<String> {
    let path = case.path.as_ref()?;
    let queue = path.queue.as_ref()?;
    let load = match case.direction {
        Direction::Send | Direction::Loop => "Your upload",
        Direction::Receive => "Your download",
        Direction::Both => "Your traffic",
    };
    let mut text = match queue.verdict {
        QueueVerdict::Found => format!("{load} queues {}", queue_place(path, queue)),
        QueueVerdict::None => {
            "No queue found: under load the delay of the path does not grow by a millisecond".to_owned()
        }
        QueueVerdict::Spread => format!(
            "{load} queues on several links: {} in all, and no link adds most of it",
            brief_time(queue.total_ns)
        ),
        QueueVerdict::TooFewReplies => {
            "Too few replies of hops under load to place a queue. Try a longer --time".to_owned()
        }
    };
    if queue.agreement < SURE_AGREEMENT && queue.verdict != QueueVerdict::TooFewReplies {
        text += &format!(" (uncertain: {} of resamplings agree)", format_share(queue.agreement));
    }
    if let Some(loss) = path.loss {
        text += &format!(
            "; under load {} of the probes from hop {} on are lost",
            format_share(loss.share),
            loss.hop
        );
    }
    Some(text + ".")
}

fn queue_place(path: &PathResult, queue: &PathQueue) -> String {
    let delay = queue.delay_ns.map_or(String::new(), brief_time);
    let name = |hop: u8| hop_name(path, hop);
    let after = queue.after_hop.unwrap_or(0);
    match queue.before_hop {
        Some(before) => {
            let rest = queue.total_ns - queue.delay_ns.unwrap_or(0.0);
            let beyond = match () {
                // The growth of the whole path is what this link adds, but for what is too small to see.
                () if rest < NOISE_NS.max(NOISE_SHARE * queue.total_ns) => {
                    "beyond it nothing grows".to_owned()
                }
                () => format!("other links add {}", brief_time(rest)),
            };
            format!("between {} and {}: {delay}; {beyond}", name(after), name(before))
        }
        None if usize::from(after) == path.hops.len() && path.end == PathEnd::Reached => format!(
            "where the probes do not: {delay} more in its connections, while no hop grows. The server itself, or a queue for each \
             flow, delays it"
        ),
        None => format!("behind {}, the last one that answers: {delay}", name(after)),
    }
}

/// The rank of the columns that are left out first.
const LAST_RANK: u8 = 4;

/// A column of the table of hops, with its cells.
pub(crate) struct HopColumn {
    pub(crate) title: &'static str,
    /// Columns with a higher number are left out first where there is no room.
    rank: u8,
    pub(crate) cells: Vec<String>,
}

/// A row: a hop, and one of those who answer there.
struct HopRow<'a> {
    hop: &'a PathHop,
    host: Option<usize>,
}

/// The table of hops. Names have room for this many characters beside the address.
pub(crate) fn hop_columns(path: &PathResult, name_columns: usize) -> Vec<HopColumn> {
    let rows: Vec<HopRow> = path
        .hops
        .iter()
        .flat_map(|hop| {
            let several = (1..hop.hosts.len()).map(move |host| HopRow { hop, host: Some(host) });
            let first = HopRow { hop, host: (!hop.hosts.is_empty()).then_some(0) };
            [first].into_iter().chain(several)
        })
        .collect();
    let is_first = |row: &HopRow| row.host.unwrap_or(0) == 0;
    let column = |title, rank, cell: &dyn Fn(&PathHop) -> String| HopColumn {
        title,
        rank,
        cells: rows.iter().map(|row| if is_first(row) { cell(row.hop) } else { String::new() }).collect(),
    };
    let time = |times: Option<HopTimes>, of: fn(&HopTimes) -> f64| {
        times.map_or(ABSENT.to_owned(), |times| format_nanoseconds(of(&times)))
    };
    let mut columns = vec![
        column("hop", 0, &|hop| hop.hop.to_string()),
        HopColumn {
            title: "host",
            rank: 0,
            cells: rows.iter().map(|row| host_text(row, name_columns, path.flows)).collect(),
        },
        column("answers", 1, &|hop| answered_text(hop.sent, hop.answered)),
    ];
    if path.hops.iter().any(|hop| hop.loaded.is_some()) {
        let loaded = |hop: &PathHop| hop.loaded.as_ref().and_then(|loaded| loaded.latency_ns);
        let growth = |ns: Option<f64>| ns.map_or(ABSENT.to_owned(), |ns| format_nanoseconds(ns.max(0.0)));
        columns.extend([
            column("idle p50", 1, &|hop| time(hop.latency_ns, |times| times.p50 as f64)),
            column("loaded p50", 1, &|hop| time(loaded(hop), |times| times.p50 as f64)),
            column("loaded max", 3, &|hop| time(loaded(hop), |times| times.max as f64)),
            column("added", 2, &|hop| growth(hop.loaded.as_ref().and_then(|loaded| loaded.added_ns))),
            column("lasting", 1, &|hop| growth(hop.loaded.as_ref().and_then(|loaded| loaded.lasting_ns))),
            column("loaded answers", 4, &|hop| {
                hop.loaded
                    .as_ref()
                    .map_or(ABSENT.to_owned(), |loaded| answered_text(loaded.sent, loaded.answered))
            }),
        ]);
    } else {
        let has_p99 = path.hops.iter().any(|hop| hop.answered >= P99_REPLIES);
        let tail = if has_p99 { "p99" } else { "max" };
        columns.extend([
            column("min", 3, &|hop| time(hop.latency_ns, |times| times.min as f64)),
            column("p50", 0, &|hop| time(hop.latency_ns, |times| times.p50 as f64)),
            column(tail, 1, &|hop| time(hop.latency_ns, |times| times.p99 as f64)),
            column("jitter", 4, &|hop| {
                let jitter = hop.latency_ns.and_then(|times| times.jitter);
                jitter.map_or(ABSENT.to_owned(), format_nanoseconds)
            }),
        ]);
    }
    columns
}

/// Text of a hop: `*` for a hop that never answers; the flows of each branch, if there are several.
fn host_text(row: &HopRow, name_columns: usize, flows: u32) -> String {
    let Some(host) = row.host.and_then(|index| row.hop.hosts.get(index)) else { return "*".to_owned() };
    let address = host.address.to_string();
    let mut text =
        match host.name.as_deref().map(printable).filter(|name| *name != address && name_columns > 0) {
            Some(name) => format!("{} ({address})", shorten(&name, name_columns)),
            None => address,
        };
    if row.hop.hosts.len() > 1 {
        text += &match flows {
            1 => format!(", {} of {}", host.answered, row.hop.answered),
            _ => {
                let flows: Vec<String> = host.flows.iter().map(ToString::to_string).collect();
                let word = if flows.len() == 1 { "flow" } else { "flows" };
                format!(", {word} {}", shorten(&flows.join(" "), 12))
            }
        };
    }
    text
}

/// Share of answered probes: `all`, `12 %`, `none`.
fn answered_text(sent: u64, answered: u64) -> String {
    let share = answered as f64 / sent.max(1) as f64;
    match answered {
        0 => "none".to_owned(),
        _ if share >= ANSWERS_ALL => "all".to_owned(),
        _ => format!("{:.0} %", share * 100.0),
    }
}

/// The lines of the table, header first, in this width.
pub(crate) fn hop_lines(path: &PathResult, width: usize) -> Vec<String> {
    /// Minimum width for names beside addresses.
    const LEAST_NAME: usize = 10;
    let line_width =
        |columns: &[HopColumn]| columns.iter().map(column_width).sum::<usize>() + 2 * (columns.len() - 1);
    let has_names = path.hops.iter().flat_map(|hop| &hop.hosts).any(|host| host.name.is_some());
    let of_rank = |names: usize, rank: u8| {
        let mut columns = hop_columns(path, names);
        columns.retain(|column| column.rank <= rank);
        columns
    };
    // ` (` and `)` surround the address. A name is worth more than the last column.
    let room = |rank: u8| width.saturating_sub(line_width(&of_rank(0, rank)) + 3);
    let rank = if has_names && room(u8::MAX) < LEAST_NAME { LAST_RANK - 1 } else { LAST_RANK };
    let names = if room(rank) < LEAST_NAME { 0 } else { room(rank) };
    let mut columns = of_rank(names, if names == 0 { LAST_RANK } else { rank });
    if line_width(&columns) > width {
        columns = of_rank(names.saturating_sub(line_width(&columns) - width), rank);
    }
    while line_width(&columns) > width
        && let Some(last) =
            (0..columns.len()).filter(|&at| columns[at].rank > 0).max_by_key(|&at| columns[at].rank)
    {
        columns.remove(last);
    }
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let line = |cell: &dyn Fn(&HopColumn) -> String| {
        let cells = columns.iter().map(|column| {
            let (text, width) = (cell(column), column_width(column));
            if column.title == "host" { format!("{text:width$}") } else { format!("{text:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let header = line(&|column| column.title.to_owned());
    let rows = (0..rows).map(|row| line(&|column| column.cells[row].clone()));
    [header].into_iter().chain(rows).collect()
}

fn column_width(column: &HopColumn) -> usize {
    column.cells.iter().map(|cell| cell.chars().count()).chain([column.title.len()]).max().unwrap_or(0)
}

/// Routers that limit their replies, for a note: `hop 2 answers 12 %: it limits its replies, and later hops lose nothing`.
pub(crate) fn limited_note(path: &PathResult) -> Option<String> {
    let lasting = path.loss.map_or(0.0, |loss| loss.share);
    let limited: Vec<String> = path
        .hops
        .iter()
        .enumerate()
        .filter(|(index, hop)| {
            let missed = 1.0 - hop.answered as f64 / hop.sent.max(1) as f64;
            // What the last hop misses is loss, or has a sentence of its own.
            hop.sent > 0 && missed > lasting + 0.1 && index + 1 < path.hops.len()
        })
        .map(|(_, hop)| match hop.answered {
            0 => format!("hop {} does not answer", hop.hop),
            answered => format!("hop {} answers {}", hop.hop, answered_text(hop.sent, answered)),
        })
        .collect();
    (!limited.is_empty()).then(|| {
        format!(
            "{}. That is no loss: later hops answer more, and routers limit their replies",
            limited.join(", ")
        )
    })
}

#[cfg(test)]
mod tests;
