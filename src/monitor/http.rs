//! The pages of a monitor over HTTP/1.1: a few prepared texts, GET and HEAD only.
//!
//! Pages are made by the ledger's thread; a request only copies one. So no client, however slow or many, delays a probe. By
//! default the server listens on loopback; other addresses need a token. Encryption is the task of a proxy in front.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A longer head of a request is refused.
const MAX_HEAD_BYTES: usize = 8192;

/// A request must have arrived, and its response must have left, within this time.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Clients at the same time. More are refused, so that open files remain for the probes.
const MAX_CLIENTS: usize = 64;

/// How often a waiting server looks whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A prepared page.
#[derive(Debug, Clone)]
pub struct Page {
    /// Its media type.
    pub media_type: &'static str,
    /// Its content.
    pub body: Arc<str>,
}

/// The pages by path.
#[derive(Debug, Default)]
pub struct Pages(Mutex<BTreeMap<&'static str, Page>>);

impl Pages {
    /// Replaces a page.
    pub fn set(&self, path: &'static str, media_type: &'static str, body: String) {
        let page = Page { media_type, body: body.into() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path, page);
    }

    fn get(&self, path: &str) -> Option<Page> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }
}

/// A request, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The path without the query.
    pub path: &'a str,
    /// HEAD: the response has no body.
    pub is_head: bool,
    /// The host that the client named.
    pub host: Option<&'a str>,
    /// The bearer token.
    pub token: Option<&'a str>,
}

/// Why a request is refused: its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// 400: it is not HTTP.
    BadRequest,
    /// 401: the token is missing or wrong.
    Unauthorized,
    /// 403: the client named a host that is not this one, as a page of another site would.
    Forbidden,
    /// 404: there is no such page.
    NotFound,
    /// 405: only GET and HEAD are served.
    MethodNotAllowed,
    /// 431: the head is too long.
    HeadTooLong,
    /// 503: too many clients.
    Busy,
}

impl Refusal {
    fn status(self) -> &'static str {
        match self {
            Refusal::BadRequest => "400 Bad Request",
            Refusal::Unauthorized => "401 Unauthorized",
            Refusal::Forbidden => "403 Forbidden",
            Refusal::NotFound => "404 Not Found",
            Refusal::MethodNotAllowed => "405 Method Not Allowed",
            Refusal::HeadTooLong => "431 Request Header Fields Too Large",
            Refusal::Busy => "503 Service Unavailable",
        }
    }
}

/// Reads the head of a request, up to and without its empty line.
///
/// # Errors
///
/// It is not HTTP/1, or its method is not served.
pub fn parse_request(head: &[u8]) -> Result<Request<'_>, Refusal> {
    let head = std::str::from_utf8(head).map_err(|_| Refusal::BadRequest)?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some("HTTP/1.0" | "HTTP/1.1"), None) =
        (method, target, version, words.next())
    else {
        return Err(Refusal::BadRequest);
    };
    if !target.starts_with('/') {
        return Err(Refusal::BadRequest);
    }
    let mut request = Request {
        path: target.split('?').next().unwrap_or_default(),
        is_head: method == "HEAD",
        host: None,
        token: None,
    };
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(Refusal::BadRequest)?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("host") {
            request.host = Some(value);
        } else if name.eq_ignore_ascii_case("authorization") {
            request.token = value.strip_prefix("Bearer ").map(str::trim);
        }
    }
    match method {
        "GET" | "HEAD" => Ok(request),
        _ => Err(Refusal::MethodNotAllowed),
    }
}

/// What a server shares with the threads of its clients.
struct Shared {
    pages: Arc<Pages>,
    token: Option<String>,
    is_loopback: bool,
    clients: AtomicUsize,
    stop: AtomicBool,
}

