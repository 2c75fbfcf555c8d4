//! The pages of a monitor over HTTP/1.1: GET and HEAD only, one request for each connection.
//!
//! hyper serves all clients in one thread, with limits on their number, their time and the size of what they send. Pages that
//! read the store are made in threads beside it. So no client, however slow or many, delays a probe or another client. By
//! default the server listens on loopback; other addresses need a token. Encryption is the task of a proxy in front.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::access::{Access, RequestRefusal};
use super::metrics::MetricsFormat;
use super::probe::time_limit;
use super::prober::{CancelOnDrop, ProbeReport};
use super::site::{EVENTS_PATH, Lookup, PROBE_PATH, Page, RELOAD_PATH, Site};

/// A longer head of a request is refused.
const MAX_HEAD_BYTES: usize = 8192;

/// A request with more headers is refused.
const MAX_HEADERS: usize = 64;

/// A request must have arrived within this time.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A response must have left within this time.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time within which each message of a stream of events must have left.
const EVENT_TIMEOUT: Duration = Duration::from_secs(45);

/// A stream without events has a comment this often, so that proxies keep it open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Clients at the same time. Of more clients, those leave that have waited longest with their request.
const MAX_CLIENTS: usize = 256;

/// Streams of events at the same time.
const MAX_STREAMS: usize = 64;

/// Pages that are made at the same time or wait for it, metrics, and the threads that make them.
const MAX_MADE: usize = 16;
const MAX_SCRAPES: usize = 4;
const MAKING_THREADS: usize = 2;

/// The header in which Prometheus states how long it waits, in seconds.
const SCRAPE_TIMEOUT_HEADER: &str = "x-prometheus-scrape-timeout-seconds";

/// A probe that is cancelled has this time to report what it has.
const CANCEL_TIME: Duration = Duration::from_millis(150);

