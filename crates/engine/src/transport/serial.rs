//! `serial:///dev/ttyS0`: a serial port of this host, or a terminal that stands in for one.
//!
//! The port is opened exclusively, and its state is restored on close.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::socket::{IoDirection, wait_ready};
use crate::link::delegate::plain_link;
use crate::link::party::Tuning;
use crate::link::serial_line::{
    self, ModemLines, OutputSignal, PortControl, PurgeTarget, SerialSettings, UartErrors,
};
use crate::link::{Caps, Facts, Fault, Link, LinkStatus, OpenContext, Transport};
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::WaitMode;

mod device;

use device::Options;
use linkgauge_system::{self as system, AsHandle, BorrowedHandle, Errno, PollFlags, SerialPort, poll, watch};

pub(crate) const TRANSPORT: Transport = Transport {
    scheme: serial_line::PORT_SCHEME,
    summary: "serial port of this host",
    example: "serial:///dev/ttyS0?baud=115200&flow=rtscts",
    options: &[
        serial_line::BAUD_OPTION,
        serial_line::DATA_BITS_OPTION,
        serial_line::PARITY_OPTION,
        serial_line::STOP_BITS_OPTION,
        serial_line::FLOW_CONTROL_OPTION,
        device::LOW_LATENCY_OPTION,
        device::RS485_OPTION,
        device::DELAY_BEFORE_OPTION,
        device::DELAY_AFTER_OPTION,
    ],
    parse_caps: |endpoint| {
        Options::from_endpoint(endpoint).map(|options| serial_line::caps(&options.settings))
    },
    resolve: None,
    available: || Ok(()),
    limitation: || None,
    open: |endpoint, context| Ok(Box::new(SerialLink::open(endpoint, context)?)),
    begin_open: None,
    listen: None,
    loopback_urls: |_| Vec::new(),
};

/// The operation of a failed reading of the line's settings.
const READ_SETTINGS: &str = "read the settings";

/// A pseudo-terminal wakes its writer only when its reader has read nearly all. A reader that pauses before that makes room as well,
/// so a write is tried again after this time.
const WRITE_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// A serial port as a link.
pub(crate) struct SerialLink {
    device: Arc<SerialPort>,
    requested: SerialSettings,
    caps: Caps,
    clock: Clock,
    wait: WaitMode,
    busy_poll_total: Duration,
}

impl SerialLink {
    pub(crate) fn open(endpoint: &Endpoint, context: &OpenContext) -> Result<SerialLink, Fault> {
        let options = Options::from_endpoint(endpoint)?;
        let device = device::open(&options)?;
        let caps = serial_line::caps(&device.settings().map_err(Fault::system(READ_SETTINGS))?);
        let (clock, wait) = (context.clock.clone(), context.wait);
        Ok(SerialLink {
            device: Arc::new(device),
            requested: options.settings,
            caps,
            clock,
            wait,
            busy_poll_total: Duration::ZERO,
        })
    }

    /// Calls the non-blocking `operation` until it succeeds or the time is over.
    #[inline]
    fn attempt<T>(
        &mut self,
        which: IoDirection,
        within: Duration,
        mut operation: impl FnMut(&SerialPort) -> Result<T, Errno>,
    ) -> Result<T, Fault> {
        let (mut until, mut last) = (None, None);
        loop {
            match operation(&self.device) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                // The other side of a pseudo-terminal was closed, or the adapter was unplugged.
                Err(Errno::IO | Errno::NXIO | Errno::NODEV) => return Err(Fault::Closed),
                done => return done.map_err(|errno| super::socket::io_fault(which, errno)),
            }
            let now = self.clock.now();
            let until = *until.get_or_insert(now + within);
            if now >= until {
                return Err(Fault::TimedOut);
            }
            match self.wait {
                WaitMode::Block => {
                    let left = until.since(now);
                    let wait = match which {
                        IoDirection::Send => left.min(WRITE_RETRY_INTERVAL),
                        IoDirection::Receive => left,
                    };
                    wait_ready(&*self.device, which, wait);
                }
                WaitMode::BusyPoll => {
                    self.busy_poll_total += last.map_or(Duration::ZERO, |last| now.since(last));
                    last = Some(now);
                    std::hint::spin_loop();
                }
            }
        }
    }
}

impl Link for SerialLink {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn facts(&self) -> Facts {
        let mut facts = device::facts(&self.device);
        if let Ok(granted) = self.device.settings() {
            serial_line::insert_line_facts(&mut facts, &self.requested, &granted);
        }
        facts
    }

