//! The collector writes to PostgreSQL, which is killed, refuses and returns; each result is there once.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use jiff::{Timestamp, ToSpan};
use linkgauge::fleet::{FleetResult, Hub};
use linkgauge::mesh::TestKind;
use linkgauge::run::Run;
use linkgauge::units::format_plural;
use rustix::process::Signal;
use serde_json::Value;

use super::setting::{Setting, make_certificate};
use crate::client::free_port;
use crate::postgres::{PASSWORD, Postgres, SMALL};
use crate::program::{Ended, Running, run_within, wait_until};
use crate::prometheus::get;

const LONG: Duration = Duration::from_secs(180);

/// Each pair of a thousand hosts in groups once an hour, round trips and rate (docs/fleet.md).
const PLANNED_RESULTS_PER_SECOND: f64 = 29.0;

/// A result of `h0` as an agent sends it. The run began some months ago.
fn result(number: usize, months: i64) -> FleetResult {
    let mut run = Run::from_json(include_str!("../../data/run-v1-latency.json")).unwrap();
    let order = format!("0123abcd{number:05}");
    run.started = Timestamp::now() - (months * 31 * 24).hours();
    run.id = format!("{}-{order}", run.started.strftime("%Y%m%dT%H%M%SZ"));
    let [from, to] = ["h0", "h1"].map(str::to_owned);
    FleetResult { order, from, to, test: TestKind::Latency, run: Some(Box::new(run)), failure: None }
}

/// Stores a result on the hub, as often as this is called.
fn publish(hub: &Hub, result: &FleetResult) {
    let subject = format!("result.{}.{}", result.from, result.order);
    hub.store(&subject, &[], serde_json::to_vec(result).unwrap()).unwrap();
}

fn publish_all(hub: &Hub, numbers: std::ops::Range<usize>) -> BTreeSet<String> {
    let results = numbers.map(|number| result(number, number as i64 % 3));
    let publish_one = |result: FleetResult| {
        publish(hub, &result);
        result.run.unwrap().id
    };
    results.map(publish_one).collect()
}

fn collect(setting: &Setting, flags: &[&str]) -> Ended {
    run_within(LONG, setting.fleet_command(&["collect"], flags).env("PGPASSWORD", PASSWORD))
}

/// A collector that runs until it is ended, and the file of its messages.
fn start_collector(setting: &Setting, url: &str, flags: &[&str]) -> (Running, String) {
    let log = setting.path("collector.log");
    let flags = [&["--database", url], flags].concat();
    let mut command = setting.fleet_command(&["collect"], &flags);
    command.env("PGPASSWORD", PASSWORD).stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    (Running(command.spawn().unwrap()), log)
}

