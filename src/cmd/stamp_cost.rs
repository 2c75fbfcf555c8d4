//! What stamps of the kernel cost: the same round trips over loopback with and without them.

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::plan::Plan;
use linkgauge::run::{CaseResult, Run};
use linkgauge::schedule::{self, RunContext};
use linkgauge::serve::Server;

/// Measures and sets the cost of the cases that have stages, where a server of ours can listen on loopback.
pub fn add_stamp_costs(run: &mut Run) {
    if run.interrupted {
        return;
    }
    for case in &mut run.cases {
        let url = loopback_url(&case.endpoint);
        if let (Some(stages), Some(url)) = (&mut case.figures.stages, url) {
            stages.cost_ns = measure_cost_ns(&url, case.message_bytes);
        }
    }
}

/// Where a server listens on the same kind of link.
fn loopback_url(endpoint: &str) -> Option<String> {
    let transport = Registry::standard().transports.find(&endpoint.parse().ok()?).ok()?;
    transport.listen?;
    // Programs share the loopback device, and an address there is as unique as this name.
    (transport.loopback_urls)(&format!("/{}", std::process::id())).into_iter().next()
}

/// Median of the differences between interleaved repetitions with stamps and without. About 0.1 s; a connection over LINX takes
/// 0.2 s.
fn measure_cost_ns(listen: &str, size: u32) -> Option<f64> {
    let server = Server::on(listen).start().ok()?;
    let url = server.endpoints().first()?;
    let plan = format!(
        "repeat = 10\n[defaults]\nworkload = \"latency\"\nprotocol = \"linkgauge\"\nsize = {size}\ncount = 200\n\
         warm_up_count = 50\n[[case]]\nurl = \"{url}\"\n[[case]]\nurl = \"{url}\"\nstamps = true"
    );
    let plan = schedule::check(Plan::from_toml(&plan).ok()?, Registry::standard()).ok()?;
    let measured =
        schedule::run(&plan, &mut RunContext::new(Registry::standard().dialer(Clock::System), &()));
    let [plain, stamped] = &measured.cases[..] else { return None };
    let medians = |case: &CaseResult| -> Option<Vec<f64>> {
        let of = |figures: &linkgauge::run::Figures| figures.times.latency_ns.as_ref()?.percentile("p50");
        case.repeats.iter().map(|part| of(&part.figures).map(|ns| ns as f64)).collect()
    };
    let pairs = medians(plain)?.into_iter().zip(medians(stamped)?);
    let mut differences: Vec<f64> = pairs.map(|(plain, stamped)| stamped - plain).collect();
    differences.sort_by(f64::total_cmp);
    let middle = differences.len() / 2;
    Some((differences.get(middle)? + differences.get(middle.checked_sub(1)?)?) / 2.0)
}
