//! Files that are read, and those that are refused.

use super::*;

#[test]
fn a_default_rate_of_probes_limits_no_test_of_throughput() {
    let test = "[[watch]]\nurl = \"tcp://a\"\nworkload = \"throughput\"\ntime = \"5s\"\nevery = \"6h\"\n";
    let describe = |text: &str| Config::from_toml(text).unwrap().watches[0].describe();
    let defaults = "[defaults]\nrate = \"5/s\"\n";
    assert_eq!(describe(&format!("{defaults}{test}")), "throughput every 6 h");
    let limited = describe(&format!("{test}rate = \"5/s\""));
    assert_eq!(limited, "throughput every 6 h, limited to 5 messages per second");
    let probes = describe(&format!("{defaults}[[watch]]\nurl = \"tcp://a\""));
    assert_eq!(probes, "5 probes per second");
}

#[test]
fn a_file_names_links_tests_and_alarms() {
    let config = Config::from_toml(
        r#"
        [defaults]
        quiet = ["02:00-03:00"]
        [[watch]]
        name = "gateway"
        url = "tcp://192.0.2.1"
        alert = ["loss > 5 % (normal 0.5 %)"]
        [[watch]]
        url = ["udp://192.0.2.1", "udp://192.0.2.2"]
        rate = "1/s"
        [[watch]]
        name = "uplink"
        url = "tcp://192.0.2.1"
        workload = "throughput"
        time = "5s"
        every = "6h"
        bytes-per-day = "2G"
        "#,
    )
    .unwrap();
    let names: Vec<&str> = config.watches.iter().map(|watch| watch.name.as_str()).collect();
    assert_eq!(names, ["gateway", "udp://192.0.2.1", "udp://192.0.2.2", "uplink"]);
    let schedules: Vec<WatchSchedule> = config.watches.iter().map(|watch| watch.schedule).collect();
    let slow = WatchSchedule::Continuous { per_second: 1.0 };
    let uplink = WatchSchedule::Every(Duration::from_secs(6 * 3600));
    assert_eq!(schedules, [WatchSchedule::Continuous { per_second: 10.0 }, slow, slow, uplink]);
    assert!(config.watches.iter().all(|watch| watch.quiet.len() == 1));
    assert_eq!(config.watches[3].bytes_per_day, Some(2_000_000_000));
    assert_eq!(config.watches[0].rules.len(), 1);
}

#[test]
fn a_level_shift_is_promised_where_it_can_be_noticed() {
    let promise = |rate: &str| {
        let text = format!("[[watch]]\nurl = \"tcp://192.0.2.1\"\nrate = {rate}");
        Config::from_toml(&text).unwrap().watches[0].promises().pop().unwrap()
    };
    assert!(promise("1").contains("noticed after about"));
    assert!(promise("0.001").contains("not noticed"));
}

