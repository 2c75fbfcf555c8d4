//! The lines of `fping -c` and `fping -C`. Its targets alternate, and each line names its own.

use super::{
    MAX_LATENCY_MS, PingTarget, ReplyTime, TimesOfSummary, host_of_url, lost_percent, parse_count,
    parse_time, times_of_summary,
};

/// Bytes of the ICMP header, which fping adds to the size of a reply.
const HEADER_BYTES: u32 = 8;

/// Content of a line about its target.
#[derive(Debug, PartialEq)]
pub(super) enum FpingLine {
    /// A reply: its number, its size with the header, and its time.
    Reply(u64, u32, ReplyTime),
    Duplicate,
    TimedOut,
    /// Number of sent requests and of received replies, the percentage that was lost, and the times.
    Summary([u64; 2], Option<f64>, Option<TimesOfSummary>),
    /// The times of all requests; `None`: no reply.
    Times(Vec<Option<ReplyTime>>),
}

/// `gw : [0], 64 bytes, 0.012 ms (0.012 avg, 0% loss)`, `gw : [1], timed out (0.01 avg, 50% loss)`,
/// `gw : xmt/rcv/%loss = 3/3/0%, min/avg/max = …`, `gw : 0.012 - 0.033`. A time in brackets may stand before (`-D`).
pub(super) fn parse_line(line: &str) -> Option<(&str, FpingLine)> {
    let line = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")).map_or(line, |(_, rest)| rest);
    let (name, about) = line.split_once(" : ")?;
    let name = name.trim_end();
    if name.is_empty() || name.contains(char::is_whitespace) {
        return None;
    }
    if let Some(counts) = about.strip_prefix("xmt/rcv/%") {
        let mut numbers = counts.split_once("= ")?.1.split('/');
        let (sent, received) = (parse_count(numbers.next()?)?, parse_count(numbers.next()?)?);
        // If there are more replies than requests, fping prints another percentage than the loss.
        let percent = numbers.next().filter(|_| counts.starts_with("loss")).and_then(lost_percent);
        return Some((name, FpingLine::Summary([sent, received], percent, times_of_summary(about))));
    }
    if about.starts_with("duplicate for [") {
        return Some((name, FpingLine::Duplicate));
    }
    let is_time = |text: &str| text.parse().is_ok_and(|time| (0.0..MAX_LATENCY_MS).contains(&time));
    let time = |text: &str| parse_time(text, 1e6).filter(|_| is_time(text));
    let Some(reply) = about.strip_prefix('[') else {
        let times =
            about.split_whitespace().map(|word| if word == "-" { Some(None) } else { time(word).map(Some) });
        let times: Vec<_> = times.collect::<Option<_>>()?;
        return (!times.is_empty()).then_some((name, FpingLine::Times(times)));
    };
    let (number, reply) = reply.split_once("], ")?;
    if reply.starts_with("timed out") {
        return Some((name, FpingLine::TimedOut));
    }
    let (size, rest) = reply.split_once(" bytes, ")?;
    Some((name, FpingLine::Reply(parse_count(number)?, size.parse().ok()?, time(rest.split_once(" ms")?.0)?)))
}

/// Adds a line to its target.
pub fn add(targets: &mut Vec<PingTarget>, name: &str, line: FpingLine) {
    let name = host_of_url(name);
    let index = targets.iter().position(|target| target.name == name).unwrap_or(targets.len());
    if index == targets.len() {
        let size =
            if let FpingLine::Reply(_, size, _) = line { size.checked_sub(HEADER_BYTES) } else { None };
        targets.push(PingTarget { lists_failures: true, ..PingTarget::new(name, size) });
    }
    let target = &mut targets[index];
    match line {
        FpingLine::Reply(number, _, time) => target.add_timed(Some(number), time),
        FpingLine::Duplicate => target.duplicates += 1,
        FpingLine::TimedOut => target.failed += 1,
        FpingLine::Summary([sent, received], percent, times) => {
            (target.counted, target.lost_percent, target.summary) = (Some((sent, received)), percent, times);
        }
        // Output that is not quiet has a line for each of them as well.
        FpingLine::Times(times) if target.recorder.counts.received + target.failed == 0 => {
            for time in times {
                match time {
                    Some(time) => target.add_timed(None, time),
                    None => target.failed += 1,
                }
            }
        }
        FpingLine::Times(_) => {}
    }
}
