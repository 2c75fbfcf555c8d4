//! Applies the settings of a socket that a party requests for its link, after the link was opened.

use linkgauge_system::{self as system, BorrowedHandle};
use std::time::Duration;

use super::traffic_class::set_traffic_class;
use super::{Fault, Link, own_socket};
use linkgauge_model::traffic::SocketSettings;

/// Limits the bytes that a TCP socket holds unsent. Other links have no such limit, and keep what they have.
pub fn limit_unsent_bytes(socket: Option<BorrowedHandle<'_>>, bytes: u32) {
    if let Some(descriptor) = socket {
        let _ = system::set_unsent_limit(descriptor, bytes);
    }
}

/// Value without a limit of the bytes that a TCP socket holds unsent: the limit is the system's own.
pub(crate) const NO_LIMIT: u32 = 0;

/// Changes the limit of the bytes that a TCP socket holds unsent, if it is `before`; the user may have set another.
pub(crate) fn change_unsent_limit(socket: Option<BorrowedHandle<'_>>, before: u32, bytes: u32) {
    if let Some(socket) = socket.filter(|socket| system::unsent_limit(socket) == Some(before)) {
        let _ = system::set_unsent_limit(socket, bytes);
    }
}

/// Interval of the keepalives of a control connection. Some NAT devices forget connections that are idle for 5 s.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// Keepalives without a reply that break a connection: as long as a retransmission may take.
const KEEPALIVE_PROBES: u32 = 60;

/// Makes the system send keepalives on a connection that is idle during a measurement, unless the endpoint sets others.
/// Other links have none.
pub(crate) fn keep_alive(link: &dyn Link) {
    let Some(descriptor) = own_socket(link) else { return };
    let Some(socket) = system::socket_of(&descriptor) else { return };
    if !socket.keepalive().unwrap_or(true) {
        let _ = system::set_keepalive(&socket, KEEPALIVE_INTERVAL, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES);
    }
}

/// Applies the settings to the socket of a link.
///
/// # Errors
///
/// Fails for a link without a socket of its own, and for a setting that this kind of socket does not have.
pub fn apply(socket: Option<BorrowedHandle<'_>>, settings: &SocketSettings) -> Result<(), Fault> {
    let Some(socket) = socket.as_ref().and_then(system::socket_of) else {
        return Err(Fault::Unsupported("this link has no socket: leave out the socket options".to_owned()));
    };
    if let Some(on) = settings.nodelay {
        socket.set_tcp_nodelay(on).map_err(Fault::system("set TCP_NODELAY"))?;
    }
    if let Some(on) = settings.quick_ack {
        system::set_quick_ack(&*socket, on).map_err(Fault::system("set TCP_QUICKACK"))?;
    }
    if let Some(bytes) = settings.send_buffer_bytes {
        socket.set_send_buffer_size(bytes as usize).map_err(Fault::system("set the send buffer"))?;
    }
    if let Some(bytes) = settings.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes as usize).map_err(Fault::system("set the receive buffer"))?;
    }
    if let Some(class) = settings.traffic_class {
        let local = socket.local_addr().ok().and_then(|address| address.as_socket());
        let no_class =
            || Fault::Unsupported("this link has no traffic class: leave out dscp and ecn".to_owned());
        set_traffic_class(&socket, local.ok_or_else(no_class)?.ip(), class)?;
    }
    Ok(())
}
