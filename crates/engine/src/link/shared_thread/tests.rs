//! Members of a shared thread on real sockets: input, timers, moves, panics and ends.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use super::*;
use crate::link::party::Step;
use crate::link::redial::RedialedLink;
use crate::link::{Batch, Dialer};
use crate::protocol::Registry;
use linkgauge_model::endpoint::Endpoint;

const LONG: Duration = Duration::from_secs(60);

/// Next action of a party.
enum ScriptedAction {
    Tune(Tuning),
    /// Waits for input for this time.
    Receive(Duration),
    Sleep(Duration),
    /// Sends this number of bytes.
    Send(usize),
    Close,
    Reopen,
    /// Looks at a state until it is set.
    Await(Arc<AtomicBool>),
    Panic,
}

use ScriptedAction::{Await, Close, Panic, Receive, Reopen, Send, Sleep, Tune};

/// Log of the parties of a test, in order.
type Log = Arc<Mutex<Vec<String>>>;

/// Performs its actions one after the other and writes down their outcomes.
struct Script {
    name: &'static str,
    actions: VecDeque<ScriptedAction>,
    /// The end of the wait of the first action, once it has begun.
    until: Option<Time>,
    batch: Batch,
    log: Log,
}

impl Script {
    fn next_action(&mut self, outcome: &str) {
        self.actions.pop_front();
        self.until = None;
        self.write(outcome);
    }

    fn write(&self, outcome: &str) {
        self.log.lock().unwrap().push(format!("{} {outcome}", self.name));
    }
}

static PAYLOAD: [u8; 65_536] = [7; 65_536];

impl Party for Script {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        match self.actions.front() {
            None => Step::Done,
            Some(&Tune(tuning)) => {
                self.next_action("tunes");
                Step::Tune(tuning)
            }
            Some(&Receive(within)) => {
                let until = *self.until.get_or_insert(now + within);
                Step::Receive { into: &mut self.batch, until }
            }
            Some(&Sleep(time)) => {
                let until = *self.until.get_or_insert(now + time);
                if now >= until {
                    self.next_action("slept");
                }
                Step::Sleep(until)
            }
            Some(&Send(bytes)) => {
                let bytes = &PAYLOAD[..bytes.min(PAYLOAD.len())];
                Step::Send { bytes, message: bytes.len() }
            }
            Some(Close) => {
                self.next_action("closes");
                Step::FinishSending
            }
            Some(Reopen) => Step::Reopen,
            Some(Await(state)) if state.load(Relaxed) => {
                self.next_action("saw it");
                Step::Sleep(now)
            }
            Some(Await(_)) => Step::Sleep(now + LONG),
            Some(Panic) => panic!("as the test wants it"),
        }
    }

    fn on_sent(&mut self, bytes: usize, _at: Time) {
        match self.actions.front_mut() {
            Some(Send(left)) if *left > bytes => *left -= bytes,
            _ => self.next_action("sent"),
        }
    }

    fn on_received(&mut self, _now: Time) {
        self.next_action(&format!("received {}", self.batch.total_bytes()));
    }

    fn on_timeout(&mut self, _now: Time) {
        self.next_action("waited");
    }

    fn on_send_blocked(&mut self, _now: Time, _unacknowledged: Option<u64>) {
        self.write("blocked");
    }

    fn on_reopened(&mut self, outcome: Result<(), Fault>, _now: Time) -> Result<(), Fault> {
        self.next_action(if outcome.is_ok() { "reopened" } else { "found nothing" });
        Ok(())
    }

    fn on_ended(&mut self, cost: PartyCost) {
        assert!(cost.has_shared_thread);
        self.write("ended");
    }
}

struct Scripted {
    party: Script,
    link: Box<dyn Link>,
    placement: ThreadChoice,
}

impl Member for Scripted {
    fn ends(&mut self) -> (&mut dyn Party, &mut dyn Link) {
        (&mut self.party, self.link.as_mut())
    }

    fn place(&mut self, _tuning: &Tuning) -> Result<ThreadChoice, Fault> {
        Ok(self.placement)
    }
}

/// A shared thread, and how to make its members.
struct Bench {
    thread: SharedThread<Scripted>,
    departed: Vec<Departure<Scripted>>,
    listener: TcpListener,
    dialer: Dialer,
    log: Log,
}

