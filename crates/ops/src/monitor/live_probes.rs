//! The results of the probes of a slice while it is measured.

use std::sync::{Arc, Mutex, PoisonError};

use linkgauge_model::sample::{ReplyEvent, ReplyEventKind, ReplyLog, ReplyLogs};

/// The logs of the slice that is measured now. The watcher sets them, and the ledger's thread reads them.
pub(super) type CurrentLogs = Arc<Mutex<Arc<ReplyLogs>>>;

/// Outcome of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    Replied,
    Lost,
    /// Lost probe, of which a later one has its reply already: it says nothing about the link now.
    Overtaken,
}

/// Reads the results of one link, as they become known. Only one thread may do this.
#[derive(Default)]
pub(super) struct LiveProbes {
    current: CurrentLogs,
    /// Logs of the slice that is read.
    logs: Arc<ReplyLogs>,
    flows: Vec<Arc<ReplyLog>>,
    /// The last probe of the slice that has a reply.
    last_replied: u64,
}

impl LiveProbes {
    pub(super) fn new(current: CurrentLogs) -> LiveProbes {
        LiveProbes { current, ..LiveProbes::default() }
    }

    /// The results since the last call. A later slice is read only after [`Self::end_slice`].
    pub(super) fn take(&mut self) -> Vec<ProbeResult> {
        if self.flows.is_empty() {
            self.logs = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        }
        self.take_read()
    }

    /// The remaining results of a slice that has ended.
    pub(super) fn end_slice(&mut self, ended: &Arc<ReplyLogs>) -> Vec<ProbeResult> {
        if !Arc::ptr_eq(&self.logs, ended) {
            (self.logs, self.flows, self.last_replied) = (ended.clone(), Vec::new(), 0);
        }
        let results = self.take_read();
        (self.flows, self.last_replied) = (Vec::new(), 0);
        results
    }

    fn take_read(&mut self) -> Vec<ProbeResult> {
        self.flows.extend(self.logs.take_new());
        let events: Vec<ReplyEvent> =
            self.flows.iter().flat_map(|log| std::iter::from_fn(|| log.take())).collect();
        events.into_iter().filter_map(|event| self.result(event)).collect()
    }

    fn result(&mut self, event: ReplyEvent) -> Option<ProbeResult> {
        match event.kind {
            ReplyEventKind::Reply | ReplyEventKind::CorruptReply => {
                self.last_replied = self.last_replied.max(event.number);
                Some(ProbeResult::Replied)
            }
            ReplyEventKind::Lost | ReplyEventKind::Closed if event.number < self.last_replied => {
                Some(ProbeResult::Overtaken)
            }
            ReplyEventKind::Lost | ReplyEventKind::Closed => Some(ProbeResult::Lost),
            ReplyEventKind::Late
            | ReplyEventKind::Duplicate
            | ReplyEventKind::CorruptDuplicate
            | ReplyEventKind::Unknown
            | ReplyEventKind::Stamped => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProbeResult::{Lost, Overtaken, Replied};
    use linkgauge_model::sample::ReplySource;

    fn log(logs: &ReplyLogs) -> Arc<ReplyLog> {
        let endpoint = "mem://server".to_owned();
        let source =
            ReplySource { case: 0, endpoint, message_bytes: 64, connection: None, has_stamps: false };
        logs.add(source, false)
    }

    #[test]
    fn a_lost_probe_that_a_later_reply_overtook_is_no_news() {
        let current = CurrentLogs::default();
        let first = current.lock().unwrap().clone();
        let mut live = LiveProbes::new(current.clone());
        assert_eq!(live.take(), []);
        let flow = log(&first);
        flow.push(0, ReplyEventKind::Reply, 1);
        flow.push(1, ReplyEventKind::Lost, 1);
        assert_eq!(live.take(), [Replied, Lost]);
        flow.push(4, ReplyEventKind::Reply, 1);
        flow.push(2, ReplyEventKind::Lost, 1);
        flow.push(2, ReplyEventKind::Late, 1);
        assert_eq!(live.take(), [Replied, Overtaken]);
        // The next slice counts from 1 again, and is read after the end of this one.
        flow.push(5, ReplyEventKind::Lost, 1);
        let second = Arc::new(ReplyLogs::with_events(16));
        *current.lock().unwrap() = second.clone();
        log(&second).push(0, ReplyEventKind::Lost, 1);
        assert_eq!(live.take(), [Lost]);
        assert_eq!((live.end_slice(&first), live.take()), (vec![], vec![Lost]));
        assert_eq!(live.end_slice(&second), []);
    }
}