fn count(postgres: &Postgres) -> usize {
    let counted = postgres.try_query("SELECT count(*) FROM linkgauge.run");
    counted.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// All rows, as a sum that any change would change.
fn checksum(postgres: &Postgres) -> String {
    postgres.query(
        "SELECT md5(string_agg(r::text || m::text, ',' ORDER BY id)) FROM linkgauge.run r JOIN linkgauge.measured m \
         ON m.run = r.id AND m.started = r.started",
    )
}

/// Everything that is on the hub arrives again.
fn deliver_again(setting: &Setting) {
    setting.operator().api("CONSUMER.DELETE.RESULTS.collector", &Value::Null).unwrap();
    assert_eq!(setting.fleet(&["apply"], &[]).status, Some(0));
}

#[test]
fn every_result_is_in_the_database_once_whenever_it_is_killed() {
    const RESULTS: usize = 900;
    let (setting, postgres) = (Setting::new(2, ""), Postgres::start());
    let (hub, url) =
        (setting.connect_with("h0", setting.seed("h0")).unwrap(), postgres.url("postgres", "postgres"));
    let (mut collecting, log) = start_collector(&setting, &url, &[]);
    let messages = || std::fs::read_to_string(&log).unwrap();
    let mut ids = BTreeSet::new();
    for part in 0..3 {
        let first = part * RESULTS / 3;
        ids.extend(publish_all(&hub, first..first + RESULTS / 6));
        wait_until("some results", || (count(&postgres) > first).then_some(()));
        postgres.kill();
        ids.extend(publish_all(&hub, first + RESULTS / 6..first + RESULTS / 3));
        wait_until("the message", || (messages().matches("Trying again").count() > part).then_some(()));
        postgres.start_server();
        wait_until("all results", || (count(&postgres) == first + RESULTS / 3).then_some(()));
    }
    collecting.signal(Signal::TERM);
    assert_eq!(collecting.wait().code(), Some(0), "{}", messages());
    // One line for each time without a database, and one when it is over.
    let lines: Vec<String> = messages().lines().map(str::to_owned).collect();
    assert!(lines.len() == 7 && lines[6].ends_with(" results saved"), "{lines:#?}");
    for outage in lines[..6].chunks(2) {
        assert!(
            outage[0].starts_with(&format!("{url}: ")) && outage[0].ends_with(". Trying again"),
            "{outage:?}"
        );
        assert_eq!(outage[1], "the database saves results again");
    }
    let saved: BTreeSet<String> =
        postgres.query("SELECT id FROM linkgauge.run").lines().map(str::to_owned).collect();
    assert_eq!((saved.len(), count(&postgres)), (RESULTS, RESULTS));
    assert!(saved == ids);
    let before = checksum(&postgres);
    deliver_again(&setting);
    let again = collect(&setting, &["--once", "--database", &url]);
    assert_eq!((again.status, again.stderr.as_str()), (Some(0), "0 results saved\n"));
    assert!(checksum(&postgres) == before && count(&postgres) == RESULTS);
    // Nothing is lost: the document is the run, with the name of its pair.
    let mut sent = *result(0, 0).run.unwrap();
    let document = postgres.query("SELECT document FROM linkgauge.run WHERE id LIKE '%-0123abcd00000'");
    let read = Run::from_json(&document).unwrap();
    (sent.id, sent.started) = (read.id.clone(), read.started);
    sent.cases[0].endpoint = "h0 → h1".to_owned();
    assert_eq!(read, sent);
    check_partitions(&setting, &postgres, RESULTS);
}

/// The months of the results, youngest first, as in the names of partitions.
fn months() -> Vec<String> {
    (0..3).map(|months| result(0, months).run.unwrap().started.strftime("%Y_%m").to_string()).collect()
}

fn check_partitions(setting: &Setting, postgres: &Postgres, results: usize) {
    for table in ["run", "measured"] {
        let rows = postgres.query(&format!(
            "SELECT tableoid::regclass || ' ' || count(*) FROM linkgauge.{table} GROUP BY tableoid ORDER BY tableoid::regclass::text DESC"
        ));
        let expected = months()
            .iter()
            .map(|month| format!("linkgauge.{table}_{month} {}", results / 3))
            .collect::<Vec<_>>();
        assert_eq!(rows.lines().collect::<Vec<_>>(), expected);
    }
    let [queries, drop] = &documented_sql()[..] else { panic!("docs/fleet.md has two blocks of SQL") };
    for query in queries.split_inclusive(';').filter(|query| query.contains("SELECT")) {
        let rows = postgres.query(query);
        assert!(rows.contains("h0") && rows.contains("h1"), "{query}\n{rows}");
    }
    let oldest = months().pop().unwrap();
    postgres.query(&drop.replace("2026_01", &oldest));
    assert_eq!(count(postgres), results * 2 / 3);
    // A late result makes its month again.
    deliver_again(setting);
    let late = collect(setting, &["--once", "--database", &postgres.url("postgres", "postgres")]);
    assert_eq!(late.stderr, format!("{} results saved\n", results / 3));
    assert_eq!(count(postgres), results);
}

/// The blocks of SQL in docs/fleet.md.
fn documented_sql() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/fleet.md");
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.map(str::to_owned).collect()
}

