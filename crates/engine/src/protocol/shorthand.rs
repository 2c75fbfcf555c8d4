//! Shorthands: URLs that name a protocol instead of a transport, and a resource of that protocol. They expand to
//! another URL and options of the protocol before any other code reads the case.

use super::{CaseError, Protocol, Shorthand};
use crate::protocol::Registry;
use linkgauge_model::endpoint::Endpoint;
use linkgauge_model::plan::Case;

/// Expands all shorthands of a case.
///
/// # Errors
///
/// The case names another protocol, or another value of the option; the message names the URL.
pub(crate) fn expand_url(case: &mut Case, registry: &Registry) -> Result<(), CaseError> {
    for at in 0..case.endpoints.len() {
        let named = registry.protocol(case.endpoints[at].scheme());
        if let Some((protocol, shorthand)) = named.and_then(|protocol| Some((protocol, protocol.shorthand?)))
        {
            case.endpoints[at] = shorthand.expand(protocol, &case.endpoints[at].clone(), case)?;
        }
    }
    Ok(())
}

/// Whether the protocol has this option.
fn has_option(protocol: &Protocol, name: &str) -> bool {
    protocol.options.iter().any(|(own, _)| *own == name)
}

/// Sets an option of the protocol, unless the case has another value of it.
fn set_option(case: &mut Case, url: &Endpoint, name: &str, value: &str) -> Result<(), CaseError> {
    match case.protocol_options.insert(name.to_owned(), value.to_owned()) {
        Some(before) if before != value => {
            Err(CaseError::Option(format!("{url}: {name} is another one already: give it once")))
        }
        _ => Ok(()),
    }
}

impl Shorthand {
    /// Returns the expanded URL; the other parts go into the case.
    fn expand(self, protocol: &Protocol, url: &Endpoint, case: &mut Case) -> Result<Endpoint, CaseError> {
        if ![protocol.name, super::auto::NAME].contains(&case.protocol.as_str()) {
            return Err(CaseError::Option(format!(
                "{url}: the protocol is {}, not {}: leave out --protocol",
                protocol.name, case.protocol
            )));
        }
        case.protocol = protocol.name.to_owned();
        let (place, value) = url.address().split_once('/').unwrap_or((url.address(), ""));
        if !value.is_empty() {
            set_option(case, url, self.option.ok_or_else(|| self.invalid_url(url))?, value)?;
        }
        let (own, of_link): (Vec<_>, Vec<_>) =
            url.options().partition(|(name, _)| has_option(protocol, name));
        own.into_iter().try_for_each(|(name, value)| set_option(case, url, name, value))?;
        let transport = protocol.default_ports.first().map(|(transport, _)| *transport).unwrap_or_default();
        let options: Vec<String> = of_link.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mark = if options.is_empty() { "" } else { "?" };
        format!("{transport}://{place}{mark}{}", options.join("&")).parse().map_err(|_| self.invalid_url(url))
    }

    fn invalid_url(self, url: &Endpoint) -> CaseError {
        let value = self.option.map_or_else(String::new, |option| format!("/{}", option.to_uppercase()));
        CaseError::Endpoint(format!("{url}: needed is {}://host:port{value}", url.scheme()))
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
        expand_url(&mut case, Registry::standard())?;
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