impl Bench {
    pub fn new() -> Bench {
        Bench {
            thread: SharedThread::new(&Clock::System, 4).unwrap(),
            departed: Vec::new(),
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            dialer: Registry::standard().dialer(Clock::System),
            log: Log::default(),
        }
    }

    /// Adds a member; returns the remote end of its link.
    pub fn add(
        &mut self,
        name: &'static str,
        actions: impl IntoIterator<Item = ScriptedAction>,
    ) -> TcpStream {
        self.add_placed(name, actions, ThreadChoice::Stay(WaitMode::Block))
    }

    fn add_placed(
        &mut self,
        name: &'static str,
        actions: impl IntoIterator<Item = ScriptedAction>,
        placement: ThreadChoice,
    ) -> TcpStream {
        let link = self.dialer.open(&self.url()).unwrap();
        self.add_on(link, name, actions, placement)
    }

    fn url(&self) -> Endpoint {
        format!("tcp://{}", self.listener.local_addr().unwrap()).parse().unwrap()
    }

    fn add_on(
        &mut self,
        link: Box<dyn Link>,
        name: &'static str,
        actions: impl IntoIterator<Item = ScriptedAction>,
        placement: ThreadChoice,
    ) -> TcpStream {
        let party = Script {
            name,
            actions: actions.into_iter().collect(),
            until: None,
            batch: Batch::new(4096, 1),
            log: self.log.clone(),
        };
        self.thread.add(Scripted { party, link, placement });
        self.listener.accept().unwrap().0
    }

    pub fn turn(&mut self) {
        self.thread.turn(Duration::from_millis(20), &mut self.departed);
    }

    /// Takes turns until the log has this number of entries.
    fn run_until(&mut self, entries: usize) {
        let end = Clock::System.now() + LONG;
        while self.log.lock().unwrap().len() < entries {
            assert!(Clock::System.now() < end, "{:?}", self.log.lock().unwrap());
            self.turn();
        }
    }

    #[track_caller]
    fn assert_log(&self, expected: &[&str]) {
        assert_eq!(*self.log.lock().unwrap(), expected);
    }
}

#[test]
fn input_runs_the_member_that_it_is_for() {
    let mut bench = Bench::new();
    let _first = bench.add("a", [Receive(LONG)]);
    let mut second = bench.add("b", [Receive(LONG)]);
    bench.turn();
    bench.assert_log(&[]);
    second.write_all(b"xyz").unwrap();
    bench.run_until(2);
    bench.assert_log(&["b received 3", "b ended"]);
    assert!(matches!(&bench.departed[..], [Departure::Ended { result: Ok(()), .. }]));
    assert_eq!(bench.thread.len(), 1);
}

/// The kernel reports only new input of these links.
#[test]
fn no_input_is_forgotten() {
    let mut bench = Bench::new();
    let ms = Duration::from_millis;
    let mut long = bench.add("long", [Receive(LONG), Receive(LONG)]);
    long.write_all(&PAYLOAD[..5000]).unwrap();
    bench.run_until(3);
    bench.assert_log(&["long received 4096", "long received 904", "long ended"]);

    let mut ending = bench.add("ending", [Receive(LONG), Receive(LONG)]);
    ending.write_all(b"xyz").unwrap();
    drop(ending);
    bench.run_until(5);
    bench.log.lock().unwrap().drain(..3);
    bench.assert_log(&["ending received 3", "ending ended"]);
    assert!(matches!(&bench.departed[1..], [Departure::Ended { result: Err(Fault::Closed), .. }]));

    let mut early = bench.add("early", [Receive(LONG), Sleep(ms(30)), Receive(LONG), Receive(LONG)]);
    early.write_all(b"x").unwrap();
    bench.run_until(3);
    early.write_all(b"yz").unwrap();
    bench.run_until(5);
    early.write_all(b"xyz").unwrap();
    bench.run_until(7);
    bench.log.lock().unwrap().drain(..2);
    let received = ["early received 1", "early slept", "early received 2", "early received 3", "early ended"];
    bench.assert_log(&received);
}

