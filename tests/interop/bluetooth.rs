//! Bluetooth with BlueZ itself, in a guest: a channel found by its service, a service of ours that others find, the
//! reported facts of a connection, and a controller that vanishes. BlueZ's own tools verify the results.

use super::modules::runs;
use super::shared_guests::RADIOS;

/// A bus that permits all, and the daemon.
pub const DAEMON: &str = "
    mkdir -p /var /run/dbus; ln -s /run /var/run
    cat >/etc/dbus.conf <<END
    <busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>
    <policy context='default'><allow user='*'/><allow send_destination='*'/><allow receive_sender='*'/><allow own='*'/></policy></busconfig>
END
    dbus-daemon --config-file=/etc/dbus.conf --nofork --nopidfile >/dev/null 2>&1 &
    sleep 1
    bluetoothd --compat --nodetach >/dev/null 2>&1 &
    sleep 2
    for adapter in hci0 hci1; do hciconfig $adapter up && hciconfig $adapter piscan || exit 9; done";

pub const NAMES: &str = "
    controllers=$!
    remote=$(hciconfig hci0 | grep -o '..:..:..:..:..:..' | head -1) local_adapter='adapter=hci1' json='-q --json -'";

/// `sdptool` offers a service that is not ours on the channel of one of ours.
pub const SERVICES: &str = "
    linkgauge latency rfcomm://$remote?$local_adapter -n 1
    linkgauge serve -q rfcomm://any/5?uuid=1101
    linkgauge serve --protocol echo rfcomm://any/7 >/tmp/printed & plain=$!
    sleep 1; kill -INT $plain; wait $plain; echo printed: $(cat /tmp/printed) >&2
    <DAEMON>
    linkgauge serve --protocol echo rfcomm://any/5 rfcomm://any?uuid=8ce255c0-200a-11e0-ac64-0800200c9a66 >/tmp/printed & server=$!
    sleep 1
    echo printed: $(cat /tmp/printed) >&2
    sdptool add --channel=5 DUN >&2
    common='--protocol echo -n 20'
    linkgauge latency rfcomm://$remote?$local_adapter $common $json
    linkgauge latency rfcomm://$remote?$local_adapter\\&uuid=8ce255c0-200a-11e0-ac64-0800200c9a66 $common $json
    linkgauge latency rfcomm://$remote?$local_adapter\\&uuid=0x1103 $common $json
    linkgauge latency rfcomm://$remote?$local_adapter\\&uuid=1105 $common
    sdptool -i hci1 browse $remote | sed 's/^/before: /' >&2
    kill -INT $server; wait $server; sleep 1
    sdptool -i hci1 browse $remote | sed 's/^/after: /' >&2
    exit 0";

#[test]
fn services_are_found_and_announced() {
    let ended = RADIOS.ended("bluetooth services");
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let runs = runs(&ended.stdout, &ended.stderr);
    assert_eq!(runs.len(), 3, "{}", ended.stderr);
    for (run, channel) in runs.iter().zip(["5", "1", "5"]) {
        let case = &run["cases"][0];
        assert_eq!((&case["complete"], &case["received"]), (&true.into(), &20.into()), "{case}");
        let remote = case["effective"]["remote"].as_str().unwrap();
        assert_eq!(remote.rsplit_once('/').unwrap().1, channel, "{case}");
    }
    let printed: Vec<&str> = ended.stderr.lines().filter_map(|line| line.strip_prefix("printed: ")).collect();
    assert_eq!(printed[0], "serving echo on rfcomm://any/7");
    assert!(
        printed[1].starts_with("serving echo on rfcomm://any/5?uuid=1101 serving echo on "),
        "{printed:?}"
    );
    for line in [
        "looking up the channel of service 1101: connect: no server uses PSM 1 there",
        "the service cannot be registered (/run/dbus/system_bus_socket: No such file",
        "looking up the channel of service 1105: the device does not offer it. 'sdptool browse ",
    ] {
        assert!(ended.stderr.contains(line), "{line} is not in: {}", ended.stderr);
    }
    let message = |when: &str| -> Vec<&str> {
        let lines = ended.stderr.lines().filter_map(|line| line.strip_prefix(when));
        lines.map(str::trim).collect()
    };
    let before = message("before: ");
    assert_eq!(before.iter().filter(|line| **line == "Service Name: linkgauge").count(), 2, "{before:?}");
    assert!(before.contains(&"\"Serial Port\" (0x1101)"), "{before:?}");
    let after = message("after: ");
    assert!(!after.is_empty() && !after.contains(&"Service Name: linkgauge"), "{after:?}");
}

/// While a run lasts, its connection is asked for by others; then the controllers go.
pub const CONNECTION: &str = "
    mount -t debugfs none /sys/kernel/debug
    linkgauge serve -q --protocol echo rfcomm://any/5 l2cap://any/4097 & server=$!
    sleep 1
    linkgauge latency l2cap://$remote/4097?$local_adapter --protocol echo -n 20 $json
    linkgauge latency rfcomm://$remote/5?$local_adapter --protocol echo -n 1M --timeout 2s $json & run=$!
    sleep 2
    hcitool rssi $remote >&2; hcitool con >&2
    kill -KILL $controllers; wait $run; echo vanished: $? >&2
    linkgauge latency rfcomm://$remote/5?$local_adapter --protocol echo -n 1
    linkgauge doctor --all >&2
    kill -INT $server; wait $server";

#[test]
fn a_connection_is_announced_until_its_controller_vanishes() {
    let ended = RADIOS.ended("bluetooth connection");
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let runs = runs(&ended.stdout, &ended.stderr);
    assert_eq!(runs.len(), 2, "{}", ended.stderr);
    let signal = ended.stderr.lines().find_map(|line| line.strip_prefix("RSSI return value: "));
    let signal: i64 = signal.unwrap_or_else(|| panic!("{}", ended.stderr)).parse().unwrap();
    let connection = ended.stderr.lines().find(|line| line.trim_start().starts_with("< ACL")).unwrap();
    for case in runs.iter().map(|run| &run["cases"][0]) {
        let got = &case["effective"];
        assert_eq!(got["adapter"], "hci1", "{case}");
        assert_eq!((&got["rssi_db"], &got["link_type"]), (&signal.into(), &"BR/EDR (ACL)".into()), "{case}");
        assert_eq!(got["role"] == "central", connection.contains("CENTRAL"), "{connection}");
        assert_eq!(got["encrypted"], connection.contains("ENCRYPT"), "{connection}");
    }
    let [messages, stream] = [0, 1].map(|run| &runs[run]["cases"][0]);
    assert_eq!(messages["effective"]["mtu_bytes"], 672);
    for name in ["frame_bytes", "send_credits", "receive_credits"] {
        assert!(stream["effective"][name].as_u64().is_some_and(|number| number > 0), "{name}: {stream}");
    }
    // The results so far are saved, and nothing waits longer than its timeout.
    assert_eq!(stream["complete"], false);
    assert!(stream["received"].as_u64().unwrap() > 50, "{stream}");
    let elapsed = stream["elapsed_ns"].as_u64().unwrap();
    assert!(elapsed < 8_000_000_000, "{elapsed} ns");
    for line in ["vanished: 2", "this host has no adapter hci1", "this host has no Bluetooth adapter"] {
        assert!(ended.stderr.contains(line), "{line} is not in: {}", ended.stderr);
    }
}
