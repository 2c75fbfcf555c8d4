//! What to try when the certificate of a hub or a database is not accepted.

use std::error::Error;
use std::io;

use rustls::CertificateError as Fault;

/// What to try, if a certificate is the reason below this error. `option` names the file of an authority.
pub(crate) fn remedy(error: &(dyn Error + 'static), option: &str) -> Option<String> {
    let fault = fault_below(error)?;
    Some(match fault {
        // An authority of the same name with a key of another kind is another authority.
        Fault::UnknownIssuer
        | Fault::BadSignature
        | Fault::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            format!(
                "no authority that this host trusts has signed its certificate: name the file of the authority with {option}"
            )
        }
        Fault::NotValidForName | Fault::NotValidForNameContext { .. } => {
            "its certificate belongs to another host: use a name that the certificate has".to_owned()
        }
        Fault::Expired | Fault::ExpiredContext { .. } => "its certificate has expired: renew it".to_owned(),
        Fault::NotValidYet | Fault::NotValidYetContext { .. } => {
            "its certificate is not valid yet: check the clocks of both hosts".to_owned()
        }
        other => format!(
            "its certificate is not accepted ({other}): give the server one of its own, not that of an authority"
        ),
    })
}

fn fault_below<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Fault> {
    let mut next = Some(error);
    while let Some(error) = next {
        // An error of the system hides the one that it was made from.
        let made_from = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let tls = error.downcast_ref::<rustls::Error>().or_else(|| made_from?.downcast_ref());
        if let Some(rustls::Error::InvalidCertificate(fault)) = tls {
            return Some(fault);
        }
        if let Some(fault) = made_from.and_then(|inner| fault_below(inner)) {
            return Some(fault);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("connect")]
    struct Outer(#[source] io::Error);

    #[test]
    fn each_fault_of_a_certificate_has_its_remedy() {
        let of = |fault: Fault| {
            let error = Outer(io::Error::other(rustls::Error::InvalidCertificate(fault)));
            remedy(&error, "--ca FILE").unwrap()
        };
        assert!(of(Fault::UnknownIssuer).ends_with("with --ca FILE"));
        assert!(of(Fault::NotValidForName).contains("another host"));
        assert!(of(Fault::Expired).contains("expired: renew it"));
        assert!(of(Fault::NotValidYet).contains("clocks"));
        assert!(of(Fault::BadEncoding).contains("not accepted"));
        let nested = Outer(io::Error::other(Outer(io::Error::other(rustls::Error::InvalidCertificate(
            Fault::UnknownIssuer,
        )))));
        assert!(remedy(&nested, "--ca FILE").is_some());
        assert_eq!(remedy(&Outer(io::Error::other("refused")), "--ca FILE"), None);
    }
}
