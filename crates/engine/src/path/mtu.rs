//! The largest packet that a path carries whole, and the hop behind which larger ones vanish: a state machine without I/O.
//!
//! Packets that must not be fragmented are sent to the host, which confirms each by a reply (RFC 8899). A router's report that a packet is
//! too big is a hint, tested like any other size. A size fails after `ATTEMPTS` packets without a reply, so that a single loss is no
//! limit. Then a packet that is too big goes to each hop: those before the narrow link still reply.

use std::net::IpAddr;
use std::time::Duration;

use linkgauge_model::clock::Time;
use linkgauge_model::run::PathMtu;

/// Packets of a size without a reply after which it counts as too big.
const ATTEMPTS: u32 = 3;

/// A packet to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizedProbe {
    /// Number of the packet, unique, from 0.
    pub number: u32,
    /// Length of the IP packet, in bytes.
    pub bytes: u32,
    /// The hop limit; `None`: that of the system.
    pub hop: Option<u8>,
}

/// Next action of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MtuAction {
    /// Sends this packet.
    Send(SizedProbe),
    /// Waits for replies until then.
    Wait(Time),
    /// The search is over.
    Done,
}

/// Stage of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchStage {
    /// A packet of this size to the host.
    Size {
        bytes: u32,
    },
    /// Packets of the smallest failed size to the hops, from this one on.
    Hops {
        next: u8,
    },
    Over,
}

/// The search.
#[derive(Debug)]
pub struct MtuSearch {
    /// Bytes of the largest packet that has passed; 0 before.
    passed: u32,
    /// Bytes of the smallest packet that has not passed.
    failed: Option<u32>,
    /// The size that every path of this family carries.
    base: u32,
    /// The report of a router: the MTU, and its address.
    report: Option<(u32, IpAddr)>,
    /// Bytes of the largest packet that the local interface carries.
    local_limit: u32,
    /// The hop of the host.
    distance: u8,
    timeout: Duration,
    stage: SearchStage,
    attempt: u32,
    /// Number and time of the last packet, while its reply is awaited.
    under_way: Option<(u32, Time)>,
    /// The number of the first packet to a hop, in this attempt.
    first_to_hops: u32,
    last_hop: Option<u8>,
    sent: u32,
}

impl MtuSearch {
    /// A search from the size that the local interface carries down to `base`.
    pub fn new(local_limit: u32, base: u32, distance: u8, timeout: Duration) -> MtuSearch {
        MtuSearch {
            passed: 0,
            failed: None,
            base: base.min(local_limit),
            report: None,
            local_limit,
            distance,
            timeout,
            stage: SearchStage::Size { bytes: local_limit },
            attempt: 0,
            under_way: None,
            first_to_hops: 0,
            last_hop: None,
            sent: 0,
        }
    }

    /// The next action at this time.
    pub fn next(&mut self, now: Time) -> MtuAction {
        if let Some((_, sent)) = self.under_way {
            let until = sent + self.timeout;
            let may_send_more = matches!(self.stage, SearchStage::Hops { next } if next <= self.distance);
            if now < until && !may_send_more {
                return MtuAction::Wait(until);
            }
            if !may_send_more {
                self.on_silence();
            }
        }
        match self.stage {
            SearchStage::Size { bytes } => self.send(bytes, None, now),
            SearchStage::Hops { next } => {
                self.stage = SearchStage::Hops { next: next + 1 };
                self.send(self.failed.unwrap_or(self.local_limit), Some(next), now)
            }
            SearchStage::Over => MtuAction::Done,
        }
    }

    fn send(&mut self, bytes: u32, hop: Option<u8>, now: Time) -> MtuAction {
        let number = self.sent;
        self.sent += 1;
        self.under_way = Some((number, now));
        MtuAction::Send(SizedProbe { number, bytes, hop })
    }

    /// Handles the news that the host has received a packet.
    pub fn on_passed(&mut self, number: u32) {
        if let (SearchStage::Size { bytes }, true) = (self.stage, self.is_awaited(number)) {
            self.passed = self.passed.max(bytes);
            self.choose_size();
        }
    }

    /// Handles the report of a router that a packet is too big for its next link. A report that cannot be true is ignored.
    pub fn on_too_big(&mut self, mtu: u32, from: IpAddr) {
        let SearchStage::Size { bytes } = self.stage else { return };
        if mtu >= bytes || mtu < self.base || self.under_way.is_none() || self.passed >= mtu {
            return;
        }
        self.report = Some((mtu, from));
        self.failed = Some(bytes);
        self.choose_size();
    }

    /// Handles the reply of a router at which the hop limit of a packet was used up.
    pub fn on_expired(&mut self, number: u32) {
        if let (SearchStage::Hops { .. }, Some(index)) = (self.stage, number.checked_sub(self.first_to_hops))
        {
            let hop = u8::try_from(index + 1).unwrap_or(u8::MAX);
            self.last_hop = self.last_hop.max(Some(hop.min(self.distance)));
        }
    }

    fn is_awaited(&self, number: u32) -> bool {
        self.under_way.is_some_and(|(awaited, _)| awaited == number)
    }

    /// Handles a packet without a reply in time.
    fn on_silence(&mut self) {
        self.under_way = None;
        self.attempt += 1;
        if self.attempt < ATTEMPTS {
            if matches!(self.stage, SearchStage::Hops { .. }) {
                self.begin_hops();
            }
            return;
        }
        match self.stage {
            SearchStage::Size { bytes } => {
                self.failed = Some(self.failed.map_or(bytes, |failed| failed.min(bytes)));
                self.choose_size();
            }
            _ => self.stage = SearchStage::Over,
        }
    }

    fn begin_hops(&mut self) {
        self.stage = SearchStage::Hops { next: 1 };
        self.first_to_hops = self.sent;
    }

    /// The next size: what a router reports, then the middle of what is open.
    fn choose_size(&mut self) {
        (self.attempt, self.under_way) = (0, None);
        let Some(failed) = self.failed else {
            self.stage = SearchStage::Over;
            return;
        };
        let is_open = |bytes: u32| bytes > self.passed && bytes < failed;
        let reported = self.report.map(|(mtu, _)| mtu);
        // A report that was tested ends the search.
        let is_confirmed = reported == Some(self.passed);
        self.stage = match reported.filter(|mtu| is_open(*mtu)) {
            _ if is_confirmed || failed <= self.passed + 1 => {
                self.begin_hops();
                return;
            }
            // Not even the smallest packet has a reply.
            _ if self.passed == 0 && failed <= self.base => SearchStage::Over,
            Some(bytes) => SearchStage::Size { bytes },
            None if self.passed == 0 => SearchStage::Size { bytes: self.base },
            None => SearchStage::Size { bytes: self.passed.midpoint(failed) },
        };
    }

    /// The result; `None` if nothing had a reply.
    pub fn result(&self) -> Option<PathMtu> {
        let is_limited = self.failed.is_some();
        let reported_by = self.report.filter(|(mtu, _)| *mtu == self.passed).map(|(_, from)| from);
        (self.passed > 0).then(|| PathMtu {
            bytes: self.passed,
            last_hop: self.last_hop.filter(|_| is_limited),
            reported_by,
            is_local: !is_limited,
            is_black_hole: is_limited && reported_by.is_none(),
            probes: self.sent,
        })
    }
}

#[cfg(test)]
mod tests;
