//! Host lists: what they mean, and what is refused.

use super::*;

const TWO: &str = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n";

#[test]
fn a_file_names_hosts_resources_and_tests() {
    let list = HostList::from_toml(
        r#"
        title = "offices"
        [test.latency]
        time = "2s"
        rate = "50/s"
        [test.throughput]
        time = "5s"
        parallel = 4
        [[host]]
        name = "a"
        ssh = "root@a.example"
        group = "north"
        [[host]]
        name = "b"
        address = "192.0.2.2"
        command = ["ip", "netns", "exec", "b", "linkgauge", "agent", "--stdio"]
        group = "north"
        [[host]]
        name = "c"
        server = "tcp://192.0.2.3"
        group = "south"
        [[resource]]
        name = "uplink of north"
        group = "north"
        [[resource]]
        name = "cell"
        hosts = ["b", "c"]
        capacity = 2
        "#,
    )
    .unwrap();
    assert_eq!(list.pairs.len(), 6);
    assert_eq!(list.hosts[0].address, "a.example");
    assert_eq!(list.hosts[2].address, "192.0.2.3");
    assert!(matches!(&list.hosts[2].reach, Reach::Server(url) if url.as_str() == "tcp://192.0.2.3:7100"));
    assert_eq!(list.latency.unwrap().per_second, 50.0);
    assert_eq!(list.throughput.unwrap().parallel, 4);
    assert_eq!(list.group_numbers(), [0, 0, 1]);
    let uses = |resource: usize, pair| list.resources[resource].is_used_by(pair);
    assert_eq!([uses(0, [0, 1]), uses(0, [0, 2]), uses(0, [2, 1])], [false, true, true]);
    assert_eq!([uses(1, [0, 1]), uses(1, [1, 2]), uses(1, [0, 2])], [true, true, true]);
    let (exclusive, _) = list.throughput_demand(Sharing::Exclusive, Duration::from_secs(5));
    let (overlapping, _) = list.throughput_demand(Sharing::Ignored, Duration::from_secs(5));
    assert_eq!((exclusive.resources(), overlapping.resources()), (5, 3));
}

#[test]
fn without_a_way_a_host_is_reached_over_ssh_by_its_name() {
    let list = HostList::from_toml(TWO).unwrap();
    assert_eq!(list.hosts[0].reach, Reach::Ssh("a".to_owned()));
    assert_eq!((list.hosts[0].address.as_str(), list.hosts[0].port), ("a", 0));
    assert_eq!(list.pairs, [[0, 1], [1, 0]]);
}

#[test]
fn pairs_can_be_a_hub_a_list_or_representatives() {
    let hosts = |count: usize, group: usize| {
        let host = |index: usize| format!("[[host]]\nname = \"h{index}\"\ngroup = \"g{}\"\n", index / group);
        (0..count).map(host).collect::<String>()
    };
    let pairs = |head: &str, count, group| {
        HostList::from_toml(&format!("{head}\n{}", hosts(count, group))).unwrap().pairs
    };
    assert_eq!(pairs("pairs = \"hub\"\nhub = [\"h1\"]", 4, 2).len(), 6);
    assert_eq!(pairs("pairs = [[\"h0\", \"h3\"], [\"h0\", \"h3\"]]", 4, 2), [[0, 3]]);
    // 20 sites of 50: all pairs of a site, and 3 representatives between the sites.
    assert_eq!(pairs("representatives = 3", 1000, 50).len(), 20 * 50 * 49 + 20 * 19 * 9);
}

#[test]
fn wrong_files_say_what_is_wrong() {
    let host = |lines: &str| format!("{TWO}[[host]]\nname = \"c\"\n{lines}");
    for (text, why) in [
        ("", "0 hosts: a mesh has 2 to 1000"),
        ("[[host]]\nname = \"a\"", "1 host: a mesh"),
        (&format!("{TWO}[[host]]\nname = \"a\""), "line 6: host 'a': two hosts have this name"),
        (&host("colour = 1"), "unknown field `colour`"),
        (
            &host("ssh = \"x\"\nlocal = true"),
            "line 5: host 'c': ssh, command, server and local exclude each other",
        ),
        (&host("ssh = \"-oProxyCommand=x\""), "not an option"),
        (&host("command = []"), "the command is empty"),
        (&host("address = \"x/y\""), "host 'c': "),
        (&host("address = \"x?bind=y\""), "host 'c': "),
        (&format!("pairs = \"ring\"\n{TWO}"), "'ring' are no pairs"),
        (&format!("pairs = \"hub\"\n{TWO}"), "set hub"),
        (&format!("pairs = [[\"a\", \"x\"]]\n{TWO}"), "no host is named 'x'"),
        (&format!("pairs = [[\"a\", \"a\"]]\n{TWO}"), "is one host"),
        (&format!("representatives = 0\n{TWO}"), "representatives: use 1 or more"),
        (&format!("pairs = []\n{TWO}"), "no pair is to be measured"),
        (&format!("{TWO}[[resource]]\nname = \"r\""), "no host uses it"),
        (
            &format!("{TWO}[[resource]]\nname = \"r\"\nhosts = [\"a\"]\ncapacity = 0"),
            "line 5: resource 'r': a capacity of 0 allows no test",
        ),
        (&format!("{TWO}[[resource]]\nname = \"r\"\nhosts = [\"z\"]"), "no host is named 'z'"),
        (&format!("test.latency.off = true\ntest.throughput.off = true\n{TWO}"), "both off"),
        (&format!("test.latency.rate = \"5k/s\"\n{TWO}"), "line 1: the rate of latency is 0.1/s to 1000/s"),
        (&format!("test.throughput.time = \"2h\"\n{TWO}"), "100ms to 1h"),
        (&format!("test.transport = \"pigeon\"\n{TWO}"), "line 1: unknown transport 'pigeon'"),
        (
            "[[host]]\nname = \"a\"\nserver = \"tcp://h\"\n[[host]]\nname = \"b\"\nserver = \"tcp://i\"",
            "have no agent",
        ),
    ] {
        let error = HostList::from_toml(text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}
