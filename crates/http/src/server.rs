//! A server for measurements of responsiveness over HTTP/2: the list of its URLs, a reply of one byte, a reply of 8 GiB, and a
//! place for uploads. It runs in a thread of its own.

use linkgauge_system::AsHandle;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::uri::Authority;
use http::{Method, Request, Response, StatusCode};
use socket2::{Domain, Socket, Type};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::config::{CONFIG_PATH, LARGE_PATH, SMALL_PATH, ServerUrls, UPLOAD_PATH};
use super::error::HttpError;
use super::runtime::{CHUNK_BYTES, UNSENT_BYTES, poll_capacity, runtime};
use super::tls;
use linkgauge_engine::link::socket_settings;
use linkgauge_engine::serve::client_id::{ClientId, ClientQuotas};

/// Another path of the list of URLs, of earlier versions of the draft.
const OLD_CONFIG_PATH: &str = "/config";

/// Another path for uploads, of earlier versions of the draft.
const OLD_UPLOAD_PATH: &str = "/slurp";

/// The draft: at least 8 GB.
const LARGE_BYTES: u64 = 8 << 30;

/// What a client may send before the server has read it: enough for 100 Mbit/s at 300 ms. A connection has this window from its
/// first upload on, as long as the memory of the server has room for it.
const WINDOW_BYTES: u32 = 4 << 20;

/// The window before that, and without that room.
const FIRST_WINDOW_BYTES: u32 = 128 << 10;

/// Memory of a connection with the first window: TLS records, headers, and the state of its requests take the rest.
const CONNECTION_BYTES: u64 = 320 << 10;

/// Unit in which the windows of uploads are charged.
const CHARGE_BYTES: u64 = 64 << 10;

/// The headers of a request, which are held until it has its reply.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// What large replies consist of: one for all of them.
static PAYLOAD: [u8; CHUNK_BYTES] = [0xA5; CHUNK_BYTES];

/// A source may have this part of the connections: others are served beside one that holds all it can get.
const SOURCE_DIVISOR: usize = 2;

/// Connections that may wait to be accepted: clients open a hundred per second.
const MAX_WAITING_CONNECTIONS: i32 = 1024;

/// A server's settings.
#[derive(Debug, Clone)]
pub struct HttpServerOptions {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The certificate.
    pub identity: tls::Identity,
    /// Connections at the same time; more wait. One source may have half of them; its others are closed.
    pub max_connections: usize,
    /// Memory of all connections together, in bytes.
    pub memory_bytes: u64,
    /// Requests of a connection at the same time.
    pub(crate) max_requests: u32,
    /// Longest life of a connection.
    pub max_time: Duration,
    /// A request that makes no progress for this time ends.
    pub idle: Duration,
    /// A connection without requests ends after this time. Some clients open one for each probe, a hundred per second, and
    /// close none.
    pub unused: Duration,
}

