//! Checks of this process's permissions.

use super::Check;
use crate::host::permissions::{CAPABILITIES, ProcessRights, RAISE_FILE_LIMIT_COMMAND};
use crate::host::read;

fn unreadable_rights_check(name: &'static str) -> Check {
    Check::doubtful(name, "cannot be read", "mount procfs: sudo mount -t proc proc /proc")
}

pub(super) fn capabilities() -> Check {
    let program = std::fs::read_link("/proc/self/exe").ok().and_then(|path| path.to_str().map(str::to_owned));
    judge_capabilities(ProcessRights::read().as_ref(), program.as_deref().unwrap_or("linkgauge"))
}

fn judge_capabilities(rights: Option<&ProcessRights>, program: &str) -> Check {
    const NAME: &str = "capabilities";
    let Some(rights) = rights else { return unreadable_rights_check(NAME) };
    let missing: Vec<_> = CAPABILITIES.iter().filter(|(_, name, _)| !rights.has_capability(name)).collect();
    if missing.is_empty() {
        let names: Vec<_> = CAPABILITIES.iter().map(|(_, name, _)| *name).collect();
        return Check::good(NAME, names.join(", "));
    }
    let uses: Vec<_> = missing.iter().map(|(_, name, purpose)| format!("no {name} ({purpose})")).collect();
    let names: Vec<_> = missing.iter().map(|(_, name, _)| *name).collect();
    let program = shell_quoted(program);
    Check::doubtful(NAME, uses.join(", "), format!("sudo setcap {}+ep {program}", names.join(",")))
}

/// A path quoted for a shell.
fn shell_quoted(path: &str) -> String {
    if path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c)) {
        return path.to_owned();
    }
    format!("'{}'", path.replace('\'', r"'\''"))
}

pub(super) fn real_time() -> Check {
    let limit = linkgauge_system::max_real_time_priority();
    judge_real_time(ProcessRights::read().as_ref(), limit)
}

/// A limit of `None` is unlimited.
fn judge_real_time(rights: Option<&ProcessRights>, limit: Option<u64>) -> Check {
    const NAME: &str = "real-time priority";
    if rights.is_some_and(|rights| rights.has_capability("cap_sys_nice")) {
        return Check::good(NAME, "allowed by cap_sys_nice");
    }
    match limit {
        Some(0) => Check::doubtful(
            NAME,
            "not allowed: any other program may delay a measurement",
            "sudo prlimit --rtprio=99 --pid $$",
        ),
        Some(limit) => Check::good(NAME, format!("allowed up to {limit}")),
        None => Check::good(NAME, "allowed"),
    }
}

/// Files besides the links: standard streams, result files, control connections.
const RESERVED_FILES: u64 = 24;
/// Half of the parallel links that a plan may use, with both ends in this process; the usual limit of a login
/// is 1024.
const MIN_OPEN_FILES: u64 = 1024;

pub(super) fn open_files() -> Check {
    judge_open_files(linkgauge_system::open_file_limits()[1])
}

/// Uses the hard limit: every command that opens links raises its soft limit to it.
fn judge_open_files(limit: Option<u64>) -> Check {
    const NAME: &str = "open files";
    let Some(limit) = limit else { return Check::good(NAME, "no limit") };
    let links = limit.saturating_sub(RESERVED_FILES) / 2;
    let finding = format!("at most {limit}: {links} links at once with both ends here");
    if limit >= MIN_OPEN_FILES {
        return Check::good(NAME, finding);
    }
    Check::doubtful(NAME, finding, RAISE_FILE_LIMIT_COMMAND)
}

pub(super) fn ping() -> Check {
    let range = read::text("/proc/sys/net/ipv4/ping_group_range").unwrap_or_default();
    judge_ping(ProcessRights::read().as_ref(), &range)
}

fn judge_ping(rights: Option<&ProcessRights>, range: &str) -> Check {
    const NAME: &str = "ping";
    let Some(rights) = rights else { return unreadable_rights_check(NAME) };
    if rights.has_capability("cap_net_raw") {
        return Check::good(NAME, "allowed by cap_net_raw");
    }
    if rights.can_ping(range) {
        return Check::good(NAME, "allowed to a group of this process");
    }
    Check::doubtful(
        NAME,
        "not allowed: the part of the network below UDP and TCP cannot be measured alone",
        "sudo sysctl -w net.ipv4.ping_group_range='0 2147483647'",
    )
}

#[cfg(test)]
mod tests {
    use super::super::CheckVerdict;
    use super::*;

    fn rights(capabilities: &str) -> Option<ProcessRights> {
        ProcessRights::parse(&format!(
            "Gid:\t1000\t1000\t1000\t1000\nGroups:\t1000\nCapEff:\t{capabilities}\n"
        ))
    }

    #[test]
    fn missing_capabilities_are_named_with_the_command() {
        let check = judge_capabilities(rights("0000000000002000").as_ref(), "/opt/my tools/linkgauge");
        insta::assert_snapshot!(check.finding, @"no cap_net_admin (to shape links and go beyond the buffer limits), no cap_sys_nice (to run before other programs)");
        insta::assert_snapshot!(check.remedy.unwrap(), @"sudo setcap cap_net_admin,cap_sys_nice+ep '/opt/my tools/linkgauge'");
        assert_eq!(judge_capabilities(rights("000001ffffffffff").as_ref(), "x").verdict, CheckVerdict::Good);
        assert_eq!(judge_capabilities(None, "x").verdict, CheckVerdict::Doubtful);
    }

    #[test]
    fn real_time_by_capability_or_limit() {
        let verdict = |capabilities, limit| judge_real_time(rights(capabilities).as_ref(), limit).verdict;
        assert_eq!(verdict("0", Some(0)), CheckVerdict::Doubtful);
        assert_eq!(verdict("800000", Some(0)), CheckVerdict::Good);
        assert_eq!(verdict("0", Some(50)), CheckVerdict::Good);
        assert_eq!(verdict("0", None), CheckVerdict::Good);
    }

    #[test]
    fn few_open_files_are_doubtful() {
        let remedy = |limit| judge_open_files(limit).remedy;
        assert_eq!(remedy(None), None);
        assert_eq!(remedy(Some(1024)), None);
        assert_eq!(remedy(Some(256)).unwrap(), RAISE_FILE_LIMIT_COMMAND);
    }

    #[test]
    fn ping_by_capability_or_group() {
        let verdict = |capabilities, range| judge_ping(rights(capabilities).as_ref(), range).verdict;
        assert_eq!(verdict("2000", "1\t0"), CheckVerdict::Good);
        assert_eq!(verdict("0", "0\t2147483647"), CheckVerdict::Good);
        assert_eq!(verdict("0", "1\t0"), CheckVerdict::Doubtful);
        assert_eq!(verdict("0", ""), CheckVerdict::Doubtful);
    }
}
