//! Permissions of this process: capabilities, groups and limits.
//!
//! `check/` names the commands that extend them.

use super::read;

/// The capabilities that measurements can use: the bit, the name (`capability.h`), and the purpose.
pub(crate) const CAPABILITIES: [(u32, &str, &str); 3] = [
    (12, "cap_net_admin", "to shape links and go beyond the buffer limits"),
    (13, "cap_net_raw", "to send raw packets and bind to an interface"),
    (23, "cap_sys_nice", "to run before other programs"),
];

/// Raises the hard limit of open files of a shell and its programs.
pub(crate) const RAISE_FILE_LIMIT_COMMAND: &str = "sudo prlimit --nofile=4096 --pid $$";

/// This process's rights from `/proc/self/status`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProcessRights {
    effective_capabilities: u64,
    /// The effective group, then the supplementary groups.
    groups: Vec<u32>,
}

impl ProcessRights {
    /// The rights of this process; `None` if the kernel does not report them.
    pub(crate) fn read() -> Option<ProcessRights> {
        ProcessRights::parse(&read::text("/proc/self/status")?)
    }

    /// Parses `/proc/PID/status`.
    pub(crate) fn parse(status: &str) -> Option<ProcessRights> {
        let effective = u64::from_str_radix(read::field(status, "CapEff")?, 16).ok()?;
        let numbers = |key: &str| read::field(status, key).unwrap_or_default().split_whitespace();
        // Real, effective, saved, file system.
        let group = numbers("Gid").nth(1).into_iter();
        let groups = group.chain(numbers("Groups")).filter_map(|number| number.parse().ok()).collect();
        Some(ProcessRights { effective_capabilities: effective, groups })
    }

    /// Whether this process has a capability, by its name in [`CAPABILITIES`].
    pub(crate) fn has_capability(&self, name: &str) -> bool {
        CAPABILITIES
            .iter()
            .any(|&(bit, known, _)| known == name && self.effective_capabilities & (1 << bit) != 0)
    }

    /// Whether one of its groups lies in `net.ipv4.ping_group_range` (`1 0` is the empty range).
    pub(crate) fn can_ping(&self, range: &str) -> bool {
        let mut ends = range.split_whitespace().map_while(|end| end.parse::<u32>().ok());
        let (Some(first), Some(last)) = (ends.next(), ends.next()) else { return false };
        self.groups.iter().any(|group| (first..=last).contains(group))
    }
}

/// The name of a group, from the contents of `/etc/group`.
pub(crate) fn group_name(groups: &str, number: u32) -> Option<&str> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _password, found) = (fields.next()?, fields.next()?, fields.next()?);
        (found.parse() == Ok(number)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_names() {
        let groups = "root:x:0:\ndialout:x:20:you,me\nbroken\n";
        assert_eq!(group_name(groups, 20), Some("dialout"));
        assert_eq!(group_name(groups, 21), None);
    }

    #[test]
    fn rights_of_a_user_and_of_root() {
        let user = ProcessRights::parse(
            "Gid:\t1000\t1000\t1000\t1000\nGroups:\t4 27 1000 \nCapEff:\t0000000000000000\n",
        )
        .unwrap();
        assert!(CAPABILITIES.iter().all(|(_, name, _)| !user.has_capability(name)));
        assert!(user.can_ping("0\t2147483647") && user.can_ping("27 27"));
        assert!(
            !user.can_ping("1\t0") && !user.can_ping("5 26") && !user.can_ping("") && !user.can_ping("x y")
        );
        let root = ProcessRights::parse("Gid:\t0\t0\t0\t0\nGroups:\t \nCapEff:\t000001fffeffffff\n").unwrap();
        assert!(CAPABILITIES.iter().all(|(_, name, _)| root.has_capability(name)));
        let raw = ProcessRights::parse("CapEff:\t0000000000002000\n").unwrap();
        assert!(
            raw.has_capability("cap_net_raw")
                && !raw.has_capability("cap_net_admin")
                && !raw.has_capability("cap_unheard_of")
        );
        assert_eq!(ProcessRights::parse("Name:\tlinkgauge\n"), None);
    }
}
