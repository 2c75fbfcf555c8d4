//! Names that documents of versions before 0.1 use inside maps. Fields have their old names as aliases.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::stats::Interval;

/// Old and new names of requested and effective settings.
const SETTINGS: [(&str, &str); 15] = [
    ("peer", "protocol"),
    ("peer_options", "protocol_options"),
    ("far_tool", "server_tool"),
    ("far_time_stamps", "server_time_stamps"),
    ("far_clock_synchronised", "server_clock_synchronised"),
    ("far_clock_error_seconds", "server_clock_error_seconds"),
    ("far_retransmits", "server_retransmits"),
    ("far_congestion_control", "server_congestion_control"),
    ("far_cpu_percent", "server_cpu_percent"),
    ("ttl_at_far_end", "ttl_at_server"),
    ("far_link_address", "remote_link_address"),
    ("own_link_address", "local_link_address"),
    ("peer_process", "remote_process"),
    ("line_asked", "line_requested"),
    ("line_asked_bits_per_byte", "line_requested_bits_per_byte"),
];

/// Reads settings, also with old names.
pub(super) fn read_settings<'de, D: Deserializer<'de>>(from: D) -> Result<Map<String, Value>, D::Error> {
    let mut settings = Map::deserialize(from)?;
    for (old, new) in SETTINGS {
        rename(&mut settings, old, new);
    }
    if let Some(Value::Object(cpus)) = settings.get_mut("pin") {
        rename(cpus, "near", "client");
        rename(cpus, "far", "server");
    }
    if settings.get("wait").is_some_and(|wait| wait == "spin") {
        settings.insert("wait".to_owned(), "busy_poll".into());
    }
    Ok(settings)
}

fn rename(map: &mut Map<String, Value>, old: &str, new: &str) {
    if let Some(value) = map.remove(old) {
        map.insert(new.to_owned(), value);
    }
}

/// Reads intervals by the names of their statistics.
pub(super) fn read_intervals<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, Interval>, D::Error> {
    let mut intervals = BTreeMap::<String, Interval>::deserialize(from)?;
    if let Some(reverse) = intervals.remove("throughput_back_bps") {
        intervals.insert("throughput_reverse_bps".to_owned(), reverse);
    }
    Ok(intervals)
}
