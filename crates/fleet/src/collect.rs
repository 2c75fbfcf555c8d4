//! Collects the results of a fleet: a durable consumer, so that each result arrives until it was confirmed, also after a collector
//! was killed. The store of the runs saves each once. The runs of a round, or of longer, make the document of a mesh.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::hub::{Hub, HubError, HubMessage};
use super::order::subject_part;
use super::round::ROUND_CHARS;
use super::streams::{COLLECTOR, FleetResult, RESULT_STREAM, result_subject};
use linkgauge_engine::workload::{latency, throughput};
use linkgauge_model::clock::Time;
use linkgauge_model::run::Run;
use linkgauge_ops::mesh::{
    HostList, MAX_ANSWER_BYTES, MeshFacts, MeshParts, PairOutcome, Sharing, TestKind, TestRecord, Timetable,
    mesh_run, pair_name,
};

/// A result that arrived.
#[derive(Debug)]
pub struct Collected {
    /// Where it is confirmed.
    delivery: String,
    /// The result; or why it is none, for people.
    pub test: Result<CollectedTest, ResultError>,
}

/// Why a message is no result of the fleet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultError {
    /// Is too long.
    #[error("{0}: more than {MAX_ANSWER_BYTES} bytes")]
    TooLong(String),
    /// Has another form.
    #[error("{subject}: {error}")]
    Form {
        /// Where it was sent.
        subject: String,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// The sender did not make the test, or the list does not have it.
    #[error("{subject}: {what}")]
    Foreign {
        /// Where it was sent.
        subject: String,
        /// What is wrong.
        what: &'static str,
    },
}

/// How a test ended.
#[derive(Debug, PartialEq)]
pub enum TestOutcome {
    /// A run with one case.
    Measured(Box<Run>),
    /// Has no result, for this reason.
    Failed(String),
}

/// A result whose sender and form were checked.
#[derive(Debug, PartialEq)]
pub struct CollectedTest {
    /// The round of its order.
    pub round: String,
    /// The host that measured.
    pub from: String,
    /// The host that was measured.
    pub to: String,
    /// `from → to`.
    pub pair: String,
    /// How it ended.
    pub outcome: TestOutcome,
}

/// The results that wait, at most this number; if none waits, those that arrive first within `wait`.
///
/// # Errors
///
/// As [`Hub::request`].
pub fn next_results(
    hub: &Hub,
    list: &HostList,
    most: usize,
    wait: Duration,
) -> Result<Vec<Collected>, HubError> {
    let messages = hub.next_messages((RESULT_STREAM, COLLECTOR), most, wait)?;
    let read = |message: HubMessage| {
        let test = read_result(list, &message.subject, &message.body);
        message.reply.map(|delivery| Collected { delivery, test })
    };
    Ok(messages.into_iter().filter_map(read).collect())
}

/// The results were saved, or are to be dropped: they do not arrive again.
///
/// # Errors
///
/// As [`Hub::request`]: they may arrive again.
pub fn confirm(hub: &Hub, collected: &[Collected]) -> Result<(), HubError> {
    respond(hub, collected, b"+ACK")
}

/// The results were not saved: they arrive again at once, perhaps at another collector.
///
/// # Errors
///
/// As [`Hub::request`]: they arrive again later.
pub fn give_back(hub: &Hub, collected: &[Collected]) -> Result<(), HubError> {
    respond(hub, collected, b"-NAK")
}

fn respond(hub: &Hub, collected: &[Collected], response: &[u8]) -> Result<(), HubError> {
    let Some((last, others)) = collected.split_last() else { return Ok(()) };
    for other in others {
        hub.publish(&other.delivery, &[], response.to_vec())?;
    }
    // The hub replies to the last one when it has read all of them.
    hub.request(&last.delivery, &[], response.to_vec()).map(drop)
}

