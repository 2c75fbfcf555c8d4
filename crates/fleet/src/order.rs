//! The list of a fleet, its orders, and which of them an agent accepts. No I/O: the caller gives the time.
//!
//! An order names two hosts of the list and one of its tests. How long and how fast a test is, and where its hosts are, stands
//! in the list, which the operator has signed. An order has no command, no path and no address.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use linkgauge_model::clock::{Clock, Time, wall_clock_date};
use linkgauge_ops::mesh::{HostList, HostListError, TestDirection, TestKind, TestOrder};

/// An agent that has not seen a valid list for this time carries out no orders.
pub const MAX_LIST_AGE: Duration = Duration::from_secs(600);

/// Clocks of hosts may differ by this.
const CLOCK_TOLERANCE_MS: u64 = 2000;

/// Longest id of an order.
const MAX_ID_BYTES: usize = 64;

/// The time on both clocks of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostTime {
    /// For intervals.
    pub time: Time,
    /// Wall-clock time in milliseconds since 1970.
    pub unix_ms: u64,
}

impl HostTime {
    /// Now.
    pub fn now(clock: &Clock) -> HostTime {
        let unix_ms = u64::try_from(wall_clock_date().as_millisecond()).unwrap_or(0);
        HostTime { time: clock.now(), unix_ms }
    }
}

/// The hosts of a fleet and their tests, as the operator signs them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedList {
    /// When it was signed, in milliseconds since 1970. An older list never replaces a newer one.
    pub issued_ms: u64,
    /// When it ends.
    pub not_after_ms: u64,
    /// The host list, in TOML.
    pub hosts: String,
}

impl SignedList {
    /// Identifies the content: the same hosts and tests have the same.
    pub fn id(&self) -> String {
        list_id(&self.hosts)
    }
}

/// Identifies a host list.
pub(crate) fn list_id(hosts: &str) -> String {
    Sha256::digest(hosts.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// One test of a pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetOrder {
    /// Unique; results and leases name it.
    pub id: String,
    /// Id of the list that it belongs to.
    pub list: String,
    /// The host that measures, and sends.
    pub from: String,
    /// The host that is measured.
    pub to: String,
    /// What is measured.
    pub test: TestKind,
    /// When it may begin, in milliseconds since 1970.
    pub not_before_ms: u64,
    /// After this time it is void.
    pub not_after_ms: u64,
}

/// What an agent does for an order.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderedTest {
    /// Scheme of the URL.
    pub transport: String,
    /// Where the measured host is.
    pub address: String,
    /// The test.
    pub test: TestOrder,
    /// For each resource of the test, the subjects of leases of which it needs one: both hosts first. Empty: it needs none.
    pub resources: Vec<Vec<String>>,
}

/// Which part an agent has in an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Measures.
    Measures,
    /// Is measured.
    Serves,
}

/// Why an agent does not accept a list.
#[derive(Debug, thiserror::Error)]
pub enum ListRefusal {
    /// A newer one was accepted.
    #[error("the list is older than the one before")]
    Older,
    /// The time is over.
    #[error("the list has ended. Sign it again: linkgauge fleet apply")]
    Ended,
    /// The host list is invalid.
    #[error(transparent)]
    Hosts(#[from] HostListError),
}

/// Why an agent does not carry out an order.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OrderRefusal {
    /// There is no valid list, or it was seen too long ago.
    #[error("no valid list within {} min: the agent measures nothing", MAX_LIST_AGE.as_secs() / 60)]
    NoList,
    /// Belongs to another list.
    #[error("the order belongs to another list")]
    OtherList,
    /// The time is over.
    #[error("the order has expired")]
    Expired,
    /// May begin later.
    #[error("the order begins in {0} ms")]
    TooEarly(u64),
    /// Has its result.
    #[error("the order was carried out before")]
    Done,
    /// Is being carried out.
    #[error("the order is being carried out")]
    Running,
    /// Another host is meant, or the list does not have the pair or the test.
    #[error("the list has no such test for this host")]
    Unknown,
}

