//! Ends the wait of a shared thread, and lets its members look at a state that they share with other threads.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use super::Fault;
use linkgauge_system::{AsHandle, BorrowedHandle, WakeEvent};

/// Ends the wait of a shared thread from another thread.
#[derive(Debug, Clone)]
pub struct Waker(Arc<WakerState>);

#[derive(Debug)]
struct WakerState {
    event: WakeEvent,
    should_sweep: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> Result<Waker, Fault> {
        let event = WakeEvent::new().map_err(Fault::system("make an event descriptor"))?;
        Ok(Waker(Arc::new(WakerState { event, should_sweep: AtomicBool::new(false) })))
    }

    /// The thread begins its next turn at once.
    pub fn wake(&self) {
        self.0.event.add(1);
    }

    /// Takes the event that the thread's queue has reported.
    pub(super) fn take_event(&self) {
        self.0.event.take_edge();
    }

    /// Makes all members take a step soon, whatever they wait for: a state that they read has changed.
    pub(crate) fn sweep(&self) {
        self.0.should_sweep.store(true, SeqCst);
        self.wake();
    }

    pub(crate) fn has_sweep(&self) -> bool {
        self.0.should_sweep.load(SeqCst)
    }

    /// Takes the request for a sweep before the members look: a later change asks for another sweep.
    pub(super) fn take_sweep(&self) {
        self.0.should_sweep.store(false, SeqCst);
    }
}

impl AsHandle for Waker {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.0.event.as_handle()
    }
}

/// The threads of the parties that read one state.
#[derive(Debug, Default)]
pub(crate) struct Wakers(Mutex<Vec<Waker>>);

impl Wakers {
    /// Adds a thread, once.
    pub fn add(&self, waker: &Waker) {
        let mut wakers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !wakers.iter().any(|other| Arc::ptr_eq(&other.0, &waker.0)) {
            wakers.push(waker.clone());
        }
    }

    /// Makes all parties of these threads take a step soon: the state has changed.
    pub(crate) fn sweep(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Waker::sweep);
    }
}
