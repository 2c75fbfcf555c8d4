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
    ],
};
