//! The pages that an operator's tools read over HTTP/1.1 on a separate address: whether the server lives, whether it
//! can work, and its counters.
//!
//! Nothing is answered but `GET` of four paths, each within a second. The pages show model and client names, but
//! never their data: bind them to an address that only operators reach.

mod metrics;

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

pub use metrics::{Metrics, Outcome};

use super::Server;

/// The longest time of a connection.
const LIMIT: Duration = Duration::from_secs(1);

/// The pause after a connection could not be taken.
const PAUSE: Duration = Duration::from_millis(50);

/// Longest request.
const REQUEST: usize = 8192;

/// The most connections at once, and most of one address. For a further one the oldest is closed, so that silent ones
/// do not block the answers to others: a request that comes at once is answered.
const CONNECTIONS: usize = 64;
const OF_ONE: usize = 16;

/// Answers requests forever, if their `Host` is an address, `localhost` or one of `hosts`. A page of another site
/// whose name was made to lead here must not read the answers.
pub fn serve(listener: &TcpListener, server: &Server, hosts: &[String]) {
    let open = Connections::default();
    thread::scope(|scope| {
        for stream in listener.incoming() {
            let accepted = stream.and_then(|stream| Ok((stream.peer_addr()?.ip(), stream)));
            let Ok((address, stream)) = accepted else {
                // Out of descriptors, most likely.
                thread::sleep(PAUSE);
                continue;
            };
            let stream = Arc::new(stream);
            let place = open.add(address, stream.clone());
            let answer = move || {
                let _place = place;
                if let Err(error) = answer(&stream, server, hosts) {
                    tracing::debug!(%error, "a request for metrics");
                }
            };
            // Without a thread the connection is closed.
            let _ = thread::Builder::new().name("metrics".to_owned()).spawn_scoped(scope, answer);
        }
    });
}

/// The open connections, the oldest first.
#[derive(Default)]
struct Connections(Mutex<Vec<(IpAddr, Arc<TcpStream>)>>);

/// An open connection. It is no longer one once this is dropped.
struct Place<'a> {
    open: &'a Connections,
    stream: Arc<TcpStream>,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Vec<(IpAddr, Arc<TcpStream>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, and closes the oldest of its address, or of all, if there are too many.
    fn add(&self, address: IpAddr, stream: Arc<TcpStream>) -> Place<'_> {
        let mut open = self.lock();
        let own = open.iter().filter(|(other, _)| *other == address).count();
        let oldest = match own {
            OF_ONE.. => open.iter().position(|(other, _)| *other == address),
            _ => (open.len() >= CONNECTIONS).then_some(0),
        };
        if let Some(oldest) = oldest {
            let (of, old) = open.remove(oldest);
            tracing::debug!(address = %of, "too many requests for metrics at once");
            // Its thread finds it closed.
            let _ = old.shutdown(Shutdown::Both);
        }
        open.push((address, stream.clone()));
        Place { open: self, stream }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.open.lock().retain(|(_, stream)| !Arc::ptr_eq(stream, &self.stream));
    }
}

fn answer(mut stream: &TcpStream, server: &Server, hosts: &[String]) -> io::Result<()> {
    let (status, kind, body) = match request(stream)? {
        Some(asked) if !is_known(&asked.host, hosts) => {
            let text = "this name is not one under which this server is watched (observe_hosts in party.toml)\n";
            (403, TEXT, text.to_owned())
        }
        Some(Asked { path: Some(path), .. }) => page(&path, server),
        _ => (405, TEXT, "only GET of /, /metrics, /healthz and /readyz\n".to_owned()),
    };
    let phrase = match status {
        200 => "OK",
        403 => "Forbidden",
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

/// True if a request's `Host` leads here for sure: an address, this machine, or a name of the operator's.
fn is_known(host: &str, hosts: &[String]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    address
        || name.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// The page asks only its server, and runs only the scripts in it.
const HTML: &str = "text/html; charset=utf-8\r\ncontent-security-policy: default-src 'none'; connect-src 'self'; \
                    script-src 'unsafe-inline'; style-src 'unsafe-inline'; frame-ancestors 'none'";

const TEXT: &str = "text/plain; charset=utf-8";

/// The version of the format is part of its type.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

fn page(path: &str, server: &Server) -> (u16, &'static str, String) {
    match path {
        "/" => (200, HTML, include_str!("status.html").to_owned()),
        "/healthz" if server.is_alive() => (200, TEXT, "ok\n".to_owned()),
        "/healthz" => (503, TEXT, "the thread that computes has ended\n".to_owned()),
        "/readyz" => match server.readiness() {
            Ok(()) => (200, TEXT, "ok\n".to_owned()),
            Err(reason) => (503, TEXT, format!("{reason}\n")),
        },
        "/metrics" => match server.status() {
            Ok(state) => (200, EXPOSITION, server.metrics().page(&state, server.disk())),
            Err(error) => (503, TEXT, format!("{error}\n")),
        },
        _ => (404, TEXT, "there is /, /metrics, /healthz and /readyz\n".to_owned()),
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The host name that it asks.
    pub host: String,
    /// The path of a `GET`.
    pub path: Option<String>,
}

/// The request in these bytes; `None` as long as it does not end, and `Some(None)` if it does not name a host.
///
/// # Errors
/// If it is not a request of HTTP/1.1.
pub fn parse(bytes: &[u8]) -> io::Result<Option<Option<Asked>>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    if !request.parse(bytes).map_err(|error| bad(error.to_string()))?.is_complete() {
        return Ok(None);
    }
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
    let path = (request.method == Some("GET")).then(|| path.to_owned());
    let host = request.headers.iter().find(|it| it.name.eq_ignore_ascii_case("host"));
    let host = host.map(|header| String::from_utf8_lossy(header.value).trim().to_owned());
    Ok(Some(host.map(|host| Asked { host, path })))
}

/// Reads a request; `None` if it names no host.
fn request(mut stream: &TcpStream) -> io::Result<Option<Asked>> {
    let began = Instant::now();
    let mut bytes = Vec::new();
    loop {
        if let Some(asked) = parse(&bytes)? {
            return Ok(asked);
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
