//! The TCP stream and the datagrams to one place, for protocols that use both.

use super::{tcp, udp};
use crate::link::Fault;
use crate::transport::internet::{
    BIND_OPTION, DEVICE_OPTION, DSCP_OPTION, FAMILY_OPTION, IpOptions, PRIORITY_OPTION, TTL_OPTION,
};
use linkgauge_model::endpoint::Endpoint;

/// The TCP endpoint for the target of a datagram endpoint, with the same IP options. For protocols that
/// negotiate over TCP and measure with datagrams.
///
/// # Errors
///
/// Fails for transports without such a stream.
pub fn companion_stream(endpoint: &Endpoint) -> Result<Endpoint, Fault> {
    if endpoint.scheme() != udp::TRANSPORT.scheme {
        return Err(Fault::Unsupported(format!(
            "{} links have no TCP stream beside them. Use a udp:// endpoint.",
            endpoint.scheme()
        )));
    }
    let mut stream: Endpoint = format!("{}://{}", tcp::TRANSPORT.scheme, endpoint.address()).parse()?;
    for (name, _) in [FAMILY_OPTION, DEVICE_OPTION, DSCP_OPTION, TTL_OPTION, PRIORITY_OPTION] {
        if let Some(value) = endpoint.option(name) {
            stream = stream.with_option(name, value)?;
        }
    }
    // The port belongs to the datagrams.
    match IpOptions::from_endpoint(endpoint)?.bind_ip() {
        Some(address) => Ok(stream.with_option(BIND_OPTION.0, &address.to_string())?),
        _ => Ok(stream),
    }
}

/// The datagrams to the place that an endpoint of a stream leads to, with all its options; itself where it has datagrams.
///
/// # Errors
///
/// Fails for links other than TCP and UDP.
pub fn companion_datagrams(endpoint: &Endpoint) -> Result<Endpoint, Fault> {
    let (stream, datagrams) = (tcp::TRANSPORT.scheme, udp::TRANSPORT.scheme);
    match endpoint.as_str().strip_prefix(stream) {
        Some(rest) if endpoint.scheme() == stream => Ok(format!("{datagrams}{rest}").parse()?),
        _ if endpoint.scheme() == datagrams => Ok(endpoint.clone()),
        _ => Err(Fault::Unsupported(format!("{} has no UDP: leave --udp out", endpoint.scheme()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn companion_datagrams_have_the_same_address() {
        let beside = |text: &str| companion_datagrams(&text.parse().unwrap()).map(|url| url.to_string()).ok();
        assert_eq!(beside("host").as_deref(), Some("udp://host"));
        assert_eq!(beside("tcp://[::1]:7?dscp=EF").as_deref(), Some("udp://[::1]:7?dscp=EF"));
        assert_eq!(beside("udp://host").as_deref(), Some("udp://host"));
        assert_eq!(beside("serial:///dev/ttyS0"), None);
    }

    #[test]
    fn a_companion_stream_has_the_same_ip_options() {
        let beside =
            |text: &str| companion_stream(&text.parse().unwrap()).map(|stream| stream.to_string()).ok();
        assert_eq!(
            beside("udp://h:1?gso=0&bind=[::1]:9&ecn=1&dscp=EF&device=lo&family=6&ttl=9").as_deref(),
            Some("tcp://h:1?family=6&device=lo&dscp=EF&ttl=9&bind=::1")
        );
        assert_eq!(beside("udp://h:1?bind=:9").as_deref(), Some("tcp://h:1"));
        assert_eq!(beside("tcp://h:1"), None);
    }
}
