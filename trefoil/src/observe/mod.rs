//! What an operator's tools ask a server for: whether it lives, whether it can work, and its counters, over
//! HTTP/1.1 on an address of their own.
//!
//! Nothing is answered but `GET` of four paths, one connection after the other, each within a second. Model and
//! client names are among what is told, numbers of models and clients never: bind it where operators alone come.

mod metrics;

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

pub use metrics::{Metrics, Outcome};

use crate::server::Server;

/// How long a connection may take.
const LIMIT: Duration = Duration::from_secs(1);

/// Longest request.
const REQUEST: usize = 8192;

/// Answers requests for ever.
pub fn serve(listener: &TcpListener, server: &Server) {
    for stream in listener.incoming() {
        let answered = stream.and_then(|stream| answer(stream, server));
        if let Err(error) = answered {
            tracing::debug!(%error, "a request for metrics");
        }
    }
}

fn answer(mut stream: TcpStream, server: &Server) -> io::Result<()> {
    let (status, kind, body) = match request(&mut stream)? {
        Some(path) => page(&path, server),
        None => (405, TEXT, "only GET of /, /metrics, /healthz and /readyz\n".to_owned()),
    };
    let phrase = match status {
        200 => "OK",
        404 => "Not Found",
        405 => "Method Not Allowed",
        _ => "Service Unavailable",
    };
    let head = format!(
        "HTTP/1.1 {status} {phrase}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// The page asks its own server and nobody else, and runs what is in it alone.
const HTML: &str = "text/html; charset=utf-8\r\ncontent-security-policy: default-src 'none'; connect-src 'self'; \
                    script-src 'unsafe-inline'; style-src 'unsafe-inline'; frame-ancestors 'none'";

const TEXT: &str = "text/plain; charset=utf-8";

/// The version of the format is part of its type.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

fn page(path: &str, server: &Server) -> (u16, &'static str, String) {
    match path {
        "/" => (200, HTML, include_str!("status.html").to_owned()),
        "/healthz" => (200, TEXT, "ok\n".to_owned()),
        "/readyz" => match server.readiness() {
            Ok(()) => (200, TEXT, "ok\n".to_owned()),
            Err(reason) => (503, TEXT, format!("{reason}\n")),
        },
        "/metrics" => match server.status() {
            Ok(state) => (200, EXPOSITION, server.metrics().page(&state)),
            Err(error) => (503, TEXT, format!("{error}\n")),
        },
        _ => (404, TEXT, "there is /, /metrics, /healthz and /readyz\n".to_owned()),
    }
}

/// The path that is asked for; `None` if something else is asked.
fn request(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let began = Instant::now();
    let mut bytes = Vec::new();
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        let parsed = request.parse(&bytes).map_err(|error| bad(error.to_string()))?;
        if parsed.is_complete() {
            let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
            return Ok((request.method == Some("GET")).then(|| path.to_owned()));
        }
        let left = LIMIT.saturating_sub(began.elapsed());
        if left.is_zero() || bytes.len() >= REQUEST {
            return Err(bad("a request that does not end".to_owned()));
        }
        stream.set_read_timeout(Some(left))?;
        let mut piece = [0; 1024];
        match stream.read(&mut piece)? {
            0 => return Err(bad("a request that breaks off".to_owned())),
            read => bytes.extend_from_slice(&piece[..read]),
        }
    }
}

fn bad(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
