//! What arrives at the agent and at the collector of a fleet: lists, orders and results, by a hub or an agent that is not trusted.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use linkgauge::clock::Time;
use linkgauge::fleet::{
    AgentPolicy, FleetFile, FleetOrder, HostTime, OrderBook, OrderRefusal, PublicKey, Role, SecretKey,
    SignedList, TestOutcome, host_lease, mesh_of_runs, open_signed, read_result, sign,
};
use linkgauge::lists::REPORT_FORMATS;
use linkgauge::mesh::{HostList, TestKind};
use linkgauge::report::ReportOptions;
use linkgauge::run::Run;
use linkgauge::store::document;

/// The operator.
static KEY: LazyLock<(SecretKey, PublicKey)> = LazyLock::new(|| {
    let key = SecretKey::random();
    let public = PublicKey::read(&key.public_key()).expect("its own key");
    (key, public)
});

/// The list of the collector, and where the result arrived.
const HOSTS: &str = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b.c\"\n";
const SUBJECT: &str = "result.a.0123abcd00001";

/// A file of a fleet or of an agent's limits; or lines with lists and orders, as the operator has signed them, and with results, in
/// the order in which the agent `a` and the collector get them.
pub fn fleet(data: &[u8]) {
    let (key, public) = &*KEY;
    assert!(open_signed::<FleetOrder>(data, public).is_err(), "only the operator signs");
    if let Ok(text) = str::from_utf8(data) {
        if let Ok(fleet) = FleetFile::from_toml(text) {
            assert_eq!(HostList::from_toml(&fleet.hosts).ok().as_ref(), Some(&fleet.list));
            assert_eq!(fleet.keys.len(), fleet.list.hosts.len());
        }
        let _ = AgentPolicy::from_toml(text);
    }
    let mut book = OrderBook::new("a", 0, BTreeMap::new());
    let list = HostList::from_toml(HOSTS).expect("a list of two hosts");
    let mut runs = Vec::new();
    for (line, second) in data.split(|byte| *byte == b'\n').zip(1_000..) {
        let now = HostTime { time: Time(second * 1_000_000_000), unix_ms: 1000 * second };
        if let Ok(signed) = serde_json::from_slice::<SignedList>(line) {
            if book.accept_list(&signed, now).is_ok() {
                assert_eq!(book.list_id(now), Some(signed.id().as_str()));
            }
        } else if let Ok(order) = serde_json::from_slice::<FleetOrder>(line) {
            let signed = sign(&order, key).expect("it was JSON before");
            assert_eq!(open_signed::<FleetOrder>(&signed, public).as_ref(), Ok(&order));
            carry_out(&mut book, &order, now);
        } else if let Ok(test) = read_result(&list, SUBJECT, line) {
            assert_eq!((test.round.as_str(), test.pair.as_str()), ("0123abcd", "a → b.c"));
            if let TestOutcome::Measured(run) = test.outcome {
                runs.push(*run);
            }
        }
    }
    if !runs.is_empty() {
        report(list, runs);
    }
}

/// An agent makes or serves only the tests of its list, and each once.
fn carry_out(book: &mut OrderBook, order: &FleetOrder, now: HostTime) {
    if book.check(order, Role::Serves, now).is_ok() {
        assert_eq!(order.to, "a");
    }
    let Ok(plan) = book.check(order, Role::Measures, now) else { return };
    assert_eq!((order.from.as_str(), Some(order.list.as_str())), ("a", book.list_id(now)));
    assert!(order.not_before_ms <= now.unix_ms && now.unix_ms <= order.not_after_ms);
    match order.test {
        TestKind::Latency => assert!(plan.resources.is_empty()),
        TestKind::Throughput => {
            assert_eq!(plan.resources[..2], [&order.to, &order.from].map(|host| vec![host_lease(host)]));
        }
    }
    let is_plain = |subject: &String| {
        subject.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_=.".contains(&byte))
    };
    assert!(plan.resources.iter().flatten().all(is_plain), "{:?}", plan.resources);
    book.begin(order);
    assert_eq!(book.check(order, Role::Measures, now).err(), Some(OrderRefusal::Running));
    book.finish(order, now);
    assert_eq!(book.check(order, Role::Measures, now).err(), Some(OrderRefusal::Done));
}

fn report(list: HostList, runs: Vec<Run>) {
    let run = mesh_of_runs(list, runs);
    let text = document::to_json(&run);
    assert!(Run::from_json(&text).is_ok(), "{text}");
    for format in REPORT_FORMATS {
        let written = (format.write)(&run, &ReportOptions::default(), &mut std::io::sink());
        assert!(written.is_ok(), "{}", format.name);
    }
}
