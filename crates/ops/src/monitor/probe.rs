//! Probes on request, as Prometheus asks for them: which modules there are, which targets are allowed, and what a request says.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::access::RequestRefusal;
use super::pattern::matches;
use crate::mesh::AddressRange;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::CaseSpec;

/// Probes at the same time, unless the file says otherwise.
pub(crate) const DEFAULT_CONCURRENT: usize = 64;

/// Requests of a probe at most.
pub(crate) const MAX_SAMPLES: u64 = 10_000;

/// The time for a probe whose client states no limit, and the longest one.
const DEFAULT_LIMIT: Duration = Duration::from_secs(10);
const MAX_LIMIT: Duration = Duration::from_secs(50);

/// Time that is left to the client for the response.
const RESPONSE_TIME: Duration = Duration::from_millis(500);

/// Settings of probes on request.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeSettings {
    /// Modules by name.
    pub modules: BTreeMap<String, ProbeModule>,
    pub(crate) allowed: Vec<AllowedTarget>,
    /// Probes at the same time.
    pub concurrent: usize,
}

/// Module of a probe: a case without its URL.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeModule {
    /// The scheme of its targets.
    pub scheme: String,
    pub(crate) spec: CaseSpec,
}

/// Targets that are allowed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AllowedTarget {
    /// Addresses, which are written as such.
    Addresses(AddressRange),
    /// Names, with `*` for any text.
    Names(String),
}

impl AllowedTarget {
    /// Reads an entry of a list: a range of addresses, or names.
    pub fn parse(text: &str) -> Option<AllowedTarget> {
        if let Ok(range) = text.parse() {
            return Some(AllowedTarget::Addresses(range));
        }
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.*".contains(c);
        let is_name = !text.is_empty() && text.chars().all(is_part) && text.chars().any(char::is_alphabetic);
        (is_name || text == "*").then(|| AllowedTarget::Names(text.to_ascii_lowercase()))
    }

    fn has(&self, host: &str) -> bool {
        match (self, host.parse::<IpAddr>()) {
            (AllowedTarget::Addresses(range), Ok(address)) => range.contains(address),
            (AllowedTarget::Addresses(_), Err(_)) => false,
            // Names like 192.0.2.1.example.net are none of these addresses, and no address is a name.
            (AllowedTarget::Names(pattern), Ok(_)) => pattern == "*",
            (AllowedTarget::Names(pattern), Err(_)) => matches(pattern, &host.to_ascii_lowercase()),
        }
    }
}

/// Request of a client for a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeRequest {
    /// Target, as the client wrote it.
    pub target: String,
    /// The name of a module; empty: the only one.
    pub module: String,
    /// Whether to answer for people, with reasons.
    pub is_debug: bool,
}

impl ProbeRequest {
    /// Reads the query of a URL.
    ///
    /// # Errors
    ///
    /// The query names no target.
    pub fn parse(query: &str) -> Result<ProbeRequest, RequestRefusal> {
        let value = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.filter(|(key, _)| *key == name).map(|(_, value)| decode(value)).next()
        };
        let target = value("target").flatten().filter(|target| !target.is_empty());
        Ok(ProbeRequest {
            target: target.ok_or(RequestRefusal::NoTarget)?,
            module: value("module").flatten().unwrap_or_default(),
            is_debug: value("debug").flatten().is_some_and(|value| value == "true"),
        })
    }
}

/// A value of a query in plain text. `None` if it is no text.
fn decode(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &rest[2..];
            }
            byte => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).ok()
}

impl ProbeSettings {
    /// The name of the module and the endpoint of a request. A file with one module needs no name of it.
    ///
    /// # Errors
    ///
    /// There is no such module, the target is invalid, or it is not allowed.
    pub fn check(&self, request: &ProbeRequest) -> Result<(&str, Endpoint), RequestRefusal> {
        let module = match (request.module.as_str(), self.modules.len()) {
            ("", 1) => self.modules.iter().next(),
            (name, _) => self.modules.get_key_value(name),
        };
        let (name, module) = module.ok_or(RequestRefusal::UnknownModule)?;
        let endpoint = module.endpoint(&request.target).ok_or(RequestRefusal::BadTarget)?;
        let (host, _) = endpoint.host_port().map_err(|_| RequestRefusal::BadTarget)?;
        match self.allowed.iter().any(|allowed| allowed.has(host)) {
            true => Ok((name, endpoint)),
            false => Err(RequestRefusal::TargetNotAllowed),
        }
    }
}

impl ProbeModule {
    /// Requests of one probe.
    pub(crate) fn requests(&self) -> u64 {
        self.spec.count.map_or(0, |count| count.0)
    }

    /// A target as a URL of this module. `None` if it is none, has another scheme, or options, which only the file may set.
    pub fn endpoint(&self, target: &str) -> Option<Endpoint> {
        let text = target_url(&self.scheme, target);
        let endpoint: Endpoint = text.parse().ok()?;
        let is_plain = endpoint.scheme() == self.scheme && endpoint.options().next().is_none();
        let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        (is_plain && is_printable && !text.contains('?')).then_some(endpoint)
    }
}