/// Input that one receive leaves is reported again, also where the link was watched before its party announced bulk data.
#[test]
fn bulk_input_is_received_once_for_each_event() {
    let mut bench = Bench::new();
    let bulk = Tuning { batch_message_bytes: Some(4096), ..Tuning::default() };
    let mut remote = bench.add("a", [Receive(LONG), Tune(bulk), Receive(LONG), Receive(LONG), Receive(LONG)]);
    remote.write_all(b"x").unwrap();
    bench.run_until(2);
    remote.write_all(&PAYLOAD[..9000]).unwrap();
    for entries in 3..=4 {
        bench.run_until(entries);
        assert_eq!(bench.log.lock().unwrap().len(), entries, "one receive in a turn");
    }
    bench.run_until(6);
    let received =
        ["a received 1", "a tunes", "a received 4096", "a received 4096", "a received 808", "a ended"];
    bench.assert_log(&received);
}

#[test]
fn timers_fire_in_their_order_and_not_early() {
    let mut bench = Bench::new();
    let began = Clock::System.now();
    let ms = Duration::from_millis;
    let _links = [
        bench.add("a", [Receive(ms(60))]),
        bench.add("b", [Receive(ms(5))]),
        bench.add("c", [Sleep(ms(30))]),
    ];
    bench.run_until(6);
    bench.assert_log(&["b waited", "b ended", "c slept", "c ended", "a waited", "a ended"]);
    assert!(Clock::System.now().since(began) >= ms(60));
}

/// A schedule of many flows needs times that are far below a millisecond.
#[test]
fn the_thread_wakes_within_a_part_of_a_millisecond() {
    let mut bench = Bench::new();
    let time = Duration::from_micros(200);
    let mut least = LONG;
    // A busy host wakes a thread late most of the time, but not always.
    for _ in 0..300 {
        let _link = bench.add("a", [Sleep(time)]);
        let began = Clock::System.now();
        while !bench.thread.is_empty() {
            bench.turn();
        }
        least = least.min(Clock::System.now().since(began));
        bench.departed.clear();
    }
    assert!((time..3 * time).contains(&least), "{least:?}");
}

/// The time of an earlier wait, of this member or of the one before it in its place, is no timeout.
#[test]
fn a_wait_that_has_ended_leaves_no_timer() {
    let mut bench = Bench::new();
    let ms = Duration::from_millis;
    let mut first = bench.add("a", [Receive(ms(500)), Receive(LONG)]);
    let mut second = bench.add("b", [Receive(ms(500))]);
    bench.turn();
    first.write_all(b"1").unwrap();
    second.write_all(b"1").unwrap();
    bench.run_until(3);
    let _third = bench.add("c", [Receive(LONG)]);
    let end = Clock::System.now() + ms(600);
    while Clock::System.now() < end {
        bench.turn();
    }
    let mut log = bench.log.lock().unwrap().clone();
    log.sort();
    assert_eq!(log, ["a received 1", "b ended", "b received 1"]);
    assert_eq!(bench.thread.places.len(), 2, "the third member has the place of the second");
}

#[test]
fn a_member_that_leaves_takes_its_link_along() {
    let mut bench = Bench::new();
    let mut remote = bench.add_placed("a", [Tune(Tuning::default()), Receive(LONG)], ThreadChoice::Leave);
    bench.run_until(1);
    let Some(Departure::Moved { mut member, .. }) = bench.departed.pop() else { panic!("it stays") };
    assert!(bench.thread.is_empty());
    remote.write_all(b"four").unwrap();
    let mut bytes = [0; 8];
    assert_eq!(member.link.receive(&mut bytes, LONG).unwrap(), 4);
    bench.assert_log(&["a tunes"]);
}

#[test]
fn a_panic_removes_one_member() {
    let mut bench = Bench::new();
    let mut before = bench.add("a", [Receive(LONG)]);
    let _panics = bench.add("b", [Panic]);
    let mut after = bench.add("c", [Receive(LONG)]);
    assert!(catch_unwind(AssertUnwindSafe(|| bench.turn())).is_err());
    bench.thread.remove_panicked();
    assert_eq!(bench.thread.len(), 2);
    before.write_all(b"1").unwrap();
    after.write_all(b"1").unwrap();
    bench.run_until(4);
    let mut log = bench.log.lock().unwrap().clone();
    log.sort();
    assert_eq!(log, ["a ended", "a received 1", "c ended", "c received 1"]);
}

