//! The Ethernet of the board for two users: LINX takes frames of its type, smoltcp all others.

use crate::board::{now_ns, receive_frame, send_frame};
use linkgauge_responder::linx::DeviceNode;
use linkgauge_responder::linx::frame::ETHERTYPE;
use smoltcp::phy::{self, Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

/// The largest frame.
const FRAME_BYTES: usize = 1514;
/// The largest message of LINX: that of the study's small nodes, and its signal number.
const MESSAGE_BYTES: usize = 16_388;

/// What LINX has cost so far.
#[derive(Default)]
pub struct LinxMeter {
    /// Frames with LINX that came.
    pub frames: u32,
    /// Time from taking a frame out of the MAC to the last frame that answers it.
    pub busy_ns: u64,
}

pub struct Ethernet {
    linx: DeviceNode<MESSAGE_BYTES, 1>,
    pub meter: LinxMeter,
    received: [u8; FRAME_BYTES],
    sent: [u8; FRAME_BYTES],
}

impl Ethernet {
    pub const fn new(mac: [u8; 6]) -> Ethernet {
        Ethernet {
            linx: DeviceNode::new(mac),
            meter: LinxMeter { frames: 0, busy_ns: 0 },
            received: [0; FRAME_BYTES],
            sent: [0; FRAME_BYTES],
        }
    }

    /// Sends what LINX has to say by itself.
    pub fn poll_linx(&mut self) {
        while let Some(length) = self.linx.poll(now_ns(), &mut self.sent) {
            send_frame(&self.sent[..length]);
        }
    }
}

impl Device for Ethernet {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = Sender<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Sender<'_>)> {
        loop {
            let began = now_ns();
            let length = receive_frame(&mut self.received)?;
            if self.received[12..14] != ETHERTYPE.to_be_bytes() {
                return Some((Received(&mut self.received[..length]), Sender(&mut self.sent)));
            }
            self.linx.on_frame(began, &self.received[..length]);
            self.poll_linx();
            self.meter.frames += 1;
            self.meter.busy_ns += now_ns() - began;
        }
    }

    fn transmit(&mut self, _: Instant) -> Option<Sender<'_>> {
        Some(Sender(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME_BYTES;
        capabilities.max_burst_size = Some(1);
        capabilities.checksum = ChecksumCapabilities::default();
        capabilities.checksum.udp = Checksum::Both;
        capabilities
    }
}

pub struct Received<'a>(&'a mut [u8]);

impl phy::RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, use_frame: F) -> R {
        use_frame(self.0)
    }
}

pub struct Sender<'a>(&'a mut [u8; FRAME_BYTES]);

impl phy::TxToken for Sender<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write_frame: F) -> R {
        let frame = &mut self.0[..length];
        let result = write_frame(frame);
        send_frame(frame);
        result
    }
}
