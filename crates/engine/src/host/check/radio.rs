//! Checks of the radios: power saving of wireless interfaces, which makes a quiet link slow, and Bluetooth
//! pairing.

use serde_json::{Map, Value};

use super::Check;
use crate::host::{interfaces, radio, read};
use linkgauge_model::warnings::WEAK_WIFI_SIGNAL_DBM;

pub(super) fn wifi() -> Check {
    let facts = interfaces::names().into_iter().map(|name| interfaces::facts(&name));
    judge_wifi(&facts.filter(|facts| facts.get("wireless") == Some(&true.into())).collect::<Vec<_>>())
}

fn judge_wifi(interfaces: &[Map<String, Value>]) -> Check {
    const NAME: &str = "Wi-Fi";
    let radio = |facts: &Map<String, Value>, name: &str| facts.get("radio")?.get(name).cloned();
    let named = |facts: &Map<String, Value>| {
        facts.get("interface").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let sleeper = interfaces.iter().find(|facts| radio(facts, "power_save") == Some(true.into()));
    if let Some(name) = sleeper.map(named) {
        return Check::doubtful(
            NAME,
            format!(
                "{name} saves power: packets that arrive while it sleeps wait for a beacon, 100 ms and more"
            ),
            format!("sudo iw dev {name} set power_save off"),
        );
    }
    let signal = |facts: &Map<String, Value>| radio(facts, "signal_dbm").and_then(|signal| signal.as_i64());
    let weakest = interfaces.iter().filter_map(|facts| Some((signal(facts)?, named(facts)))).min();
    match weakest {
        Some((dbm, name)) if dbm < WEAK_WIFI_SIGNAL_DBM => Check::doubtful(
            NAME,
            format!("{name} receives its network with {dbm} dBm: frames are lost and sent again"),
            "move closer to the access point, or use a cable",
        ),
        Some((dbm, name)) => Check::good(NAME, format!("{name} is awake and receives {dbm} dBm")),
        None if interfaces.is_empty() => Check::good(NAME, "no interface"),
        None => Check::good(NAME, "connected to nothing"),
    }
}

/// Whether a device is paired: some services require pairing before a connection.
pub(super) fn bluetooth() -> Check {
    // Connections are listed beside the adapters; their names contain a colon.
    let adapters = read::file_names("/sys/class/bluetooth").iter().filter(|name| !name.contains(':')).count();
    judge_bluetooth(adapters, radio::count_bluetooth_pairs())
}

fn judge_bluetooth(adapters: usize, pairs: Option<usize>) -> Check {
    let finding = match (adapters, pairs) {
        (0, _) => "no adapter".to_owned(),
        (_, None) => "only root and 'bluetoothctl devices Paired' see the paired devices".to_owned(),
        (_, Some(0)) => "no device is paired; some need that: bluetoothctl pair ADDRESS".to_owned(),
        (_, Some(pairs)) => format!("paired with {pairs}"),
    };
    Check::good("Bluetooth", finding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paired_devices_are_reported() {
        let finding_of = |adapters, pairs| judge_bluetooth(adapters, pairs).finding;
        assert_eq!(finding_of(0, Some(2)), "no adapter");
        assert_eq!(finding_of(1, Some(0)), "no device is paired; some need that: bluetoothctl pair ADDRESS");
        assert_eq!(finding_of(1, Some(2)), "paired with 2");
        assert!(finding_of(2, None).contains("bluetoothctl devices Paired"));
    }

    #[test]
    fn the_worst_interface_counts() {
        let interface = |name: &str, radio: Value| {
            let facts = serde_json::json!({ "interface": name, "wireless": true, "radio": radio });
            facts.as_object().unwrap().clone()
        };
        let awake =
            |name, dbm: i64| interface(name, serde_json::json!({ "power_save": false, "signal_dbm": dbm }));
        let asleep = interface("wlan1", serde_json::json!({ "power_save": true, "signal_dbm": -40 }));
        let checks = [
            judge_wifi(&[]),
            judge_wifi(&[interface("wlan0", serde_json::json!({ "mode": "managed" }))]),
            judge_wifi(&[awake("wlan0", -50)]),
            judge_wifi(&[awake("wlan0", -50), awake("wlan2", -80)]),
            judge_wifi(&[awake("wlan0", -80), asleep]),
        ];
        let shown =
            checks.map(|check| format!("{:?} | {} | {:?}", check.verdict, check.finding, check.remedy));
        insta::assert_snapshot!(shown.join("\n"), @r#"
        Good | no interface | None
        Good | connected to nothing | None
        Good | wlan0 is awake and receives -50 dBm | None
        Doubtful | wlan2 receives its network with -80 dBm: frames are lost and sent again | Some("move closer to the access point, or use a cable")
        Doubtful | wlan1 saves power: packets that arrive while it sleeps wait for a beacon, 100 ms and more | Some("sudo iw dev wlan1 set power_save off")
        "#);
    }
}
