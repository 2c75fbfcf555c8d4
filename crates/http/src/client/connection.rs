//! One connection of the client: TCP, TLS, HTTP/2, and its requests.

use linkgauge_system::AsHandle;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use http::{Method, Request, Uri};
use rustls::ProtocolVersion;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::client::HttpMeasurement;
use crate::config::{CONFIG_PATH, ServerUrls};
use crate::error::HttpError;
use crate::runtime::{CHUNK_BYTES, poll_capacity};
use crate::tls;
use linkgauge_engine::Registry;
use linkgauge_engine::link::{Dialer, remote_address, socket_settings};
use linkgauge_model::clock::Clock;

/// What the server may send before the client has read it: enough for 1 Gbit/s at 130 ms.
const WINDOW_BYTES: u32 = 16 << 20;

/// The headers of a reply.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// Port of `https`.
const HTTPS_PORT: u16 = 443;

/// The server: where it is and what it is asked for.
#[derive(Clone)]
pub(crate) struct HttpTarget {
    address: SocketAddr,
    name: ServerName<'static>,
    connector: TlsConnector,
    unsent_bytes: u32,
    /// For each attempt to reach it.
    timeout: Duration,
    /// The URLs; before they are known, all three are the list of URLs.
    pub(crate) urls: ServerUrls,
}

impl HttpTarget {
    /// From the URL that the user typed.
    ///
    /// # Errors
    ///
    /// The URL is invalid, or its host is unknown.
    pub(crate) async fn find(plan: &HttpMeasurement) -> Result<HttpTarget, HttpError> {
        let HttpMeasurement { url, trust, unsent_bytes, timeout, .. } = plan;
        let wrong = |reason: &str| HttpError::Url { url: url.clone(), reason: reason.to_owned() };
        let uri: Uri = url.parse().map_err(|_| wrong("not a URL. Write it like https://192.0.2.7:4043"))?;
        let authority =
            uri.authority().ok_or_else(|| wrong("no host. Write it like https://192.0.2.7:4043"))?;
        let list = match uri.path() {
            "" | "/" => format!("https://{authority}{CONFIG_PATH}").parse().map_err(http::Error::from)?,
            _ => uri.clone(),
        };
        let urls = ServerUrls { small: list.clone(), large: list.clone(), upload: list, host: None };
        let (address, name) = resolve(&uri, None, *timeout).await?;
        let connector = TlsConnector::from(tls::client_config(trust)?);
        Ok(HttpTarget { address, name, connector, unsent_bytes: *unsent_bytes, timeout: *timeout, urls })
    }

    /// The same server after it has sent its list of URLs.
    ///
    /// # Errors
    ///
    /// The host in it is unknown.
    pub(crate) async fn with_urls(self, urls: ServerUrls) -> Result<HttpTarget, HttpError> {
        let (address, name) = resolve(&urls.small, urls.host.as_deref(), self.timeout).await?;
        Ok(HttpTarget { address, name, urls, ..self })
    }
}

/// The address of a URL's host, or of another host in its place, and its name in certificates.
async fn resolve(
    uri: &Uri,
    host: Option<&str>,
    timeout: Duration,
) -> Result<(SocketAddr, ServerName<'static>), HttpError> {
    let wrong = |reason: String| HttpError::Url { url: uri.to_string(), reason };
    let named = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let name = ServerName::try_from(named.clone()).map_err(|error| wrong(error.to_string()))?;
    let host = host.map_or(named, str::to_owned);
    let port = uri.port_u16().unwrap_or(HTTPS_PORT);
    let dialer = Dialer { timeout, ..Registry::standard().dialer(Clock::System) };
    let looked_up = tokio::task::spawn_blocking(move || find_address(&host, port, &dialer));
    match looked_up.await {
        Ok(Ok(Some(address))) => Ok((address, name)),
        Ok(Err(error)) => Err(wrong(format!("{error}. Check the name of the host"))),
        _ => Err(wrong("the host has no address. Check its name".to_owned())),
    }
}