/// A list in use.
#[derive(Debug)]
struct KnownList {
    list: HostList,
    id: String,
    issued_ms: u64,
    not_after_ms: u64,
    /// When the hub showed it last.
    seen: Time,
}

/// What an agent knows of its list and its orders.
#[derive(Debug)]
pub struct OrderBook {
    name: String,
    list: Option<KnownList>,
    newest_issued_ms: u64,
    /// Orders that are done, with the end of their time.
    done: BTreeMap<String, u64>,
    running: BTreeSet<String>,
}

impl OrderBook {
    /// The book of the agent with this name. It continues after a restart with what it had accepted and done before.
    pub fn new(name: &str, newest_issued_ms: u64, done: BTreeMap<String, u64>) -> OrderBook {
        OrderBook { name: name.to_owned(), list: None, newest_issued_ms, done, running: BTreeSet::new() }
    }

    /// The hub shows a list whose signature is valid. Returns whether it differs from the one before.
    ///
    /// # Errors
    ///
    /// It is not accepted; the one before stays in use, and grows older.
    pub fn accept_list(&mut self, signed: &SignedList, now: HostTime) -> Result<bool, ListRefusal> {
        if signed.issued_ms < self.newest_issued_ms {
            return Err(ListRefusal::Older);
        }
        if signed.not_after_ms <= now.unix_ms {
            return Err(ListRefusal::Ended);
        }
        let id = signed.id();
        match &mut self.list {
            Some(known) if known.id == id => {
                known.seen = now.time;
                known.issued_ms = signed.issued_ms;
                known.not_after_ms = signed.not_after_ms;
                self.newest_issued_ms = signed.issued_ms;
                Ok(false)
            }
            known => {
                let list = HostList::from_toml(&signed.hosts)?;
                let (issued_ms, not_after_ms) = (signed.issued_ms, signed.not_after_ms);
                *known = Some(KnownList { list, id, issued_ms, not_after_ms, seen: now.time });
                self.newest_issued_ms = issued_ms;
                Ok(true)
            }
        }
    }

    /// Id of the list, while it is valid.
    pub fn list_id(&self, now: HostTime) -> Option<&str> {
        self.valid_list(now).map(|known| known.id.as_str())
    }

    fn valid_list(&self, now: HostTime) -> Option<&KnownList> {
        let is_valid = |known: &&KnownList| {
            now.time.since(known.seen) <= MAX_LIST_AGE && now.unix_ms < known.not_after_ms
        };
        self.list.as_ref().filter(is_valid)
    }

    /// What an order means for this agent.
    ///
    /// # Errors
    ///
    /// It is not to be carried out, or not yet.
    pub fn check(&self, order: &FleetOrder, role: Role, now: HostTime) -> Result<OrderedTest, OrderRefusal> {
        let known = self.valid_list(now).ok_or(OrderRefusal::NoList)?;
        if now.unix_ms > order.not_after_ms || order.id.len() > MAX_ID_BYTES {
            return Err(OrderRefusal::Expired);
        }
        if self.done.contains_key(&order.id) {
            return Err(OrderRefusal::Done);
        }
        if role == Role::Measures && self.running.contains(&order.id) {
            return Err(OrderRefusal::Running);
        }
        if order.list != known.id {
            return Err(OrderRefusal::OtherList);
        }
        let own = match role {
            Role::Measures => &order.from,
            Role::Serves => &order.to,
        };
        let plan = plan_of(&known.list, order).filter(|_| *own == self.name);
        let plan = plan.ok_or(OrderRefusal::Unknown)?;
        let early = order.not_before_ms.saturating_sub(now.unix_ms);
        match early > CLOCK_TOLERANCE_MS || (role == Role::Measures && early > 0) {
            true => Err(OrderRefusal::TooEarly(early)),
            false => Ok(plan),
        }
    }