/// Reads a result that was sent to this subject. Agents are not trusted: each sends only results of tests that it makes itself, in
/// the form of its tests.
///
/// # Errors
///
/// It is none.
pub fn read_result(list: &HostList, subject: &str, body: &[u8]) -> Result<CollectedTest, ResultError> {
    if body.len() > MAX_ANSWER_BYTES {
        return Err(ResultError::TooLong(subject.to_owned()));
    }
    let form = |error| ResultError::Form { subject: subject.to_owned(), error };
    let result: FleetResult = serde_json::from_slice(body).map_err(form)?;
    let wrong = |what: &'static str| Err(ResultError::Foreign { subject: subject.to_owned(), what });
    if subject != result_subject(&result.from, &result.order) || subject_part(&result.order) != result.order {
        return wrong("the result of another agent or order");
    }
    let index = |name: &str| list.hosts.iter().position(|host| host.name == name);
    let pair = index(&result.from).zip(index(&result.to)).map(|(from, to)| [from, to]);
    let Some(pair) = pair.and_then(|pair| list.pairs.iter().position(|known| *known == pair)) else {
        return wrong("the list does not have this pair");
    };
    let pair = pair_name(list, pair);
    let round: String = result.order.chars().take(ROUND_CHARS).collect();
    let workload = match result.test {
        TestKind::Latency => latency::WORKLOAD.name,
        TestKind::Throughput => throughput::WORKLOAD.name,
    };
    let outcome = match (result.run, result.failure) {
        (Some(mut run), None) => {
            match run.cases.as_mut_slice() {
                [case] if case.workload == workload && run.id.ends_with(&result.order) => {
                    case.endpoint.clone_from(&pair);
                }
                _ => return wrong("the result of another test"),
            }
            TestOutcome::Measured(run)
        }
        (None, Some(why)) => TestOutcome::Failed(why),
        _ => return wrong("neither a run nor a failure"),
    };
    Ok(CollectedTest { round, from: result.from, to: result.to, pair, outcome })
}

/// The document of the mesh whose tests these runs are, oldest first. Of several results of a test the last one counts.
pub fn mesh_of_runs(list: HostList, runs: Vec<Run>) -> Run {
    let started = runs.iter().map(|run| run.started).min().unwrap_or(Timestamp::UNIX_EPOCH);
    let records = collected_records(&list, runs);
    let last = records.values().filter_map(|record| record.interval).map(|(_, ended)| ended).max();
    let hosts = list.hosts.len();
    let facts = MeshFacts {
        started,
        elapsed: last.map_or(Duration::ZERO, |last| last.since(time_of(started))),
        interrupted: false,
        environment: serde_json::Map::new(),
        resumed_from: None,
    };
    let parts = MeshParts {
        lower_bound_ns: lower_bound_ns(&list),
        list,
        tools: vec![None; hosts],
        lost: vec![None; hosts],
        logs: vec![None; hosts],
        records,
        sharing: Sharing::Exclusive,
    };
    mesh_run(parts, facts)
}

fn lower_bound_ns(list: &HostList) -> u64 {
    let latency = list.latency.map(|test| list.latency_demand(test.time));
    let throughput = list.throughput.map(|test| list.throughput_demand(Sharing::Exclusive, test.time));
    let bounds = latency.into_iter().chain(throughput);
    bounds.map(|(demand, pairs)| Timetable::new(&demand, &pairs).lower_bound_ns).sum()
}

/// Wall-clock time, so that tests of different hosts can be compared.
fn time_of(timestamp: Timestamp) -> Time {
    Time(u64::try_from(timestamp.as_nanosecond()).unwrap_or(0))
}

/// The tests of a list, with the results that these runs hold.
fn collected_records(list: &HostList, runs: Vec<Run>) -> BTreeMap<(TestKind, usize), TestRecord> {
    let kinds = [
        list.latency.map(|_| (TestKind::Latency, latency::WORKLOAD.name)),
        list.throughput.map(|_| (TestKind::Throughput, throughput::WORKLOAD.name)),
    ];
    let kinds: Vec<(TestKind, &str)> = kinds.into_iter().flatten().collect();
    let missing = || {
        let outcome = Some(PairOutcome::Failed("no result was collected".to_owned()));
        TestRecord { outcome, interval: None }
    };
    let tests = kinds.iter().flat_map(|(kind, _)| (0..list.pairs.len()).map(move |pair| (*kind, pair)));
    let mut records: BTreeMap<(TestKind, usize), TestRecord> = tests.map(|test| (test, missing())).collect();
    let pairs: BTreeMap<String, usize> =
        (0..list.pairs.len()).map(|pair| (pair_name(list, pair), pair)).collect();
    for mut run in runs {
        let Some(case) = run.cases.pop() else { continue };
        let kind = kinds.iter().find(|(_, workload)| case.workload == *workload);
        let Some(((kind, _), pair)) = kind.zip(pairs.get(&case.endpoint)) else { continue };
        let began = time_of(run.started);
        let ended = began + Duration::from_nanos(run.elapsed_ns);
        let outcome = Some(PairOutcome::Measured(Box::new(case)));
        records.insert((*kind, *pair), TestRecord { outcome, interval: Some((began, ended)) });
    }
    records
}