#[test]
fn a_full_link_continues_when_its_remote_reads() {
    const BYTES: usize = 32 << 20;
    let mut bench = Bench::new();
    let mut remote = bench.add("a", [Send(BYTES)]);
    bench.run_until(1);
    bench.assert_log(&["a blocked"]);
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        remote.read_to_end(&mut bytes).unwrap();
        bytes.len()
    });
    while !bench.log.lock().unwrap().iter().any(|entry| entry == "a ended") {
        bench.turn();
    }
    bench.departed.clear();
    assert_eq!(reader.join().unwrap(), BYTES);
}

#[test]
fn all_members_end_once_and_their_shares_are_no_more_than_the_whole() {
    let mut bench = Bench::new();
    let before = cpu::thread_cpu_seconds();
    let _links = [bench.add("a", [Receive(LONG)]), bench.add("b", [Sleep(LONG)])];
    bench.turn();
    bench.thread.end_all(&mut bench.departed);
    let used = cpu::thread_cpu_seconds() - before;
    bench.assert_log(&["a ended", "b ended"]);
    let shares = bench.departed.iter().map(|departure| match departure {
        Departure::Ended { cost, result: Ok(()), .. } => cost.cpu_seconds,
        _ => panic!("each ends without a fault"),
    });
    assert!((0.0..=used).contains(&shares.sum::<f64>()));
    assert!(bench.thread.is_empty());
}

#[test]
fn another_thread_ends_the_wait() {
    let mut bench = Bench::new();
    let _link = bench.add("a", [Receive(LONG)]);
    bench.turn();
    let (waker, began) = (bench.thread.waker(), Clock::System.now());
    let wake = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        waker.wake();
    });
    bench.thread.turn(LONG, &mut bench.departed);
    assert!(Clock::System.now().since(began) < LONG / 2);
    wake.join().unwrap();
    bench.assert_log(&[]);
}

/// A state for which the members wait, and which no event announces.
#[test]
fn a_sweep_lets_members_look_at_a_state() {
    let mut bench = Bench::new();
    let state = Arc::new(AtomicBool::new(false));
    let _links = ["a", "b"].map(|name| bench.add(name, [Await(state.clone()), Await(state.clone())]));
    let _other = bench.add("c", [Receive(LONG)]);
    bench.turn();
    bench.thread.waker().sweep();
    bench.turn();
    bench.assert_log(&[]);
    state.store(true, Relaxed);
    bench.thread.waker().sweep();
    // The second sweep may have to wait for the pause after the first one, so the members can take turns.
    bench.run_until(6);
    bench.log.lock().unwrap().sort_by_key(|entry| entry.chars().next());
    bench.assert_log(&["a saw it", "a saw it", "a ended", "b saw it", "b saw it", "b ended"]);
    assert_eq!(bench.thread.len(), 1);
}

/// The new descriptor often has the number of the closed one.
#[test]
fn a_member_that_opens_its_link_again_waits_for_the_new_one() {
    let mut bench = Bench::new();
    let link = Box::new(RedialedLink::open(&bench.url(), &bench.dialer).unwrap());
    let actions = [Receive(LONG), Close, Reopen, Receive(LONG), Close, Reopen, Receive(LONG), Close, Reopen];
    let mut remote = bench.add_on(link, "a", actions, ThreadChoice::Stay(WaitMode::Block));
    let _other = bench.add("b", [Receive(LONG)]);
    for round in 1..=2 {
        bench.turn();
        remote.write_all(b"xyz").unwrap();
        bench.run_until(3 * round);
        remote = bench.listener.accept().unwrap().0;
    }
    // Nothing listens any more.
    bench.listener = TcpListener::bind("127.0.0.1:0").unwrap();
    remote.write_all(b"xyz").unwrap();
    bench.run_until(10);
    let round = ["a received 3", "a closes", "a reopened"];
    bench.assert_log(
        &[&round[..], &round, &["a received 3", "a closes", "a found nothing", "a ended"]].concat(),
    );
    assert_eq!(bench.thread.len(), 1);
}
