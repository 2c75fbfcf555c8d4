//! Warnings about wireless links: Wi-Fi and Bluetooth.

use serde_json::{Map, Value};

use crate::run::{CaseResult, Warning, WarningCode};

/// Signal (dBm) below which Wi-Fi loses frames and retransmits them, even on an idle channel.
pub const WEAK_WIFI_SIGNAL_DBM: i64 = -70;

/// Margin below the preferred signal range of a Bluetooth controller (dB).
const WEAK_BLUETOOTH_SIGNAL_DB: i64 = -10;

/// Frequencies below this (MHz) are in the band that Bluetooth and Wi-Fi share.
const MAX_SHARED_BAND_MHZ: i64 = 2500;

/// The radio facts of the interface that a link uses.
fn radio_fact<'a>(got: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    got.get("interface")?.get("radio")?.get(name)
}

fn interface_name(got: &Map<String, Value>) -> &str {
    let name = got.get("interface").and_then(|interface| interface.get("interface")?.as_str());
    name.unwrap_or("the interface")
}

pub(crate) fn wifi_power_save(case: &CaseResult) -> Option<Warning> {
    let saves = radio_fact(&case.effective, "power_save").and_then(Value::as_bool) == Some(true);
    let name = interface_name(&case.effective);
    (saves && case.workload == "latency").then(|| {
        Warning::new(
            WarningCode::WifiPowerSave,
            format!(
                "{name} sleeps between messages: messages that arrive then wait for the next beacon, 100 ms and more"
            ),
            format!("sudo iw dev {name} set power_save off"),
        )
    })
}

pub(crate) fn wifi_band(got: &Map<String, Value>) -> Option<Warning> {
    let megahertz = radio_fact(got, "frequency_mhz").and_then(Value::as_i64)?;
    let channel = radio_fact(got, "channel").and_then(Value::as_i64);
    let channel = channel.map_or(format!("{megahertz} MHz"), |channel| format!("channel {channel}"));
    let own = radio_fact(got, "bluetooth_adapter").and_then(Value::as_bool) == Some(true);
    let whose =
        if own { "the Bluetooth adapter of this host and neighbours" } else { "Bluetooth and neighbours" };
    (megahertz < MAX_SHARED_BAND_MHZ).then(|| {
        Warning::new(
            WarningCode::WifiBand24Ghz,
            format!("{} is on {channel} at 2.4 GHz, where {whose} send as well", interface_name(got)),
            "use a network at 5 or 6 GHz, or switch Bluetooth off meanwhile: rfkill block bluetooth",
        )
    })
}

pub(crate) fn weak_signal(got: &Map<String, Value>) -> Option<Warning> {
    let wifi =
        radio_fact(got, "signal_dbm").and_then(Value::as_i64).filter(|&dbm| dbm < WEAK_WIFI_SIGNAL_DBM);
    let wifi = wifi.map(|dbm| format!("{} receives {dbm} dBm", interface_name(got)));
    let bluetooth = || {
        let below = got.get("rssi_db").and_then(Value::as_i64).filter(|&db| db < WEAK_BLUETOOTH_SIGNAL_DB)?;
        Some(format!("the Bluetooth signal is {} dB below the preferred range of its controller", -below))
    };
    wifi.or_else(bluetooth).map(|text| {
        Warning::new(
            WarningCode::WeakSignal,
            format!("{text}: frames are lost and sent again"),
            "move the two closer together, away from metal and walls",
        )
    })
}
