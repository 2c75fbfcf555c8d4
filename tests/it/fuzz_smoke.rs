//! The fuzz targets on any toolchain, for a moment: the same functions as `fuzz/`, fed with changed seeds. The same
//! seed of the generator every time, so that a failure comes back.

use std::panic::catch_unwind;
use std::path::Path;

use fastrand::Rng;

#[path = "../../fuzz/src/targets.rs"]
mod targets;

/// How many inputs each target gets: a second or two of a debug build.
const ROUNDS: [(&str, usize); 15] = [
    ("endpoint", 100_000),
    ("plan", 20_000),
    ("session", 30_000),
    ("run_document", 2_000),
    ("ask", 30_000),
    ("rfc2217", 30_000),
    ("pakbus", 1_000),
    ("import", 3_000),
    ("iperf3", 20_000),
    ("pakbus_client", 3_000),
    ("netio", 2_000),
    ("reflectors", 5_000),
    ("tipc_bench", 2_000),
    ("linx", 30_000),
    ("radio", 30_000),
];

#[test]
fn endpoint() {
    smoke("endpoint");
}

#[test]
fn plan() {
    smoke("plan");
}

#[test]
fn session() {
    smoke("session");
}

#[test]
fn run_document() {
    smoke("run_document");
}

#[test]
fn ask() {
    smoke("ask");
}

#[test]
fn rfc2217() {
    smoke("rfc2217");
}

#[test]
fn pakbus() {
    smoke("pakbus");
}

#[test]
fn import() {
    smoke("import");
}

#[test]
fn iperf3() {
    smoke("iperf3");
}

#[test]
fn netio() {
    smoke("netio");
}

#[test]
fn pakbus_client() {
    smoke("pakbus_client");
}

#[test]
fn reflectors() {
    smoke("reflectors");
}

#[test]
fn tipc_bench() {
    smoke("tipc_bench");
}

#[test]
fn linx() {
    smoke("linx");
}

#[test]
fn radio() {
    smoke("radio");
}

#[test]
fn every_target_is_run_here() {
    let listed: Vec<&str> = targets::TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed, ROUNDS.map(|(name, _)| name), "give every target a test and its rounds");
    for name in listed {
        let program = format!("{}/fuzz/fuzz_targets/{name}.rs", env!("CARGO_MANIFEST_DIR"));
        assert!(Path::new(&program).is_file(), "{program} is missing");
    }
}

fn smoke(name: &str) {
    let (_, target) = targets::TARGETS.iter().find(|(target, _)| *target == name).unwrap();
    let (_, rounds) = ROUNDS.iter().find(|(target, _)| *target == name).unwrap();
    let seeds = seeds(name);
    let mut random = Rng::with_seed(1);
    let changed = (0..*rounds).map(|_| changed(&seeds, &mut random));
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

/// One of the seeds after a few changes: bits, bytes, words that parsers care for, pieces cut, doubled or crossed.
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
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
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
