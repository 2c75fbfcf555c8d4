//! A link that is watched on the virtual clock for days, through the real code of `monitor`: watcher, alarms, windows, store. Trouble
//! is planted at known times. Used by the bench `month` and, with some hours, by a test.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use linkgauge::Registry;
use linkgauge::clock::{Clock, Time};
use linkgauge::link::party::{Party, Step, Tuning};
use linkgauge::link::{Batch, Dialer, Fault, Listener};
use linkgauge::monitor::{
    Alert, Calendar, Config, Ledger, MonitorEvent, MonitorObserver, Transition, USUAL_SHIFT_DELAY, Watcher,
};
use linkgauge::sample::Window;
use linkgauge::stats::SplitMix64;
use linkgauge::store::{Store, TIERS};

/// Round trips of about 10 ms.
const LINK: &str = "mem://watched?delay=5ms&jitter=1ms&type=message";

/// The rules of the watch, by the word with which plants name them.
pub const RULES: [(&str, &str); 3] = [
    ("loss", "loss > 5 % (normal 0.5 %), at most one false alarm a month"),
    ("late", "late 25ms > 10 % (normal 1 %), at most one false alarm a month"),
    ("p99", "late p99 > 10 %, at most one false alarm a month"),
];

/// The word for a shift of the median.
pub const SHIFT: &str = "shift";

/// What is planted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trouble {
    /// This share of the probes is lost.
    Loss(f64),
    /// This share of the replies is 30 ms late.
    Late(f64),
    /// Every reply is late by this time.
    Level(Duration),
    /// The monitor is killed and runs again after this time.
    Killed(Duration),
    /// The wall clock is set by this.
    Set(SignedDuration),
    /// The machine is suspended for this time.
    Suspended(Duration),
}

/// Trouble from one time to another, since the begin of the simulation.
#[derive(Debug, Clone, Copy)]
pub struct Plant {
    pub from: Duration,
    pub to: Duration,
    pub trouble: Trouble,
}

/// What was found of a plant: the delay, and the longest delay that the monitor prints (99 of 100) for this rule.
#[derive(Debug, Clone, Copy)]
pub struct Finding {
    pub plant: Plant,
    pub delay: Option<Duration>,
    pub printed_mean: Duration,
    pub printed: Duration,
}

/// The result of a simulation.
#[derive(Debug, Default)]
pub struct Outcome {
    pub findings: Vec<Finding>,
    /// Alarms and shifts that no plant explains.
    pub false_alarms: Vec<(Duration, &'static str)>,
    /// Clock events, as logged.
    pub clock_events: usize,
    /// Probes of all slices, and those in the store.
    pub measured: Window,
    pub stored: Window,
    /// Lost probes that no plant explains.
    pub unexplained_losses: u64,
}

/// The background of the link: this share of probes is lost.
const NORMAL_LOSS: f64 = 0.001;

/// What all connections of the server share: the plants, and what happens to the machine of the monitor, the earliest last.
struct World {
    plants: Vec<Plant>,
    disturbances: Mutex<Vec<Plant>>,
    calendar: Calendar,
}

impl World {
    fn new(plants: &[Plant], calendar: Calendar) -> World {
        let is_disturbance =
            |plant: &&Plant| matches!(plant.trouble, Trouble::Set(_) | Trouble::Suspended(_));
        let mut disturbances: Vec<Plant> = plants.iter().filter(is_disturbance).copied().collect();
        disturbances.sort_by_key(|plant| std::cmp::Reverse(plant.from));
        World { plants: plants.to_vec(), disturbances: Mutex::new(disturbances), calendar }
    }

    /// Disturbs the clocks in the middle of a slice.
    fn disturb(&self, now: Duration) {
        let mut disturbances = self.disturbances.lock().unwrap();
        while let Some(plant) = disturbances.pop_if(|plant| plant.from <= now) {
            match plant.trouble {
                Trouble::Set(by) => self.calendar.set_virtual_wall(by),
                Trouble::Suspended(time) => self.calendar.suspend_virtual_machine(time),
                _ => {}
            }
        }
    }
}

/// An echo with the trouble of the time.
struct TroubledEcho {
    world: Arc<World>,
    random: SplitMix64,
    batch: Batch,
    is_tuned: bool,
    reply_at: Option<Time>,
}

impl TroubledEcho {
    fn troubles(&self, now: Time) -> impl Iterator<Item = Trouble> + use<'_> {
        let now = Duration::from_nanos(now.0);
        self.world
            .plants
            .iter()
            .filter(move |plant| plant.from <= now && now < plant.to)
            .map(|plant| plant.trouble)
    }
}