#[test]
fn wrong_files_say_what_is_wrong() {
    let watch = "[[watch]]\nurl = \"tcp://192.0.2.1\"\n";
    for (text, why) in [
        ("", "0 links to watch"),
        ("[[watch]]\nname = \"x\"", "has no endpoint"),
        (&format!("{watch}{watch}"), "line 3: two watches are named 'tcp://192.0.2.1'"),
        (
            &format!("{watch}alerts = []"),
            "unknown field `alerts`, expected one of `name`, `behind`, `every`, `alert`, `quiet`",
        ),
        (
            &format!("{watch}name = \"a link\"\nalert = \"loss\""),
            "line 4: watch 'a link': alert 'loss': it has no '>'",
        ),
        (&format!("{watch}name = \"a link\"\nalrt = 1"), "line 4: watch 'a link': unknown field `alrt`"),
        (&format!("{watch}[[silence]]\nlink = \"b*\""), "line 3: silence 1: no watch is named 'b*'"),
        (&format!("{watch}[[silence]]\nfrom = 2026-12-24T18:00:00"), "write it with its offset"),
        (
            &format!("{watch}[[silence]]\nfrom = 2026-12-24T18:00:00Z\nuntil = 2026-12-24T18:00:00+02:00"),
            "it ends before it begins",
        ),
        (&format!("{watch}[[silence]]\nhours = [\"6-7\"]"), "'6-7' are no quiet hours"),
        (&format!("repeat = \"1s\"\n{watch}"), "line 1: a message cannot be repeated after this time"),
        (&format!("{watch}size = [1, 2]"), "use lists for 'url' only"),
        (&format!("{watch}size = []"), "line 3: watch 1: size is an empty list"),
        (
            &format!("{watch}[[watch]]\nurl = \"tcp://b\"\nrate = \"1M/s\""),
            "line 5: watch 2: a link is watched",
        ),
        (&format!("[defaults]\nquiet = [\"x\"]\n{watch}"), "line 2: watch 1: "),
        (&format!("{watch}\n[[action]]\nwebhook = \"ftp://x\""), "line 4: action 1: a webhook"),
        (&format!("{watch}[push]\nurl = \"ftp://x\""), "line 3: push: "),
        (&format!("{watch}count = 5\nalert = [\"loss > 5%\"]"), "remove 'count' and 'every'"),
        (&format!("{watch}timeout = \"1us\""), "line 1: watch 'tcp://192.0.2.1': a timeout of 1"),
        (&format!("{watch}quiet = [\"00:00-12:00\", \"11:00-00:00\"]"), "leave no time of the day"),
        (&format!("{watch}alert = [\"late 0ms > 5 %\"]"), "a time of 0 is no limit"),
        (&format!("store-size = 5\n{watch}"), "store-size is 5 B: use 1"),
        (&format!("{watch}[[action]]\nwebhook = \"http://u:p@192.0.2.1:99999/\""), "use 1 to 65535"),
        (&format!("{watch}[push]\nurl = \"http://192.0.2.1:99999/\""), "use 1 to 65535"),
        (&format!("{watch}colour = 1"), "unknown field `colour`"),
        (&format!("{watch}quiet = [\"22\"]"), "'22' are no quiet hours"),
        (&format!("{watch}alert = [\"loss\"]"), "alert 'loss'"),
        (&format!("{watch}rate = \"max\""), "not at the highest"),
        (&format!("{watch}rate = 1e308"), "a message rate of at most"),
        (&format!("{watch}rate = \"1M/s\""), "10 000 a second"),
        (&format!("{watch}rate = 1e-9"), "1 probe an hour"),
        (&format!("{watch}every = \"1h\"\nalert = [\"loss > 5%\"]"), "alerts need probes all the time"),
        (&format!("{watch}bytes-per-day = \"1k\""), "lower the rate"),
        (&format!("{watch}protocol = \"morse\""), "morse"),
        (
            &format!("{watch}parallel = -1"),
            "line 3: watch 1: parallel: -1 does not fit: use a whole number from 1",
        ),
        (&format!("[defaults]\nsize = []\nalert = 3\n{watch}"), "line 3: watch 1: alert: 3 does not fit"),
        ("watch = 3", "line 1: watch: 3 does not fit: use a list in brackets"),
        (&format!("{watch}name = \"\""), "watch 1: a name has 1 to 200 characters"),
        (&format!("{watch}name = \"{}\"", "x".repeat(5000)), "watch 1: a name has 1 to 200 characters"),
        (&format!("{watch}name = \"a\\nb\""), "no control characters"),
        (&format!("{watch}every = \"1ns\""), "watch 1: every is 1 ns: use 1 s to 366 d"),
        (&format!("{watch}every = \"500000h\""), "use 1 s to 366 d"),
        (
            &format!("{watch}alert = [\"loss > 5 % (normal 0.5 %)\"]\nexplain = \"1ns\""),
            "explain is 1 ns: use 1 s to",
        ),
        (
            &format!("{watch}every = \"1h\"\nbytes-per-day = 0"),
            "a single test moves 2 B or more, and bytes-per-day is 0",
        ),
        (
            &format!("{watch}every = \"1h\"\ncount = 1000\nsize = 100\nbytes-per-day = \"100k\""),
            "a single test moves 200000 B",
        ),
        (
            &format!("{watch}workload = \"throughput\"\nvolume = \"1G\"\nbytes-per-day = \"1M\""),
            "a single test moves 1000000000 B",
        ),
        (&format!("{watch}[[action]]\ncommand = [\"true\"]\ntimeout = \"1ns\""), "use 100ms to 1h"),
        (&format!("{watch}explain = \"30s\""), "an explanation needs alerts"),
        (&format!("{watch}[[action]]\ncommand = []"), "action 1: it needs either command"),
        (&format!("{watch}[[action]]\nwebhook = \"https://192.0.2.1\""), "For others use command"),
        (&format!("{watch}[[action]]\nshell = \"mail\""), "unknown field `shell`"),
    ] {
        let error = Config::from_toml(text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}