/// Pause after a connection could not be accepted, as with too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running server. It stops when it is dropped.
pub struct SiteServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl SiteServer {
    /// Listens on an address.
    ///
    /// # Errors
    ///
    /// The address is taken or is not of this machine; or it is not a loopback address and there is no token.
    pub fn start(address: SocketAddr, token: Option<String>, site: Arc<Site>) -> io::Result<SiteServer> {
        let access = Access::new(address.ip(), token).ok_or_else(|| {
            let why = "other machines may connect, so a token is needed. Try --page-token-file FILE";
            io::Error::new(io::ErrorKind::PermissionDenied, why)
        })?;
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(MAKING_THREADS)
            .thread_name("made page")
            .build()?;
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let server = Arc::new(SiteServerState {
            site,
            access,
            clients: Mutex::default(),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            made: Arc::new(Semaphore::new(MAX_MADE)),
            scrapes: Arc::new(Semaphore::new(MAX_SCRAPES)),
        });
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            runtime.spawn(accept(listener, server));
            let _ = runtime.block_on(stopped);
            // A page that waits for the store delays nothing.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("pages".to_owned()).spawn(serve)?;
        Ok(SiteServer { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for SiteServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State that the tasks of all clients share.
struct SiteServerState {
    site: Arc<Site>,
    access: Access,
    clients: Mutex<Clients>,
    streams: Arc<Semaphore>,
    made: Arc<Semaphore>,
    scrapes: Arc<Semaphore>,
}

/// The clients that are connected.
#[derive(Default)]
struct Clients {
    count: usize,
    last_number: u64,
    /// Connections that have not sent their request yet, in the order of their arrival.
    waiting: VecDeque<(u64, AbortHandle)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, server: Arc<SiteServerState>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => admit(&server, stream),
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Serves a client in a task of its own.
fn admit(server: &Arc<SiteServerState>, stream: TcpStream) {
    let mut clients = locked(&server.clients);
    if clients.count >= MAX_CLIENTS {
        match clients.waiting.pop_front() {
            Some((_, slowest)) => slowest.abort(),
            None => {
                let _ = stream.try_write(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n");
                return;
            }
        }
    }
    clients.count += 1;
    clients.last_number += 1;
    let number = clients.last_number;
    let deadline = Mutex::new(Instant::now() + REQUEST_TIMEOUT);
    let client = Arc::new(Client { server: server.clone(), number, deadline });
    let task = tokio::spawn(serve(stream, client));
    clients.waiting.push_back((number, task.abort_handle()));
}

/// A connected client.
struct Client {
    server: Arc<SiteServerState>,
    number: u64,
    /// Time at which the connection ends.
    deadline: Mutex<Instant>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop_waiting();
        locked(&self.server.clients).count -= 1;
    }
}

async fn serve(stream: TcpStream, client: Arc<Client>) {
    let serving = client.clone();
    let service = service_fn(move |request| {
        let client = serving.clone();
        async move { Ok::<_, Infallible>(client.respond(request).await) }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .keep_alive(false)
            .max_buf_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEADERS)
            .serve_connection(TokioIo::new(stream), service)
    );
    // Each step of a response gives it more time.
    while timeout_at(client.deadline(), connection.as_mut()).await.is_err()
        && client.deadline() > Instant::now()
    {}
}

impl Client {
    fn deadline(&self) -> Instant {
        *locked(&self.deadline)
    }

    fn extend(&self, time: Duration) {
        *locked(&self.deadline) = Instant::now() + time;
    }

    fn stop_waiting(&self) {
        locked(&self.server.clients).waiting.retain(|(number, _)| *number != self.number);
    }

    async fn respond(self: Arc<Client>, request: Request<Incoming>) -> Response<Content> {
        self.stop_waiting();
        self.extend(RESPONSE_TIMEOUT);
        let (request, _) = request.into_parts();
        let checked = self.server.check(&request.headers, request.uri.host(), &request.method);
        let response = match checked {
            Err(RequestRefusal::MethodNotAllowed) if request.uri.path() == RELOAD_PATH => {
                self.server.reload(&request.method, &request.headers).map(page_response)
            }
            Ok(()) if request.uri.path() == EVENTS_PATH => self.stream_events(),
            Ok(()) if request.uri.path() == PROBE_PATH => self
                .server
                .probe(request.uri.query().unwrap_or_default(), &request.headers)
                .await
                .map(page_response),
            Ok(()) => self.server.page(&request.uri, &request.headers).await.map(page_response),
            Err(refusal) => Err(refusal),
        };
        response.unwrap_or_else(refusal_response)
    }

    fn stream_events(self: Arc<Client>) -> Result<Response<Content>, RequestRefusal> {
        let states = self.server.site.events().ok_or(RequestRefusal::NotFound)?;
        let permit = self.server.streams.clone().try_acquire_owned().map_err(|_| RequestRefusal::Busy)?;
        let feed = Feed { states, is_first: true, client: self, _permit: permit };
        let mut response = Response::new(Content::Events(Box::pin(feed.next())));
        add_headers(response.headers_mut(), "text/event-stream", "default-src 'none'");
        Ok(response)
    }
}

impl SiteServerState {
    fn check(
        &self,
        headers: &HeaderMap,
        target_host: Option<&str>,
        method: &Method,
    ) -> Result<(), RequestRefusal> {
        let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let named = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
        let hosts: Vec<&str> = named.chain(target_host).collect();
        match hosts.as_slice() {
            [] => self.access.check(None, authorization)?,
            hosts => hosts.iter().try_for_each(|host| self.access.check(Some(host), authorization))?,
        }
        if matches!(*method, Method::GET | Method::HEAD) {
            Ok(())
        } else {
            Err(RequestRefusal::MethodNotAllowed)
        }
    }

    async fn page(&self, uri: &Uri, headers: &HeaderMap) -> Result<Page, RequestRefusal> {
        if let Some(page) = self.site.ready(uri.path()) {
            return Ok(page);
        }
        let query = uri.query().unwrap_or_default();
        let accept = accepted(headers, header::ACCEPT);
        let lookup = Lookup::parse(uri.path(), query, &accept).ok_or(RequestRefusal::NotFound)?;
        let permits = if matches!(lookup, Lookup::Metrics(_)) { &self.scrapes } else { &self.made };
        let permit = permits.clone().try_acquire_owned().map_err(|_| RequestRefusal::Busy)?;
        let site = self.site.clone();
        let is_packed = accepts_gzip(headers);
        let make = move || {
            // Held until the page is made, even if its client has left.
            let _permit = permit;
            let page = site.make(&lookup)?;
            Ok(if is_packed { page.packed() } else { page })
        };
        tokio::task::spawn_blocking(make).await.unwrap_or(Err(RequestRefusal::Unreadable))
    }
}

impl SiteServerState {
    /// Requests that the file is read again. Only a program with the token may do so: another site cannot send it as `Bearer`.
    fn reload(&self, method: &Method, headers: &HeaderMap) -> Result<Page, RequestRefusal> {
        let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let is_program = authorization.is_some_and(|value| value.to_ascii_lowercase().starts_with("bearer "));
        match (method == Method::POST, self.access.has_token() && is_program) {
            (false, _) => Err(RequestRefusal::MethodNotAllowed),
            (true, false) => Err(RequestRefusal::Unauthorized),
            (true, true) if self.site.reload() => Ok(Page::new(
                "text/plain",
                "the file is read again: the log and the metrics have the result\n",
            )),
            (true, true) => Err(RequestRefusal::NotFound),
        }
    }

    /// Probes a target, for as long as the client waits.
    async fn probe(&self, query: &str, headers: &HeaderMap) -> Result<Page, RequestRefusal> {
        let probe = self.site.prober().prepare(query)?;
        let limit = time_limit(headers.get(SCRAPE_TIMEOUT_HEADER).and_then(|value| value.to_str().ok()));
        let cancel = CancelOnDrop(Arc::default());
        let (done, mut report) = oneshot::channel();
        let flag = cancel.0.clone();
        let run = move || drop(done.send(probe.run(flag)));
        std::thread::Builder::new().name("probe".to_owned()).spawn(run).map_err(|_| RequestRefusal::Busy)?;
        let report = match timeout(limit, &mut report).await {
            Ok(ended) => ended.ok(),
            Err(_) => {
                cancel.0.store(true, Relaxed);
                timeout(CANCEL_TIME, report).await.ok().and_then(Result::ok)
            }
        };
        let report = report.unwrap_or_else(|| ProbeReport::overdue(limit));
        let format = MetricsFormat::accepted(&accepted(headers, header::ACCEPT));
        Ok(match report.text {
            Some(mut text) => {
                text.push_str(&String::from_utf8_lossy(&MetricsFormat::PlainText.render(&report.snapshot)));
                Page::new("text/plain; charset=utf-8", text)
            }
            None => Page::new(format.media_type(), format.render(&report.snapshot)),
        })
    }
}

/// Whether a client reads content that is packed with gzip.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = accepted(headers, header::ACCEPT_ENCODING).to_ascii_lowercase();
    accepted.split(',').any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        let quality = quality.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f64>);
        name.trim() == "gzip" && quality.is_ok_and(|quality| quality > 0.0)
    })
}

/// Values of all headers of this name, joined by commas: what a client accepts.
fn accepted(headers: &HeaderMap, name: header::HeaderName) -> String {
    let ranges = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    ranges.collect::<Vec<_>>().join(",")
}

/// The next message of a stream, and the stream after it.
type NextMessage = Pin<Box<dyn Future<Output = Option<(Bytes, Feed)>> + Send>>;

/// A stream of events to one client. A client that reads slowly gets the latest state and misses those before it.
struct Feed {
    states: watch::Receiver<Bytes>,
    is_first: bool,
    client: Arc<Client>,
    _permit: OwnedSemaphorePermit,
}

impl Feed {
    async fn next(mut self) -> Option<(Bytes, Feed)> {
        self.client.extend(EVENT_TIMEOUT);
        if !std::mem::take(&mut self.is_first) {
            match timeout(KEEP_ALIVE, self.states.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => return Some((Bytes::from_static(b":\n\n"), self)),
            }
        }
        let state = self.states.borrow_and_update().clone();
        Some((state, self))
    }
}

/// The body of a response.
enum Content {
    Whole(Option<Bytes>),
    Events(NextMessage),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Events(next) => {
                let message = ready!(next.as_mut().poll(context)).map(|(bytes, feed)| {
                    *next = Box::pin(feed.next());
                    Ok(Frame::data(bytes))
                });
                Poll::Ready(message)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Content::Events(_) => SizeHint::default(),
        }
    }
}

