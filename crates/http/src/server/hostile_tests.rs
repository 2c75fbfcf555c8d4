//! Hostile clients of one source: others are served beside them.

use std::net::TcpStream as BlockingStream;

use h2::client::SendRequest;
use http::Uri;
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;

use super::*;
use crate::tls::{Trust, client_config};

const HOSTILE: &str = "127.0.0.2:0";
const OTHER: &str = "127.0.0.3:0";

fn server(most: usize) -> HttpServer {
    let mut options = HttpServerOptions::new("127.0.0.1:0".parse().unwrap());
    (options.max_connections, options.memory_bytes) = (most, most as u64 * CONNECTION_BYTES);
    HttpServer::start(&options).unwrap()
}

/// A connection from this address whose streams have this window.
async fn connect(server: SocketAddr, from: &str, window: u32) -> Result<SendRequest<Bytes>, HttpError> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(from.parse().unwrap())?;
    let stream = socket.connect(server).await?;
    let connector = TlsConnector::from(client_config(&Trust::Anything)?);
    let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await?;
    let (requests, connection) =
        h2::client::Builder::new().initial_window_size(window).handshake(stream).await?;
    tokio::spawn(connection);
    Ok(requests)
}

fn request(server: SocketAddr, method: Method, path: &str) -> Request<()> {
    let uri: Uri = format!("https://{server}{path}").parse().unwrap();
    Request::builder().method(method).uri(uri).body(()).unwrap()
}

/// The small reply for a client of another source.
async fn small_reply(server: SocketAddr) -> Bytes {
    let requests = connect(server, OTHER, 65_535).await.unwrap();
    let mut requests = requests.ready().await.unwrap();
    let (reply, _) = requests.send_request(request(server, Method::GET, SMALL_PATH), true).unwrap();
    reply.await.unwrap().into_body().data().await.unwrap().unwrap()
}

#[test]
fn streams_that_never_read_and_bodies_without_end_leave_others_served() {
    let server = server(16);
    let address = server.address();
    runtime().unwrap().block_on(async {
        let mut held = Vec::new();
        for _ in 0..12 {
            // What is beyond its part is closed.
            let Ok(requests) = connect(address, HOSTILE, 0).await else { continue };
            for (number, path) in [LARGE_PATH, SMALL_PATH, UPLOAD_PATH].iter().cycle().take(90).enumerate() {
                let Ok(mut requests) = requests.clone().ready().await else { break };
                let method = if *path == UPLOAD_PATH { Method::POST } else { Method::GET };
                let headers = request(address, method, path);
                let Ok((reply, mut body)) = requests.send_request(headers, number % 3 != 2) else { break };
                let _ = body.send_data(Bytes::from(vec![0; 1 << 20]), false);
                held.push((reply, body));
            }
        }
        assert_eq!(small_reply(address).await, "x");
        drop(held);
    });
}

#[test]
fn handshakes_without_an_end_leave_others_served() {
    let server = server(16);
    let address = server.address();
    runtime().unwrap().block_on(async {
        let mut held = Vec::new();
        for _ in 0..40 {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(HOSTILE.parse().unwrap()).unwrap();
            let mut stream = socket.connect(address).await.unwrap();
            // The begin of a TLS record of 512 bytes.
            let _ = stream.write_all(&[0x16, 3, 1, 2, 0, 1]).await;
            held.push(stream);
        }
        assert_eq!(small_reply(address).await, "x");
        drop(held);
    });
}

#[test]
fn a_source_has_a_part_of_the_connections() {
    let server = server(8);
    let wait = Duration::from_secs(30);
    let held: Vec<BlockingStream> =
        (0..12).map(|_| BlockingStream::connect(server.address()).unwrap()).collect();
    let closed = held.iter().skip(4).filter(|stream| {
        stream.set_read_timeout(Some(wait)).unwrap();
        // A reset or an end.
        std::io::Read::read(&mut &**stream, &mut [0]).is_ok_and(|bytes| bytes == 0)
    });
    assert_eq!(closed.count(), 8);
}