impl Party for TroubledEcho {
    fn next_step(&mut self, now: Time) -> Step<'_> {
        if !std::mem::replace(&mut self.is_tuned, true) {
            return Step::Tune(Tuning::default());
        }
        match self.reply_at {
            Some(at) if at > now => Step::Sleep(at),
            Some(_) => {
                let bytes = self.batch.messages().next().unwrap_or_default();
                Step::Send { bytes, message: bytes.len() }
            }
            None => Step::Receive { into: &mut self.batch, until: Time::NEVER },
        }
    }

    fn on_sent(&mut self, _bytes: usize, _at: Time) {
        self.reply_at = None;
    }

    fn on_received(&mut self, now: Time) {
        self.world.disturb(Duration::from_nanos(now.0));
        let (mut loss, mut late, mut level) = (NORMAL_LOSS, 0.0, Duration::ZERO);
        for trouble in self.troubles(now) {
            match trouble {
                Trouble::Loss(share) => loss = share,
                Trouble::Late(share) => late = share,
                Trouble::Level(by) => level = by,
                _ => {}
            }
        }
        let (is_lost, is_late) = (self.random.uniform() < loss, self.random.uniform() < late);
        let wait = if is_late { level + Duration::from_millis(30) } else { level };
        self.reply_at = (!is_lost).then_some(now + wait);
    }

    fn on_timeout(&mut self, _now: Time) {}

    fn on_closed(&mut self, _now: Time) -> Result<(), Fault> {
        Err(Fault::Closed)
    }
}

/// Notes alarms and shifts with the time since the begin.
struct Log {
    clock: Clock,
    found: Mutex<Vec<(Duration, &'static str)>>,
    clock_events: Mutex<usize>,
}

impl MonitorObserver for Log {
    fn event(&self, _at: Timestamp, event: &MonitorEvent) {
        let word = match event {
            MonitorEvent::Alarm { rule, transition: Transition::Raised, .. } => {
                RULES.iter().find(|(_, text)| text == rule).map(|(word, _)| *word)
            }
            MonitorEvent::LevelShift { .. } => Some(SHIFT),
            MonitorEvent::Clock { .. } => {
                *self.clock_events.lock().unwrap() += 1;
                None
            }
            _ => None,
        };
        let at = Duration::from_nanos(self.clock.now().0);
        self.found.lock().unwrap().extend(word.map(|word| (at, word)));
    }
}

impl Trouble {
    /// What must find it, and what else may.
    fn words(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Trouble::Loss(_) => (&["loss"], &["late", "p99"]),
            Trouble::Late(_) => (&["late"], &["p99"]),
            Trouble::Level(_) => (&[SHIFT], &["p99"]),
            _ => (&[], &[]),
        }
    }
}

fn config(rate: f64) -> Config {
    let rules: Vec<String> = RULES.iter().map(|(_, rule)| format!("\"{rule}\"")).collect();
    let text = format!(
        "[[watch]]\nname = \"link\"\nurl = \"{LINK}\"\nprotocol = \"echo\"\nrate = \"{rate}/s\"\nalert = [{}]",
        rules.join(", ")
    );
    Config::from_toml(&text).expect("the file is valid")
}

/// Watches the link for this time, with this number of probes per second. The store is written each minute, in this folder.
pub fn simulate(plants: &[Plant], length: Duration, rate: f64, seed: u64, folder: &Path) -> Outcome {
    let config = config(rate);
    let dialer = Registry::standard().dialer(Clock::new_virtual());
    let start = Timestamp::from_second(1_800_000_000).expect("a date");
    let calendar = Calendar::new(dialer.clock.clone(), start);
    let log = Log { clock: dialer.clock.clone(), found: Mutex::default(), clock_events: Mutex::default() };
    let _listener = serve(&dialer, World::new(plants, calendar.clone()), seed);
    let path = folder.join(format!("{seed}.sqlite"));
    let mut outcome = Outcome::default();
    let mut kills = kills(plants).into_iter().peekable();
    let now = || Duration::from_nanos(dialer.now().0);
    while now() < length {
        // The monitor, from one kill to the next.
        let store = Store::open(&path).expect("the store opens");
        let mut ledger =
            Ledger::new(&config, Vec::new(), Some(store), &log).expect("the store can be written");
        let mut watcher = Watcher::new(config.watches[0].clone(), rate, calendar.clone(), dialer.clone());
        let mut slices = 0;
        let mut killed = None;
        while now() < length && killed.is_none() {
            let slice = watcher.run_slice().expect("the case is valid");
            killed = kills.next_if(|(at, _)| *at <= now());
            outcome.measured.merge(&slice.window);
            outcome.unexplained_losses += unexplained_losses(plants, now(), &slice.window);
            ledger.record_slice(0, slice);
            slices += 1;
            if killed.is_none() && (slices % 6 == 0 || now() >= length) {
                ledger.flush(calendar.now().wall);
            }
        }
        if let Some((_, away)) = killed {
            dialer.clock.sleep_until(dialer.now() + away);
        }
    }
    let mut store = Store::open(&path).expect("the store opens");
    let series = store.series("link", LINK).expect("the store can be read");
    let hours = store.windows(series, TIERS[2], 0, i64::MAX).expect("the store can be read");
    hours.iter().for_each(|hour| outcome.stored.merge(&hour.window));
    outcome.clock_events = *log.clock_events.lock().unwrap();
    judge(plants, rate, log.found.into_inner().unwrap(), &mut outcome);
    outcome
}