/// The address of a host that all connections use. Of several it is the first that accepts, as for links over TCP; if none does, the
/// first of all, and its connection reports why.
fn find_address(host: &str, port: u16, dialer: &Dialer) -> std::io::Result<Option<SocketAddr>> {
    let addresses = dialer.hosts.resolve(host, port, dialer.now())?;
    if addresses.len() > 1
        && let Ok(endpoint) = format!("tcp://{host}:{port}").parse()
        && let Ok(link) = dialer.open(&endpoint)
    {
        return Ok(remote_address(link.as_ref()));
    }
    Ok(addresses.first().copied())
}

/// An open connection. Clones are handles to the same one, which ends with the last of them.
#[derive(Clone)]
pub(crate) struct HttpConnection {
    requests: SendRequest<Bytes>,
    /// `TLS 1.3` or `TLS 1.2`.
    pub(crate) tls_version: &'static str,
    /// Times of the handshakes of TCP and TLS, for each round trip.
    handshakes: [Duration; 2],
    _driver: Arc<Driver>,
}

/// The task that moves the bytes of a connection.
struct Driver(tokio::task::JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl HttpConnection {
    /// Opens one.
    ///
    /// # Errors
    ///
    /// The server does not reply in time, or its certificate is not accepted.
    pub(crate) async fn open(target: &HttpTarget, limit: Duration) -> Result<HttpConnection, HttpError> {
        timeout(limit, HttpConnection::open_unlimited(target)).await?
    }

    async fn open_unlimited(target: &HttpTarget) -> Result<HttpConnection, HttpError> {
        let began = Clock::System.now();
        let socket = TcpStream::connect(target.address).await;
        let socket = socket.map_err(|source| HttpError::Connect { source })?;
        let connected = Clock::System.now();
        socket.set_nodelay(true)?;
        socket_settings::limit_unsent_bytes(Some(socket.as_handle()), target.unsent_bytes);
        let stream = target.connector.connect(target.name.clone(), socket).await;
        let mut stream = stream.map_err(|source| HttpError::Handshake { source })?;
        stream.get_mut().1.set_buffer_limit(Some(CHUNK_BYTES));
        let tls_time = Clock::System.now().since(connected);
        let (tls_version, round_trips) = version_of(&stream);
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_send_buffer_size(2 * CHUNK_BYTES)
            .max_header_list_size(MAX_HEADER_BYTES)
            .enable_push(false);
        let (requests, connection) = builder.handshake(stream).await?;
        let driver = Driver(tokio::spawn(async move {
            // Its requests report the failure.
            let _ = connection.await;
        }));
        let handshakes = [connected.since(began), tls_time / round_trips];
        Ok(HttpConnection { requests, tls_version, handshakes, _driver: Arc::new(driver) })
    }

    /// Opens a connection, requests the small reply and closes it: the times of TCP, TLS (for each round trip) and HTTP.
    ///
    /// # Errors
    ///
    /// As for opening and for the request.
    pub(crate) async fn probe(target: &HttpTarget, limit: Duration) -> Result<[Duration; 3], HttpError> {
        let connection = HttpConnection::open(target, limit).await?;
        let began = Clock::System.now();
        connection.get(&target.urls.small, 1, limit).await?;
        let [tcp, tls] = connection.handshakes;
        Ok([tcp, tls, Clock::System.now().since(began)])
    }

    async fn request(
        &self,
        method: Method,
        uri: &Uri,
        body: RequestBody,
    ) -> Result<StartedRequest, HttpError> {
        let request = Request::builder().method(method).uri(uri.clone()).body(())?;
        let mut ready = self.requests.clone().ready().await?;
        let (response, stream) = ready.send_request(request, body == RequestBody::None)?;
        Ok(StartedRequest { response, stream })
    }

    /// The body of the reply to a request.
    ///
    /// # Errors
    ///
    /// No reply in time, another status than 200, or more than this number of bytes.
    pub(crate) async fn get(
        &self,
        uri: &Uri,
        max_bytes: usize,
        limit: Duration,
    ) -> Result<Vec<u8>, HttpError> {
        timeout(limit, async {
            let mut body =
                self.request(Method::GET, uri, RequestBody::None).await?.body_of_reply(uri).await?;
            let mut bytes = Vec::new();
            while let Some(chunk) = body.data().await {
                let chunk = chunk?;
                if bytes.len() + chunk.len() > max_bytes {
                    let reason = format!("the reply has more than {max_bytes} bytes");
                    return Err(HttpError::Url { url: uri.to_string(), reason });
                }
                bytes.extend_from_slice(&chunk);
                body.flow_control().release_capacity(chunk.len())?;
            }
            Ok(bytes)
        })
        .await?
    }

    /// Receives the large reply, again and again. Adds its bytes to `moved`.
    ///
    /// # Errors
    ///
    /// The connection fails.
    pub(crate) async fn download(&self, target: &HttpTarget, moved: &AtomicU64) -> Result<(), HttpError> {
        let uri = &target.urls.large;
        loop {
            let mut body =
                self.request(Method::GET, uri, RequestBody::None).await?.body_of_reply(uri).await?;
            while let Some(chunk) = body.data().await {
                let bytes = chunk?.len();
                moved.fetch_add(bytes as u64, Relaxed);
                body.flow_control().release_capacity(bytes)?;
            }
        }
    }

    /// Sends a request that does not end. Adds its bytes to `moved`.
    ///
    /// # Errors
    ///
    /// The connection fails, or the server ends the request.
    pub(crate) async fn upload(&self, target: &HttpTarget, moved: &AtomicU64) -> Result<(), HttpError> {
        let chunk = Bytes::from(vec![0xA5; CHUNK_BYTES]);
        let mut started = self.request(Method::POST, &target.urls.upload, RequestBody::Follows).await?;
        loop {
            started.stream.reserve_capacity(CHUNK_BYTES);
            let bytes = poll_capacity(&mut started.stream).await?.min(CHUNK_BYTES);
            started.stream.send_data(chunk.slice(..bytes), false)?;
            moved.fetch_add(bytes as u64, Relaxed);
        }
    }
}

/// Whether a request has a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestBody {
    None,
    Follows,
}

