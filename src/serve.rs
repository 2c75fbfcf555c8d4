//! The far end's accept loop: the same for every peer and every transport. Threads, limits, an orderly end.
//!
//! What is said on a connection is the service's business (`peer`); here a connection is counted, given a thread,
//! and closed when it is over, when nothing moves on it for too long, or when there are too many.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::clock::Clock;
use crate::endpoint::Endpoint;
use crate::link::party::drive;
use crate::link::{Dialer, Fault, Link, LinkError, Listener};
use crate::peer::Service;

/// Far ends look at the stop flag this often; more often would wake a thousand idle sessions for nothing.
const LOOK: Duration = Duration::from_secs(1);

/// A party needs little: its buffers are on the heap.
const STACK: usize = 256 * 1024;

/// What a server has seen since its start.
#[derive(Debug, Default)]
pub struct Counters {
    pub open: AtomicUsize,
    pub accepted: AtomicU64,
    pub refused: AtomicU64,
    /// Connections that ended by an error.
    pub failed: AtomicU64,
}

/// A running server.
pub struct Server {
    endpoints: Vec<Endpoint>,
    /// Those whose far ends run in the near end's thread.
    inside: Vec<Endpoint>,
    stop: Arc<AtomicBool>,
    listeners: Vec<JoinHandle<()>>,
    counters: Arc<Counters>,
}

/// What one listener's thread works with.
struct Post {
    service: Arc<dyn Service>,
    most: usize,
    clock: Clock,
    stop: Arc<AtomicBool>,
    counters: Arc<Counters>,
}

impl Server {
    /// Listens on every endpoint; at most `most` connections are open at once on all of them together.
    pub fn start(
        endpoints: &[Endpoint],
        service: &Arc<dyn Service>,
        most: usize,
        dialer: &Dialer,
    ) -> Result<Server, LinkError> {
        let mut server = Server {
            endpoints: Vec::new(),
            inside: Vec::new(),
            stop: Arc::default(),
            listeners: Vec::new(),
            counters: Arc::default(),
        };
        let mut all = endpoints.to_vec();
        for endpoint in endpoints {
            let beside = service.beside(endpoint);
            all.extend(beside.map_err(|error| LinkError::new(endpoint, error.into()))?);
        }
        for endpoint in &all {
            let service = &service.at(endpoint, endpoints).unwrap_or_else(|| service.clone());
            let caps = crate::link::caps(endpoint).and_then(|caps| match service.fits(&caps) {
                Ok(()) => Ok(caps),
                Err(what) => Err(Fault::Other(what)),
            });
            let caps = caps.map_err(|fault| LinkError::new(endpoint, fault))?;
            let mut listener = dialer.listen(endpoint)?;
            server.endpoints.push(listener.endpoint());
            let hosted = service.clone();
            // In memory the link runs the far ends by itself; elsewhere a thread waits for them.
            if listener.host(Box::new(move |from| hosted.party(&caps, from))).is_ok() {
                server.inside.extend(server.endpoints.last().cloned());
                continue;
            }
            let post = Post {
                service: service.clone(),
                most,
                clock: dialer.clock.clone(),
                stop: server.stop.clone(),
                counters: server.counters.clone(),
            };
            let name = format!("serve {}", endpoint.scheme());
            let thread = Builder::new().name(name).spawn(move || post.accept(listener.as_mut()));
            let thread = thread.map_err(|error| {
                LinkError::new(endpoint, Fault::System { operation: "start a thread", source: error })
            })?;
            server.listeners.push(thread);
        }
        Ok(server)
    }

    /// Where it really listens.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Whether both ends of a link to this endpoint run in one thread, that of the near end.
    pub fn is_inside(&self, endpoint: &Endpoint) -> bool {
        self.inside.contains(endpoint)
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Drop for Server {
    /// Takes no more connections and ends those that are open; returns when the listeners are closed.
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for listener in self.listeners.drain(..) {
            // A listener that panicked has said so already.
            let _ = listener.join();
        }
    }
}

impl Post {
    fn accept(&self, listener: &mut dyn Listener) {
        let mut door = |first: &[u8], from: &str, reply: &mut Vec<u8>| self.service.door(first, from, reply);
        while !self.stop.load(Relaxed) {
            match listener.accept(crate::link::party::SLICE, &mut door) {
                Ok((link, from)) => self.admit(link, &from),
                Err(Fault::TimedOut) => {}
                // Out of descriptors, usually: those in use will be freed.
                Err(_) => self.clock.sleep_until(self.clock.now() + crate::link::party::SLICE),
            }
        }
    }

    fn admit(&self, link: Box<dyn Link>, from: &str) {
        let place = Place(self.counters.clone());
        if self.counters.open.fetch_add(1, Relaxed) >= self.most {
            self.counters.refused.fetch_add(1, Relaxed);
            return;
        }
        self.counters.accepted.fetch_add(1, Relaxed);
        let mut party = self.service.party(link.caps(), from);
        let (clock, stop) = (self.clock.clone(), self.stop.clone());
        let run = move || {
            let mut link = link;
            if drive(party.as_mut(), link.as_mut(), &clock, &stop, LOOK).is_err() {
                place.0.failed.fetch_add(1, Relaxed);
            }
            // The party goes before the place, so that what it holds is free when a place is.
            drop((party, link));
            drop(place);
        };
        if Builder::new().name("far end".to_owned()).stack_size(STACK).spawn(run).is_err() {
            self.counters.refused.fetch_add(1, Relaxed);
        }
    }
}

/// Counts among the open connections until it is dropped, however that comes about.
struct Place(Arc<Counters>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

/// Lets this process have as many open files as the system grants: every connection is one.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused the old limit stays, and is enough for fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
