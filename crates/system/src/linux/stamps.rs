//! Timestamps of messages by the kernel (`SO_TIMESTAMPING`), on its wall clock.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::c_int;
use rustix::io::Errno;
use socket2::SockAddr;

use crate::message::Blocking;
use crate::stamps::{SendPoint, SendRecord};
use crate::unix::raw::{
    ControlBuffer, PlainData, control_value, empty_header, send_with_control, set_option, to_count,
};

/// `SO_TIMESTAMPING`, and the type of its control messages: with times of 64 bits on every processor.
const STAMPING: c_int = if cfg!(target_pointer_width = "32") { 65 } else { libc::SO_TIMESTAMPING };

/// Flags of linux/net_tstamp.h.
const TX_SOFTWARE: u32 = 1 << 1;
const RX_SOFTWARE: u32 = 1 << 3;
const SOFTWARE: u32 = 1 << 4;
const OPT_ID: u32 = 1 << 7;
const TX_SCHED: u32 = 1 << 8;
const OPT_TSONLY: u32 = 1 << 11;
const OPT_ID_TCP: u32 = 1 << 16;

/// Options for messages: one stamp before the queue of the device and one when the driver takes a message, numbered from 0.
const OF_MESSAGES: u32 = SEND_POINTS | RX_SOFTWARE | SOFTWARE | OPT_ID | OPT_TSONLY;
const SEND_POINTS: u32 = TX_SOFTWARE | TX_SCHED;

/// Values of `ee_origin` and `ee_info` in a record.
const ORIGIN_TIMESTAMPING: u8 = 4;
const INFO_SENT: u32 = 0;
const INFO_QUEUED: u32 = 1;
/// The level and type of the record of a packet socket.
const SOL_PACKET: c_int = 263;
const PACKET_TX_TIMESTAMP: c_int = 16;

/// Requests stamps of sent and received messages. Every kind of socket accepts this, also those without stamps.
pub fn stamp_messages(fd: impl AsFd) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, STAMPING, OF_MESSAGES)
}

/// Requests stamps of sent and received data of a stream, on which nothing is unacknowledged.
pub fn stamp_stream(fd: impl AsFd) -> io::Result<()> {
    let fd = fd.as_fd();
    set_option(fd, libc::SOL_SOCKET, STAMPING, OF_MESSAGES | OPT_ID_TCP)
        // Before Linux 6.2 the numbers begin with the first unacknowledged byte.
        .or_else(|_| stamp_messages(fd))
}

/// Requests stamps of received messages, and of the sent ones of [`send_stamped`], which are numbered from 0.
pub fn stamp_on_request(fd: impl AsFd) -> io::Result<()> {
    let fd = fd.as_fd();
    // The numbers begin at 0 again when the option is turned on.
    stop_stamps(fd)?;
    set_option(fd, libc::SOL_SOCKET, STAMPING, OF_MESSAGES & !SEND_POINTS)
}

/// Requests no more stamps. Those of messages on their way may still come.
pub fn stop_stamps(fd: impl AsFd) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, STAMPING, 0u32)
}

/// Sends one message to `to`, with stamps; does not wait.
pub fn send_stamped(fd: impl AsFd, bytes: &[u8], to: &SockAddr) -> Result<usize, Errno> {
    send_with_control(fd, bytes, to, Blocking::Never, |control, header| {
        control.attach_value(header, libc::SOL_SOCKET, STAMPING, SEND_POINTS);
    })
}

/// Three times, of which the first is that of software.
type Timestamps = [i64; 6];

fn software_ns(times: Timestamps) -> Option<i64> {
    let [seconds, nanoseconds, ..] = times;
    (seconds != 0).then(|| seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds))
}

/// Time when the device passed a received message to the kernel, in nanoseconds of the time of day.
pub fn received_wall_ns(header: &libc::msghdr) -> Option<i64> {
    software_ns(control_value(header, libc::SOL_SOCKET, STAMPING)?)
}

// SAFETY: a C structure of integers.
unsafe impl PlainData for libc::sock_extended_err {}

