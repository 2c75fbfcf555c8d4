//! Agents, the hub and the collector are killed in the middle of a mesh, and the network between them is split.
//!
//! `docs/fleet.md` states the number of kills that was tried, which takes some minutes:
//!
//! ```sh
//! LINKGAUGE_TEST_KILLS=50 cargo test --features fleet --test interop kills::
//! ```

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use fastrand::Rng;

use super::network::Network;
use super::setting::{Agent, Setting};
use crate::program::Running;

const HOSTS: usize = 4;

/// The tests of all pairs.
const TESTS: usize = 2 * HOSTS * (HOSTS - 1);

/// Another number of kills than [`FEW_KILLS`].
const KILLS: &str = "LINKGAUGE_TEST_KILLS";

/// Enough that agents, collector and hub are killed several times, and that each kind of split happens.
const FEW_KILLS: usize = 15;

/// The network or the hub stands still after this number of kills each time.
const KILLS_PER_SPLIT: usize = 5;

/// Kills while a round is carried out, roughly.
const KILLS_PER_ROUND: usize = 10;

fn collector(setting: &Setting) -> Running {
    let mut collect = setting.fleet_command(&["collect"], &["--store", &setting.store()]);
    Running(collect.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

fn pause(random: &mut Rng, milliseconds: std::ops::Range<u64>) {
    std::thread::sleep(Duration::from_millis(random.u64(milliseconds)));
}

/// A part of the fleet cannot reach the others for some seconds: longer than requests wait, and shorter or longer than a lease.
fn split(setting: &Setting, network: &Network, number: usize, random: &mut Rng) {
    const TIMES: std::ops::Range<u64> = 3000..12_000;
    match number % 3 {
        0 => {
            let cut = [random.usize(..HOSTS), random.usize(..HOSTS)];
            cut.iter().for_each(|host| network.set_link(*host, "down"));
            pause(random, TIMES);
            cut.iter().for_each(|host| network.set_link(*host, "up"));
        }
        1 => {
            network.set_isolated("on");
            pause(random, TIMES);
            network.set_isolated("off");
        }
        // Requests are carried out when no agent expects it any more.
        _ => setting.freeze_hub(Duration::from_millis(random.u64(TIMES))),
    }
}

#[test]
fn every_acknowledged_result_arrives_once_whatever_is_killed_or_cut() {
    let kills = std::env::var(KILLS).map_or(FEW_KILLS, |count| count.parse().unwrap());
    let rounds = 1 + kills / KILLS_PER_ROUND;
    let network = Network::new(HOSTS);
    network.at_hub(|| {
        let setting = Setting::in_network(&network, HOSTS);
        let mut agents: Vec<Agent> = setting.start_agents();
        setting.await_agents();
        let ordered =
            setting.fleet(&["run"], &["--valid", "5min", "--rounds", &rounds.to_string(), "--every", "15s"]);
        assert_eq!(ordered.status, Some(0), "{}", ordered.stderr);
        let mut collecting = collector(&setting);
        let mut random = Rng::with_seed(20_261_123);
        for kill in 0..kills {
            pause(&mut random, 300..1200);
            match kill % 5 {
                0 | 1 | 3 => {
                    let victim = agents.swap_remove(random.usize(..agents.len()));
                    let host = victim.host;
                    drop(victim);
                    pause(&mut random, 0..500);
                    agents.push(setting.start_agent(host));
                }
                2 => {
                    drop(collecting);
                    collecting = collector(&setting);
                }
                _ => {
                    setting.kill_hub();
                    pause(&mut random, 0..1500);
                    setting.start_hub();
                }
            }
            if (kill + 1) % KILLS_PER_SPLIT == 0 {
                split(&setting, &network, kill / KILLS_PER_SPLIT, &mut random);
            }
        }
        drop(collecting);
        setting.collect_all(rounds * TESTS);
        // Nothing more arrives.
        let last = setting.fleet(&["collect", "--once"], &["--store", &setting.store()]);
        assert_eq!(last.status, Some(0), "{}", last.stderr);
        let orders: BTreeSet<String> =
            setting.saved().iter().map(|run| run.id.rsplit('-').next().unwrap().to_owned()).collect();
        assert_eq!((orders.len(), setting.saved().len()), (rounds * TESTS, rounds * TESTS));
        let tests = setting.saved_tests();
        assert!(tests.len() == TESTS && tests.values().all(|count| *count == rounds), "{tests:#?}");
        assert_eq!(setting.results_on_hub() as usize, rounds * TESTS, "the hub stored each once");
        assert_eq!(setting.overlapping_rates(), 0);
    });
}
