//! Stamps of the kernel for the endpoints that share the packet socket of a node.
//!
//! The socket also sends acknowledgements, fragments and messages of other endpoints. So the kernel is asked to stamp only the
//! frames that end a message of a measured endpoint, at their first transmission, and it numbers only these. A table leads from
//! the number of a frame to the message.

use socket2::{SockAddr, Socket};

use crate::link::stamps::{SendStamp, SendStamps, StampReader};
use linkgauge_model::clock::{Clock, Time};
use linkgauge_system::{self as system, Errno};

/// Frames whose stamps may still arrive. A power of two.
const TRACKED_FRAMES: usize = 1024;

/// The stamps of all measured endpoints of a node. Fixed size, once the endpoints are known.
#[derive(Debug)]
pub(crate) struct EndpointStamps {
    reader: StampReader,
    /// The stamps of one reading.
    stamps: SendStamps,
    endpoints: Vec<StampedEndpoint>,
    frames: Vec<StampedFrame>,
    /// The number of the next frame.
    next_frame: u32,
}

#[derive(Debug)]
struct StampedEndpoint {
    address: u32,
    /// The number of the endpoint's next message.
    next_message: u32,
    /// Stamps that the owner of the endpoint has not read yet.
    stamps: SendStamps,
}

/// The message that ended with a frame.
#[derive(Debug, Clone, Copy, Default)]
struct StampedFrame {
    frame: u32,
    source: u32,
    message: u32,
}

impl EndpointStamps {
    /// Makes the kernel stamp what this socket receives, and what [`EndpointStamps::send`] sends. `None` if it refuses.
    pub(crate) fn enable(socket: &Socket, clock: &Clock) -> Option<EndpointStamps> {
        let reader = StampReader::new(clock)?;
        system::stamp_on_request(socket).ok()?;
        Some(EndpointStamps {
            reader,
            stamps: SendStamps::new(),
            endpoints: Vec::new(),
            frames: vec![StampedFrame::default(); TRACKED_FRAMES],
            next_frame: 0,
        })
    }

    /// Stamps the messages of this endpoint from now on. `unsent`: its messages that will be sent before them.
    pub(crate) fn add_endpoint(&mut self, address: u32, unsent: usize) {
        if !self.includes(address) {
            let next_message = 0u32.wrapping_sub(unsent as u32);
            self.endpoints.push(StampedEndpoint { address, next_message, stamps: SendStamps::new() });
        }
    }

    /// Returns whether endpoints with stamps remain.
    pub(crate) fn remove_endpoint(&mut self, address: u32) -> bool {
        self.endpoints.retain(|endpoint| endpoint.address != address);
        !self.endpoints.is_empty()
    }

    /// Whether the messages of this endpoint have stamps.
    pub(crate) fn includes(&self, address: u32) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.address == address)
    }

    /// Sends the frame that ends a message of this endpoint; does not wait.
    pub(crate) fn send(
        &mut self,
        source: u32,
        frame: &[u8],
        socket: &Socket,
        to: &SockAddr,
    ) -> Result<usize, Errno> {
        let sent = system::send_stamped(socket, frame, to);
        match sent {
            Ok(_) => self.note_sent(source),
            // The queue of the device was full: the frame is sent again, but the number is used.
            Err(Errno::NOBUFS) => self.next_frame = self.next_frame.wrapping_add(1),
            Err(_) => {}
        }
        sent
    }

    fn note_sent(&mut self, source: u32) {
        let frame = self.next_frame;
        self.next_frame = frame.wrapping_add(1);
        if let Some(endpoint) = self.endpoints.iter_mut().find(|endpoint| endpoint.address == source) {
            self.frames[frame as usize % TRACKED_FRAMES] =
                StampedFrame { frame, source, message: endpoint.next_message };
            endpoint.next_message = endpoint.next_message.wrapping_add(1);
        }
    }

    /// A time of day on our time line.
    #[inline]
    pub(crate) fn time_of(&self, wall_ns: i64) -> Option<Time> {
        self.reader.time_of(wall_ns)
    }

    /// Takes the stamps of sent frames from the socket, for the owners of the endpoints.
    pub(crate) fn collect(&mut self, socket: &Socket) {
        loop {
            self.reader.read(socket, &mut self.stamps);
            for stamp in self.stamps.iter() {
                let of = self.frames[stamp.id as usize % TRACKED_FRAMES];
                let mut endpoints = self.endpoints.iter_mut();
                if of.frame == stamp.id
                    && let Some(endpoint) = endpoints.find(|endpoint| endpoint.address == of.source)
                {
                    endpoint.stamps.push(SendStamp { id: of.message, ..*stamp });
                }
            }
            if !self.stamps.is_full() {
                return;
            }
        }
    }

    /// Moves the collected stamps of an endpoint to `into`.
    pub(crate) fn take(&mut self, address: u32, into: &mut SendStamps) {
        into.clear();
        if let Some(endpoint) = self.endpoints.iter_mut().find(|endpoint| endpoint.address == address) {
            std::mem::swap(into, &mut endpoint.stamps);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::stamps::SendPoint;

    #[test]
    fn each_endpoint_gets_the_stamps_of_its_messages_with_their_numbers() {
        // The kernel numbers the sends of every socket alike; this one needs no rights.
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let to: SockAddr = silent.local_addr().unwrap().into();
        let socket = Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
        let mut stamps = EndpointStamps::enable(&socket, &Clock::System).unwrap();
        stamps.add_endpoint(5, 0);
        // The first message of the endpoint had waited when the endpoint was tuned.
        stamps.add_endpoint(9, 1);
        stamps.add_endpoint(9, 0);
        let numbers = |stamps: &mut EndpointStamps, address| {
            let mut into = SendStamps::new();
            stamps.take(address, &mut into);
            let queued = |point| {
                let of = into.iter().filter(|stamp| stamp.point == point);
                of.map(|stamp| stamp.id).collect::<Vec<u32>>()
            };
            assert_eq!(queued(SendPoint::Queued), queued(SendPoint::Departed));
            queued(SendPoint::Queued)
        };
        for source in [5, 9, 9, 5, 9, 5] {
            stamps.send(source, b"frame", &socket, &to).unwrap();
            // A frame that ends no message of these endpoints has neither a stamp nor a number.
            system::send_to(&socket, b"other", &to, None, system::Blocking::Never).unwrap();
        }
        stamps.collect(&socket);
        assert_eq!(numbers(&mut stamps, 5), [0, 1, 2]);
        assert_eq!(numbers(&mut stamps, 9), [u32::MAX, 0, 1]);
        assert_eq!(numbers(&mut stamps, 5), [0u32; 0], "they were taken");

        // More frames than one reading takes.
        for _ in 0..50 {
            stamps.send(5, b"frame", &socket, &to).unwrap();
            stamps.send(9, b"frame", &socket, &to).unwrap();
        }
        stamps.collect(&socket);
        // The owner of each has room for 32 messages.
        assert_eq!(numbers(&mut stamps, 5), (3..35).collect::<Vec<u32>>());
        assert_eq!(numbers(&mut stamps, 9), (2..34).collect::<Vec<u32>>());
        assert!(stamps.remove_endpoint(5) && !stamps.includes(5));
        assert!(!stamps.remove_endpoint(9));
    }
}