    /// An order is being carried out.
    pub fn begin(&mut self, order: &FleetOrder) {
        self.running.insert(order.id.clone());
    }

    /// Ended without a result, so it may be carried out again.
    pub fn give_up(&mut self, order: &FleetOrder) {
        self.running.remove(&order.id);
    }

    /// Has its result. Orders whose time is over are forgotten: they would be refused as expired.
    pub fn finish(&mut self, order: &FleetOrder, now: HostTime) {
        self.running.remove(&order.id);
        self.done.retain(|_, not_after_ms| *not_after_ms >= now.unix_ms);
        self.done.insert(order.id.clone(), order.not_after_ms);
    }
}

/// The test of an order, if the list has it.
fn plan_of(list: &HostList, order: &FleetOrder) -> Option<OrderedTest> {
    let index = |name: &str| list.hosts.iter().position(|host| host.name == name);
    let pair = [index(&order.from)?, index(&order.to)?];
    list.pairs.contains(&pair).then_some(())?;
    let (test, resources) = match order.test {
        TestKind::Latency => {
            let test = list.latency?;
            let order = TestOrder::Latency {
                time_ms: test.time.as_millis() as u64,
                per_second: test.per_second,
                message_bytes: test.message_bytes,
            };
            (order, Vec::new())
        }
        TestKind::Throughput => {
            let test = list.throughput?;
            let order = TestOrder::Throughput {
                time_ms: test.time.as_millis() as u64,
                direction: TestDirection::Send,
                parallel: test.parallel,
                bits_per_second: test.bits_per_second,
            };
            (order, lease_subjects(list, pair))
        }
    };
    let address = list.hosts[pair[1]].address.clone();
    Some(OrderedTest { transport: list.transport.clone(), address, test, resources })
}

/// A name as one part of a subject: other characters than letters, digits, `-` and `_` are escaped.
pub fn subject_part(name: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => char::from(byte).to_string(),
        _ => format!("={byte:02X}"),
    };
    name.bytes().map(escape).collect()
}

/// The leases of a throughput test: both hosts, then what they share. A resource that carries several tests has a subject for each.
fn lease_subjects(list: &HostList, pair: [usize; 2]) -> Vec<Vec<String>> {
    // Measured host first: its number is the fence that it checks.
    let hosts = [pair[1], pair[0]].map(|host| vec![host_lease(&list.hosts[host].name)]);
    let shared = list.resources.iter().filter(|resource| resource.is_used_by(pair)).map(|resource| {
        let name = subject_part(&resource.name);
        (0..resource.capacity).map(|place| format!("lease.resource.{name}.{place}")).collect()
    });
    hosts.into_iter().chain(shared).collect()
}

