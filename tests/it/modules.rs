//! Links whose kernel modules this host may lack, in a guest that has them: the contract, and every peer over them.

use serde_json::Value;

use super::contract::IN_THE_GUEST;
use super::guest::guest;
use super::program::Ended;

const MODULES: &str = "sctp,vsock_loopback,tipc";

/// The run documents that a script wrote one after the other.
fn runs(ended: &Ended) -> Vec<Value> {
    let documents = serde_json::Deserializer::from_str(&ended.stdout).into_iter::<Value>();
    documents.map(|run| run.unwrap_or_else(|error| panic!("{error}\n{}", ended.stderr))).collect()
}

#[test]
fn they_keep_the_contract() {
    let tests = std::env::current_exe().unwrap();
    let name = tests.file_name().unwrap().to_str().unwrap();
    let filters = "contract:: shaper::every_link";
    let script = format!("{IN_THE_GUEST}=1 {name} {filters} --test-threads=1 2>&1");
    let ended = guest(MODULES, tests.to_str().unwrap(), &script);
    assert!(ended.status == Some(0), "{}{}", ended.stdout, ended.stderr);
    let passed = ended.stdout.rsplit_once("test result: ok. ").map_or("", |(_, counts)| counts);
    assert!(!passed.is_empty() && !passed.starts_with("0 "), "nothing was tried: {}", ended.stdout);
}

/// Our session and an echo on each of these links; nothing of what is sent may be missing or changed.
const PEERS: &str = "
    for where in sctp://127.0.0.1:PORT?rcvbuf=200k vsock://local:PORT; do
        own=\"$own $(echo $where | sed s/PORT/7100/)\" echo=\"$echo $(echo $where | sed s/PORT/7007/)\"
    done
    linkgauge serve -q $own & far=$!
    linkgauge serve -q --peer echo $echo & echoes=$!
    sleep 1
    json='-q --json -'
    linkgauge latency $own --size 65536 --count 50 $json
    linkgauge latency $echo --peer echo --size 1 --count 50 $json
    linkgauge throughput $own --direction both --size 1400 --time 50ms --probe off $json
    linkgauge throughput $echo --peer echo --direction loop --size 65536 --volume 1M $json
    kill -INT $far $echoes; wait $far; wait $echoes";

#[test]
fn peers_speak_over_them() {
    let ended = guest(MODULES, "", PEERS);
    let runs = runs(&ended);
    assert_eq!(runs.len(), 4, "{}", ended.stderr);
    for run in &runs {
        let cases = run["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 2, "{run}");
        for case in cases {
            let count = |name: &str| case[name].as_u64().unwrap_or(0);
            assert_eq!(case["complete"], true, "{case}\n{}", ended.stderr);
            assert!(count("received") > 0 && count("lost") == 0 && count("corrupt_bytes") == 0, "{case}");
            if case["workload"] == "latency" {
                assert_eq!(count("received"), 50, "{case}");
            }
        }
    }
}