/// A target as a URL: with the scheme, if it has none.
pub(crate) fn target_url(scheme: &str, target: &str) -> String {
    // An address of IPv6 without port needs no brackets.
    match (target.contains("://"), target.parse::<std::net::Ipv6Addr>()) {
        (true, _) => target.to_owned(),
        (false, Ok(address)) => format!("{scheme}://[{address}]"),
        (false, Err(_)) => format!("{scheme}://{target}"),
    }
}

/// The time for a probe: what the client states in seconds, without that for the response.
pub(crate) fn time_limit(stated: Option<&str>) -> Duration {
    let stated = stated.and_then(|text| text.trim().parse::<f64>().ok()).filter(|seconds| *seconds > 0.0);
    let stated = stated.and_then(|seconds| Duration::try_from_secs_f64(seconds.min(3600.0)).ok());
    stated.map_or(DEFAULT_LIMIT, |limit| (limit - RESPONSE_TIME.min(limit / 4)).min(MAX_LIMIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(allowed: &[&str]) -> ProbeSettings {
        let module = |scheme: &str| ProbeModule { scheme: scheme.to_owned(), spec: CaseSpec::default() };
        ProbeSettings {
            modules: BTreeMap::from([("icmp".to_owned(), module("icmp")), ("tcp".to_owned(), module("tcp"))]),
            allowed: allowed.iter().map(|text| AllowedTarget::parse(text).unwrap()).collect(),
            concurrent: DEFAULT_CONCURRENT,
        }
    }

    fn check(settings: &ProbeSettings, query: &str) -> Result<String, RequestRefusal> {
        let request = ProbeRequest::parse(query)?;
        settings.check(&request).map(|(_, endpoint)| endpoint.as_str().to_owned())
    }

    #[test]
    fn allowed_targets_become_urls_of_their_module() {
        let settings = settings(&["192.0.2.0/24", "2001:db8::/32", "*.example.net", "localhost"]);
        for (query, expected) in [
            ("target=192.0.2.7&module=icmp", "icmp://192.0.2.7"),
            ("module=tcp&target=192.0.2.7:7100", "tcp://192.0.2.7:7100"),
            ("target=tcp%3A%2F%2F192.0.2.7&module=tcp&debug=true", "tcp://192.0.2.7"),
            ("target=2001:db8::7&module=icmp", "icmp://[2001:db8::7]"),
            ("target=%5B2001:db8::7%5D:80&module=tcp", "tcp://[2001:db8::7]:80"),
            ("target=A.Example.NET&module=icmp", "icmp://A.Example.NET"),
        ] {
            assert_eq!(check(&settings, query).as_deref(), Ok(expected), "{query}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let settings = settings(&["192.0.2.0/24", "*.example.net", "printer"]);
        let (bad, forbidden) = (RequestRefusal::BadTarget, RequestRefusal::TargetNotAllowed);
        for (query, refusal) in [
            ("", RequestRefusal::NoTarget),
            ("target=&module=tcp", RequestRefusal::NoTarget),
            ("target=%FF&module=tcp", RequestRefusal::NoTarget),
            ("target=192.0.2.7", RequestRefusal::UnknownModule),
            ("target=192.0.2.7&module=ssh", RequestRefusal::UnknownModule),
            ("target=198.51.100.7&module=tcp", forbidden),
            ("target=192.0.2.7.evil.example&module=tcp", forbidden),
            ("target=example.net&module=tcp", forbidden),
            ("target=evil.example/x.example.net&module=tcp", bad),
            ("target=192.0.2.7@evil.example&module=tcp", bad),
            ("target=evil.example%23.example.net&module=tcp", bad),
            ("target=evil.example%3Fx=.example.net&module=tcp", bad),
            ("target=udp://192.0.2.7&module=tcp", bad),
            ("target=file:///etc/passwd&module=tcp", bad),
            ("target=serial:///dev/ttyS0&module=tcp", bad),
            ("target=192.0.2.7%3Fbind%3D192.0.2.1&module=tcp", bad),
            ("target=192.0.2.7:99999&module=tcp", bad),
            ("target=192.0.2.7%0d%0aX:1&module=tcp", bad),
            ("target=::ffff:198.51.100.7&module=tcp", forbidden),
            ("target=3221225991&module=tcp", forbidden),
            ("target=%&module=tcp", RequestRefusal::NoTarget),
        ] {
            assert_eq!(check(&settings, query), Err(refusal), "{query}");
        }
        assert!(AllowedTarget::parse("192.0.2.*").is_none(), "a range has its own form");
        assert!(AllowedTarget::parse("a/b").is_none() && AllowedTarget::parse("").is_none());
    }

    #[test]
    fn a_probe_ends_before_the_scrape() {
        for (stated, expected_ms) in [
            (None, 10_000),
            (Some("10"), 9_500),
            (Some("1.0"), 750),
            (Some("1e9"), 50_000),
            (Some("inf"), 50_000),
            (Some("-3"), 10_000),
            (Some("NaN"), 10_000),
            (Some("x"), 10_000),
        ] {
            assert_eq!(time_limit(stated), Duration::from_millis(expected_ms), "{stated:?}");
        }
    }
}