/// The lease of a host.
pub fn host_lease(name: &str) -> String {
    format!("lease.host.{}", subject_part(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: &str = "[test.throughput]\ntime = \"1s\"\n[[host]]\nname = \"a\"\ngroup = \"x\"\n[[host]]\nname = \"b.example\"\n\
                         [[resource]]\nname = \"up link\"\ngroup = \"x\"\ncapacity = 2\n";

    fn order() -> FleetOrder {
        FleetOrder {
            id: "1".to_owned(),
            list: list_id(HOSTS),
            from: "a".to_owned(),
            to: "b.example".to_owned(),
            test: TestKind::Throughput,
            not_before_ms: 5000,
            not_after_ms: 60_000,
        }
    }

    fn at(seconds: u64) -> HostTime {
        HostTime { time: Time(seconds * 1_000_000_000), unix_ms: 1000 * seconds }
    }

    fn list() -> SignedList {
        SignedList { issued_ms: 1000, not_after_ms: 3_600_000, hosts: HOSTS.to_owned() }
    }

    fn book(name: &str) -> OrderBook {
        let mut book = OrderBook::new(name, 0, BTreeMap::new());
        assert!(book.accept_list(&list(), at(2)).unwrap());
        book
    }

    #[test]
    fn an_order_names_a_test_of_the_list() {
        let plan = book("a").check(&order(), Role::Measures, at(6)).unwrap();
        assert_eq!(plan.address, "b.example");
        assert_eq!(plan.test.time_ms(), 1000);
        let places = ["lease.resource.up=20link.0", "lease.resource.up=20link.1"].map(str::to_owned);
        let hosts = ["lease.host.b=2Eexample", "lease.host.a"].map(|host| vec![host.to_owned()]);
        assert_eq!(plan.resources, [hosts[0].clone(), hosts[1].clone(), places.to_vec()]);
        assert!(book("b.example").check(&order(), Role::Serves, at(6)).is_ok());
        let latency = FleetOrder { test: TestKind::Latency, ..order() };
        assert!(book("a").check(&latency, Role::Measures, at(6)).unwrap().resources.is_empty());
    }

    #[test]
    fn expired_early_repeated_and_foreign_orders_are_refused() {
        let mut book = book("a");
        let check =
            |book: &OrderBook, order: &FleetOrder, at| book.check(order, Role::Measures, at).unwrap_err();
        assert_eq!(check(&book, &order(), at(61)), OrderRefusal::Expired);
        assert_eq!(check(&book, &order(), at(4)), OrderRefusal::TooEarly(1000));
        let foreign = [
            FleetOrder { from: "b.example".to_owned(), to: "a".to_owned(), ..order() },
            FleetOrder { to: "c".to_owned(), ..order() },
            FleetOrder { to: "a".to_owned(), ..order() },
        ];
        for order in foreign {
            assert_eq!(check(&book, &order, at(6)), OrderRefusal::Unknown, "{order:?}");
        }
        let other_list = FleetOrder { list: "0".to_owned(), ..order() };
        assert_eq!(check(&book, &other_list, at(6)), OrderRefusal::OtherList);
        book.begin(&order());
        assert_eq!(check(&book, &order(), at(6)), OrderRefusal::Running);
        book.give_up(&order());
        assert!(book.check(&order(), Role::Measures, at(6)).is_ok(), "a test without a result is made again");
        book.finish(&order(), at(8));
        assert_eq!(check(&book, &order(), at(9)), OrderRefusal::Done);
        // After a restart.
        let mut book = OrderBook::new("a", 1000, [("1".to_owned(), 60_000)].into());
        book.accept_list(&list(), at(2)).unwrap();
        assert_eq!(check(&book, &order(), at(9)), OrderRefusal::Done);
    }

    #[test]
    fn an_agent_without_a_valid_list_for_ten_minutes_stops() {
        let mut book = book("a");
        let order = FleetOrder { not_before_ms: 0, not_after_ms: 10_000_000, ..order() };
        assert!(book.check(&order, Role::Measures, at(602)).is_ok());
        assert_eq!(book.check(&order, Role::Measures, at(603)).unwrap_err(), OrderRefusal::NoList);
        assert!(!book.accept_list(&list(), at(700)).unwrap(), "the same list");
        assert!(book.check(&order, Role::Measures, at(1300)).is_ok());
        // The operator has limited it to an hour.
        assert!(matches!(book.accept_list(&list(), at(3600)), Err(ListRefusal::Ended)));
        let long = SignedList { not_after_ms: 9_000_000, issued_ms: 1001, ..list() };
        book.accept_list(&long, at(3600)).unwrap();
        assert!(book.check(&order, Role::Measures, at(3600)).is_ok());
        assert!(matches!(book.accept_list(&list(), at(10)), Err(ListRefusal::Older)));
        assert_eq!(OrderBook::new("a", 0, BTreeMap::new()).list_id(at(1)), None);
    }

    #[test]
    fn names_are_parts_of_subjects() {
        assert_eq!(subject_part("a-b_C9"), "a-b_C9");
        assert_eq!(subject_part("a.b *>"), "a=2Eb=20=2A=3E");
    }
}