#[cfg(test)]
mod tests {
    use linkgauge_engine::Registry;
    use serde_json::{Value, json};

    use super::*;
    use linkgauge_model::clock::wall_clock_date;
    use linkgauge_ops::mesh::{AgentLimits, TestOrder, Tester};

    fn list() -> HostList {
        let hosts = "[test.throughput]\noff = true\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b.c\"\n";
        HostList::from_toml(hosts).unwrap()
    }

    /// A run as an agent makes it, over loopback.
    fn run(order: &str) -> Run {
        let limits = AgentLimits {
            time: Duration::from_secs(5),
            bits_per_second: None,
            bytes: None,
            allowed: Vec::new(),
            listen: "127.0.0.1".parse().unwrap(),
            port: None,
        };
        let dialer = Registry::standard().dialer(linkgauge_model::clock::Clock::System);
        let tester = Tester::new(limits);
        let (_server, port) = tester.serve(("tcp", 0), "token", &dialer).unwrap();
        let test = TestOrder::Latency { time_ms: 100, per_second: 100.0, message_bytes: 16 };
        let url = format!("tcp://127.0.0.1:{port}");
        let mut run = tester.measure(&url, Some("token".to_owned()), test, &dialer).unwrap();
        run.id = format!("{}-{order}", wall_clock_date().strftime("%Y%m%dT%H%M%SZ"));
        run
    }

    fn result(order: &str) -> Value {
        json!({ "order": order, "from": "a", "to": "b.c", "test": "latency", "run": run(order), "failure": null })
    }

    fn read(subject: &str, result: &Value) -> Result<CollectedTest, ResultError> {
        read_result(&list(), subject, result.to_string().as_bytes())
    }

    #[test]
    fn a_result_is_read_and_becomes_a_part_of_the_mesh() {
        let collected = read("result.a.0123abcd00001", &result("0123abcd00001")).unwrap();
        assert_eq!((collected.round.as_str(), collected.pair.as_str()), ("0123abcd", "a → b.c"));
        let TestOutcome::Measured(run) = collected.outcome else { panic!("it was measured") };
        let mesh = mesh_of_runs(list(), vec![*run]);
        let pairs = mesh.mesh.unwrap().pairs;
        assert_eq!((pairs[0].latency_case, pairs[1].latency_case), (Some(1), None));
        assert_eq!(pairs[1].failure.as_deref(), Some("no result was collected"));
    }

    #[test]
    fn results_of_others_and_of_other_tests_are_refused() {
        let good = result("0123abcd00001");
        let subject = "result.a.0123abcd00001";
        assert!(read("result.b=2Ec.0123abcd00001", &good).is_err(), "in the name of another agent");
        assert!(read("result.a.0123abcd00002", &good).is_err());
        let changes = [
            ("from", json!("b.c")),
            ("to", json!("a")),
            ("to", json!("x")),
            ("test", json!("throughput")),
            ("run", Value::Null),
            ("failure", json!("why")),
        ];
        for (key, value) in changes {
            let mut changed = good.clone();
            changed[key] = value;
            assert!(read(subject, &changed).is_err(), "{key}");
        }
        let failed = json!({ "order": "0123abcd00001", "from": "a", "to": "b.c", "test": "latency", "run": null, "failure": "why" });
        assert_eq!(read(subject, &failed).unwrap().outcome, TestOutcome::Failed("why".to_owned()));
        assert!(read_result(&list(), subject, b"[]").is_err());
    }
}
