//! What the hub and the agents refuse.

use std::time::Duration;

use linkgauge::fleet::{FleetOrder, HubError, SecretKey, issue_order, sign};
use linkgauge::mesh::TestKind;

use super::setting::{Setting, now_ms};
use crate::program::{Running, command, run_within, wait_until};

/// Round trips from the first host to the second one, now.
fn order(setting: &Setting, id: &str) -> FleetOrder {
    setting.order(id, TestKind::Latency)
}

#[test]
fn an_agent_publishes_only_its_own_results_and_reads_only_its_own_orders() {
    let setting = Setting::new(2, "");
    let agent = setting.try_connect("h0").unwrap();
    agent.store("result.h0.1", &[], b"own".to_vec()).unwrap();
    let forbidden = [
        ("result.h1.1", b"foreign".to_vec()),
        ("order.h1.1", b"order".to_vec()),
        ("plan.h1.1", b"order".to_vec()),
        ("list.fleet", b"list".to_vec()),
        ("state.h1", b"state".to_vec()),
        ("$JS.API.CONSUMER.MSG.NEXT.ORDERS.agent-h1", b"{\"no_wait\":true}".to_vec()),
        ("$JS.API.CONSUMER.MSG.NEXT.RESULTS.collector", b"{\"no_wait\":true}".to_vec()),
        ("$JS.API.STREAM.DELETE.RESULTS", Vec::new()),
        ("$JS.API.STREAM.PURGE.LEASE", Vec::new()),
        ("slot.h1.h2", b"in the name of another".to_vec()),
    ];
    for (subject, body) in forbidden {
        let refused = agent.request_within(subject, &[], body, Duration::from_millis(300)).unwrap_err();
        assert!(!matches!(refused, HubError::Disconnected), "{subject}");
    }
    assert_eq!(setting.results_on_hub(), 1);
    let subjects =
        setting.operator().api("STREAM.INFO.ORDERS", &serde_json::json!({ "subjects_filter": ">" })).unwrap();
    assert_eq!(subjects["state"]["messages"], 0, "{subjects}");
}

#[test]
fn without_the_right_key_there_is_no_connection() {
    let setting = Setting::new(2, "");
    let error = setting.connect_with("h0", SecretKey::random()).unwrap_err().to_string();
    assert!(error.contains("it does not accept the key"), "{error}");
    // A readable key, and a hub in the open.
    let seed = setting.path("h0.seed");
    std::fs::set_permissions(&seed, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let limits = setting.path("limits.toml");
    let outbox = setting.path("x.sqlite");
    let agent = |url: &str, seed: &str| {
        let words =
            ["agent", "--hub", url, "--name", "h0", "--seed", seed, "--limits", &limits, "--outbox", &outbox];
        run_within(Duration::from_secs(30), &mut command(&words))
    };
    let ended = agent(&setting.url(), &seed);
    assert!(ended.stderr.contains("other users can read this secret"), "{}", ended.stderr);
    let ended = agent("nats://192.0.2.1", &setting.path("h1.seed"));
    assert!(ended.stderr.contains("without TLS others can read orders"), "{}", ended.stderr);
    assert_eq!(ended.status, Some(2));
}

#[test]
fn expired_repeated_and_forged_orders_are_refused() {
    let setting = Setting::new(2, "");
    let _agents = setting.start_agents();
    setting.await_agents();
    let (hub, key) = (setting.operator(), setting.seed("operator"));
    let good = order(&setting, "0000000100001");
    issue_order(&hub, &good, &key).unwrap();
    setting.collect_all(1);
    // The hub, or a thief of its store, delivers the same bytes again.
    let replay = |order: &FleetOrder, key: &SecretKey, subject: &str| {
        hub.store(subject, &[], sign(order, key).unwrap()).unwrap();
    };
    replay(&good, &key, "order.h0.again");
    let expired = FleetOrder { not_after_ms: now_ms() - 1, ..order(&setting, "0000000100002") };
    replay(&expired, &key, "order.h0.late");
    replay(&order(&setting, "0000000100003"), &SecretKey::random(), "order.h0.forged");
    let of_another =
        FleetOrder { from: "h1".to_owned(), to: "h0".to_owned(), ..order(&setting, "0000000100004") };
    replay(&of_another, &key, "order.h0.other");
    wait_until("the refusals", || {
        let log = setting.log(0);
        let words = [
            "0000000100002: the order has expired",
            "does not fit the key",
            "0000000100004: the list has no such test",
        ];
        words.iter().all(|words| log.contains(words)).then_some(())
    });
    wait_until("an empty queue", || {
        let info = hub.api("STREAM.INFO.ORDERS", &serde_json::Value::Null).unwrap();
        (info["state"]["messages"] == 0).then_some(())
    });
    assert_eq!(setting.results_on_hub(), 1, "{}", setting.log(0));
}

#[test]
fn no_order_exceeds_the_limits_of_a_host() {
    let setting = Setting::new(2, "max_time = \"100ms\"\n");
    let _agents = setting.start_agents();
    setting.await_agents();
    let (hub, key) = (setting.operator(), setting.seed("operator"));
    let order = FleetOrder { not_after_ms: now_ms() + 1000, ..order(&setting, "0000000100001") };
    issue_order(&hub, &order, &key).unwrap();
    wait_until("the result", || (setting.results_on_hub() == 1).then_some(()));
    let collected = setting.fleet(&["collect", "--once"], &["--store", &setting.store()]);
    assert!(
        collected.stderr.contains("h0 → h1: 'h1': this agent allows shorter tests only"),
        "{}",
        collected.stderr
    );
    assert!(setting.saved().is_empty());
    assert_eq!(collected.status, Some(2));
    assert!(collected.stderr.ends_with("0 results saved, 1 test without a result\n"), "{}", collected.stderr);
    let status = wait_until("the failure in the status", || {
        let status = setting.fleet(&["status"], &[]).stdout;
        status.contains("; 1 order refused; 1 test failed\n").then_some(status)
    });
    assert!(status.contains("last failure: h0 → h1: 'h1': this agent allows shorter tests only"), "{status}");
}

#[test]
fn the_key_of_another_host_is_named() {
    let setting = Setting::new(2, "");
    let [seed, limits, outbox, ca] =
        ["h1.seed", "limits.toml", "x.sqlite", "hub.pem"].map(|file| setting.path(file));
    let url = setting.url();
    let words = ["--name", "h0", "--seed", &seed, "--limits", &limits, "--outbox", &outbox, "--ca", &ca];
    let mut agent = command(&[&["agent", "--hub", &url], &words[..]].concat());
    let log = setting.path("foreign.log");
    let file = std::fs::File::create(&log).unwrap();
    let _agent = Running(agent.stderr(file).spawn().unwrap());
    let named = "the hub does not allow this key to act as 'h0': use the key (--seed)";
    wait_until("the reason", || std::fs::read_to_string(&log).unwrap().contains(named).then_some(()));
}
