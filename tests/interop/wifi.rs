//! Wireless networks, in a guest with simulated radios: the facts of the interface in a run, compared with `iw`.

use serde_json::Value;

use super::modules::runs;
use super::shared_guests::RADIOS;

/// Two radios, of which one moves to a namespace of its own: on one host nothing would pass the air. It comes back from another
/// script's namespace some time after the end of this script.
pub const TWO_RADIOS: &str = "
    until iw phy phy1 info >/dev/null 2>&1; do sleep 0.1; done
    ip netns add b
    iw phy phy1 set netns name b
    on() { ip netns exec b \"$@\"; }
    on ip link set lo up
    measure() { on linkgauge latency udp://10.8.0.1:7007 --protocol echo --size 32 -n 200 -q --json -; }
    ask() { on iw dev wlan1 info; on iw dev wlan1 link; on iw dev wlan1 get power_save; on iw dev wlan1 station dump; }";

/// An access point, and a station that saves power.
pub const ACCESS_POINT: &str = "
    printf 'interface=wlan0\\nssid=gauge\\nhw_mode=g\\nchannel=6\\nieee80211n=1\\nwmm_enabled=1\\n' >/tmp/access
    hostapd -B -P /tmp/access.pid /tmp/access >/dev/null || exit 9
    ip address replace 10.8.0.1/24 dev wlan0
    on ip link set wlan1 up; on iw dev wlan1 connect -w gauge >/dev/null || exit 9
    on ip address add 10.8.0.2/24 dev wlan1
    on iw dev wlan1 set power_save on";

/// Through the access point, then without it.
pub const NETWORKS: &str = "
    linkgauge serve -q --protocol echo udp://0.0.0.0:7007 & server=$!
    sleep 1
    measure; ask >&2
    on linkgauge doctor >&2
    echo ==== >&2
    on iw dev wlan1 set power_save off
    measure; ask >&2
    on linkgauge doctor >&2
    echo ==== >&2
    kill $(cat /tmp/access.pid); sleep 1
    ip link set wlan0 down; on ip link set wlan1 down
    iw dev wlan0 set type ibss || exit 9; on iw dev wlan1 set type ibss || exit 9
    ip link set wlan0 up; on ip link set wlan1 up
    # Without an address of its own the network would be looked for first, for seven seconds.
    join='ibss join gauge 2412 HT20 fixed-freq 02:00:00:00:00:99'
    iw dev wlan0 $join; on iw dev wlan1 $join
    ip address replace 10.8.0.1/24 dev wlan0; on ip address replace 10.8.0.2/24 dev wlan1
    sleep 1
    measure; ask >&2
    kill -INT $server; wait $server";

/// The text after `label` in the output of `iw`.
fn message<'a>(printed: &'a str, label: &str) -> &'a str {
    let line = printed.lines().find_map(|line| line.trim().strip_prefix(label));
    line.unwrap_or_else(|| panic!("{label} is not in: {printed}")).trim()
}

#[test]
fn a_run_reports_its_radio() {
    let ended = RADIOS.ended("wifi networks");
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let runs = runs(&ended.stdout, &ended.stderr);
    assert_eq!(runs.len(), 3, "{}", ended.stderr);
    let printed: Vec<&str> = ended.stderr.split("====").collect();
    for (run, printed) in runs.iter().zip(&printed) {
        let case = &run["cases"][0];
        assert_eq!((&case["complete"], &case["lost"]), (&true.into(), &0.into()), "{case}");
        let radio = &case["effective"]["interface"]["radio"];
        let mode = if message(printed, "type ") == "IBSS" { "ad-hoc" } else { message(printed, "type ") };
        assert_eq!(radio["mode"], mode);
        let channel = format!(
            "{} ({} MHz), width: {} MHz",
            radio["channel"], radio["frequency_mhz"], radio["width_mhz"]
        );
        assert!(message(printed, "channel ").starts_with(&channel), "{radio} {printed}");
        assert_eq!(format!("{} dBm", radio["signal_dbm"]), message(printed, "signal:"), "{radio}");
        // Rates change while one measures.
        assert!(radio["transmit_rate_bps"].as_u64() >= Some(1_000_000), "{radio}");
        assert!(codes(case).contains(&"wifi_band_2_4_ghz"), "{case}");
    }
    let [asleep, awake, ad_hoc] = [0, 1, 2].map(|run| &runs[run]["cases"][0]);
    for (case, printed, saves) in [(asleep, printed[0], true), (awake, printed[1], false)] {
        let radio = &case["effective"]["interface"]["radio"];
        assert_eq!(
            message(printed, "tx bitrate:").contains("MCS"),
            radio["standard"] == "802.11n",
            "{radio} {printed}"
        );
        assert_eq!(message(printed, "Power save:"), if saves { "on" } else { "off" });
        assert_eq!(radio["power_save"], saves);
        assert_eq!(codes(case).contains(&"wifi_power_save"), saves, "{case}");
        assert_eq!(printed.contains("Try: sudo iw dev wlan1 set power_save off"), saves, "{printed}");
    }
    assert_eq!(ad_hoc["effective"]["interface"]["radio"].get("power_save"), None);
}

fn codes(case: &Value) -> Vec<&str> {
    let warnings = case["warnings"].as_array().unwrap();
    warnings.iter().map(|warning| warning["code"].as_str().unwrap()).collect()
}

/// No driver of the guest delays interrupts.
pub const CHANGES: &str = "
    export LINKGAUGE_STORE=/tmp/runs.sqlite
    linkgauge serve -q --protocol echo udp://0.0.0.0:7007 & server=$!
    sleep 1
    on linkgauge explain udp://10.8.0.1:7007 --protocol echo --allow-change power_save=off --time 12s --json -
    on iw dev wlan1 get power_save >&2
    kill -INT $server; wait $server
    echo ==== >&2
    linkgauge latency udp://10.8.0.1:7 --protocol echo -n 1 --allow-change rx-usecs=0";

#[test]
fn settings_of_interfaces_change_and_come_back() {
    let ended = RADIOS.ended("wifi changes");
    let [power_save, refusal] = ended.stderr.split("====").collect::<Vec<_>>()[..] else {
        panic!("{}", ended.stderr)
    };
    let explanation: Value =
        serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
    let causes = explanation["causes"].as_array().unwrap();
    let cause = causes.iter().find(|cause| cause["id"] == "wifi_power_save");
    let cause = cause.unwrap_or_else(|| panic!("{explanation:#}"));
    assert!(!cause["pairs_ns"].as_array().unwrap().is_empty(), "it was tested: {cause:#}");
    assert_eq!(message(power_save, "Power save:"), "on", "restored");
    let expected = "lo has no rx-usecs: leave it out, or use another device";
    assert!(refusal.contains(expected) && ended.status == Some(2), "{refusal}");
}
