//! Links that stay open between the repetitions and cases of a run.
//!
//! For links with one user at a time, as serial ports: opening one again can reset the device at its end, or takes long.
//! A party that ends gives its link back; the next one to the same endpoint gets it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Fault, Link, LinkStatus};
use crate::link::delegate::delegate_link;
use linkgauge_model::endpoint::Endpoint;

/// Time of silence, or four characters of the line, until which late replies to the party before are discarded.
const MIN_SILENCE: Duration = Duration::from_millis(5);

/// Maximum number of reads that discard waiting data: a device that never stops sending is not silent.
const MAX_DISCARDING_READS: u32 = 100;

/// Open links without a user, by the device or address.
#[derive(Clone, Default)]
pub struct KeptLinks(Arc<Mutex<BTreeMap<String, IdleLink>>>);

/// An open link without a user.
struct IdleLink {
    /// The endpoint with its options.
    endpoint: Endpoint,
    link: Box<dyn Link>,
}

/// An endpoint without its options: the port can be open only once, whatever they are.
fn port_name(endpoint: &Endpoint) -> String {
    endpoint.as_str().split('?').next().unwrap_or_default().to_owned()
}

impl KeptLinks {
    /// The idle link to this endpoint, in a state like that of a new one. A link with other options is closed.
    pub(super) fn take(&self, endpoint: &Endpoint) -> Option<Box<dyn Link>> {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&port_name(endpoint))?;
        let mut link = (idle.endpoint == *endpoint).then_some(idle.link)?;
        discard_input(link.as_mut()).then_some(link)
    }

    /// The link, which comes back here when its user drops it.
    pub(super) fn lend(&self, endpoint: &Endpoint, link: Box<dyn Link>) -> Box<dyn Link> {
        let before = link.status();
        let endpoint = endpoint.clone();
        Box::new(LentLink { inner: Some(link), before, endpoint, home: self.clone(), is_aborted: false })
    }

    fn put_back(&self, endpoint: Endpoint, link: Box<dyn Link>) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        idle.insert(port_name(&endpoint), IdleLink { endpoint, link });
    }
}

impl fmt::Debug for KeptLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptLinks")
    }
}

/// Discards what has arrived since the last user. Returns whether the link is still usable.
fn discard_input(link: &mut dyn Link) -> bool {
    let character = link.caps().link_rate.map_or(Duration::ZERO, |rate| rate.transmission_time(1));
    let mut late = [0; 4096];
    for _ in 0..MAX_DISCARDING_READS {
        match link.receive(&mut late, MIN_SILENCE.max(4 * character)) {
            Ok(_) => {}
            Err(Fault::TimedOut) => return true,
            Err(_) => return false,
        }
    }
    true
}

/// A link that goes back to the idle ones when it is dropped.
struct LentLink {
    /// `None` only while it is dropped.
    inner: Option<Box<dyn Link>>,
    /// The counts of its earlier users.
    before: LinkStatus,
    endpoint: Endpoint,
    home: KeptLinks,
    is_aborted: bool,
}

impl LentLink {
    fn inner(&self) -> &dyn Link {
        self.inner.as_deref().expect("it is there until it is dropped")
    }

    fn inner_mut(&mut self) -> &mut dyn Link {
        self.inner.as_deref_mut().expect("it is there until it is dropped")
    }
}

impl Drop for LentLink {
    fn drop(&mut self) {
        let Some(link) = self.inner.take().filter(|_| !self.is_aborted) else { return };
        let LinkStatus { is_hung_up, is_broken, .. } = link.status();
        if !is_hung_up && !is_broken {
            self.home.put_back(self.endpoint.clone(), link);
        }
    }
}

impl Link for LentLink {
    fn status(&self) -> LinkStatus {
        self.inner().status().counts_since(&self.before)
    }

    fn abort(&mut self) {
        self.is_aborted = true;
        self.inner_mut().abort();
    }

    delegate_link!(self => self.inner(), self.inner_mut(); caps facts tune send receive send_batch receive_batch finish_sending reopen second_handle read_send_stamps port_control descriptor);
}
