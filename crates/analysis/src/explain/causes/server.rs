//! The program at the other end.

use super::{ANYWHERE, Cause, CauseFamily, Knob, Plant, Signature};

pub(super) const FAMILY: CauseFamily = CauseFamily {
    name: "server",
    summary: "the program at the other end needs the time",
    causes: &[
        Cause {
            id: "random_pause",
            name: "rare pauses of the server (GC, locks)",
            applies: ANYWHERE,
            signature: Signature::RandomPauses,
            counter: Some("server time between receipt and reply, where the protocol reports it"),
            knob: Knob::Missing(
                "only the server can avoid its pauses. Look at its garbage collector and locks",
            ),
            remedy: "look for garbage collection, locks and disk writes in the server",
            plant: Plant::Lab("lab trouble --pause 30ms@1%"),
        },
        Cause {
            id: "server_time",
            name: "time of the server between receipt and reply",
            applies: ANYWHERE,
            signature: Signature::Hidden,
            counter: Some("server time between receipt and reply, where the protocol reports it (stamp)"),
            knob: Knob::Missing(
                "only the server can reply sooner. Try: linkgauge latency stamp://…, which reports this time",
            ),
            remedy: "profile the server",
            plant: Plant::Lab("lab trouble --delay 5ms"),
        },
        Cause {
            id: "server",
            name: "the server, or what lies behind it",
            applies: |target| target.handshake_endpoint().is_some(),
            signature: Signature::Hidden,
            counter: Some("reply minus handshake: the kernel of the server answers sooner than its program"),
            knob: Knob::Missing(
                "only the server can reply sooner. Try: linkgauge latency stamp://…, which reports this time",
            ),
            remedy: "profile the server: its work, its locks, its disks, the services that it asks",
            plant: Plant::Lab("lab trouble --delay 5ms"),
        },
        Cause {
            id: "server_accept",
            name: "late acceptance of connections",
            applies: |target| target.has_delayed_acknowledgements() && target.caps.link_rate.is_none(),
            signature: Signature::Hidden,
            counter: Some("first reply of a connection minus the later ones, several times"),
            knob: Knob::Missing("only the server can accept sooner. Try: linkgauge connect URL"),
            remedy: "accept connections in the server at once, in a thread of its own, and keep connections open",
            plant: Plant::NotHere("a server that accepts on a timer"),
        },
        Cause {
            id: "name_resolution",
            name: "look-up of the name (DNS)",
            applies: |target| target.has_option("family"),
            signature: Signature::Hidden,
            counter: Some("time of the second look-up, which each further connection needs as well"),
            knob: Knob::Missing(
                "the server of names is no part of the link. Try an address instead of the name",
            ),
            remedy: "use an address, a cache or a nearer server of names, and keep connections open",
            plant: Plant::NotHere("a server of names that replies late"),
        },
    ],
};
