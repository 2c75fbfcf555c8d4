//! Shorthands: URLs that name a protocol instead of a transport, and a resource of that protocol. They expand to
//! another URL and options of the protocol before any other code reads the case.

use super::{CaseError, PROTOCOLS, Shorthand, iperf2, irtt, modbus, pakbus, twamp};
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::Case;

/// Every shorthand.
pub(crate) static SHORTHANDS: &[Shorthand] =
    &[iperf2::SHORTHAND, irtt::SHORTHAND, modbus::SHORTHAND, pakbus::client::SHORTHAND, twamp::SHORTHAND];

/// Expands all shorthands of a case.
///
/// # Errors
///
/// A case that names another protocol, or another value of the option; the message names the URL.
pub(crate) fn expand_url(case: &mut Case) -> Result<(), CaseError> {
    for at in 0..case.endpoints.len() {
        let scheme = case.endpoints[at].scheme();
        if let Some(shorthand) = SHORTHANDS.iter().find(|shorthand| shorthand.scheme == scheme) {
            case.endpoints[at] = shorthand.expand(&case.endpoints[at].clone(), case)?;
        }
    }
    Ok(())
}

impl Shorthand {
    /// Whether the protocol has this option.
    fn is_own_option(&self, name: &str) -> bool {
        let own = PROTOCOLS.iter().filter(|peer| peer.name == self.protocol).flat_map(|peer| peer.options);
        own.into_iter().any(|(own, _)| *own == name)
    }

    /// Moves the options of the protocol from the URL into the case.
    fn take_options(&self, url: &Endpoint, case: &mut Case) -> Result<(), CaseError> {
        for (name, value) in url.options().filter(|(name, _)| self.is_own_option(name)) {
            let before = case.protocol_options.insert(name.to_owned(), value.to_owned());
            if before.is_some_and(|before| before != value) {
                let what = format!("{url}: {name} is another one already: give it once");
                return Err(CaseError::Option(what));
            }
        }
        Ok(())
    }

    /// The expanded URL; the other parts go into the case.
    fn expand(&self, url: &Endpoint, case: &mut Case) -> Result<Endpoint, CaseError> {
        if ![self.protocol, super::auto::NAME].contains(&case.protocol.as_str()) {
            return Err(CaseError::Option(format!(
                "{url}: the protocol is {}, not {}: leave out --protocol",
                self.protocol, case.protocol
            )));
        }
        case.protocol = self.protocol.to_owned();
        let (place, value) = url.address().split_once('/').unwrap_or((url.address(), ""));
        if !value.is_empty() {
            let option = self.option.ok_or_else(|| self.invalid_url(url))?;
            let before = case.protocol_options.insert(option.to_owned(), value.to_owned());
            if before.is_some_and(|before| before != value) {
                let what = format!("{url}: {option} is another one already: give it once");
                return Err(CaseError::Option(what));
            }
        }
        self.take_options(url, case)?;
        let ports =
            PROTOCOLS.iter().filter(|peer| peer.name == self.protocol).flat_map(|peer| peer.default_ports);
        let transport = ports.map(|(transport, _)| *transport).next().unwrap_or_default();
        let of_link = url.options().filter(|(name, _)| !self.is_own_option(name));
        let options: Vec<String> = of_link.map(|(name, value)| format!("{name}={value}")).collect();
        let mark = if options.is_empty() { "" } else { "?" };
        format!("{transport}://{place}{mark}{}", options.join("&")).parse().map_err(|_| self.invalid_url(url))
    }

    fn invalid_url(&self, url: &Endpoint) -> CaseError {
        let value = self.option.map_or_else(String::new, |option| format!("/{}", option.to_uppercase()));
        CaseError::Endpoint(format!("{url}: needed is {}://host:port{value}", self.scheme))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkgauge_model::plan::{CaseSpec, OneOrMany};

    fn expand_shorthand(
        urls: &[&str],
        peer: Option<&str>,
        node: Option<&str>,
    ) -> Result<(String, String), CaseError> {
        let spec = CaseSpec {
            url: Some(OneOrMany::Many(urls.iter().map(|url| url.parse().unwrap()).collect())),
            together: Some(true),
            protocol: peer.map(str::to_owned),
            workload: Some("latency".to_owned()),
            protocol_options: node.map(|node| ("node".to_owned(), node.to_owned())).into_iter().collect(),
            ..CaseSpec::default()
        };
        let mut case = spec.expand().unwrap().remove(0);
        expand_url(&mut case)?;
        let options: Vec<String> = case.protocol_options.values().cloned().collect();
        Ok((case.endpoints[0].to_string(), format!("{} {}", case.protocol, options.join(","))))
    }

    #[test]
    fn shorthands_expand_to_a_url_and_an_option() {
        let of = |url| expand_shorthand(&[url], None, None).unwrap();
        let is = |url: &str, protocol: &str| (url.to_owned(), protocol.to_owned());
        assert_eq!(of("pakbus://box:6785/17"), is("tcp://box:6785", "pakbus 17"));
        assert_eq!(of("pakbus://[::1]/4094?keepalive=30s"), is("tcp://[::1]?keepalive=30s", "pakbus 4094"));
        assert_eq!(
            of("pakbus://box/17?router=9&keepalive=30s"),
            is("tcp://box?keepalive=30s", "pakbus 17,9")
        );
        assert_eq!(of("pakbus://box"), is("tcp://box", "pakbus "));
        assert_eq!(of("irtt://box"), is("udp://box", "irtt "));
        assert_eq!(
            of("irtt://[::1]:21?authenticated=true&dscp=46"),
            is("udp://[::1]:21?dscp=46", "irtt true")
        );
        assert_eq!(of("tcp://box:1"), is("tcp://box:1", "auto "));
    }

    #[test]
    fn conflicting_options_are_refused() {
        let error = |urls: &[&str], peer, node| expand_shorthand(urls, peer, node).unwrap_err().to_string();
        insta::assert_snapshot!([
            error(&["pakbus://box/1"], Some("echo"), None),
            error(&["pakbus://box/1"], Some("pakbus"), Some("2")),
            error(&["pakbus://box/1", "pakbus://other/2"], None, None),
            error(&["pakbus:///1"], None, None),
            error(&["irtt://box/1"], None, None),
        ].join("\n"), @r"
        pakbus://box/1: the protocol is pakbus, not echo: leave out --protocol
        pakbus://box/1: node is another one already: give it once
        pakbus://other/2: node is another one already: give it once
        pakbus:///1: needed is pakbus://host:port/NODE
        irtt://box/1: needed is irtt://host:port
        ");
    }
}
