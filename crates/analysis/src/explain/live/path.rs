//! The path alone: handshakes of TCP beside the requests. The kernel of the server answers them, whatever its program does.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use super::super::causes::Target;
use linkgauge_engine::link::{Dialer, Fault};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::sample::Sample;
use linkgauge_model::stats::{self, SplitMix64};

/// Handshakes that are planned for the screen, and limits of their mean distance.
const HANDSHAKES: f64 = 100.0;
const MIN_DISTANCE: Duration = Duration::from_millis(20);
const MAX_DISTANCE: Duration = Duration::from_millis(200);
/// Number of failures in a row after which no more handshakes are made.
const MAX_FAILURES: u32 = 3;
/// The system sends a lost SYN again after 1 s. Then its own figure has no meaning.
const RESENT: Duration = Duration::from_millis(900);
const TIMEOUT: Duration = Duration::from_millis(2500);
/// Data that a new connection sends at once (Linux: 10 segments).
const FIRST_WINDOW_BYTES: f64 = 14_480.0;
/// Minimum number of handshakes that show anything.
const MIN_HANDSHAKES: usize = 4;
/// Handshakes that show whether the path changes slowly, and the correlation of neighbours from which it does.
const MIN_NEIGHBOURS: usize = 16;
const MIN_CORRELATION: f64 = 0.5;

/// A handshake.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Handshake {
    pub(super) began: Time,
    pub(super) took_ns: f64,
    /// Delay of this thread's wake-up before the handshake, in ns: a busy host delays the threads of requests as well.
    pub(super) late_ns: f64,
    /// The kernel measured it, and no thread had to wake up.
    pub(super) is_of_kernel: bool,
}

#[cfg(test)]
impl Handshake {
    /// A handshake that the kernel measured, on an idle host.
    pub(super) fn at(began: Time, took_ns: f64) -> Handshake {
        Handshake { began, took_ns, late_ns: 0.0, is_of_kernel: true }
    }
}

/// Properties of the path that the handshakes show.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Path {
    /// Handshakes that were not lost.
    pub(super) handshakes: Vec<Handshake>,
    /// Number of lost handshakes, which the system repeated.
    pub(super) resent: usize,
    pub(super) shortest_ns: f64,
    pub(super) median_ns: f64,
    pub(super) mean_ns: f64,
}

impl Path {
    /// Properties of the path by these handshakes; `None` if there are too few.
    pub(super) fn of(all: Vec<Handshake>) -> Option<Path> {
        let is_resent = |handshake: &Handshake| handshake.took_ns >= RESENT.as_nanos() as f64;
        let (resent, handshakes): (Vec<_>, Vec<_>) = all.into_iter().partition(is_resent);
        let resent = resent.len();
        let times: Vec<f64> = handshakes.iter().map(|handshake| handshake.took_ns).collect();
        let median_ns = stats::median(&times).filter(|_| times.len() >= MIN_HANDSHAKES)?;
        let shortest_ns = times.iter().copied().fold(f64::INFINITY, f64::min);
        let mean_ns = times.iter().sum::<f64>() / times.len() as f64;
        Some(Path { handshakes, resent, shortest_ns, median_ns, mean_ns })
    }

    /// Number of handshakes that began while these requests waited beyond `limit_ns` and needed a large part of the rest of the
    /// wait as well, and number of all that began then.
    pub(super) fn meanwhile(&self, slow: &[Sample], limit_ns: f64) -> (usize, usize) {
        count_late(self.handshakes.iter().copied(), slow, limit_ns)
    }

    /// Number of wake-ups of this host that were due while these requests waited beyond `limit_ns` and late by a large part of
    /// the rest of the wait, and number of all that were due then.
    pub(super) fn late_meanwhile(&self, slow: &[Sample], limit_ns: f64) -> (usize, usize) {
        let due = |handshake: &Handshake| Handshake {
            began: Time(handshake.began.0.saturating_sub(handshake.late_ns as u64)),
            took_ns: handshake.late_ns,
            ..*handshake
        };
        count_late(self.handshakes.iter().map(due), slow, limit_ns)
    }