/// When the monitor is killed, and how long it is away.
fn kills(plants: &[Plant]) -> Vec<(Duration, Duration)> {
    let kill = |plant: &Plant| match plant.trouble {
        Trouble::Killed(away) => Some((plant.from, away)),
        _ => None,
    };
    let mut kills: Vec<(Duration, Duration)> = plants.iter().filter_map(kill).collect();
    kills.sort_unstable();
    kills
}

fn serve(dialer: &Dialer, world: World, seed: u64) -> Box<dyn Listener> {
    let endpoint = LINK.parse().expect("an endpoint");
    let mut listener = dialer.listen(&endpoint).expect("it listens");
    let room = Registry::standard()
        .transports
        .caps(&endpoint)
        .expect("the link is known")
        .max_message_bytes
        .unwrap_or(65_536);
    let (world, next_seed) = (Arc::new(world), AtomicU64::new(seed << 32));
    let new_party = move |_: &str| -> Box<dyn Party> {
        let random = SplitMix64::new(next_seed.fetch_add(1, Relaxed));
        let (world, batch) = (world.clone(), Batch::new(room, 1));
        Box::new(TroubledEcho { world, random, batch, is_tuned: false, reply_at: None })
    };
    assert!(listener.set_party_factory(Box::new(new_party)).is_ok());
    listener
}

/// Losses in a slice without planted loss, above those of the background.
fn unexplained_losses(plants: &[Plant], now: Duration, window: &Window) -> u64 {
    let margin = Duration::from_secs(15);
    let is_planted = |plant: &Plant| {
        matches!(plant.trouble, Trouble::Loss(_)) && plant.from < now + margin && now < plant.to + margin
    };
    if plants.iter().any(is_planted) { 0 } else { window.counts.lost }
}

/// Assigns what was found to the plants.
fn judge(plants: &[Plant], rate: f64, mut found: Vec<(Duration, &'static str)>, outcome: &mut Outcome) {
    for plant in plants {
        let (required, _) = plant.trouble.words();
        for word in required {
            let (printed_mean, printed) = printed_delays(word, rate);
            let place = found
                .iter()
                .position(|(at, by)| by == word && plant.from <= *at && *at <= plant.to + printed);
            let delay = place.map(|place| found.remove(place).0 - plant.from);
            outcome.findings.push(Finding { plant: *plant, delay, printed_mean, printed });
            if let (Trouble::Level(_), Some(place)) = (
                plant.trouble,
                found
                    .iter()
                    .position(|(at, by)| by == word && plant.to <= *at && *at <= plant.to + 2 * printed),
            ) {
                // The return to the level before.
                found.remove(place);
            }
        }
    }
    let is_explained = |(at, by): &(Duration, &'static str)| {
        let margin = Duration::from_secs(1800);
        plants.iter().any(|plant| {
            let (required, possible) = plant.trouble.words();
            plant.from <= *at && *at <= plant.to + margin && (possible.contains(by) || required.contains(by))
        })
    };
    found.retain(|event| !is_explained(event));
    outcome.false_alarms = found;
}

/// The mean delay and that of 99 in 100, as the monitor prints them.
fn printed_delays(word: &str, rate: f64) -> (Duration, Duration) {
    let rule = RULES.iter().find(|(name, _)| *name == word);
    let Some((_, text)) = rule else { return (USUAL_SHIFT_DELAY, USUAL_SHIFT_DELAY) };
    let alert = Alert::new(text.parse().expect("a rule"), rate).expect("a threshold");
    (alert.expectation.delay, alert.expectation.usual_delay.expect("it can be computed"))
}
