//! The network between the kernels of both hosts. Handshakes of TCP beside the requests measure it without the programs.

use super::{Cause, CauseFamily, Knob, Plant, Signature, Target};

/// Whether handshakes can be made beside the requests.
const HAS_HANDSHAKES: fn(&Target) -> bool = |target| target.handshake_endpoint().is_some();
const OF_PATH: Knob =
    Knob::Missing("it is in the network. Try another path, or the same request from another host");

pub(super) const FAMILY: CauseFamily = CauseFamily {
    name: "path",
    summary: "the network between both kernels needs the time: handshakes of TCP beside the requests, which no program of the \
              server delays, need it as well",
    causes: &[
        Cause {
            id: "path_clock",
            name: "clock on the path (slots, polls)",
            applies: HAS_HANDSHAKES,
            signature: Signature::Hidden,
            counter: Some("handshakes wait as long as requests"),
            knob: OF_PATH,
            remedy: "choose a profile of the radio or bus with shorter slots, or send less often and more at once",
            plant: Plant::Lab("lab shaper --slot 10ms"),
        },
        Cause {
            id: "path_stall",
            name: "stalls of the path",
            applies: HAS_HANDSHAKES,
            signature: Signature::Hidden,
            counter: Some("handshakes that began during slow requests are slow as well"),
            knob: OF_PATH,
            remedy: "look for a radio, a route or a queue that stops for this time",
            plant: Plant::Lab("lab shaper --spike 100ms@1%"),
        },
        Cause {
            id: "path_queue",
            name: "queue on the path",
            applies: HAS_HANDSHAKES,
            signature: Signature::Hidden,
            counter: Some("kernel's round trip of handshakes, far above the shortest"),
            knob: OF_PATH,
            remedy: "find what fills the link (other traffic), limit its rate, or use fq_codel or cake at the bottleneck",
            plant: Plant::Lab("a transfer over the same lab shaper --rate 10Mbit/s --queue 100"),
        },
        Cause {
            id: "path_delay",
            name: "shortest round trip of the path",
            applies: HAS_HANDSHAKES,
            signature: Signature::Hidden,
            counter: Some("kernel's shortest round trip of handshakes"),
            knob: Knob::Missing("only a shorter path has a shorter round trip"),
            remedy: "use a shorter path, or fewer round trips: several requests on the way at a time (--window)",
            plant: Plant::Lab("lab shaper --delay 5ms"),
        },
    ],
};
