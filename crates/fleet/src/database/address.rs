//! Where a database of results is, and whether the connection to it is encrypted.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::tls::Tls;
use super::{DatabaseError, reason};

/// Time for the connection to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// After this time without an acknowledgement a connection is lost.
const LOST_AFTER: Duration = Duration::from_secs(20);

/// How to connect.
pub struct Address {
    /// As given, without a password.
    pub url: String,
    pub config: Config,
    pub tls: Tls,
}

impl Address {
    /// Reads the URL. Beside the options of the client it has `sslrootcert`, and all modes of TLS that libpq has: one that
    /// encrypts also checks the certificate.
    pub(crate) fn of_url(url: &str, password: Option<String>) -> Result<Address, DatabaseError> {
        let wrong = |why: &str| DatabaseError::Url(why.to_owned());
        if !["postgresql://", "postgres://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(wrong("not the URL of a database"));
        }
        let (plain, options) = url.split_once('?').unwrap_or((url, ""));
        let (mut others, mut mode, mut ca) = (Vec::new(), None, None);
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("sslrootcert", path)) => ca = Some(PathBuf::from(path)),
                Some(("sslmode", name)) => mode = Some(ssl_mode(name)?),
                _ => others.push(option),
            }
        }
        let parsed = format!("{plain}?{}", others.join("&")).parse::<Config>();
        let mut config = parsed.map_err(|error| wrong(&reason(&error)))?;
        if config.get_password().is_some() {
            return Err(wrong(
                "other users of this host can read a password in it. Set PGPASSWORD, or use --password-file",
            ));
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(wrong("a host is missing"));
        }
        config.ssl_mode(mode.unwrap_or_else(|| default_mode(&config)));
        config.connect_timeout(config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT));
        config.application_name("linkgauge");
        config
            .tcp_user_timeout(LOST_AFTER)
            .keepalives_idle(LOST_AFTER / 2)
            .keepalives_interval(LOST_AFTER / 4);
        if let Some(password) = password {
            config.password(password);
        }
        let tls = Tls::new(config.get_ssl_mode(), ca)?;
        Ok(Address { url: url.to_owned(), config, tls })
    }
}

fn ssl_mode(name: &str) -> Result<SslMode, DatabaseError> {
    match name {
        "disable" => Ok(SslMode::Disable),
        "allow" | "prefer" => Ok(SslMode::Prefer),
        "require" | "verify-ca" | "verify-full" => Ok(SslMode::Require),
        _ => Err(DatabaseError::Url(format!("sslmode '{name}' is none of disable, prefer and require"))),
    }
}

/// Results are confidential, and so is the password: only what stays on this host needs no encryption.
fn default_mode(config: &Config) -> SslMode {
    let is_here = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()),
    };
    let is_local =
        config.get_hostaddrs().iter().all(IpAddr::is_loopback) && config.get_hosts().iter().all(is_here);
    if is_local { SslMode::Disable } else { SslMode::Require }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str) -> SslMode {
        Address::of_url(url, None).unwrap_or_else(|error| panic!("{url}: {error}")).config.get_ssl_mode()
    }

    #[test]
    fn only_what_stays_on_this_host_is_sent_in_the_clear() {
        for (url, expected) in [
            ("postgresql://u@localhost/links", SslMode::Disable),
            ("postgres://u@127.0.0.1:5433/links", SslMode::Disable),
            ("postgresql://u@[::1]/links", SslMode::Disable),
            ("postgresql:///links?host=/run/postgresql", SslMode::Disable),
            ("postgresql://u@db.example/links", SslMode::Require),
            ("postgresql://u@localhost,db.example/links", SslMode::Require),
            ("postgresql://u@127.0.0.1?hostaddr=192.0.2.1", SslMode::Require),
            ("postgresql://u@db.example/links?sslmode=disable", SslMode::Disable),
            ("postgresql://u@db.example/links?sslmode=prefer&connect_timeout=3", SslMode::Prefer),
            ("postgresql://u@localhost/links?sslmode=verify-full", SslMode::Require),
        ] {
            assert_eq!(mode(url), expected, "{url}");
        }
    }

    #[test]
    fn urls_that_cannot_be_used_are_refused_without_their_password() {
        for (url, why) in [
            ("db.example", "not the URL of a database"),
            ("mysql://u@db.example/links", "not the URL of a database"),
            ("postgresql://u:secret@db.example/links", "PGPASSWORD"),
            ("postgresql://u@db.example/links?password=secret", "--password-file"),
            ("postgresql:///links", "a host is missing"),
            ("postgresql://u@db.example:x/links", "invalid value for option `port`"),
            ("postgresql://u@db.example/links?colour=red", "unknown option `colour`"),
            ("postgresql://u@db.example/links?sslmode=maybe", "sslmode 'maybe'"),
            (
                "postgresql://u@db.example/links?sslrootcert=/nowhere/ca.pem",
                "/nowhere/ca.pem: no certificates",
            ),
        ] {
            let Err(error) = Address::of_url(url, None) else { panic!("{url}") };
            let text = error.to_string();
            assert!(text.contains(why) && !text.contains("secret"), "{url}: {text}");
        }
    }
}
