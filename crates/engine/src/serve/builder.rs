//! A server in one expression, for programs that use the library.

use std::sync::Arc;

use super::{RateLimiter, Server};
use crate::link::{Dialer, LinkError};
use crate::protocol::Registry;
use crate::protocol::{LoadLog, ServerConfig, ServerLimits};
use linkgauge_model::clock::Clock;
use linkgauge_model::endpoint::{Endpoint, EndpointError};

/// A server that is described step by step and then started; [`Server::on`] makes it.
#[derive(Debug, Clone)]
#[must_use = "a server does nothing until it starts"]
pub struct ServerBuilder {
    urls: Vec<String>,
    protocol: String,
    config: ServerConfig,
    registry: &'static Registry,
    rates: Option<Arc<RateLimiter>>,
}

/// Error of starting a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A URL is not that of an endpoint.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The protocol is unknown, or has no server side.
    #[error("the protocol {0} cannot be served: choose one that 'linkgauge serve --help' lists")]
    Protocol(String),
    /// The endpoint cannot be listened on, or the protocol does not support its links.
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl Server {
    /// A server on this endpoint. It speaks the linkgauge protocol, and returns the bytes of every other client. Port 0
    /// selects a free port.
    ///
    /// ```
    /// # mod linkgauge { pub use linkgauge_engine::serve::{ServeError, Server}; }
    /// let server = linkgauge::Server::on("tcp://127.0.0.1:0").start()?;
    /// assert!(server.url().starts_with("tcp://127.0.0.1:"));
    /// // It stops when it is dropped.
    /// # Ok::<(), linkgauge::ServeError>(())
    /// ```
    pub fn on(url: &str) -> ServerBuilder {
        ServerBuilder {
            urls: vec![url.to_owned()],
            protocol: "linkgauge".to_owned(),
            config: ServerConfig::default(),
            registry: Registry::standard(),
            rates: None,
        }
    }

    /// The URL of the first endpoint, with its effective port.
    pub fn url(&self) -> &str {
        self.endpoints.first().map_or("", Endpoint::as_str)
    }
}

impl ServerBuilder {
    /// Listens on this endpoint as well.
    pub fn and_on(mut self, url: &str) -> ServerBuilder {
        self.urls.push(url.to_owned());
        self
    }

    /// Serves this protocol: one of [`Registry::protocols`] with a server side.
    pub fn protocol(mut self, name: &str) -> ServerBuilder {
        self.protocol = name.to_owned();
        self
    }

    /// Enforces these limits.
    pub fn limits(mut self, limits: ServerLimits) -> ServerBuilder {
        self.config.limits = limits;
        self
    }

    /// Requires this secret of every client, if the protocol supports that.
    pub fn token(mut self, token: &str) -> ServerBuilder {
        self.config.token = Some(token.to_owned());
        self
    }

    /// Records the loads that it serves in this log, if the protocol supports that.
    pub fn load_log(mut self, log: &LoadLog) -> ServerBuilder {
        self.config.load_log = Some(log.clone());
        self
    }

    /// Charges the payload of all clients to this limiter, which other servers may share, instead of one for each source.
    pub fn rate_limiter(mut self, rates: Option<Arc<RateLimiter>>) -> ServerBuilder {
        self.rates = rates;
        self
    }

    /// Starts the server. It stops when it is dropped.
    ///
    /// # Errors
    /// A URL is invalid, the protocol cannot be served, or an endpoint cannot be listened on.
    pub fn start(self) -> Result<Server, ServeError> {
        let dialer = self.registry.dialer(Clock::System);
        self.start_with(&dialer)
    }

    /// Starts the server with the clock and the links of this dialer.
    ///
    /// # Errors
    /// As for [`ServerBuilder::start`].
    pub fn start_with(self, dialer: &Dialer) -> Result<Server, ServeError> {
        let endpoints: Vec<Endpoint> = self.urls.iter().map(|url| url.parse()).collect::<Result<_, _>>()?;
        let served =
            self.registry.protocol(&self.protocol).and_then(|protocol| Some((protocol, protocol.serve?)));
        let (protocol, serve) = served.ok_or(ServeError::Protocol(self.protocol))?;
        let port = protocol.default_port(endpoints[0].scheme());
        let dialer = Dialer { default_port: port.or(dialer.default_port), ..dialer.clone() };
        let limits = self.config.limits;
        let rates = self.rates.or_else(|| limits.bit_rate.map(|rate| Arc::new(RateLimiter::new(rate))));
        let service = serve(&Arc::new(self.config));
        Ok(Server::start_with_rates(&endpoints, &service, (&limits, rates), &dialer)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_can_be_matched() {
        let dialer = Registry::standard().dialer(Clock::new_virtual());
        let start =
            |builder: ServerBuilder| builder.start_with(&dialer).map(|server| server.url().to_owned());
        assert_eq!(start(Server::on("mem://a").and_on("mem://b")).unwrap(), "mem://a");
        assert!(matches!(start(Server::on("://")), Err(ServeError::Endpoint(_))));
        for name in ["ask", "pigeon"] {
            assert!(matches!(start(Server::on("mem://a").protocol(name)), Err(ServeError::Protocol(_))));
        }
        assert!(matches!(start(Server::on("icmp://127.0.0.1")), Err(ServeError::Link(_))));
    }
}