    /// The share of wake-ups of this host that were late by this time.
    pub(super) fn late_share(&self, late_ns: f64) -> f64 {
        let late = self.handshakes.iter().filter(|handshake| handshake.late_ns > late_ns).count();
        late as f64 / self.handshakes.len() as f64
    }

    /// Time that this host adds to a handshake on average, in ns.
    pub(super) fn mean_late_ns(&self) -> f64 {
        let of_threads = |handshake: &Handshake| if handshake.is_of_kernel { 0.0 } else { handshake.late_ns };
        self.handshakes.iter().map(of_threads).sum::<f64>() / self.handshakes.len() as f64
    }

    /// Whether neighbours are alike: a queue that never empties fills and drains over many handshakes. Random delays and a constant
    /// one have no such pattern.
    pub(super) fn changes_slowly(&self) -> bool {
        let times: Vec<f64> = self.handshakes.iter().map(|handshake| handshake.took_ns).collect();
        let deviations: Vec<f64> = times.iter().map(|time| time - self.mean_ns).collect();
        let variance: f64 = deviations.iter().map(|deviation| deviation * deviation).sum();
        let covariance: f64 = deviations.windows(2).map(|pair| pair[0] * pair[1]).sum();
        times.len() >= MIN_NEIGHBOURS && covariance > MIN_CORRELATION * variance
    }

    /// Handshakes that took this much longer than the median.
    pub(super) fn slow(&self, excess_ns: f64) -> usize {
        self.handshakes.iter().filter(|handshake| handshake.took_ns > self.median_ns + excess_ns).count()
    }
}

/// Time that a new connection takes for messages above its first window, both ways: a round trip for each doubling.
pub(super) fn slow_start_ns(bytes: u32, round_trip_ns: f64) -> f64 {
    2.0 * (f64::from(bytes) / FIRST_WINDOW_BYTES).log2().max(0.0).ceil() * round_trip_ns
}

/// Handshakes so far.
type Handshakes = Arc<Mutex<Vec<Handshake>>>;

/// Counts what began while requests waited: what took a large part of the rest of the wait as well, and all.
fn count_late(began: impl Iterator<Item = Handshake>, slow: &[Sample], limit_ns: f64) -> (usize, usize) {
    let (mut late, mut all) = (0, 0);
    for handshake in began {
        let waits = slow.iter().find_map(|sample| {
            let is_inside = handshake.began >= sample.sent && handshake.began < sample.received;
            is_inside.then(|| sample.received.since(handshake.began).as_nanos() as f64)
        });
        if let Some(rest_ns) = waits.filter(|rest_ns| *rest_ns > limit_ns) {
            all += 1;
            late += usize::from(handshake.took_ns > 0.5 * rest_ns);
        }
    }
    (late, all)
}

/// Makes handshakes until it is dropped.
pub(super) struct PathWatch {
    handshakes: Handshakes,
    _stop: Sender<()>,
}

impl PathWatch {
    /// Starts the handshakes. `None` where the path cannot be measured alone, as on the virtual clock. `time`: that of the
    /// screen.
    pub(super) fn start(dialer: &Dialer, target: &Target, time: Duration, seed: u64) -> Option<PathWatch> {
        let endpoint = target.handshake_endpoint().filter(|_| matches!(dialer.clock, Clock::System))?;
        let distance = time.div_f64(HANDSHAKES).clamp(MIN_DISTANCE, MAX_DISTANCE);
        let dialer = Dialer { may_block: true, timeout: TIMEOUT, kept_links: None, ..dialer.clone() };
        let (stop, stopped) = channel();
        let handshakes = Handshakes::default();
        let (random, made) = (SplitMix64::new(seed), handshakes.clone());
        let run = move || make_handshakes(&dialer, &endpoint, (distance, random), &stopped, &made);
        let started = Builder::new().name("handshakes".to_owned()).spawn(run);
        started.ok().map(|_| PathWatch { handshakes, _stop: stop })
    }

    /// Properties of the path that the handshakes have shown until now.
    pub(super) fn path(&self) -> Option<Path> {
        Path::of(self.handshakes.lock().ok()?.clone())
    }
}

