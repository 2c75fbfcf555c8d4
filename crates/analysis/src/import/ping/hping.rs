//! The lines of hping3. Its summary goes to another stream, so in a file it may stand in front of the replies.

use super::{ICMP, PingTarget, host_of_url};

/// Start of the output about a target.
#[derive(Debug, PartialEq)]
pub(super) enum HpingHeading<'a> {
    /// The target, the transport of the requests and their payload bytes.
    Target(&'a str, &'static str, u32),
    /// The target of the summary that follows.
    Summary(&'a str),
}

/// `HPING gw (eth0 192.0.2.1): S set, 40 headers + 0 data bytes`, `--- gw hping statistic ---`.
pub(super) fn parse_heading(line: &str) -> Option<HpingHeading<'_>> {
    if let Some(name) = line.strip_prefix("--- ").and_then(|rest| rest.strip_suffix(" hping statistic ---")) {
        return Some(HpingHeading::Summary(name));
    }
    let (name, about) = line.strip_prefix("HPING ")?.split_once(" (")?;
    let (_, about) = about.split_once("): ")?;
    let (mode, sizes) = about.split_once(" set, ")?;
    let link = match mode {
        "icmp mode" => ICMP,
        "udp mode" => "udp://",
        // Flags of a TCP segment.
        _ => "tcp://",
    };
    let bytes = sizes.split_once("+ ")?.1.strip_suffix(" data bytes")?.parse().ok()?;
    Some(HpingHeading::Target(name, link, bytes))
}

/// Makes the target of a heading the last one.
pub(super) fn add(targets: &mut Vec<PingTarget>, heading: HpingHeading) {
    let last = targets.last_mut();
    match heading {
        HpingHeading::Target(name, link, bytes) => {
            let name = host_of_url(name);
            let is_new =
                |target: &PingTarget| target.recorder.counts.received == 0 && target.message_bytes == 0;
            match last.filter(|target| target.name == name && target.counted.is_some() && is_new(target)) {
                Some(target) => (target.link, target.message_bytes) = (link, bytes),
                None => targets.push(PingTarget { link, ..PingTarget::new(name, Some(bytes)) }),
            }
        }
        HpingHeading::Summary(name) => {
            let name = host_of_url(name);
            if last.is_none_or(|target| target.name != name || target.counted.is_some()) {
                targets.push(PingTarget::new(name, None));
            }
        }
    }
}

/// Whether a line in lower case is that of a reply: `len=40 ip=192.0.2.1 ttl=64 df id=0 sport=80 flags=ra seq=0 win=0 rtt=0.2 ms`,
/// after `DUP! ` where it is not the first one.
pub(super) fn is_reply(line: &str) -> bool {
    line.strip_prefix("dup! ").unwrap_or(line).starts_with("len=") && line.contains(" rtt=")
}
