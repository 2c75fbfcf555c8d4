//! The parameters of a twin as settings of a part of the lab.

use std::time::Duration;

use crate::study::{DelayedLink, DeviceServerTwin, MessageTwin, RadioTwin, TwinModel};
use linkgauge_engine::link::shaped::{MessageFrames, NodeCosts, Occurrence, Shape};
use linkgauge_lab::device_server::TransferCosts;
use linkgauge_lab::logger::LoggerConfig;
use linkgauge_model::units::{BitRate, Share, Span};

/// Costs of the transfers of the box.
pub fn transfer_costs(twin: &DeviceServerTwin) -> TransferCosts {
    let time = |span: Option<Span>| span.map_or(Duration::ZERO, |span| span.0);
    TransferCosts {
        poll_interval: twin.poll.0,
        transfer_time: time(twin.budget),
        byte_ns: twin.byte_time.map_or(0.0, |time| time.0),
        port_time: time(twin.port_time),
        line_load: twin.line_load.map_or(0.0, |share| share.0),
        block_bytes: twin.block as usize,
        drain_pause: time(twin.drain_pause),
        drain_from_bps: twin.drain_from.map_or(0.0, |rate| rate.0),
    }
}

/// Bytes of a packet of the logger besides the chunk of a file in it.
const CHUNK_OVERHEAD_BYTES: u16 = 9;

/// The table of a logger that skips records, which is full at the start.
const TABLE: &str = "Bench:1s:Seq=Int4,Batt=IEEE4,Temp=FP2:1000";

/// The settings of a logger; `None` if the twin is none.
pub fn logger_config(model: &TwinModel) -> Option<LoggerConfig> {
    let TwinModel::Logger { chunk, chunk_time, skips_records, .. } = model else { return None };
    let tables = if *skips_records { vec![TABLE.parse().ok()?] } else { Vec::new() };
    Some(LoggerConfig {
        tables,
        skip_records: *skips_records,
        command_time: chunk_time.0,
        max_packet_bytes: u16::try_from(*chunk).unwrap_or(u16::MAX).saturating_add(CHUNK_OVERHEAD_BYTES),
        ..LoggerConfig::default()
    })
}

/// The link of a twin, from the client and to it; `None` if the twin is no link. `link` is the one that the study sets in
/// front of a logger.
pub fn link_shapes(model: &TwinModel, link: Option<DelayedLink>) -> Option<[Shape; 2]> {
    match model {
        TwinModel::Radio(radio) => Some(radio_shapes(radio)),
        TwinModel::Frames { base, frame, spike, spike_share } => {
            Some(frame_shapes(base.0, frame.0, (spike.0, spike_share.0)))
        }
        TwinModel::Messages(nodes) => {
            let shape = Shape { costs: Some(node_costs(nodes)), ..Shape::default() };
            Some([shape.clone(), shape])
        }
        TwinModel::Board { line, send_byte, receive_call } => {
            let line = line.map_or(f64::INFINITY, |BitRate(rate)| rate);
            let sender = send_byte.map_or(f64::INFINITY, |time| 8e9 / time.0);
            let busy = receive_call.map_or(Duration::ZERO, |Span(time)| time);
            let shape = Shape {
                bits_per_second: line.min(sender),
                costs: Some(NodeCosts { busy, ..NodeCosts::default() }),
                ..Shape::default()
            };
            Some([shape, Shape { bits_per_second: line, ..Shape::default() }])
        }
        TwinModel::Logger { burst, overhead, .. } => {
            let path = link?;
            let shape = |bits_per_second| Shape {
                delay: path.delay,
                bits_per_second,
                burst_bytes: burst.0,
                overhead_bytes: overhead.0,
                ..Shape::default()
            };
            Some([shape(path.rate_to), shape(path.rate_from)])
        }
        TwinModel::Uart { .. } | TwinModel::DeviceServer(_) | TwinModel::Adapter { .. } => None,
    }
}

/// The share of one direction, where a round trip has this share.
fn share_of_direction(round_trip: f64) -> Occurrence {
    Occurrence::Share(1.0 - (1.0 - round_trip).sqrt())
}

fn radio_shapes(radio: &RadioTwin) -> [Shape; 2] {
    let half_contention = radio.contention.0 / 2;
    let Share(lost) = radio.lost;
    let both =
        Shape { delay: radio.base.0 / 2 + half_contention, jitter: half_contention, ..Shape::default() };
    let both = match radio.retransmission {
        Some(Span(later)) => Shape { spike_occurrence: share_of_direction(lost), spike_delay: later, ..both },
        None => Shape { loss: share_of_direction(lost), ..both },
    };
    // A round trip waits at most once, so only one direction waits.
    let wait_occurrence = Occurrence::Share(radio.deferred.0);
    let up = Shape { wait_occurrence, mean_wait: radio.wait.0, ..both.clone() };
    [up, both]
}

/// A delay of two frames has a jitter of half a frame around it, and arrives with the next frame: each direction takes one of
/// two frames with equal probability.
fn frame_shapes(base: Duration, frame: Duration, (spike, share): (Duration, f64)) -> [Shape; 2] {
    let frames = base.div_duration_f64(frame).round() as u32;
    let shape = |frames: u32| Shape {
        delay: frame * frames,
        jitter: frame / 2,
        slot: frame,
        spike_delay: spike,
        spike_occurrence: share_of_direction(share),
        ..Shape::default()
    };
    [shape(frames / 2), shape(frames - frames / 2)]
}

/// Costs of a message for the nodes.
pub fn node_costs(nodes: &MessageTwin) -> NodeCosts {
    let time = |span: Option<Span>| span.map_or(Duration::ZERO, |span| span.0);
    // Without a line the nodes are busy for as long as a message takes.
    let busy_message = if nodes.bits_per_second.is_none() { nodes.message } else { nodes.busy_message };
    NodeCosts {
        message: time(nodes.message) + time(nodes.interrupt_wait),
        frame: time(nodes.frame),
        first_frame_byte_ns: nodes.first_frame_byte.map_or(0.0, |time| time.0),
        hops: nodes.hops,
        byte_ns: nodes.byte.map_or(0.0, |time| time.0),
        cache_bytes: nodes.cache.unwrap_or(f64::MAX),
        queue: nodes.queue.unwrap_or(1.0),
        busy_message: time(busy_message),
        busy_frame: time(nodes.busy_frame),
        busy: time(nodes.busy),
        busy_byte_ns: nodes.busy_byte.map_or(0.0, |time| time.0),
        frames: nodes.bits_per_second.map(|rate| MessageFrames {
            bits_per_second: rate.0,
            header_bytes: nodes.header,
            first_payload_bytes: nodes.first_payload,
            payload_bytes: nodes.payload,
        }),
    }
}