    fn status(&self) -> LinkStatus {
        let mut port = [watch(&*self.device, PollFlags::empty())];
        // Reported without a request: the adapter was unplugged, or the program at a pseudo-terminal has ended.
        let is_hung_up = poll(&mut port, Duration::ZERO).is_ok_and(|ready| ready > 0);
        LinkStatus {
            is_hung_up,
            is_broken: is_hung_up,
            unacknowledged_bytes: system::unacknowledged_bytes(&*self.device),
            busy_poll_time: self.busy_poll_total,
            ..LinkStatus::default()
        }
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.wait = tuning.wait;
    }

    #[inline]
    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, Fault> {
        self.attempt(IoDirection::Send, within, |port| port.write(bytes))
    }

    #[inline]
    fn receive(&mut self, into: &mut [u8], within: Duration) -> Result<usize, Fault> {
        // A line is slower than its reader: a first read without a wait would mostly find nothing and cost a
        // call.
        let within = match self.wait {
            WaitMode::Block if !within.is_zero() => {
                let began = self.clock.now();
                wait_ready(&*self.device, IoDirection::Receive, within);
                within.saturating_sub(self.clock.now() - began)
            }
            _ => within,
        };
        let length = self.attempt(IoDirection::Receive, within, |port| port.read(into))?;
        if length == 0 && !into.is_empty() {
            return Err(Fault::Closed);
        }
        Ok(length)
    }

    fn second_handle(&self) -> Result<Box<dyn Link>, Fault> {
        Ok(Box::new(SerialLink {
            device: self.device.clone(),
            requested: self.requested,
            caps: self.caps.clone(),
            clock: self.clock.clone(),
            wait: self.wait,
            busy_poll_total: Duration::ZERO,
        }))
    }

    fn port_control(&mut self) -> Option<&mut dyn PortControl> {
        Some(self)
    }

    fn descriptor(&self) -> Option<BorrowedHandle<'_>> {
        Some(self.device.as_handle())
    }

    plain_link!(send_batch receive_batch finish_sending abort reopen read_send_stamps);
}

impl PortControl for SerialLink {
    fn settings(&mut self) -> Result<SerialSettings, Fault> {
        self.device.settings().map_err(Fault::system(READ_SETTINGS))
    }

    fn configure(&mut self, wanted: &SerialSettings) -> Result<SerialSettings, Fault> {
        let granted = self.device.configure(wanted).map_err(Fault::system("set the line"))?;
        (self.requested, self.caps) = (*wanted, serial_line::caps(&granted));
        Ok(granted)
    }

    fn set_signal(&mut self, signal: OutputSignal, on: bool) -> Result<(), Fault> {
        let operation = match signal {
            OutputSignal::Dtr => "set DTR",
            OutputSignal::Rts => "set RTS",
            OutputSignal::Break => "hold the line",
        };
        match self.device.set_signal(signal, on) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            done => done.map_err(Fault::system(operation)),
        }
    }

    fn modem_lines(&mut self) -> Option<ModemLines> {
        self.device.modem_lines()
    }

    fn purge(&mut self, purge: PurgeTarget) -> Result<(), Fault> {
        self.device.purge(purge).map_err(Fault::system("purge"))
    }

    fn uart_errors(&mut self) -> Option<UartErrors> {
        self.device.uart_errors()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::protocol::Registry;
    use linkgauge_system::Pty;

    /// A terminal holds 4096 bytes for its reader, and some more before them.
    #[test]
    fn a_reader_that_pauses_lets_the_writer_continue() {
        let pty = Pty::open().unwrap();
        let endpoint = serial_line::port_endpoint(&pty.path, &SerialSettings::default()).unwrap();
        let mut link = Registry::standard().dialer(Clock::System).open(&endpoint).unwrap();
        while link.send(&[0; 1000], Duration::from_millis(20)).is_ok() {}
        let reader = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            let mut read = 0;
            while read < 6000 {
                read += pty.read(&mut [0; 500]).unwrap_or(0);
                // Time to move further bytes to the reader, so that it has never read nearly all.
                std::thread::sleep(Duration::from_millis(2));
            }
            pty
        });
        let began = Clock::System.now();
        link.send(&[0; 1000], Duration::from_secs(10)).unwrap();
        assert!(Clock::System.now().since(began) < Duration::from_secs(5));
        reader.join().unwrap();
    }
}
