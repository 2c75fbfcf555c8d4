//! The document that names the URLs of a server (draft-ietf-ippm-responsiveness, section "Responsiveness Test Server API"),
//! below `/.well-known/nq`. Bytes in, bytes out.

use http::Uri;
use http::uri::Authority;
use serde::{Deserialize, Serialize};

use super::error::HttpError;

/// Where servers have the document.
pub(crate) const CONFIG_PATH: &str = "/.well-known/nq";

/// Paths of this server: a reply of one byte, a reply that never ends in practice, and a request of any length.
pub(crate) const SMALL_PATH: &str = "/small";
/// See [`SMALL_PATH`].
pub(crate) const LARGE_PATH: &str = "/large";
/// See [`SMALL_PATH`].
pub(crate) const UPLOAD_PATH: &str = "/upload";

/// Largest document that is read.
pub(crate) const MAX_CONFIG_BYTES: usize = 64 << 10;

/// The only version.
const VERSION: u32 = 1;

/// The URLs of a server. All have the same host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerUrls {
    /// A reply of one byte.
    pub(crate) small: Uri,
    /// A reply of several gigabytes.
    pub(crate) large: Uri,
    /// Takes a request body of any length.
    pub(crate) upload: Uri,
    /// The host to connect to, if it is another one than that of the URLs.
    pub(crate) host: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Document {
    version: u32,
    urls: DocumentUrls,
    #[serde(skip_serializing_if = "Option::is_none")]
    test_endpoint: Option<String>,
}

/// The names of the draft, and those of its earlier versions.
#[derive(Debug, Default, Serialize, Deserialize)]
struct DocumentUrls {
    large_download_url: Option<String>,
    small_download_url: Option<String>,
    upload_url: Option<String>,
    large_https_download_url: Option<String>,
    small_https_download_url: Option<String>,
    https_upload_url: Option<String>,
}

impl ServerUrls {
    /// Parses the document. Unknown names are ignored.
    ///
    /// # Errors
    ///
    /// It is not JSON or too large, its version is not 1, it names something twice, a URL is missing or invalid, or the URLs
    /// belong to different hosts: then the draft has it ignored as a whole.
    pub(crate) fn parse(bytes: &[u8]) -> Result<ServerUrls, HttpError> {
        let wrong = |reason: String| HttpError::Config { reason };
        if bytes.len() > MAX_CONFIG_BYTES {
            return Err(wrong(format!("it has more than {MAX_CONFIG_BYTES} bytes")));
        }
        let document: Document = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
        if document.version != VERSION {
            return Err(wrong(format!("its version is {} instead of {VERSION}", document.version)));
        }
        let urls = document.urls;
        let parse = |name: &str, new: Option<String>, old: Option<String>| -> Result<Uri, HttpError> {
            let text = new.or(old).ok_or_else(|| wrong(format!("{name} is missing")))?;
            let uri: Uri = text.parse().map_err(|error| wrong(format!("{name}: {error}")))?;
            match (uri.scheme_str(), uri.authority()) {
                (Some("https"), Some(_)) => Ok(uri),
                _ => Err(wrong(format!("{name} is not an https URL"))),
            }
        };
        let small = parse("small_download_url", urls.small_download_url, urls.small_https_download_url)?;
        let large = parse("large_download_url", urls.large_download_url, urls.large_https_download_url)?;
        let upload = parse("upload_url", urls.upload_url, urls.https_upload_url)?;
        if [&large, &upload].into_iter().any(|uri| uri.authority() != small.authority()) {
            return Err(wrong("its URLs belong to different hosts".to_owned()));
        }
        Ok(ServerUrls { small, large, upload, host: document.test_endpoint })
    }

    /// The document of a server that clients know by this host and port.
    pub(crate) fn document(authority: &Authority) -> Vec<u8> {
        let url = |path: &str| Some(format!("https://{authority}{path}"));
        let urls = DocumentUrls {
            large_download_url: url(LARGE_PATH),
            small_download_url: url(SMALL_PATH),
            upload_url: url(UPLOAD_PATH),
            large_https_download_url: url(LARGE_PATH),
            small_https_download_url: url(SMALL_PATH),
            https_upload_url: url(UPLOAD_PATH),
        };
        let document = Document { version: VERSION, urls, test_endpoint: None };
        serde_json::to_vec(&document).expect("texts are JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_reads_what_a_server_writes() {
        let urls = ServerUrls::parse(&ServerUrls::document(&"gw:4043".parse().unwrap())).unwrap();
        assert_eq!(urls.small, "https://gw:4043/small");
        assert_eq!(urls.large, "https://gw:4043/large");
        assert_eq!(urls.upload, "https://gw:4043/upload");
        assert_eq!(urls.host, None);
    }

    #[test]
    fn old_names_and_unknown_ones_are_accepted() {
        let text = r#"{"version":1,"colour":"blue","test_endpoint":"edge.example","urls":{
            "small_https_download_url":"https://a/s","large_https_download_url":"https://a/l","https_upload_url":"https://a/u"}}"#;
        let urls = ServerUrls::parse(text.as_bytes()).unwrap();
        assert_eq!(
            (urls.upload, urls.host.as_deref()),
            ("https://a/u".parse().unwrap(), Some("edge.example"))
        );
    }

    #[test]
    fn a_document_with_a_fault_is_refused_as_a_whole() {
        let with = |urls: &str, version: u32| {
            let text = format!(r#"{{"version":{version},"urls":{{{urls}}}}}"#);
            ServerUrls::parse(text.as_bytes()).unwrap_err().to_string()
        };
        let [small, large] =
            [r#""small_download_url":"https://a/s""#, r#""large_download_url":"https://a/l""#];
        let all = |upload: &str| with(&format!(r#"{small},{large},"upload_url":"{upload}""#), 1);
        insta::assert_snapshot!(all("https://b/u"), @"the server's list of URLs is not usable: its URLs belong to different hosts");
        insta::assert_snapshot!(all("http://a/u"), @"the server's list of URLs is not usable: upload_url is not an https URL");
        insta::assert_snapshot!(all("https://a a/"), @"the server's list of URLs is not usable: upload_url: invalid uri character");
        insta::assert_snapshot!(with(small, 1), @"the server's list of URLs is not usable: large_download_url is missing");
        insta::assert_snapshot!(with("", 2), @"the server's list of URLs is not usable: its version is 2 instead of 1");
        assert!(with(&format!("{small},{small},{large}"), 1).contains("duplicate field"));
        assert!(ServerUrls::parse(&vec![b' '; MAX_CONFIG_BYTES + 1]).is_err());
        assert!(ServerUrls::parse(b"[]").is_err());
    }
}
