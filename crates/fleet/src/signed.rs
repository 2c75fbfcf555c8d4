//! Texts that the operator of a fleet has signed (Ed25519, in the form of NATS: nkeys). So agents need not trust the hub.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use nkeys::KeyPair;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Why a text has no valid signature.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignatureError {
    /// The text of a key is invalid.
    #[error("not {0}. 'linkgauge fleet key FILE' makes one")]
    Key(&'static str),
    /// The bytes are not a signed text.
    #[error("not a signed text: {0}")]
    Form(String),
    /// The signature is that of another key, or of another text.
    #[error("the signature does not fit the key of the operator")]
    Signature,
}

/// A secret key: the seed of a user of NATS.
pub struct SecretKey {
    seed: String,
    pair: KeyPair,
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "SecretKey({})", self.pair.public_key())
    }
}

impl SecretKey {
    /// A new key.
    pub fn random() -> SecretKey {
        let pair = KeyPair::new_user();
        let seed = pair.seed().expect("a new key has its seed");
        SecretKey { seed, pair }
    }

    /// Reads the seed of a user, `SU…`.
    ///
    /// # Errors
    ///
    /// The text is no such seed.
    pub fn read(text: &str) -> Result<SecretKey, SignatureError> {
        const WHAT: SignatureError = SignatureError::Key("the seed of a user (SU…)");
        let seed = text.trim();
        match KeyPair::from_seed(seed) {
            Ok(pair) if seed.starts_with("SU") => Ok(SecretKey { seed: seed.to_owned(), pair }),
            _ => Err(WHAT),
        }
    }

    /// The seed.
    pub fn text(&self) -> &str {
        &self.seed
    }

    /// The public key, `U…`.
    pub fn public_key(&self) -> String {
        self.pair.public_key()
    }
}

/// The public key of the operator.
pub struct PublicKey(KeyPair);

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "PublicKey({})", self.0.public_key())
    }
}

impl PublicKey {
    /// Reads the public key of a user, `U…`.
    ///
    /// # Errors
    ///
    /// The text is no such key.
    pub fn read(text: &str) -> Result<PublicKey, SignatureError> {
        const WHAT: SignatureError = SignatureError::Key("the public key of a user (U…)");
        match KeyPair::from_public_key(text.trim()) {
            Ok(pair) if text.trim().starts_with('U') => Ok(PublicKey(pair)),
            _ => Err(WHAT),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    /// JSON, as a text, so that both sides see the same bytes.
    content: String,
    /// Base64.
    signature: String,
}

/// Signs a value.
///
/// # Errors
///
/// It cannot be written as JSON.
pub fn sign(value: &impl Serialize, key: &SecretKey) -> Result<Vec<u8>, SignatureError> {
    let form = |error: serde_json::Error| SignatureError::Form(error.to_string());
    let content = serde_json::to_string(value).map_err(form)?;
    let signature = key.pair.sign(content.as_bytes()).map_err(|_| SignatureError::Signature)?;
    serde_json::to_vec(&Envelope { content, signature: BASE64_STANDARD.encode(signature) }).map_err(form)
}

/// Reads a signed value. The signature is checked before the content is read.
///
/// # Errors
///
/// The key has not signed it, or the content has another form.
pub fn open_signed<T: DeserializeOwned>(bytes: &[u8], key: &PublicKey) -> Result<T, SignatureError> {
    let form = |error: serde_json::Error| SignatureError::Form(error.to_string());
    let envelope: Envelope = serde_json::from_slice(bytes).map_err(form)?;
    let signature = BASE64_STANDARD.decode(&envelope.signature).map_err(|_| SignatureError::Signature)?;
    key.0.verify(envelope.content.as_bytes(), &signature).map_err(|_| SignatureError::Signature)?;
    serde_json::from_str(&envelope.content).map_err(form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_that_the_key_has_signed_is_read() {
        let [key, other] = [SecretKey::random(), SecretKey::random()];
        let public = PublicKey::read(&key.public_key()).unwrap();
        let signed = sign(&vec![1, 2, 3], &key).unwrap();
        assert_eq!(open_signed::<Vec<u32>>(&signed, &public).unwrap(), [1, 2, 3]);
        let changed = String::from_utf8(signed.clone()).unwrap().replace("[1,2,3]", "[1,2,4]");
        let error = open_signed::<Vec<u32>>(changed.as_bytes(), &public).unwrap_err();
        assert_eq!(error, SignatureError::Signature);
        let foreign = sign(&vec![1, 2, 3], &other).unwrap();
        assert_eq!(open_signed::<Vec<u32>>(&foreign, &public).unwrap_err(), SignatureError::Signature);
        assert!(matches!(open_signed::<String>(&signed, &public), Err(SignatureError::Form(_))));
        assert!(matches!(open_signed::<String>(b"{}", &public), Err(SignatureError::Form(_))));
    }

    #[test]
    fn keys_are_read_as_they_were_written() {
        let key = SecretKey::random();
        let read = SecretKey::read(&format!("{}\n", key.text())).unwrap();
        assert_eq!(read.public_key(), key.public_key());
        assert!(!format!("{key:?}").contains(key.text()), "a secret stays out of messages");
        for wrong in ["", "SU", &key.public_key(), "SAAJ"] {
            assert!(SecretKey::read(wrong).is_err(), "{wrong}");
        }
        assert!(PublicKey::read(key.text()).is_err());
    }
}