fn page_response(page: Page) -> Response<Content> {
    let mut response = Response::new(Content::Whole(Some(page.body)));
    let headers = response.headers_mut();
    add_headers(headers, page.media_type, &page.policy);
    if page.is_packed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn refusal_response(refusal: RequestRefusal) -> Response<Content> {
    let (code, reason) = refusal.status();
    let mut response = Response::new(Content::Whole(Some(format!("{code}: {reason}\n").into())));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    add_headers(headers, "text/plain", "default-src 'none'");
    match refusal {
        RequestRefusal::Unauthorized => {
            headers.append(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            let basic = HeaderValue::from_static("Basic realm=\"linkgauge monitor\", charset=\"UTF-8\"");
            headers.append(header::WWW_AUTHENTICATE, basic);
        }
        RequestRefusal::MethodNotAllowed => {
            drop(headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD")))
        }
        _ => {}
    }
    response
}

/// Adds what every response has.
fn add_headers(headers: &mut HeaderMap, media_type: &'static str, policy: &str) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if let Ok(policy) = HeaderValue::from_str(policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream as Stream;

    use jiff::Timestamp;

    use super::*;
    use crate::monitor::Live;

    fn server(token: Option<&str>) -> SiteServer {
        let live = Arc::new(Live::new("here".to_owned(), Timestamp::UNIX_EPOCH));
        let site = Site::new(live, Box::new(|_| None));
        site.set("/metrics", "text/plain", "a page\n".to_owned());
        SiteServer::start("127.0.0.1:0".parse().unwrap(), token.map(str::to_owned), Arc::new(site)).unwrap()
    }

    /// A connection on which a request was sent. Clients of a test never wait for ever.
    fn send(server: &SiteServer, text: &[u8]) -> Stream {
        let mut stream = Stream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let _ = stream.write_all(text);
        stream
    }

    fn request(server: &SiteServer, text: &str) -> String {
        let mut response = Vec::new();
        // A server that refuses a long request does not read its rest, which resets the connection.
        let _ = send(server, text.as_bytes()).read_to_end(&mut response);
        String::from_utf8(response).unwrap()
    }

    #[test]
    fn pages_are_served_and_everything_else_is_refused() {
        let server = server(None);
        let get = request(&server, "GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:9464\r\n\r\n");
        assert!(get.starts_with("HTTP/1.1 200 OK\r\n") && get.ends_with("\r\n\r\na page\n"), "{get}");
        let head = request(&server, "HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.contains("content-length: 7\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        let page = request(&server, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(page.contains("content-security-policy: default-src 'none'; script-src 'sha256-"), "{page}");
        for (text, status) in [
            ("GET /missing HTTP/1.1\r\n\r\n", "404"),
            ("GET /../../etc/passwd HTTP/1.1\r\n\r\n", "404"),
            ("GET /run/..%2f..%2fetc%2fpasswd HTTP/1.1\r\n\r\n", "404"),
            ("GET /run/20260101-aaaa HTTP/1.1\r\n\r\n", "404"),
            ("GET /history?link=7&span=1h HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
            ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", "403"),
            ("GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "403"),
            ("nonsense\r\n\r\n", "400"),
        ] {
            assert!(request(&server, text).starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
        }
        let query = format!("GET /history?{}link=0 HTTP/1.1\r\n\r\n", "x=1&".repeat(MAX_HEAD_BYTES / 4));
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MAX_HEADERS + 1));
        for long in [query, many] {
            let response = request(&server, &long);
            assert!(response.is_empty() || response.starts_with("HTTP/1.1 4"), "{response}");
        }
    }

    #[test]
    fn a_token_is_required_where_one_is_set() {
        let server = server(Some("secret"));
        for (token, status) in
            [("Bearer secret", "200"), ("Bearer secreT", "401"), ("Basic eDpzZWNyZXQ=", "200")]
        {
            let text = format!("GET /metrics HTTP/1.1\r\nAuthorization: {token}\r\n\r\n");
            assert!(request(&server, &text).starts_with(&format!("HTTP/1.1 {status} ")), "{token}");
        }
        for path in
            ["/", "/metrics", "/events", "/healthz", "/history?link=0&span=1h", "/incidents?link=0", "/run/x"]
        {
            let refused = request(&server, &format!("GET {path} HTTP/1.1\r\n\r\n"));
            assert!(refused.starts_with("HTTP/1.1 401 "), "{path}: {refused}");
            assert!(refused.contains("www-authenticate: Basic realm="), "{refused}");
        }
        let site = Site::new(Arc::new(Live::new(String::new(), Timestamp::UNIX_EPOCH)), Box::new(|_| None));
        let error = SiteServer::start("0.0.0.0:0".parse().unwrap(), None, Arc::new(site)).err().unwrap();
        assert!(error.to_string().contains("--page-token-file"), "{error}");
    }

    #[test]
    fn a_site_of_metrics_has_no_other_page() {
        let site = Arc::new(Site::of_metrics());
        let server = SiteServer::start("127.0.0.1:0".parse().unwrap(), None, site).unwrap();
        let metrics = request(&server, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(metrics.contains("linkgauge_build_info{version="), "{metrics}");
        assert!(request(&server, "GET /healthz HTTP/1.1\r\n\r\n").ends_with("\r\n\r\nok\n"));
        for path in ["/", "/events", "/history?link=0&span=1h", "/incidents?link=0", "/run/x"] {
            let refused = request(&server, &format!("GET {path} HTTP/1.1\r\n\r\n"));
            assert!(refused.starts_with("HTTP/1.1 404 "), "{path}: {refused}");
        }
    }

    #[test]
    fn metrics_are_packed_for_those_that_read_it() {
        let live = Arc::new(Live::new("here".to_owned(), Timestamp::UNIX_EPOCH));
        let site = Arc::new(Site::new(live, Box::new(|_| None)));
        let samples = (0..100).map(|_| crate::monitor::families::tests::probed_state()).collect::<Vec<_>>();
        site.set_metrics(crate::monitor::Snapshot::new(&samples, "here"));
        let server = SiteServer::start("127.0.0.1:0".parse().unwrap(), None, site).unwrap();
        let bytes = |accepted: &str| {
            let mut response = Vec::new();
            let head = format!("GET /metrics HTTP/1.1\r\nAccept-Encoding: {accepted}\r\n\r\n");
            send(&server, head.as_bytes()).read_to_end(&mut response).unwrap();
            let end = response.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
            (String::from_utf8(response[..end].to_vec()).unwrap(), response[end + 4..].to_vec())
        };
        let (_, plain) = bytes("gzip;q=0, br");
        let (head, packed) = bytes("deflate, gzip;q=0.5");
        assert!(head.contains("content-encoding: gzip"), "{head}");
        assert!(packed.len() * 10 < plain.len(), "{} of {}", packed.len(), plain.len());
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut text).unwrap();
        assert!(text == plain && plain.starts_with(b"# HELP"));
    }

    /// Reads until the text has arrived.
    fn read_until(stream: &mut Stream, text: &str) -> String {
        let (mut read, mut chunk) = (String::new(), [0; 4096]);
        while !read.contains(text) {
            let length = stream.read(&mut chunk).unwrap();
            assert!(length > 0, "the stream ended: {read}");
            read += std::str::from_utf8(&chunk[..length]).unwrap();
        }
        read
    }

    #[test]
    fn events_arrive_until_the_server_stops() {
        let live = Arc::new(Live::new("here".to_owned(), Timestamp::UNIX_EPOCH));
        let site = Arc::new(Site::new(live.clone(), Box::new(|_| None)));
        let server = SiteServer::start("127.0.0.1:0".parse().unwrap(), None, site.clone()).unwrap();
        let mut stream = send(&server, b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let first = read_until(&mut stream, "\n\n");
        assert!(
            first.contains("content-type: text/event-stream") && first.contains("\"host\":\"here\""),
            "{first}"
        );
        site.publish(&live.update(&[], Timestamp::from_second(77).unwrap()));
        assert!(read_until(&mut stream, "\"at\":77").contains("data: {"));
        drop(server);
        let ended = stream.read_to_end(&mut Vec::new());
        assert!(ended.is_ok(), "{ended:?}");
    }

    #[test]
    fn streams_leave_room_for_other_clients() {
        let server = server(None);
        let streams: Vec<Stream> = (0..MAX_STREAMS)
            .map(|_| {
                let mut stream = send(&server, b"GET /events HTTP/1.1\r\n\r\n");
                read_until(&mut stream, "\n\n");
                stream
            })
            .collect();
        assert!(request(&server, "GET /events HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 503 "));
        assert!(request(&server, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
        drop(streams);
    }

    #[test]
    fn slow_clients_and_garbage_do_not_keep_others_out() {
        linkgauge_engine::host::raise_open_file_limit();
        let server = server(None);
        let mut slow = Vec::new();
        for number in 0..2 * MAX_CLIENTS {
            slow.push(send(&server, if number % 2 == 0 { b"" } else { b"GET /metrics HTT" }));
            if number % 32 == 0 {
                assert!(
                    request(&server, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "),
                    "{number}"
                );
            }
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..1_000 {
            let garbage: Vec<u8> = (0..random.usize(0..64)).map(|_| random.u8(..)).collect();
            drop(send(&server, &garbage));
        }
        assert!(request(&server, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
        // The oldest had to leave.
        assert_eq!(slow[0].read(&mut [0; 16]).unwrap_or(0), 0);
    }
}
