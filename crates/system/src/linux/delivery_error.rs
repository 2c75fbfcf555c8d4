//! The records that the system keeps of messages that were not delivered.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use libc::c_int;
use rustix::io::Errno;

use super::stamps;
use crate::delivery_error::{DeliveryError, QuotedError};
use crate::ip_family::IpFamily;
use crate::unix::raw::{PlainData, control_value, receive_with_control, set_option};

/// Makes the system store errors of undelivered messages for [`take_delivery_error`], and report them in the
/// next call; or not.
pub fn set_receive_errors(fd: impl AsFd, family: IpFamily, is_on: bool) -> io::Result<()> {
    let on = c_int::from(is_on);
    match family {
        IpFamily::V4 => set_option(fd, libc::IPPROTO_IP, libc::IP_RECVERR, on),
        IpFamily::V6 => set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, on),
    }
}

/// The system's record of an undelivered message, followed by the address of its reporter.
#[repr(C)]
#[derive(Clone, Copy)]
struct ExtendedError<A> {
    error: libc::sock_extended_err,
    from: A,
}

// SAFETY: a C structure of integers and of types that consist of them.
unsafe impl<A: PlainData> PlainData for ExtendedError<A> {}

/// Whether this system keeps records of undelivered messages.
pub const HAS_DELIVERY_ERRORS: bool = true;

/// The oldest error of an undelivered message; does not wait.
pub fn take_delivery_error(fd: impl AsFd, family: IpFamily) -> Option<DeliveryError> {
    take_quoted_error(fd, family, &mut []).map(|quoted| quoted.error)
}

/// The oldest error of an undelivered message, with the quoted message: as much of it is stored as `into` has room for.
pub fn take_quoted_error(fd: impl AsFd, family: IpFamily, into: &mut [u8]) -> Option<QuotedError> {
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    let read = |header: &libc::msghdr| (record(header, family), stamps::received_wall_ns(header));
    let (quoted_bytes, (record, arrived_wall_ns)) =
        receive_with_control(fd.as_fd(), &mut *into, flags, read).ok()?;
    let (error, from) = record?;
    if stamps::is_stamp(&error) {
        return take_quoted_error(fd, family, into);
    }
    let is_icmp = [libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6].contains(&error.ee_origin);
    let errno = Errno::from_raw_os_error(error.ee_errno as c_int);
    let error_of_message = DeliveryError {
        family,
        icmp_type_code: is_icmp.then_some((error.ee_type, error.ee_code)),
        errno,
        from,
    };
    Some(QuotedError {
        error: error_of_message,
        mtu_bytes: (errno == Errno::MSGSIZE).then_some(error.ee_info),
        quoted_bytes,
        arrived_wall_ns,
    })
}

/// The record of the system in a received message, and the host that it names.
fn record(header: &libc::msghdr, family: IpFamily) -> Option<(libc::sock_extended_err, Option<IpAddr>)> {
    if family == IpFamily::V6 {
        let record: ExtendedError<libc::sockaddr_in6> =
            control_value(header, libc::IPPROTO_IPV6, libc::IPV6_RECVERR)?;
        let known = c_int::from(record.from.sin6_family) == libc::AF_INET6;
        let host = known.then(|| IpAddr::from(Ipv6Addr::from(record.from.sin6_addr.s6_addr)));
        return Some((record.error, host));
    }
    let record: ExtendedError<libc::sockaddr_in> = control_value(header, libc::IPPROTO_IP, libc::IP_RECVERR)?;
    let known = c_int::from(record.from.sin_family) == libc::AF_INET;
    let host = known.then(|| IpAddr::from(Ipv4Addr::from(record.from.sin_addr.s_addr.to_ne_bytes())));
    Some((record.error, host))
}