#[test]
fn results_that_the_database_cannot_hold_do_not_stop_the_others() {
    let (setting, postgres) = (Setting::new(2, ""), Postgres::start());
    let (hub, url) =
        (setting.connect_with("h0", setting.seed("h0")).unwrap(), postgres.url("postgres", "postgres"));
    publish_all(&hub, 0..20);
    let bad = |number: usize, change: &dyn Fn(&mut Run)| {
        let mut result = result(number, 0);
        change(result.run.as_mut().unwrap());
        publish(&hub, &result);
    };
    bad(20, &|run| run.tool = "a\0b".to_owned());
    bad(21, &|run| run.id = format!("{}-{}", random(100_000), run.id));
    bad(22, &|run| run.started = "2001-01-01T00:00:00Z".parse().unwrap());
    publish_all(&hub, 23..40);
    let id = publish_all(&hub, 40..41).pop_first().unwrap();
    let change_month = |run: &mut Run| {
        run.id.clone_from(&id);
        run.started -= (80 * 24).hours();
    };
    bad(40, &change_month);
    let ended = collect(&setting, &["--once", "--database", &url, "--tag", "night,b"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(lines.len(), 5, "{lines:#?}");
    for part in ["unsupported Unicode escape sequence", "index row", "the clock of its host", "another run"] {
        assert_eq!(lines.iter().filter(|line| line.contains(part)).count(), 1, "{part}: {lines:#?}");
    }
    assert_eq!(lines[4], "38 results saved");
    assert_eq!(count(&postgres), 38);
    assert_eq!(postgres.query("SELECT DISTINCT tags FROM linkgauge.run"), "{night,b}");
    // They were confirmed.
    assert_eq!(collect(&setting, &["--once", "--database", &url]).stderr, "0 results saved\n");
    // An id is found in all months.
    bad(40, &change_month);
    let conflicting = collect(&setting, &["--once", "--database", &url]);
    let expected =
        format!("warning: another run {id} was saved before: a result was dropped\n0 results saved\n");
    assert_eq!((conflicting.stderr, count(&postgres)), (expected, 38));
}

/// A text that cannot be compressed much.
fn random(length: usize) -> String {
    std::iter::repeat_with(fastrand::alphanumeric).take(length).collect()
}

#[test]
fn a_database_that_refuses_is_tried_again() {
    let (setting, postgres) = (Setting::new(2, ""), Postgres::start());
    postgres.query(&format!("CREATE ROLE collector LOGIN PASSWORD '{PASSWORD}'"));
    postgres.query("GRANT CREATE ON DATABASE postgres TO collector");
    let (hub, url) =
        (setting.connect_with("h0", setting.seed("h0")).unwrap(), postgres.url("collector", "postgres"));
    let (mut collecting, log) = start_collector(&setting, &url, &["--metrics", "127.0.0.1:0"]);
    let messages = || std::fs::read_to_string(&log).unwrap();
    let address = wait_until("the metrics", || {
        let printed = messages();
        Some(printed.lines().next()?.strip_prefix("metrics: http://")?.strip_suffix("/metrics")?.to_owned())
    });
    let wait_for = |line: &str| {
        wait_until(line, || get(&address, "/metrics")?.lines().any(|printed| printed == line).then_some(()))
    };
    wait_for("linkgauge_fleet_database_up 1");
    postgres.query("ALTER ROLE collector SET default_transaction_read_only = on");
    postgres
        .query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'linkgauge'");
    publish_all(&hub, 0..3);
    wait_for("linkgauge_fleet_database_up 0");
    // They are not confirmed to the hub.
    let info = setting.operator().api("CONSUMER.INFO.RESULTS.collector", &Value::Null).unwrap();
    let left = ["num_ack_pending", "num_pending"].map(|name| info[name].as_u64().unwrap());
    assert_eq!(left.iter().sum::<u64>(), 3, "{info}");
    postgres.query("ALTER ROLE collector RESET default_transaction_read_only");
    wait_for("linkgauge_fleet_database_up 1");
    wait_for("linkgauge_fleet_results_total{agent=\"h0\",result=\"saved\"} 3");
    // It ends also without a database.
    postgres.stop();
    publish_all(&hub, 3..6);
    wait_for("linkgauge_fleet_database_up 0");
    collecting.signal(Signal::INT);
    assert_eq!(collecting.wait().code(), Some(0));
    assert!(messages().ends_with("Trying again\n3 results saved\n"), "{}", messages());
    postgres.start_server();
    let rest = collect(&setting, &["--once", "--database", &url]);
    assert_eq!((rest.status, count(&postgres)), (Some(0), 6), "{}", rest.stderr);
}

#[test]
fn a_full_disk_is_waited_for() {
    let (setting, postgres) = (Setting::new(2, ""), Postgres::with_small_disk());
    let small = postgres.path(SMALL);
    postgres.query(&format!("CREATE TABLESPACE small LOCATION '{small}'"));
    postgres.query("CREATE DATABASE links TABLESPACE small");
    let hub = setting.connect_with("h0", setting.seed("h0")).unwrap();
    let (mut collecting, log) = start_collector(&setting, &postgres.url("postgres", "links"), &[]);
    let messages = || std::fs::read_to_string(&log).unwrap();
    let count = || postgres.query_in("links", "SELECT count(*) FROM linkgauge.run");
    let tables = "SELECT to_regclass('linkgauge.run') IS NOT NULL";
    wait_until("the tables", || (postgres.query_in("links", tables) == "t").then_some(()));
    publish_all(&hub, 0..3);
    wait_until("the first results", || (count() == "3").then_some(()));
    let fill = format!("COPY (SELECT repeat('x', 8000) FROM generate_series(1, 9000)) TO '{small}/fill'");
    assert_eq!(postgres.try_query(&fill), None, "the disk is full");
    publish_all(&hub, 3..300);
    wait_until("the message", || messages().contains(": No space left on device").then_some(()));
    postgres.query(&format!("COPY (SELECT) TO PROGRAM 'rm {small}/fill'"));
    wait_until("all results", || (count() == "300").then_some(()));
    collecting.signal(Signal::TERM);
    assert_eq!(collecting.wait().code(), Some(0));
    let lines: Vec<String> = messages().lines().map(str::to_owned).collect();
    assert!(lines.len() == 3 && lines[2] == "300 results saved", "{lines:#?}");
}

#[test]
fn agents_measure_into_a_database_over_tls() {
    let (setting, postgres) = (Setting::new(2, ""), Postgres::start());
    make_certificate(|name| postgres.path(&format!("data/{name}")));
    postgres.give("data/hub.key");
    postgres.give("data/hub.pem");
    postgres.stop();
    let ssl = "log_connections = on\nssl = on\nssl_cert_file = 'hub.pem'\nssl_key_file = 'hub.key'\n";
    let mut settings =
        std::fs::OpenOptions::new().append(true).open(postgres.path("data/postgresql.conf")).unwrap();
    settings.write_all(ssl.as_bytes()).unwrap();
    postgres.start_server();
    postgres.query("CREATE ROLE collector LOGIN PASSWORD 'another password'");
    postgres.query("CREATE DATABASE links OWNER collector");
    let plain = postgres.url("collector", "links");
    let password = setting.secret("password", "another password\n");
    let with = |options: &str, flags: &[&str]| {
        let url = format!("{plain}?{options}");
        collect(&setting, &[&["--once", "--database", &url, "--password-file", &password], flags].concat())
    };
    let strange = with("sslmode=require", &[]);
    assert_eq!(strange.status, Some(2), "{}", strange.stderr);
    assert!(
        strange.stderr.contains("name the file of the authority with ?sslrootcert=FILE"),
        "{}",
        strange.stderr
    );
    let _agents = setting.start_agents();
    setting.await_agents();
    assert_eq!(setting.fleet(&["run"], &[]).status, Some(0));
    let trusted = format!("sslmode=verify-full&sslrootcert={}", postgres.path("data/hub.pem"));
    let count = || {
        let ended = with(&trusted, &[]);
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        postgres.query_in(
            "links",
            "SELECT count(*), count(DISTINCT run) FROM linkgauge.measured WHERE round <> ''",
        )
    };
    wait_until("four results", || (count() == "4|4").then_some(()));
    let rates =
        "SELECT count(*) FROM linkgauge.measured WHERE headline = 'rate' AND (figures->>'rate')::float8 > 0";
    assert_eq!(postgres.query_in("links", rates), "2");
    let log = std::fs::read_to_string(postgres.path("log")).unwrap();
    assert!(
        log.contains(
            "user=collector database=links application_name=linkgauge SSL enabled (protocol=TLSv1.3"
        )
    );
}

#[test]
fn a_wrong_address_or_password_is_one_line() {
    let (setting, postgres) = (Setting::new(2, ""), Postgres::start());
    let closed = format!("postgresql://postgres@127.0.0.1:{}/postgres", free_port());
    postgres.query("CREATE ROLE guest LOGIN PASSWORD 'guest'");
    let wrong = setting.secret("wrong", "wrong");
    let guest = setting.secret("guest", "guest");
    let [good, guests] = ["postgres", "guest"].map(|user| postgres.url(user, "postgres"));
    for (flags, why) in [
        (
            vec!["--database", good.as_str(), "--password-file", wrong.as_str()],
            "password authentication failed for user \"postgres\". Set PGPASSWORD, or use --password-file",
        ),
        (
            vec!["--database", guests.as_str(), "--password-file", guest.as_str()],
            "permission denied for database postgres. The user must own the schema",
        ),
        (
            vec!["--database", closed.as_str()],
            "cannot be reached: error connecting to server: Connection refused",
        ),
        (vec!["--database", &postgres.url("postgres", "none")], "database \"none\" does not exist"),
    ] {
        let ended = collect(&setting, &flags);
        assert_eq!(ended.status, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.lines().count() == 1 && ended.stderr.contains(why), "{}", ended.stderr);
    }
    // Tables of a later version are left alone.
    assert_eq!(collect(&setting, &["--once", "--database", &good]).status, Some(0));
    postgres.query("UPDATE linkgauge.version SET number = 99");
    let newer = collect(&setting, &["--once", "--database", &good]);
    assert_eq!(newer.status, Some(2));
    assert!(
        newer.stderr.contains("have version 99") && newer.stderr.lines().count() == 1,
        "{}",
        newer.stderr
    );
}

#[test]
fn a_collector_saves_the_rows_of_a_thousand_hosts() {
    const RESULTS: usize = 10_000;
    let (setting, postgres) = (Setting::new(2, ""), Postgres::start());
    let hub = setting.connect_with("h0", setting.seed("h0")).unwrap();
    publish_all(&hub, 0..RESULTS);
    let url = postgres.url("postgres", "postgres");
    let began = Instant::now();
    let ended = collect(&setting, &["--once", "--database", &url]);
    // It waits for a second whether more arrives.
    let seconds = began.elapsed().as_secs_f64() - 1.0;
    assert_eq!(ended.stderr, format!("{} saved\n", format_plural(RESULTS as u64, "result")));
    let size = |table| {
        format!("(SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('linkgauge.{table}'))")
    };
    let bytes =
        postgres.query(&format!("SELECT round(({} + {}) / {RESULTS})", size("run"), size("measured")));
    let rate = RESULTS as f64 / seconds;
    let note = format!("{rate:.0} results per second, {bytes} bytes for each\n");
    std::io::stderr().write_all(note.as_bytes()).unwrap();
    assert!(rate > PLANNED_RESULTS_PER_SECOND, "{note}");
}
