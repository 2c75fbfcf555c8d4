//! Plans on the virtual clock: servers and clients in one thread, exact to the nanosecond.

use std::sync::Arc;

use linkgauge::Registry;
use linkgauge::clock::Clock;
use linkgauge::endpoint::Endpoint;
use linkgauge::link::Dialer;
use linkgauge::plan::Plan;
use linkgauge::protocol::{ServerConfig, ServerLimits, Service};
use linkgauge::run::Run;
use linkgauge::schedule::{self, RunContext};
use linkgauge::serve::Server;

/// The server's side of a protocol, with a fixed secret.
pub fn service(peer: &str, limits: ServerLimits) -> Arc<dyn Service> {
    configured_service(peer, ServerConfig { limits, ..ServerConfig::default() })
}

fn configured_service(peer: &str, config: ServerConfig) -> Arc<dyn Service> {
    let facts = ServerConfig { secret: [7; 32], ..config };
    Registry::standard().protocol(peer).and_then(|peer| peer.serve).expect("it can be served")(&Arc::new(
        facts,
    ))
}

/// A dialer on a virtual clock that reaches a server of `peer` at `mem://far`, and at `mem://far0` to `mem://far9`.
pub struct VirtualNet {
    pub dialer: Dialer,
    _server: Server,
}

impl VirtualNet {
    pub fn serving(peer: &str) -> VirtualNet {
        VirtualNet::serving_within(peer, ServerLimits::default())
    }

    /// The same with limits of the server.
    pub fn serving_within(peer: &str, limits: ServerLimits) -> VirtualNet {
        VirtualNet::configured(peer, ServerConfig { limits, ..ServerConfig::default() })
    }

    /// The same with a configuration of the server.
    pub fn configured(peer: &str, config: ServerConfig) -> VirtualNet {
        let dialer = Registry::standard().dialer(Clock::new_virtual());
        let limits = config.limits;
        let service = configured_service(peer, config);
        let names = (0..10).map(|number| format!("mem://far{number}")).chain(["mem://far".to_owned()]);
        let endpoints: Vec<_> = names.map(|name| name.parse().unwrap()).collect();
        // The client's URL holds the impairments of the link; the server's URL needs only the type.
        let messages = endpoints.iter().map(|url| format!("{url}-messages?type=message").parse().unwrap());
        let lossy = endpoints.iter().map(|url| format!("{url}-lossy?type=message&drop=9").parse().unwrap());
        let fits = |endpoint: &Endpoint| {
            service.check_link(&Registry::standard().transports.caps(endpoint).unwrap()).is_ok()
        };
        let all = endpoints.iter().cloned().chain(messages).chain(lossy);
        let all: Vec<_> = all.filter(fits).collect();
        let server = Server::start(&all, &service, &limits, &dialer).unwrap();
        VirtualNet { dialer, _server: server }
    }

    /// Runs a plan from its beginning to its end.
    pub fn run(&self, plan: &str) -> Run {
        let plan = Plan::from_toml(plan).unwrap_or_else(|error| panic!("{error}"));
        self.run_plan(plan)
    }

    pub fn run_plan(&self, plan: Plan) -> Run {
        let mut bench = RunContext::new(self.dialer.clone(), &());
        let plan = schedule::check(plan, Registry::standard()).unwrap_or_else(|error| panic!("{error}"));
        schedule::run(&plan, &mut bench)
    }
}
