//! Decides who may read the pages of a monitor, and why a request is refused. Pure functions of what a client sent.

use std::net::{IpAddr, Ipv4Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Reason why a request is refused: its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestRefusal {
    /// 401: the token is missing or wrong.
    Unauthorized,
    /// 403: the client named a host that is not this one, as a page of another site would.
    Forbidden,
    /// 404: there is no such page.
    NotFound,
    /// 405: only GET and HEAD are served.
    MethodNotAllowed,
    /// 500: the store cannot be read.
    Unreadable,
    /// 503: too many clients.
    Busy,
    /// 400: a probe without a target.
    NoTarget,
    /// 400: the file has no such module.
    UnknownModule,
    /// 400: the target is no host of the module's scheme.
    BadTarget,
    /// 403: the file does not allow the target.
    TargetNotAllowed,
}

impl RequestRefusal {
    /// The status code and its meaning.
    pub fn status(self) -> (u16, &'static str) {
        match self {
            RequestRefusal::Unauthorized => (401, "the token is missing or wrong"),
            RequestRefusal::Forbidden => {
                (403, "this server is reached by the name of its loopback address only")
            }
            RequestRefusal::NotFound => (404, "there is no such page"),
            RequestRefusal::MethodNotAllowed => (405, "only GET and HEAD are served"),
            RequestRefusal::Unreadable => (500, "the store cannot be read"),
            RequestRefusal::Busy => (503, "too many clients"),
            RequestRefusal::NoTarget => (400, "a probe needs a target: /probe?target=HOST&module=NAME"),
            RequestRefusal::UnknownModule => {
                (400, "the file of the monitor has no [module.NAME] of this name")
            }
            RequestRefusal::BadTarget => {
                (400, "the target is no HOST, HOST:PORT or URL without options of the module's scheme")
            }
            RequestRefusal::TargetNotAllowed => {
                (403, "the target is not in 'allow' of [probe] in the file of the monitor")
            }
        }
    }
}

/// Decides by address and token.
#[derive(Debug, Clone)]
pub struct Access {
    token: Option<String>,
    is_loopback: bool,
}

impl Access {
    /// The access to a server at an address. `None` if other machines could connect without a token.
    pub fn new(address: IpAddr, token: Option<String>) -> Option<Access> {
        let is_loopback = address.is_loopback();
        (is_loopback || token.is_some()).then_some(Access { token, is_loopback })
    }

    /// Whether every client needs a token.
    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Checks what a client sent: the host that it named, and its `Authorization`.
    ///
    /// # Errors
    ///
    /// The host is that of another site, or the token is missing or wrong.
    pub fn check(&self, host: Option<&str>, authorization: Option<&str>) -> Result<(), RequestRefusal> {
        if self.is_loopback && !host.is_none_or(is_loopback_name) {
            return Err(RequestRefusal::Forbidden);
        }
        let Some(token) = &self.token else { return Ok(()) };
        let given = authorization.and_then(given_token).ok_or(RequestRefusal::Unauthorized)?;
        if constant_time_equal(token.as_bytes(), &given) { Ok(()) } else { Err(RequestRefusal::Unauthorized) }
    }
}

/// The token as programs send it (`Bearer`), or as a browser sends it: the password of any user (`Basic`).
fn given_token(authorization: &str) -> Option<Vec<u8>> {
    let (scheme, value) = authorization.trim().split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(value.trim().as_bytes().to_vec());
    }
    let decoded =
        scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(value.trim()).ok()).flatten()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some(decoded[colon + 1..].to_vec())
}

/// A name under which a browser of this machine reaches loopback. Other names may be those of a hostile site.
fn is_loopback_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name == "localhost"
        || name == "[::1]"
        || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

/// Compares without telling by its time where the first difference is.
fn constant_time_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_names_and_other_addresses_have_tokens() {
        let loopback = Access::new("127.0.0.1".parse().unwrap(), None).unwrap();
        for host in ["localhost:9464", "localhost", "127.0.0.1:1", "127.1.2.3", "[::1]:9464"] {
            assert_eq!(loopback.check(Some(host), None), Ok(()), "{host}");
        }
        for host in
            ["evil.example", "127.0.0.1.evil.example", "evil.example:9464", "localhost.evil", "", "10.0.0.1"]
        {
            assert_eq!(loopback.check(Some(host), None), Err(RequestRefusal::Forbidden), "{host}");
        }
        assert!(Access::new("0.0.0.0".parse().unwrap(), None).is_none());
        let open = Access::new("0.0.0.0".parse().unwrap(), Some("secret".to_owned())).unwrap();
        assert_eq!(open.check(Some("monitor.example"), Some("Bearer secret")), Ok(()));
    }

    #[test]
    fn a_token_comes_from_a_program_or_from_a_browser() {
        let access = Access::new("127.0.0.1".parse().unwrap(), Some("se:cret".to_owned())).unwrap();
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        for right in [
            "Bearer se:cret".to_owned(),
            "bearer  se:cret ".to_owned(),
            basic("any:se:cret"),
            basic(":se:cret"),
        ] {
            assert_eq!(access.check(None, Some(&right)), Ok(()), "{right}");
        }
        for wrong in [
            "",
            "Bearer",
            "Bearer se:creT",
            "se:cret",
            "Basic !",
            &basic("se:cret:"),
            &basic("x"),
            "Digest se:cret",
        ] {
            assert_eq!(access.check(None, Some(wrong)), Err(RequestRefusal::Unauthorized), "{wrong}");
        }
        assert_eq!(access.check(None, None), Err(RequestRefusal::Unauthorized));
    }
}
