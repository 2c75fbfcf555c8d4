//! Facts about a network interface, from `/sys/class/net`, and about its radio if it has one.
//!
//! That folder shows the network namespace in which `/sys` was mounted, `/proc/net` that of this process. So
//! the names come from the latter, and facts belong to an interface with the same number in both.
//!
//! Routes (which interface leads to a host), addresses and queueing disciplines need netlink and are not
//! covered.

use std::path::Path;

use serde_json::{Map, Value};

use super::{radio, read};

const SYSFS_NET_DIRECTORY: &str = "/sys/class/net";

/// Common interface types by number (`ARPHRD_…` in the kernel's `if_arp.h`).
const INTERFACE_TYPES: [(i64, &str); 10] = [
    (1, "ethernet"),
    (32, "infiniband"),
    (280, "can"),
    (512, "ppp"),
    (768, "ip-in-ip"),
    (772, "loopback"),
    (776, "ipv6-in-ipv4"),
    (778, "gre"),
    (804, "ieee802154"),
    (65534, "tunnel"),
];

/// The names of all interfaces in this process's network namespace, sorted.
pub(crate) fn names() -> Vec<String> {
    names_in(&read::text("/proc/net/dev").unwrap_or_default())
}

/// Two heading lines, then one line per interface: its name, a colon, counters.
fn names_in(dev: &str) -> Vec<String> {
    let names = dev.lines().skip(2).filter_map(|line| line.split_once(':'));
    let mut names: Vec<String> = names.map(|(name, _)| name.trim().to_owned()).collect();
    names.sort();
    names
}

/// The number of an interface in this process's network namespace.
pub(crate) fn number_of(name: &str) -> Option<u32> {
    linkgauge_system::interface_number(name)
}

/// Facts about an interface: empty if there is none of that name, only its name if `/sys` shows another
/// namespace.
pub fn facts(name: &str) -> Map<String, Value> {
    let class = Path::new(SYSFS_NET_DIRECTORY);
    let Some(number) = number_of(name) else { return Map::new() };
    if read::number(class.join(name).join("ifindex")) != Some(number.into()) {
        return [("interface".to_owned(), name.into())].into_iter().collect();
    }
    let mut facts = facts_in(class, name);
    if facts.get("wireless") == Some(&true.into()) {
        let radio_facts = radio::facts(number);
        facts.extend((!radio_facts.is_empty()).then(|| ("radio".to_owned(), radio_facts.into())));
    }
    facts
}

fn facts_in(class: &Path, name: &str) -> Map<String, Value> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Map::new();
    }
    let interface = class.join(name);
    if !interface.exists() {
        return Map::new();
    }
    let text = |file: &str| read::text(interface.join(file));
    let number = |file: &str| read::number(interface.join(file));
    let known = |value: &String| value != "unknown";
    let kind = number("type").and_then(|number| INTERFACE_TYPES.iter().find(|kind| kind.0 == number));
    let wireless = interface.join("wireless").exists() || interface.join("phy80211").exists();
    // An interface whose link has another number is one end of a pair, or stacked on another interface.
    let stacked = number("iflink").zip(number("ifindex")).is_some_and(|(link, index)| link != index);
    let facts: [(&str, Option<Value>); 10] = [
        ("interface", Some(name.into())),
        ("kind", kind.map(|kind| kind.1.into())),
        ("mtu_bytes", number("mtu").map(Value::from)),
        ("speed_mbit", number("speed").filter(|&speed| is_known_speed(speed)).map(Value::from)),
        ("duplex", text("duplex").filter(known).map(Value::from)),
        ("driver", read::link_name(interface.join("device/driver")).map(Value::from)),
        ("operstate", text("operstate").filter(known).map(Value::from)),
        ("wireless", Some(wireless.into())),
        ("stacked", stacked.then_some(true.into())),
        ("transmit_queue_packets", number("tx_queue_len").map(Value::from)),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// The kernel writes an unknown speed as -1, also as an unsigned number.
fn is_known_speed(mbit: i64) -> bool {
    mbit > 0 && mbit != i64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn interface(class: &Path, name: &str, files: &[(&str, &str)]) {
        fs::create_dir_all(class.join(name)).unwrap();
        for (file, text) in files {
            fs::write(class.join(name).join(file), text).unwrap();
        }
    }

    #[test]
    fn unknown_values_are_left_out() {
        let class = tempfile::tempdir().unwrap();
        let class = class.path();
        let files =
            [("mtu", "1500\n"), ("speed", "-1\n"), ("type", "1\n"), ("operstate", "up\n"), ("iflink", "7\n")];
        interface(class, "eth0", &files);
        fs::write(class.join("eth0/ifindex"), "2\n").unwrap();
        fs::write(class.join("eth0/duplex"), "unknown\n").unwrap();
        insta::assert_snapshot!(Value::from(facts_in(class, "eth0")),
            @r#"{"interface":"eth0","kind":"ethernet","mtu_bytes":1500,"operstate":"up","stacked":true,"wireless":false}"#);
    }

    #[test]
    fn names_are_those_of_the_kernels_table() {
        let dev = "Inter-|   Receive                            |  Transmit\n \
                   face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n    \
                   lo: 1640 20 0 0 0 0 0 0 1640 20\neth0:123456789 9 0 0\nwlan0: 5 6\n\nbad\n";
        assert_eq!(names_in(dev), ["eth0", "lo", "wlan0"]);
        assert!(names_in("").is_empty());
        assert_eq!(names().iter().filter(|name| *name == "lo").count(), 1);
    }

    #[test]
    fn a_wireless_card_shows_its_driver() {
        let class = tempfile::tempdir().unwrap();
        let class = class.path();
        interface(class, "wlan0", &[("mtu", "1500"), ("speed", "866"), ("type", "nonsense")]);
        fs::create_dir(class.join("wlan0/phy80211")).unwrap();
        fs::create_dir(class.join("wlan0/device")).unwrap();
        std::os::unix::fs::symlink("../../bus/pci/drivers/iwlwifi", class.join("wlan0/device/driver"))
            .unwrap();
        insta::assert_snapshot!(Value::from(facts_in(class, "wlan0")),
            @r#"{"driver":"iwlwifi","interface":"wlan0","mtu_bytes":1500,"speed_mbit":866,"wireless":true}"#);
    }

    #[test]
    fn an_interface_that_is_not_there_has_no_facts() {
        for name in ["", ".", "..", "../net/lo", "no-such-interface"] {
            assert!(facts(name).is_empty(), "{name}");
        }
        assert!(is_known_speed(1000) && !is_known_speed(4_294_967_295) && !is_known_speed(0));
    }
}
