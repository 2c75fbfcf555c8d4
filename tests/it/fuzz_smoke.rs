//! The fuzz targets on any toolchain, for a moment: the same functions as `fuzz/`, fed with changed seeds. The same
//! seed of the generator every time, so that a failure comes back.

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::process::Command;

use fastrand::Rng;

use crate::memory::status_kib;

#[path = "../../fuzz/src/targets.rs"]
mod targets;

/// A test for each target, with its number of inputs: a second or two in a debug build.
macro_rules! targets {
    ($($(#[$condition:meta])? $name:ident: $rounds:literal,)*) => {
        const TARGETS: &[&str] = &[$(stringify!($name)),*];
        $(
            $(#[$condition])?
            #[test]
            fn $name() {
                smoke(stringify!($name), targets::$name, $rounds);
            }
        )*
    };
}

targets! {
    endpoint: 100_000,
    plan: 20_000,
    session: 30_000,
    run_document: 2_000,
    ask: 30_000,
    rfc2217: 30_000,
    pakbus: 1_000,
    import: 3_000,
    iperf3: 20_000,
    iperf2: 20_000,
    pakbus_client: 3_000,
    netio: 2_000,
    reflectors: 5_000,
    tipc_bench: 2_000,
    linx: 30_000,
    radio: 30_000,
    client: 300,
    session_client: 300,
    session_server: 500,
    memory: 10,
    linx_bmark: 1_000,
    compare: 200,
    store_document: 3_000,
    guest_output: 1_000,
    #[cfg(feature = "fleet")]
    fleet: 500,
    mesh: 200,
    monitor_input: 20_000,
    quantities: 100_000,
    echo_comparison: 20,
    uart: 5_000,
    probes: 10_000,
    path: 3_000,
    responder: 20_000,
}

#[test]
fn every_fuzz_target_runs() {
    let directory = format!("{}/fuzz/fuzz_targets", env!("CARGO_MANIFEST_DIR"));
    let programs = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let programs: BTreeSet<String> =
        programs.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    let targets: BTreeSet<String> = TARGETS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(targets, programs);
    let manifest = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let listed =
        manifest["bin"].as_array().unwrap().iter().map(|bin| bin["name"].as_str().unwrap().to_owned());
    assert_eq!(targets, listed.collect());
}

/// Set in the process whose memory is limited.
const LIMITED: &str = "LINKGAUGE_TEST_LIMITED_MEMORY";

/// What the process may take beyond its start: the budget of the target's server, and what clients and inputs need.
const MEMORY_BYTES: u64 = 200 << 20;

/// Does nothing, unless it is asked to. A larger allocation fails, which ends the process.
#[test]
fn both_roles_in_limited_memory() {
    if std::env::var_os(LIMITED).is_none() {
        return;
    }
    let most = Some(1024 * status_kib("self", "VmSize") + MEMORY_BYTES);
    let limit = rustix::process::Rlimit { current: most, maximum: most };
    rustix::process::setrlimit(rustix::process::Resource::As, limit).unwrap();
    smoke("memory", targets::memory, 150);
    smoke("session_server", targets::session_server, 200);
    smoke("session_client", targets::session_client, 100);
    smoke("client", targets::client, 100);
    println!("\nall of it fits");
}

#[test]
fn no_number_of_a_peer_decides_the_memory_of_either_role() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "fuzz_smoke::both_roles_in_limited_memory", "--nocapture", "--test-threads=1"])
        .env(LIMITED, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).contains("all of it fits");
    assert!(said && output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn smoke(name: &str, target: fn(&[u8]), rounds: usize) {
    let seeds = seeds(name);
    let mut random = Rng::with_seed(1);
    let changed = (0..rounds).map(|_| changed(&seeds, &mut random));
    for input in seeds.iter().cloned().chain(changed) {
        if catch_unwind(|| target(&input)).is_err() {
            panic!("{name} failed on b\"{}\"", input.escape_ascii());
        }
    }
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let directory = format!("{}/fuzz/corpus-seed/{name}", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{directory}: {error}"));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{directory} holds no seed");
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// One of the seeds after a few changes: bits, bytes, keywords of parsers, parts cut, duplicated or crossed.
fn changed(seeds: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    const WORDS: [&[u8]; 14] = [
        b"0",
        b"-1",
        b"18446744073709551616",
        b"1e308",
        b"NaN",
        b"null",
        b"\"\"",
        b"[]",
        b"{}",
        b"://",
        b"?",
        b"%00",
        b"\xff\xff\xff\xff",
        b"LGframe1",
    ];
    let mut bytes = random.choice(seeds).cloned().unwrap_or_default();
    for _ in 0..random.usize(1..6) {
        let at = random.usize(0..=bytes.len());
        let end = (at + random.usize(0..40)).min(bytes.len());
        match random.u8(0..7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.u8(0..8),
            1 if at < bytes.len() => bytes[at] = random.u8(..),
            2 => drop(bytes.splice(at..end, WORDS[random.usize(0..WORDS.len())].iter().copied())),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let chunk = bytes[at..end].to_vec();
                bytes.splice(at..at, chunk);
            }
            5 => bytes.truncate(at),
            _ => {
                let other = random.choice(seeds).cloned().unwrap_or_default();
                bytes.truncate(at);
                bytes.extend_from_slice(&other[at.min(other.len())..]);
            }
        }
    }
    bytes
}