/// The oldest stamp of a sent message; does not wait. Skips other records of the queue. `None`: the queue is empty.
pub fn next_send_record(fd: impl AsFd) -> Option<SendRecord> {
    loop {
        let mut control = ControlBuffer::new();
        let mut header = empty_header();
        control.attach(&mut header);
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: header and control buffer live through the call and are borrowed for writing; no room for bytes or an
        // address is given.
        let received = to_count(unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &raw mut header, flags) });
        match received {
            Err(Errno::INTR) => continue,
            Err(_) => return None,
            // Nothing of the queue: systems that emulate another may not know the flag.
            Ok(_) if header.msg_flags & libc::MSG_ERRQUEUE == 0 => return None,
            Ok(_) => {}
        }
        if let Some(record) = send_record(&header) {
            return Some(record);
        }
    }
}

fn send_record(header: &libc::msghdr) -> Option<SendRecord> {
    let record: libc::sock_extended_err = control_value(header, libc::IPPROTO_IP, libc::IP_RECVERR)
        .or_else(|| control_value(header, libc::IPPROTO_IPV6, libc::IPV6_RECVERR))
        .or_else(|| control_value(header, SOL_PACKET, PACKET_TX_TIMESTAMP))?;
    let point = match (record.ee_origin, record.ee_info) {
        (ORIGIN_TIMESTAMPING, INFO_SENT) => SendPoint::Departed,
        (ORIGIN_TIMESTAMPING, INFO_QUEUED) => SendPoint::Queued,
        _ => return None,
    };
    Some(SendRecord { id: record.ee_data, point, wall_ns: received_wall_ns(header)? })
}

/// Whether a record of the error queue is a stamp, not an error.
pub fn is_stamp(record: &libc::sock_extended_err) -> bool {
    record.ee_origin == ORIGIN_TIMESTAMPING
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A control message: length, level, type and payload, padded to eight bytes.
    fn control_message(level: c_int, kind: c_int, payload: &[u8]) -> Vec<u8> {
        let mut bytes = ((16 + payload.len()) as u64).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<SendRecord> {
        let mut control = ControlBuffer::new();
        control.0[..bytes.len()].copy_from_slice(bytes);
        let mut header = empty_header();
        control.attach(&mut header);
        header.msg_controllen = bytes.len() as _;
        send_record(&header)
    }

    #[test]
    fn records_of_the_kernel_are_read() {
        // Captured on Linux 6.18, x86-64.
        let times =
            [&[0xe0, 0x3e, 0x02, 0x6b, 0, 0, 0, 0, 0xd5, 0x08, 0x18, 0x1e, 0, 0, 0, 0][..], &[0; 32][..]]
                .concat();
        let wall_ns = 1_795_309_280_504_891_605;
        let times = control_message(libc::SOL_SOCKET, 37, &times);
        let error = |info: u8, id: u8, origin: u8| {
            let mut bytes = vec![0x2a, 0, 0, 0, origin, 0, 0, 0, info, 0, 0, 0, id, 0, 0, 0];
            bytes.extend([0; 16]);
            bytes
        };
        let udp = control_message(libc::IPPROTO_IP, libc::IP_RECVERR, &error(1, 1, 4));
        let queued = SendRecord { id: 1, point: SendPoint::Queued, wall_ns };
        // The kernel writes them in either order.
        assert_eq!(parse(&[times.clone(), udp.clone()].concat()), Some(queued));
        assert_eq!(parse(&[udp, times.clone()].concat()), Some(queued));
        let v6 = control_message(libc::IPPROTO_IPV6, libc::IPV6_RECVERR, &error(0, 19, 4));
        let departed = SendRecord { id: 19, point: SendPoint::Departed, wall_ns };
        assert_eq!(parse(&[times.clone(), v6].concat()), Some(departed));
        let packet = control_message(SOL_PACKET, PACKET_TX_TIMESTAMP, &error(1, 0, 4)[..16]);
        assert_eq!(parse(&[times.clone(), packet].concat()).map(|record| record.id), Some(0));
        // An acknowledgement, an ICMP error and half of a record.
        let others = [error(2, 1, 4), error(0, 1, 2)]
            .map(|bytes| control_message(libc::IPPROTO_IP, libc::IP_RECVERR, &bytes));
        for other in others {
            assert_eq!(parse(&[times.clone(), other].concat()), None);
        }
        assert_eq!(parse(&times), None);
    }
}
