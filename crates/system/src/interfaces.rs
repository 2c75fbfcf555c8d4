//! Network interfaces: addresses, interrupt coalescing, offloads.

/// The interrupt delay of an interface for received packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterruptCoalescing {
    /// The delay of the interrupt after a packet.
    pub receive_us: u32,
    /// The driver adapts the delay to the traffic.
    pub is_adaptive: bool,
}