/// A request whose reply has not begun.
struct StartedRequest {
    response: h2::client::ResponseFuture,
    stream: h2::SendStream<Bytes>,
}

impl StartedRequest {
    async fn body_of_reply(self, uri: &Uri) -> Result<RecvStream, HttpError> {
        let response = self.response.await?;
        match response.status().as_u16() {
            200 => Ok(response.into_body()),
            status => Err(HttpError::Status { path: uri.path().to_owned(), status }),
        }
    }
}

/// The version of TLS, and the round trips of its handshake.
fn version_of(stream: &TlsStream<TcpStream>) -> (&'static str, u32) {
    match stream.get_ref().1.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => ("TLS 1.2", 2),
        _ => ("TLS 1.3", 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::runtime;
    use crate::{HttpServer, HttpServerOptions, Trust, UNSENT_BYTES};
    use linkgauge_model::plan::Direction;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn an_address_that_refuses_is_followed_by_the_next() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let dialer = Registry::standard().dialer(Clock::System);
        let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        dialer.hosts.insert("server", addresses(&["::1", "127.0.0.3", "127.0.0.1"]));
        assert_eq!(find_address("server", address.port(), &dialer).unwrap(), Some(address));
        // Nothing accepts: the connection to the first one reports that.
        dialer.hosts.insert("closed", addresses(&["127.0.0.3", "127.0.0.4"]));
        let first = SocketAddr::new("127.0.0.3".parse().unwrap(), address.port());
        assert_eq!(find_address("closed", address.port(), &dialer).unwrap(), Some(first));
    }

    #[test]
    fn a_server_ends_connections_without_requests() {
        let mut options = HttpServerOptions::new("127.0.0.1:0".parse().unwrap());
        options.unused = Duration::from_secs(1);
        let server = HttpServer::start(&options).unwrap();
        let plan = HttpMeasurement {
            url: server.url(),
            trust: Trust::Anything,
            direction: Direction::Send,
            connections: 1,
            time: PATIENCE,
            idle: PATIENCE,
            probes_per_second: 1.0,
            timeout: PATIENCE,
            unsent_bytes: UNSENT_BYTES,
        };
        let ended = runtime().unwrap().block_on(async {
            let target = HttpTarget::find(&plan).await.unwrap();
            let mut unused = HttpConnection::open(&target, PATIENCE).await.unwrap();
            unused.get(&target.urls.small, 1 << 16, PATIENCE).await.unwrap();
            let driver = &mut Arc::get_mut(&mut unused._driver).unwrap().0;
            timeout(PATIENCE, driver).await.is_ok()
        });
        assert!(ended);
    }
}
