//! Links that wrap others keep the state, the counters, the serial port and the batches of the inner link.

use crate::link::delegate::plain_link;
use crate::protocol::Registry;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::marks::MarkCounts;
use super::party::Tuning;
use super::reopen::ReopeningLink;
use super::serial_line::{ModemLines, OutputSignal, PortControl, PurgeTarget, SerialSettings, UartErrors};
use super::shaped::{Shape, ShapedLink, SharedPath};
use super::{Admission, Batch, Caps, Facts, Fault, Link, LinkDescriptor, LinkStatus};
use linkgauge_model::clock::Clock;
use linkgauge_model::run::FailureKind;

const LONG_TIMEOUT: Duration = Duration::from_secs(10);

const STATUS: LinkStatus = LinkStatus {
    is_hung_up: true,
    is_broken: true,
    unacknowledged_bytes: Some(70),
    retransmits: Some(3),
    socket_drops: Some(2),
    marks: Some(MarkCounts { messages: 9, ce: 4, ecn_changed: 1, dscp_changed: 2 }),
    busy_poll_time: Duration::from_millis(5),
};

const ERRORS: UartErrors = UartErrors { framing: 1, parity: 2, breaks: 3, overruns: 4 };

/// Reports known values and records the calls.
struct StubLink {
    caps: Caps,
    calls: Arc<Mutex<Vec<String>>>,
}

impl StubLink {
    fn record(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }
}

impl Link for StubLink {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn facts(&self) -> Facts {
        Facts::from_iter([("stub".to_owned(), true.into())])
    }

    fn status(&self) -> LinkStatus {
        STATUS
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.record(format!("tune {:?}", tuning.batch_message_bytes));
    }

    fn send(&mut self, bytes: &[u8], _within: Duration) -> Result<usize, Fault> {
        self.record(format!("send {}", bytes.len()));
        Ok(bytes.len())
    }

    fn receive(&mut self, _into: &mut [u8], _within: Duration) -> Result<usize, Fault> {
        Err(Fault::TimedOut)
    }

    fn send_batch(&mut self, messages: &[u8], message: usize, _within: Duration) -> Result<usize, Fault> {
        self.record(format!("send {} in messages of {message}", messages.len()));
        Ok(messages.len())
    }

    fn receive_batch(&mut self, _into: &mut Batch, _within: Duration) -> Result<(), Fault> {
        Err(Fault::TimedOut)
    }

    fn finish_sending(&mut self) -> Result<(), Fault> {
        self.record("finish sending".to_owned());
        Ok(())
    }

    fn abort(&mut self) {
        self.record("abort".to_owned());
    }

    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        Ok(Box::new(StubLink { caps: self.caps.clone(), calls: self.calls.clone() }))
    }

    fn port_control(&mut self) -> Option<&mut dyn PortControl> {
        Some(self)
    }

    plain_link!(reopen read_send_stamps descriptor);
}

impl PortControl for StubLink {
    fn settings(&mut self) -> Result<SerialSettings, Fault> {
        Err(Fault::Closed)
    }

    fn configure(&mut self, _wanted: &SerialSettings) -> Result<SerialSettings, Fault> {
        Err(Fault::Closed)
    }

    fn set_signal(&mut self, signal: OutputSignal, on: bool) -> Result<(), Fault> {
        self.record(format!("{signal:?} {on}"));
        Ok(())
    }

    fn modem_lines(&mut self) -> Option<ModemLines> {
        Some(ModemLines { cts: true, ..ModemLines::default() })
    }

    fn purge(&mut self, _purge: PurgeTarget) -> Result<(), Fault> {
        Ok(())
    }

    fn uart_errors(&mut self) -> Option<UartErrors> {
        Some(ERRORS)
    }
}

#[test]
fn a_shaped_link_has_the_state_and_the_port_of_the_inner_one() {
    let calls = Arc::<Mutex<Vec<String>>>::default();
    let caps = Caps { descriptor: LinkDescriptor::None, ..Caps::STREAM };
    let inner = StubLink { caps, calls: calls.clone() };
    let path = SharedPath::new(Shape { delay: Duration::from_millis(5), ..Shape::default() }, 1);
    let mut shaped = ShapedLink::new(Box::new(inner), &Clock::System, &path);
    let mut second = shaped.second_handle().unwrap();
    for link in [&mut shaped as &mut dyn Link, second.as_mut()] {
        calls.lock().unwrap().clear();
        assert_eq!(link.status(), STATUS);
        assert_eq!(link.facts()["stub"], true);
        let port = link.port_control().unwrap();
        assert_eq!(port.uart_errors(), Some(ERRORS));
        assert!(port.modem_lines().unwrap().cts);
        port.set_signal(OutputSignal::Rts, true).unwrap();
        link.tune(&Tuning { batch_message_bytes: Some(4), ..Tuning::default() });
        assert_eq!(link.send_batch(b"aaaabbbb", 4, LONG_TIMEOUT).unwrap(), 8);
        link.finish_sending().unwrap();
        link.abort();
        let expected = ["Rts true", "tune Some(4)", "send 8 in messages of 4", "finish sending", "abort"];
        assert_eq!(*calls.lock().unwrap(), expected);
    }
}

#[test]
fn retransmits_are_counted_through_wrappers() {
    let dialer = Registry::standard().dialer(Clock::System);
    let mut listener = dialer.listen(&"tcp://127.0.0.1:0".parse().unwrap()).unwrap();
    let link = ReopeningLink::open(&listener.endpoint(), &dialer).unwrap();
    let accepted = listener.accept(LONG_TIMEOUT, &mut |_, _, _| Admission::Open).unwrap();
    assert_eq!((link.caps().descriptor, link.descriptor().is_some()), (LinkDescriptor::None, false));
    let status = link.status();
    assert_eq!((status.retransmits, status.unacknowledged_bytes), (Some(0), Some(0)));
    let path = SharedPath::new(Shape::default(), 1);
    let mut link = ShapedLink::new(Box::new(link), &Clock::System, &path);
    assert_eq!(link.status().retransmits, Some(0));
    link.send(b"hello", LONG_TIMEOUT).unwrap();
    assert!(!link.status().is_hung_up);
    drop(accepted);
    assert!(matches!(link.receive(&mut [0; 9], LONG_TIMEOUT), Err(Fault::Closed)));
    assert!(link.status().is_hung_up);
}

#[test]
fn what_does_not_exist_has_a_kind_of_failure() {
    let refused = |kind: ErrorKind| Fault::System { operation: "connect", source: kind.into() };
    for fault in [Fault::NotFound("the name 'host' was not found".to_owned()), refused(ErrorKind::NotFound)] {
        assert_eq!(FailureKind::from(&fault), FailureKind::NotFound);
    }
    assert_eq!(FailureKind::from(&refused(ErrorKind::ConnectionRefused)), FailureKind::System);
}
