//! Responsiveness on the virtual clock, over links with a known queue.

use linkgauge::Registry;
use linkgauge::run::{CaseResult, Confidence, Run};

use crate::virtual_net::VirtualNet;

fn one(run: Run) -> CaseResult {
    assert!(run.is_complete(), "{:?}", run.cases[0].warnings);
    run.cases.into_iter().next().unwrap()
}

fn median_ns(figures: Option<&linkgauge::run::Figures>) -> f64 {
    figures.and_then(|figures| figures.times.latency_ns.as_ref()?.percentile("p50")).unwrap() as f64
}

#[test]
fn a_shared_queue_delays_probes_beside_the_load_and_in_it() {
    // A queue of 64 KiB at 1 Mbit/s: 504 ms, and 20 ms of delay behind it in both directions.
    let link = "mem://far?rate=1Mbit/s&delay=20ms&buffer=64Ki&share=yes";
    let queue_ns = (65_536.0 - 2_500.0) * 8e3;
    for direction in ["send", "receive"] {
        let case = one(VirtualNet::serving("linkgauge").run(&format!(
            "[[case]]\nurl = \"{link}\"\nworkload = \"responsiveness\"\ndirection = \"{direction}\"\ntime = \"30s\"\n\
             size = 1000\nparallel = 1\nprobe = \"20/s\"\nidle = \"1s\""
        )));
        let result = case.figures.responsiveness.unwrap();
        let added = case.figures.added_latency.unwrap();
        assert_eq!(added.idle_p50_ns, 40_224_000.0, "{direction}: 14 bytes in both directions");
        let beside = median_ns(case.under_load.as_ref());
        assert!(((beside - 40e6) / queue_ns - 1.0).abs() < 0.03, "{direction}: {beside}");
        let own = median_ns(Some(&case.figures));
        assert!(((own - 40e6) / queue_ns - 1.0).abs() < 0.06, "{direction}: {own}");
        // The goodput is that of the receiver from the first second on; four more show that the round trips are stable.
        assert_eq!(result.saturation_ns, Some(4e9), "{direction}");
        assert!((8.0..9.6).contains(&(case.elapsed_ns as f64 / 1e9)), "{direction}: {}", case.elapsed_ns);
        assert_eq!((result.goodput_confidence, result.rpm_confidence), (Confidence::High, Confidence::High));
        assert_eq!(result.load_connections, 1);
        assert!((result.goodput_bps.unwrap() / 1e6 - 1.0).abs() < 0.02, "{direction}: {result:?}");
        let rpm = |mean_ns: f64| 60e9 / mean_ns;
        assert!((result.foreign_rpm.unwrap() / rpm(beside) - 1.0).abs() < 0.02, "{direction}: {result:?}");
        assert!((result.own_rpm.unwrap() / rpm(own) - 1.0).abs() < 0.05, "{direction}: {result:?}");
        let mean = (result.foreign_rpm.unwrap() + result.own_rpm.unwrap()) / 2.0;
        assert_eq!(result.rpm, Some(mean));
    }
}

#[test]
fn connections_are_added_until_the_goodput_no_longer_changes() {
    // Each connection carries 2 Mbit/s, whatever the others do.
    let case = one(VirtualNet::serving("linkgauge").run(
        "[[case]]\nurl = \"mem://far?rate=2Mbit/s&delay=1ms\"\nworkload = \"responsiveness\"\ndirection = \"receive\"\n\
         time = \"30s\"\nsize = 1000\nparallel = 3",
    ));
    let result = case.figures.responsiveness.unwrap();
    assert_eq!((result.load_connections, result.goodput_confidence), (3, Confidence::High));
    assert!((result.goodput_bps.unwrap() / 6e6 - 1.0).abs() < 0.01, "{result:?}");
}

#[test]
fn a_slow_link_has_a_result_and_its_goodput() {
    for (name, rate, delay) in [("dsl", 384e3, "25ms"), ("2g", 256e3, "400ms"), ("satellite", 2e6, "300ms")] {
        for direction in ["send", "receive"] {
            let case = one(VirtualNet::serving("linkgauge").run(&format!(
                "[[case]]\nurl = \"mem://far?rate={rate}bit/s&delay={delay}&buffer=64Ki&share=yes\"\n\
                 workload = \"responsiveness\"\ndirection = \"{direction}\"\nparallel = 10"
            )));
            let result = case.figures.responsiveness.unwrap();
            let goodput = result.goodput_bps.unwrap();
            assert!((goodput / rate - 1.0).abs() < 0.02, "{name} {direction}: {goodput}");
            assert!(result.rpm.is_some() && result.load_connections < 10, "{name} {direction}: {result:?}");
        }
    }
}

#[test]
fn a_serial_line_has_probes_in_its_load_alone() {
    // 62 500 bytes per second each way, with 64 KiB of buffers: 1.05 s.
    let case = one(VirtualNet::serving("echo").run(
        "[[case]]\nurl = \"mem://far?rate=500kbit/s&buffer=64Ki\"\nprotocol = \"echo\"\n\
         workload = \"responsiveness\"\ntime = \"6s\"\nsize = 64\nprobe = \"10/s\"\nidle = \"1s\"",
    ));
    let result = case.figures.responsiveness.unwrap();
    assert_eq!(case.direction.name(), "loop");
    assert!(case.under_load.is_none() && result.foreign_rpm.is_none());
    assert_eq!(result.rpm, result.own_rpm);
    let idle = case.figures.added_latency.unwrap().idle_p50_ns;
    // 16 bytes in 256 µs, in both directions.
    assert!((idle / 512e3 - 1.0).abs() < 0.01, "{idle}");
    let own = median_ns(Some(&case.figures));
    assert!((own / 1.05e9 - 1.0).abs() < 0.05, "{own}");
    assert!((case.figures.delivery.throughput_bps.unwrap() / 500e3 - 1.0).abs() < 0.05);
}

#[test]
fn without_a_full_second_there_is_a_result_of_low_confidence() {
    let case = one(VirtualNet::serving("linkgauge").run(
        "[[case]]\nurl = \"mem://far?rate=8Mbit/s&delay=1ms\"\nworkload = \"responsiveness\"\ntime = \"500ms\"\n\
         size = 1000\nidle = \"100ms\"",
    ));
    let result = case.figures.responsiveness.unwrap();
    assert_eq!((result.goodput_confidence, result.rpm_confidence), (Confidence::Low, Confidence::Low));
    assert!(result.rpm.is_some() && result.goodput_bps.is_none() && result.saturation_ns.is_none());
}

#[test]
fn settings_without_a_meaning_are_refused() {
    for (case, why) in [
        ("url = \"mem://far-messages?type=message\"", "needs a stream"),
        ("url = \"mem://far\"\nsize = 70000", "use a --size from 16 to 65536"),
        ("url = \"mem://far\"\ncount = 5", "leave out the number of messages"),
        ("url = \"mem://far\"\nrate = \"5/s\"", "leave out the rate"),
        ("url = [\"mem://far0\", \"mem://far1\"]\ntogether = true", "one endpoint"),
        ("url = \"mem://far\"\ndirection = \"both\"", "does not support the direction both"),
    ] {
        let text = format!("[[case]]\nworkload = \"responsiveness\"\nprotocol = \"linkgauge\"\n{case}");
        let Ok(plan) = linkgauge::plan::Plan::from_toml(&text) else { panic!("{text}") };
        let error = linkgauge::schedule::check(plan, Registry::standard()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