impl HttpServerOptions {
    /// The defaults, with a certificate of its own.
    pub fn new(listen: SocketAddr) -> HttpServerOptions {
        HttpServerOptions {
            listen,
            identity: tls::Identity::SelfSigned,
            max_connections: 2048,
            memory_bytes: 1 << 30,
            max_requests: 100,
            max_time: Duration::from_secs(300),
            idle: Duration::from_secs(10),
            unused: Duration::from_secs(5),
        }
    }
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    end: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Listens and starts the thread.
    ///
    /// # Errors
    ///
    /// The certificate cannot be used, or the address is in use or not of this host.
    pub fn start(options: &HttpServerOptions) -> Result<HttpServer, HttpError> {
        let (connections, window_charges) = shares_of_memory(options)?;
        let config = tls::server_config(&options.identity, options.listen.ip())?;
        let failed = |source| HttpError::Listen { address: options.listen, source };
        let listener = listen(options.listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (end, ended) = watch::channel(false);
        let shared = Arc::new(AcceptContext {
            acceptor: TlsAcceptor::from(config),
            options: options.clone(),
            connections: Arc::new(Semaphore::new(connections)),
            of_sources: Arc::default(),
            most_of_source: connections.div_ceil(SOURCE_DIVISOR),
            window_charges: Arc::new(Semaphore::new(window_charges)),
        });
        let runtime = runtime()?;
        let thread = std::thread::spawn(move || {
            // Dropping the runtime ends the tasks of all connections.
            runtime.block_on(accept_connections(listener, shared, ended));
        });
        Ok(HttpServer { address, end, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for clients of this host.
    pub fn url(&self) -> String {
        let host = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
            IpAddr::V6(ip) if ip.is_unspecified() => "[::1]".to_owned(),
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        format!("https://{host}:{}", self.address.port())
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.end.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A listening socket with room for a burst of probes.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(MAX_WAITING_CONNECTIONS)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

struct AcceptContext {
    acceptor: TlsAcceptor,
    options: HttpServerOptions,
    connections: Arc<Semaphore>,
    /// Connections of each source, and how many one may have.
    of_sources: Arc<ClientQuotas>,
    most_of_source: usize,
    /// What is left of the memory for the windows of uploads.
    window_charges: Arc<Semaphore>,
}

/// Connections that fit into the memory, and what they leave for the windows of uploads, in units.
fn shares_of_memory(options: &HttpServerOptions) -> Result<(usize, usize), HttpError> {
    let fit = usize::try_from(options.memory_bytes / CONNECTION_BYTES).unwrap_or(usize::MAX);
    let connections = options.max_connections.min(fit);
    if connections == 0 {
        return Err(HttpError::Memory(options.memory_bytes));
    }
    let left = options.memory_bytes - connections as u64 * CONNECTION_BYTES;
    Ok((connections, usize::try_from(left / CHARGE_BYTES).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS)))
}

async fn accept_connections(
    listener: TcpListener,
    shared: Arc<AcceptContext>,
    mut ended: watch::Receiver<bool>,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let slots = shared.connections.clone();
    loop {
        let accepted = async {
            let slot = slots.clone().acquire_owned().await;
            (listener.accept().await, slot)
        };
        let (accepted, slot) = tokio::select! {
            accepted = accepted => accepted,
            _ = ended.changed() => return,
        };
        let Ok((socket, from)) = accepted else {
            // Too many open files, for instance: others may end meanwhile.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let source = ClientId::from_sender(&from.to_string());
        let Some(share) = shared.of_sources.try_take(&source, shared.most_of_source) else { continue };
        let shared = shared.clone();
        tokio::spawn(async move {
            let (_slot, _share) = (slot, share);
            let max_time = shared.options.max_time;
            // A client that breaks the rules loses its connection, nothing else.
            let _ = timeout(max_time, serve_connection(socket, shared)).await;
        });
    }
}

/// Serves the requests of one connection until it ends.
async fn serve_connection(socket: TcpStream, shared: Arc<AcceptContext>) -> Result<(), HttpError> {
    let idle = shared.options.idle;
    let _ = socket.set_nodelay(true);
    socket_settings::limit_unsent_bytes(Some(socket.as_handle()), UNSENT_BYTES);
    let mut stream = timeout(idle, shared.acceptor.accept(socket)).await??;
    stream.get_mut().1.set_buffer_limit(Some(CHUNK_BYTES));
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(FIRST_WINDOW_BYTES)
        .max_concurrent_streams(shared.options.max_requests)
        .max_header_list_size(MAX_HEADER_BYTES)
        .max_send_buffer_size(2 * CHUNK_BYTES);
    let mut connection = timeout(idle, builder.handshake::<_, Bytes>(stream)).await??;
    // One for this function, and one for each request.
    let users = Arc::new(());
    let mut is_closing = false;
    let mut window_charge = None;
    loop {
        let request = match timeout(shared.options.unused, connection.accept()).await {
            Ok(Some(request)) => request?,
            Ok(None) => return Ok(()),
            Err(_) if Arc::strong_count(&users) > 1 => continue,
            Err(_) if is_closing => return Ok(()),
            Err(_) => {
                connection.graceful_shutdown();
                is_closing = true;
                continue;
            }
        };
        if request.0.method() == Method::POST && window_charge.is_none() {
            let charge = (u64::from(WINDOW_BYTES - FIRST_WINDOW_BYTES) / CHARGE_BYTES) as u32;
            window_charge = shared.window_charges.clone().try_acquire_many_owned(charge).ok();
            if window_charge.is_some() {
                connection.set_target_window_size(WINDOW_BYTES);
            }
        }
        let user = users.clone();
        tokio::spawn(async move {
            let _user = user;
            let (request, respond) = request;
            // A request that fails was reset by its client.
            let _ = answer(request, respond, idle).await;
        });
    }
}

/// What a request asks for.
enum Resource {
    /// The list of URLs, for a client that uses this host and port.
    Urls(Authority),
    Small,
    Large,
    Upload,
    Unknown,
}

impl Resource {
    fn of<Body>(request: &Request<Body>) -> Resource {
        match (request.method(), request.uri().path()) {
            (&Method::GET, CONFIG_PATH | OLD_CONFIG_PATH) => {
                let authority = request.uri().authority().cloned();
                Resource::Urls(authority.unwrap_or(Authority::from_static("localhost")))
            }
            (&Method::GET, SMALL_PATH) => Resource::Small,
            (&Method::GET, LARGE_PATH) => Resource::Large,
            (&Method::POST, UPLOAD_PATH | OLD_UPLOAD_PATH) => Resource::Upload,
            _ => Resource::Unknown,
        }
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    idle: Duration,
) -> Result<(), HttpError> {
    let resource = Resource::of(&request);
    // The headers do not wait for the end of a transfer.
    let body = request.into_body();
    let status = |code: StatusCode| Response::builder().status(code);
    let ok = |kind: &str, bytes: u64| {
        status(StatusCode::OK).header("content-type", kind).header("content-length", bytes).body(())
    };
    match resource {
        Resource::Urls(authority) => {
            let document = ServerUrls::document(&authority);
            let response = ok("application/json", document.len() as u64)?;
            respond.send_response(response, false)?.send_data(document.into(), true)?;
        }
        Resource::Small => {
            let response = ok("application/octet-stream", 1)?;
            respond.send_response(response, false)?.send_data(Bytes::from_static(b"x"), true)?;
        }
        Resource::Large => {
            let stream = respond.send_response(ok("application/octet-stream", LARGE_BYTES)?, false)?;
            send_large(stream, idle).await?;
        }
        Resource::Upload => {
            receive_upload(body, idle).await?;
            respond.send_response(status(StatusCode::OK).body(())?, true)?;
        }
        Resource::Unknown => {
            respond.send_response(status(StatusCode::NOT_FOUND).body(())?, true)?;
        }
    }
    Ok(())
}

async fn send_large(mut stream: SendStream<Bytes>, idle: Duration) -> Result<(), HttpError> {
    let chunk = Bytes::from_static(&PAYLOAD);
    let mut left = LARGE_BYTES;
    while left > 0 {
        stream.reserve_capacity(CHUNK_BYTES.min(left as usize));
        let capacity = timeout(idle, poll_capacity(&mut stream)).await??;
        let bytes = capacity.min(CHUNK_BYTES).min(left as usize);
        left -= bytes as u64;
        stream.send_data(chunk.slice(..bytes), left == 0)?;
    }
    Ok(())
}

async fn receive_upload(mut body: RecvStream, idle: Duration) -> Result<(), HttpError> {
    while let Some(chunk) = timeout(idle, body.data()).await? {
        body.flow_control().release_capacity(chunk?.len())?;
    }
    Ok(())
}

#[cfg(test)]
mod hostile_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_the_windows_of_uploads_share_the_memory() {
        let shares = |memory_bytes| {
            let options = HttpServerOptions::new("127.0.0.1:0".parse().unwrap());
            shares_of_memory(&HttpServerOptions { memory_bytes, ..options })
        };
        let (connections, charges) = shares(1 << 30).unwrap();
        assert_eq!(connections, 2048);
        assert_eq!(2048 * CONNECTION_BYTES + charges as u64 * CHARGE_BYTES, 1 << 30);
        assert_eq!(shares(1 << 20).unwrap(), (3, 1));
        assert!(shares(CONNECTION_BYTES - 1).unwrap_err().to_string().contains("--max-memory"));
        assert_eq!(shares(u64::MAX).unwrap().0, 2048);
    }
}