/// A running server. It stops when it is dropped.
pub struct HttpServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl HttpServer {
    /// Listens on an address.
    ///
    /// # Errors
    ///
    /// The address is taken or is not of this machine; or it is not a loopback address and there is no token.
    pub fn start(address: SocketAddr, token: Option<String>, pages: Arc<Pages>) -> io::Result<HttpServer> {
        let is_loopback = address.ip().is_loopback();
        if !is_loopback && token.is_none() {
            let why = "other machines may connect, so a token is needed. Try --page-token-file FILE";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (clients, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { pages, token, is_loopback, clients, stop });
        let accepting = shared.clone();
        let thread = std::thread::Builder::new()
            .name("pages".to_owned())
            .spawn(move || accept(&listener, &accepting))?;
        Ok(HttpServer { address, shared, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.stop.load(Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(POLL_INTERVAL);
            continue;
        };
        if shared.clients.fetch_add(1, Relaxed) >= MAX_CLIENTS {
            let _ = respond_refusal(&stream, Refusal::Busy);
            shared.clients.fetch_sub(1, Relaxed);
            continue;
        }
        let serving = shared.clone();
        let serve = move || {
            let _ = serve(&stream, &serving);
            serving.clients.fetch_sub(1, Relaxed);
        };
        if std::thread::Builder::new().name("page".to_owned()).spawn(serve).is_err() {
            shared.clients.fetch_sub(1, Relaxed);
        }
    }
}

/// Serves one request. The connection closes after it: a scrape a minute needs no longer one.
fn serve(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut head = [0; MAX_HEAD_BYTES];
    let page = match read_head(stream, &mut head)? {
        Ok(length) => {
            parse_request(&head[..length]).and_then(|request| Ok((page(&request, shared)?, request.is_head)))
        }
        Err(refusal) => Err(refusal),
    };
    match page {
        Ok((page, is_head)) => respond(stream, &page, is_head),
        Err(refusal) => respond_refusal(stream, refusal),
    }
}

/// Reads until the empty line; the length of what stands before it.
fn read_head(mut stream: &TcpStream, head: &mut [u8]) -> io::Result<Result<usize, Refusal>> {
    let until = Instant::now() + TIMEOUT;
    let mut filled = 0;
    loop {
        if let Some(length) = head[..filled].windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            return Ok(Ok(length));
        }
        if filled == head.len() {
            return Ok(Err(Refusal::HeadTooLong));
        }
        // A client that sends a byte now and then has no more time than one that sends nothing.
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut head[filled..])? {
            0 => return Ok(Err(Refusal::BadRequest)),
            count => filled += count,
        }
    }
}

fn page(request: &Request, shared: &Shared) -> Result<Page, Refusal> {
    if shared.is_loopback && !request.host.is_none_or(is_loopback_name) {
        return Err(Refusal::Forbidden);
    }
    let is_authorized = match (&shared.token, request.token) {
        (Some(token), Some(given)) => constant_time_equal(token.as_bytes(), given.as_bytes()),
        (Some(_), None) => false,
        (None, _) => true,
    };
    if !is_authorized {
        return Err(Refusal::Unauthorized);
    }
    shared.pages.get(request.path).ok_or(Refusal::NotFound)
}

/// A name under which a browser of this machine reaches loopback. Other names may be those of a hostile site.
fn is_loopback_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name == "localhost"
        || name == "[::1]"
        || name.starts_with("127.") && name.parse::<std::net::Ipv4Addr>().is_ok()
}

/// Compares without telling by its time where the first difference is.
fn constant_time_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

fn respond(mut stream: &TcpStream, page: &Page, is_head: bool) -> io::Result<()> {
    let Page { media_type, body } = page;
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n{COMMON_HEADERS}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    if is_head { Ok(()) } else { stream.write_all(body.as_bytes()) }
}

fn respond_refusal(mut stream: &TcpStream, refusal: Refusal) -> io::Result<()> {
    let status = refusal.status();
    let more = match refusal {
        Refusal::Unauthorized => "WWW-Authenticate: Bearer\r\n",
        Refusal::MethodNotAllowed => "Allow: GET, HEAD\r\n",
        _ => "",
    };
    let body = format!("{status}\n");
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n{more}{COMMON_HEADERS}\r\n{body}",
        body.len()
    );
    stream.write_all(response.as_bytes())
}

/// Of every response.
const COMMON_HEADERS: &str = "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
    Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; img-src data:\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn server(token: Option<&str>) -> HttpServer {
        let pages = Arc::new(Pages::default());
        pages.set("/metrics", "text/plain", "a page\n".to_owned());
        HttpServer::start("127.0.0.1:0".parse().unwrap(), token.map(str::to_owned), pages).unwrap()
    }

    fn request(server: &HttpServer, text: &str) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut response = Vec::new();
        // A server that refuses a long request does not read its rest, which resets the connection.
        let _ = stream.read_to_end(&mut response);
        String::from_utf8(response).unwrap()
    }

    #[test]
    fn pages_are_served_and_everything_else_is_refused() {
        let server = server(None);
        let get = request(&server, "GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:9464\r\n\r\n");
        assert!(get.starts_with("HTTP/1.1 200 OK\r\n") && get.ends_with("\r\n\r\na page\n"), "{get}");
        let head = request(&server, "HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Length: 7\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        for (text, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
            ("GET metrics HTTP/1.1\r\n\r\n", "400"),
            ("nonsense\r\n\r\n", "400"),
        ] {
            assert!(request(&server, text).starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
        }
        let long = request(&server, &format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(MAX_HEAD_BYTES - 5)));
        assert!(long.is_empty() || long.starts_with("HTTP/1.1 431 "), "{long}");
    }

    #[test]
    fn a_token_is_required_where_one_is_set() {
        let server = server(Some("secret"));
        for (token, status) in [("Bearer secret", "200"), ("Bearer secreT", "401"), ("secret", "401")] {
            let text = format!("GET /metrics HTTP/1.1\r\nAuthorization: {token}\r\n\r\n");
            assert!(request(&server, &text).starts_with(&format!("HTTP/1.1 {status} ")), "{token}");
        }
        let error = HttpServer::start("0.0.0.0:0".parse().unwrap(), None, Arc::default()).err().unwrap();
        assert!(error.to_string().contains("--page-token-file"), "{error}");
    }

    #[test]
    fn silent_clients_do_not_keep_others_out() {
        let server = server(None);
        let silent: Vec<TcpStream> =
            (0..MAX_CLIENTS - 1).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
        assert!(request(&server, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
        drop(silent);
    }
}
