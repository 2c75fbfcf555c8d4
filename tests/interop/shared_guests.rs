//! Guests that several tests share, because a guest takes some seconds of processor time to start.
//!
//! The scripts of a guest run one after the other, each with processes, `/tmp` and `/run` of its own, which end with it. The first
//! test that asks for a result runs the guest; each test judges the output of its script.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::guest::guest;
use super::program::Ended;
use super::{bluetooth, guest, loaded_link, modules, wifi};

/// What each script printed, by its name, and its exit status.
pub struct SharedGuest(LazyLock<BTreeMap<&'static str, Ended>>);

impl SharedGuest {
    pub fn ended(&self, script: &str) -> &Ended {
        &self.0[script]
    }
}

/// Network devices of the kernel that models whole networks; no transport needs a module.
pub static NETWORKS: SharedGuest = SharedGuest(LazyLock::new(|| {
    let router = loaded_link::ROUTER;
    let scripts = [
        ("netem", guest::NETEM.to_owned()),
        ("relays", guest::RELAYS.to_owned()),
        ("reference", format!("{router}\n{}", loaded_link::REFERENCE)),
        ("fq_codel", format!("{router}\n{}", loaded_link::FQ_CODEL)),
        ("asymmetric", loaded_link::ASYMMETRIC.to_owned()),
        ("queues of both ends", loaded_link::QUEUES_OF_BOTH_ENDS.to_owned()),
        ("missing modules", modules::without_modules()),
    ];
    in_turn("veth,sch_netem,sch_tbf,sch_fq_codel", "ip,tc,iperf3,irtt,unshare", "--net", &scripts)
}));

/// The transports of modules that work in any network namespace.
pub static MODULES: SharedGuest = SharedGuest(LazyLock::new(|| {
    let scripts = [
        ("contract", modules::contract(modules::SCHEMES[0])),
        ("peers", modules::PEERS.to_owned()),
        ("benchmark", modules::BENCHMARK.to_owned()),
        ("nodes", modules::NODES.to_owned()),
    ];
    let modules = "sctp,vsock_loopback,tipc,veth,sch_ingress,cls_u32,act_pedit,act_csum";
    in_turn(modules, &format!("{},ip,tc,tipc", this_program()), "--net", &scripts)
}));

/// Simulated radios, which the kernel has only in its first network namespace. Without the modules of the cipher interface the
/// virtual controllers do not start.
pub static RADIOS: SharedGuest = SharedGuest(LazyLock::new(|| {
    let controllers = modules::CONTROLLERS;
    let named = format!("{controllers}\n{}", bluetooth::NAMES);
    let access_point = format!("{}{}", wifi::TWO_RADIOS, wifi::ACCESS_POINT);
    let scripts = [
        ("contract", format!("{controllers}\n{}", modules::contract(modules::SCHEMES[1]))),
        ("bluetooth", format!("{controllers}\n{}", modules::RADIOLESS)),
        (
            "bluetooth services",
            format!("{named}\n{}", bluetooth::SERVICES.replace("<DAEMON>", bluetooth::DAEMON)),
        ),
        ("bluetooth connection", format!("{named}\n{}", bluetooth::CONNECTION)),
        ("wifi changes", format!("{access_point}{}", wifi::CHANGES)),
        ("wifi networks", format!("{access_point}{}", wifi::NETWORKS)),
    ];
    let modules = "rfcomm,hci_vhci,algif_skcipher,algif_hash,cmac,ecb,aes_generic,mac80211_hwsim";
    let tools = "btvirt,hciconfig,hcitool,sdptool,bluetoothd,dbus-daemon,iw,hostapd,ip";
    in_turn(modules, &format!("{},{tools}", this_program()), "", &scripts)
}));

fn this_program() -> String {
    std::env::current_exe().unwrap().display().to_string()
}

/// Runs a script with nothing left of those before it. Its shell has a path, because Busybox would take its own.
const ALONE: &str = "
    alone() {
        unshare --mount --pid --fork --mount-proc $namespaces /bin/sh -c \"
            mount -t tmpfs tmp /tmp; mount -t tmpfs run /run; mkdir /run/netns; cd /tmp; ip link set lo up
            $1\"
        printf '\\037%s\\036' $? >&2; printf '\\036'
    }";

/// Runs named scripts in one guest, each in further `namespaces` besides those of its processes and mounts.
fn in_turn(
    modules: &str,
    tools: &str,
    namespaces: &str,
    scripts: &[(&'static str, String)],
) -> BTreeMap<&'static str, Ended> {
    let quoted = scripts.iter().map(|(_, script)| format!("alone '{}'\n", script.replace('\'', "'\\''")));
    let whole =
        guest(modules, tools, &format!("namespaces={namespaces}{ALONE}\n{}", quoted.collect::<String>()));
    let outputs = whole.stdout.split('\x1e').zip(whole.stderr.split('\x1e'));
    let ended = scripts.iter().zip(outputs).map(|((name, _), (stdout, stderr))| {
        let ended = stderr.split_once('\x1f');
        let (stderr, status) = ended.unwrap_or_else(|| panic!("the guest ended during '{name}': {stderr}"));
        (*name, Ended { status: status.parse().ok(), stdout: stdout.to_owned(), stderr: stderr.to_owned() })
    });
    ended.collect()
}
