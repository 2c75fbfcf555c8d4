//! TLS of both ends: rustls with ring.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme};

use super::error::HttpError;

/// The only protocol above TLS.
const ALPN: &[u8] = b"h2";

/// Which certificates of a server are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Authorities that this system trusts.
    System,
    /// Certificates that one in this file has signed (PEM), or that are in it.
    File(PathBuf),
    /// Any: the server proves nothing about itself.
    Anything,
}

/// A certificate with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// Made at the start, for `localhost` and the address.
    SelfSigned,
    /// From two files (PEM).
    Files {
        /// The certificate, and those above it.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
    },
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn tls_error(error: impl std::fmt::Display) -> HttpError {
    HttpError::Tls { reason: error.to_string() }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, HttpError> {
    let failed = |error: rustls::pki_types::pem::Error| HttpError::File {
        path: path.to_owned(),
        reason: format!("no certificates in PEM form: {error}"),
    };
    CertificateDer::pem_file_iter(path).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)
}

/// The client's settings.
///
/// # Errors
///
/// A file cannot be read, or this system has no trusted certificates.
pub(crate) fn client_config(trust: &Trust) -> Result<Arc<ClientConfig>, HttpError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(tls_error)?;
    let mut config = match trust {
        Trust::Anything => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAny(provider())))
            .with_no_client_auth(),
        Trust::System | Trust::File(_) => {
            builder.with_root_certificates(trusted_roots(trust)?).with_no_client_auth()
        }
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Every probe measures a whole handshake.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

fn trusted_roots(trust: &Trust) -> Result<RootCertStore, HttpError> {
    let mut roots = RootCertStore::empty();
    let certificates = match trust {
        Trust::File(path) => read_certificates(path)?,
        Trust::System | Trust::Anything => rustls_native_certs::load_native_certs().certs,
    };
    roots.add_parsable_certificates(certificates);
    match roots.is_empty() {
        true => {
            Err(tls_error("no trusted certificates. Try ?ca=FILE, or ?insecure=1 for a server of your own"))
        }
        false => Ok(roots),
    }
}

/// The server's settings.
///
/// # Errors
///
/// A file cannot be read, or the key does not fit the certificate.
pub(crate) fn server_config(identity: &Identity, address: IpAddr) -> Result<Arc<ServerConfig>, HttpError> {
    let (certificates, key) = match identity {
        Identity::SelfSigned => {
            let names = vec!["localhost".to_owned(), address.to_string()];
            let made = rcgen::generate_simple_self_signed(names).map_err(tls_error)?;
            let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(tls_error)?;
            (vec![made.cert.der().clone()], key)
        }
        Identity::Files { certificate, key } => {
            let failed = |error: rustls::pki_types::pem::Error| HttpError::File {
                path: key.clone(),
                reason: format!("no key in PEM form: {error}"),
            };
            (read_certificates(certificate)?, PrivateKeyDer::from_pem_file(key).map_err(failed)?)
        }
    };
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(tls_error)?;
    let mut config = builder.with_no_client_auth().with_single_cert(certificates, key).map_err(tls_error)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// Accepts every certificate; signatures must be right.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