/// Handshakes at random distances, until the sender is dropped.
fn make_handshakes(
    dialer: &Dialer,
    endpoint: &Endpoint,
    (distance, mut random): (Duration, SplitMix64),
    stopped: &Receiver<()>,
    made: &Handshakes,
) {
    let mut failures = 0;
    while failures < MAX_FAILURES {
        let pause = distance.mul_f64(-(1.0 - random.uniform()).ln());
        let due = dialer.now() + pause;
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            break;
        }
        let late_ns = dialer.now().since(due).as_nanos() as f64;
        failures = handshake(dialer, endpoint, late_ns).map_or(failures + 1, |handshake| {
            made.lock().expect("no holder panics").push(handshake);
            0
        });
    }
}

/// Makes one handshake. A refusal by the host is an answer, too.
fn handshake(dialer: &Dialer, endpoint: &Endpoint, late_ns: f64) -> Option<Handshake> {
    let began = dialer.now();
    let opened = dialer.open(endpoint);
    let elapsed = dialer.now().since(began);
    let of_kernel = match opened {
        Ok(link) => link.facts().get("kernel_rtt_ns").and_then(serde_json::Value::as_u64),
        Err(error) => match error.fault {
            Fault::System { source, .. } if source.kind() == std::io::ErrorKind::ConnectionRefused => None,
            _ => return None,
        },
    };
    let of_kernel = of_kernel.filter(|rtt_ns| *rtt_ns > 0 && elapsed < RESENT);
    let took_ns = of_kernel.map_or(elapsed.as_nanos() as f64, |rtt_ns| rtt_ns as f64);
    Some(Handshake { began, took_ns, late_ns, is_of_kernel: of_kernel.is_some() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkgauge_engine::Registry;

    fn ms(ms: f64) -> Time {
        Time((ms * 1e6) as u64)
    }

    #[test]
    fn handshakes_tell_pauses_of_the_server_from_stalls_of_the_path() {
        let request = |sent: f64, received: f64| Sample {
            sequence: 0,
            intended: ms(sent),
            sent: ms(sent),
            received: ms(received),
        };
        let slow = [request(100.0, 160.0), request(900.0, 961.0)];
        let path = |took: fn(f64) -> f64| {
            let handshakes =
                (0..40).map(|index| 25.0 * f64::from(index)).map(|at| Handshake::at(ms(at), 1e6 * took(at)));
            Path::of(handshakes.collect()).unwrap()
        };
        // The handshakes at 100, 125, 150 (with little left), 900, 925 and 950 ms.
        let server = path(|_| 0.02);
        assert_eq!((server.meanwhile(&slow, 15e6), server.slow(2e6)), ((0, 4), 0));
        let stalled = path(|at| {
            if (100.0..160.0).contains(&at) {
                160.0 - at
            } else if at >= 900.0 {
                961.0 - at
            } else {
                0.02
            }
        });
        assert_eq!(stalled.meanwhile(&slow, 15e6), (4, 4));
        assert!(Path::of(server.handshakes[..3].to_vec()).is_none(), "too few");
    }

    #[test]
    fn handshakes_are_made_beside_the_requests_until_they_end() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("tcp://{}", listener.local_addr().unwrap());
        let dialer = Registry::standard().dialer(Clock::System);
        let link = dialer.open(&url.parse().unwrap()).unwrap();
        assert!(link.facts().contains_key("kernel_rtt_ns"));
        let opened = handshake(&dialer, &url.parse().unwrap(), 0.0).unwrap();
        assert!(opened.took_ns > 0.0 && opened.took_ns < 1e9, "{opened:?}");
        drop(listener);
        assert!(handshake(&dialer, &url.parse().unwrap(), 0.0).is_some(), "a refusal is an answer");
        let virtual_clock = Registry::standard().dialer(Clock::new_virtual());
        let target = Target::new(url.parse().unwrap()).unwrap();
        assert!(PathWatch::start(&virtual_clock, &target, Duration::from_secs(1), 1).is_none());
    }
}
