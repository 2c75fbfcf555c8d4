//! Runs the state machines of a path over sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use super::mtu::{MtuAction, MtuSearch};
use super::prober::{HopSample, LastHop, ProbeAction, ProbeReplyKind, Prober, Schedule};
use super::socket::{ProbeSocket, ProbeTarget, Sent};
use crate::link::{Dialer, Fault};
use crate::transport::ProbeKind;
use linkgauge_model::clock::{Clock, Time};
use linkgauge_model::run::PathMtu;
use linkgauge_system::{self as system, IpFamily};

/// Time after which the stop condition is looked at.
const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// Packet size in bytes that every path carries: RFC 8899 for IPv4, RFC 8200 for IPv6.
const BASE_BYTES_V4: u32 = 1200;
const BASE_BYTES_V6: u32 = 1280;

/// The largest IP packet.
const LARGEST_BYTES: u32 = 65_535;

/// Result of the probes of a path.
#[derive(Debug)]
pub(super) struct Trace {
    pub(super) target: ProbeTarget,
    pub(super) samples: Vec<HopSample>,
    pub(super) ends: Vec<Option<LastHop>>,
}

/// Opens one socket for each flow.
pub(super) fn open_sockets(target: &ProbeTarget, flows: u32) -> Result<Vec<ProbeSocket>, Fault> {
    if !system::HAS_DELIVERY_ERRORS {
        return Err(Fault::Unsupported(
            "this system keeps no replies of routers for a program without privileges: measure on Linux"
                .to_owned(),
        ));
    }
    (0..flows).map(|flow| ProbeSocket::open(target, flow)).collect()
}

/// Runs a prober until it is done, or until `is_stopped` says so.
pub(super) fn run_prober(
    prober: &mut Prober,
    sockets: &mut [ProbeSocket],
    clock: &Clock,
    mut is_stopped: impl FnMut(Time, &mut Prober) -> bool,
) -> Result<(), Fault> {
    loop {
        let now = clock.now();
        if is_stopped(now, prober) {
            return Ok(());
        }
        match prober.next(now) {
            ProbeAction::Send(probe) => {
                prober.on_sent(probe.number, clock.now());
                let sent = sockets[probe.flow as usize].send(&probe);
                let has_reply = || prober.samples.iter().any(|sample| sample.reply.is_some());
                // A failure in between loses a probe.
                if let Err(fault) = sent.map(drop)
                    && !has_reply()
                {
                    return Err(fault);
                }
            }
            ProbeAction::Wait(until) => wait(sockets, until.since(now).min(LONGEST_WAIT)),
            ProbeAction::Done => return Ok(()),
        }
        for socket in sockets.iter_mut() {
            socket.take_replies(clock, &mut |reply| prober.on_reply(&reply));
        }
    }
}

fn wait(sockets: &[ProbeSocket], within: Duration) {
    let mut watched: Vec<_> = sockets
        .iter()
        .map(|socket| {
            let (handle, flags) = socket.readiness();
            system::PollFd::from_borrowed_fd(handle, flags)
        })
        .collect();
    // An interrupted wait is a short one.
    let _ = system::poll(&mut watched, within);
}

/// A thread that probes a path until it is stopped.
#[derive(Debug)]
pub(super) struct ProbeThread {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Trace>,
}

impl ProbeThread {
    pub(super) fn start(target: ProbeTarget, schedule: Schedule) -> Result<ProbeThread, Fault> {
        let mut sockets = open_sockets(&target, schedule.flows)?;
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = stop.clone();
        let probe = move || {
            let mut prober = Prober::new(schedule);
            let is_stopped = |_: Time, _: &mut Prober| is_over.load(Relaxed);
            // A path that cannot be probed has no replies.
            let _ = run_prober(&mut prober, &mut sockets, &Clock::System, is_stopped);
            let (samples, ends) = prober.finish();
            Trace { target, samples, ends }
        };
        let thread = std::thread::Builder::new().spawn(probe).map_err(Fault::system("start a thread"))?;
        Ok(ProbeThread { stop, thread })
    }

    /// Stops the probes and returns their result.
    pub(super) fn finish(self) -> Trace {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Searches the largest packet that fits. `None`: no packet had a reply, or the search was interrupted.
pub(super) fn search_mtu(
    target: &ProbeTarget,
    distance: u8,
    timeout: Duration,
    dialer: &Dialer,
) -> Option<PathMtu> {
    // A connection has no packets of chosen sizes.
    let kind = if target.kind == ProbeKind::Tcp { ProbeKind::Udp } else { target.kind };
    let target = ProbeTarget { kind, ..target.clone() };
    let mut socket = ProbeSocket::open(&target, 0).ok()?;
    socket.forbid_fragments().ok()?;
    let base = if target.family() == IpFamily::V4 { BASE_BYTES_V4 } else { BASE_BYTES_V6 };
    let local_limit = match socket.send_sized(0, LARGEST_BYTES, None) {
        Ok(Sent::TooBig(mtu)) => mtu,
        _ => LARGEST_BYTES,
    };
    let mut search = MtuSearch::new(local_limit, base, distance, timeout);
    let clock = &dialer.clock;
    loop {
        let now = clock.now();
        if dialer.cancel.load(Relaxed) {
            return None;
        }
        match search.next(now) {
            MtuAction::Send(probe) => {
                // A packet that cannot be sent is as silent as a lost one.
                let _ = socket.send_sized(probe.number + 1, probe.bytes, probe.hop);
            }
            MtuAction::Wait(until) => {
                wait(std::slice::from_ref(&socket), until.since(now).min(LONGEST_WAIT));
            }
            MtuAction::Done => return search.result(),
        }
        socket.take_replies(clock, &mut |reply| {
            let number = reply.number.and_then(|number| number.checked_sub(1));
            match (reply.kind, number) {
                (ProbeReplyKind::TooBig(mtu), _) => search.on_too_big(mtu, reply.from),
                (ProbeReplyKind::Expired, Some(number)) => search.on_expired(number),
                (ProbeReplyKind::Reached, Some(number)) => search.on_passed(number),
                _ => {}
            }
        });
    }
}
