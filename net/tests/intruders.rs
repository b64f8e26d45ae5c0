//! Intruders get nothing, while a session runs on undisturbed.

use std::{
    collections::HashSet,
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use net::{
    Authority, Endpoint, Identity, Job, Limits, Message, Result, Role, Security, Session, Settings,
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

const DAY: Duration = Duration::from_secs(86_400);

/// The log of this process.
fn log() -> &'static Mutex<Vec<u8>> {
    static LOG: OnceLock<Mutex<Vec<u8>>> = OnceLock::new();
    LOG.get_or_init(|| {
        struct Writer;
        impl Write for Writer {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                log().lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(|| Writer);
        // The writer locks the log only when something is logged, which is after this.
        let _ = tracing::subscriber::set_global_default(subscriber.finish());
        Mutex::default()
    })
}

/// The lines about refused connections.
fn refusals() -> Vec<String> {
    let log = log().lock().unwrap().clone();
    let log = String::from_utf8(log).unwrap();
    log.lines().filter(|line| line.contains("connection refused")).map(str::to_owned).collect()
}

/// A session of three parties and what an intruder may find out from outside: the addresses.
struct Cluster {
    authority: Authority,
    endpoints: Vec<Endpoint>,
    addresses: Vec<SocketAddr>,
}

impl Cluster {
    fn new(limits: &Limits) -> Self {
        let authority = Authority::generate(DAY).unwrap();
        let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
        let open = |(party, listener)| {
            let security = Security::Tls(authority.issue(&Role::party(party), DAY).unwrap());
            let settings = Settings::new(security).listener(listener).peers(addresses.clone());
            Endpoint::open(settings.limits(limits.clone()).clients(vec!["alice".into()])).unwrap()
        };
        let endpoints = listeners.into_iter().enumerate().map(open).collect();
        Self { authority, endpoints, addresses }
    }

    /// Lets a session run for as long as the intruder works, and checks its every byte.
    fn run_while(&self, intruder: impl FnOnce(&Self) + Send) {
        let done = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            let parties: Vec<_> = self
                .endpoints
                .iter()
                .map(|endpoint| {
                    let done = &done;
                    scope.spawn(move || {
                        let job = Job::new("undisturbed");
                        ring(endpoint.session(&job)?, || {
                            done.load(std::sync::atomic::Ordering::Relaxed)
                        })
                    })
                })
                .collect();
            let outcome = scope.spawn(|| intruder(self)).join();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            let rounds: Vec<u64> =
                parties.into_iter().map(|party| party.join().unwrap().unwrap()).collect();
            assert!(rounds[0] > 10 && rounds.iter().all(|r| *r == rounds[0]), "{rounds:?}");
            outcome.unwrap();
        });
    }
}

/// Passes known bytes around until party 0 is told to stop; returns the number of rounds.
fn ring(session: Session, done: impl Fn() -> bool) -> Result<u64> {
    let mut link = session.transport;
    let me = link.me();
    let body = |party: net::Party, round: u64, go: bool| {
        let mut body: Vec<u8> =
            (0..500u64).map(|at| (at * 7 + round + party.0 as u64) as u8).collect();
        body.push(go.into());
        Bytes::from(body)
    };
    for round in 0.. {
        let mut go = me != net::Party(0) || !done();
        if me == net::Party(0) {
            link.send(me.after(1, 3), Message::from(body(me, round, go)))?;
        }
        let from = me.after(2, 3);
        let got = link.receive(from)?.body;
        go &= got[500] == 1;
        assert!(got == body(from, round, go), "round {round}");
        if me != net::Party(0) {
            link.send(me.after(1, 3), Message::from(body(me, round, go)))?;
        }
        thread::sleep(Duration::from_micros(200));
        if !go {
            link.close()?;
            return Ok(round);
        }
    }
    unreachable!("the rounds have no end")
}

fn handles() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn eventually(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}\n{:#?}", refusals());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Attacks a running session and expects it to be refused once, for a cause with this text, and to
/// leave nothing behind.
fn refused(limits: &Limits, cause: &str, attack: impl FnOnce(&Cluster) + Send) {
    log();
    let cluster = Cluster::new(limits);
    cluster.run_while(|cluster| {
        // The session's own links first, so that they are among the handles.
        thread::sleep(Duration::from_millis(300));
        let before = handles();
        attack(cluster);
        eventually(cause, Duration::from_secs(8), || refusals().len() == 1);
        assert!(refusals()[0].contains(cause), "{cause:?} not in {}", refusals()[0]);
        eventually("handles return", Duration::from_secs(8), || handles() == before);
    });
    assert_eq!(refusals().len(), 1, "{:#?}", refusals());
}

/// Writes these bytes to party 1 and reads to the end of the connection.
fn write_and_read(cluster: &Cluster, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(cluster.addresses[1]).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
    let mut answer = Vec::new();
    // It may be refused before it has written all.
    let _ = socket.write_all(bytes).and_then(|()| socket.read_to_end(&mut answer));
    answer
}

fn hasty() -> Limits {
    Limits { handshake: Duration::from_secs(1), ..Limits::default() }
}

#[test]
fn random_bytes_are_refused() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 56) as u8
    };
    let bytes: Vec<u8> = (0..10_000).map(|_| random()).collect();
    refused(&hasty(), "", |cluster| {
        // A TLS alert at most.
        assert!(write_and_read(cluster, &bytes).len() <= 7);
    });
}

#[test]
fn plain_http_is_refused() {
    refused(&hasty(), "", |cluster| {
        let answer = write_and_read(cluster, b"GET / HTTP/1.1\r\nHost: party-1\r\n\r\n");
        assert!(answer.len() <= 7, "{answer:?}");
    });
}

#[test]
fn a_half_open_connection_is_dropped_after_the_limit() {
    refused(&hasty(), "did not introduce itself within 1s", |cluster| {
        // The first bytes of a TLS hello, and no more.
        let answer = write_and_read(cluster, &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]);
        assert!(answer.len() <= 7, "{answer:?}");
    });
}

#[test]
fn a_frame_of_a_party_that_skips_tls_is_refused() {
    refused(&hasty(), "", |cluster| {
        let mut frame = vec![1, 0, 0, 0];
        frame.extend([0xff; 20]);
        assert!(write_and_read(cluster, &frame).len() <= 7);
    });
}

#[test]
fn five_hundred_idle_connections_leave_nothing_behind() {
    log();
    // Long enough for all to be there before the first is overdue, on a busy machine too.
    let limits = Limits { pending: 64, handshake: Duration::from_secs(5), ..hasty() };
    let cluster = Cluster::new(&limits);
    cluster.run_while(|cluster| {
        thread::sleep(Duration::from_millis(300));
        let (handles_before, memory_before) = (handles(), resident_kib());
        let connect = |_| TcpStream::connect(cluster.addresses[0]).unwrap();
        let idle: Vec<_> = (0..500).map(connect).collect();
        // At most `pending` of them are kept, and those until they are overdue. Of each kind one is logged.
        for cause in ["too many connections", "did not introduce itself"] {
            let logged = || refusals().iter().any(|line| line.contains(cause));
            eventually(cause, Duration::from_secs(20), logged);
        }
        drop(idle);
        eventually("handles return", Duration::from_secs(5), || handles() == handles_before);
        let grown = resident_kib().saturating_sub(memory_before);
        assert!(grown < 8 << 10, "{grown} KiB more");
        // A client of the cluster still gets in.
        let alice = cluster.authority.issue(&Role::client("alice").unwrap(), DAY).unwrap();
        let alice = Endpoint::open(Settings::new(Security::Tls(alice))).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| cluster.endpoints[0].accept(Duration::from_secs(5)).unwrap());
            alice.dial(net::Party(0), cluster.addresses[0]).map(drop).unwrap();
        });
    });
    // One of each kind is logged; the third is of those that hung up just before they were overdue.
    let (lines, mut causes) = (refusals(), HashSet::new());
    assert!((2..=3).contains(&lines.len()), "{lines:#?}");
    let mut causes_of = lines.iter().filter_map(|line| line.split("cause=").nth(1));
    assert!(causes_of.all(|cause| causes.insert(cause)), "{lines:#?}");
}

/// A TLS client with any identity and versions, which trusts the cluster's authority.
fn connect(
    address: SocketAddr,
    trusted: &str,
    identity: Option<&Identity>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> rustls::StreamOwned<ClientConnection, TcpStream> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some(identity) => {
            let chain = CertificateDer::from_pem_slice(identity.certificate_pem().as_bytes());
            let key = PrivateKeyDer::from_pem_slice(identity.key_pem().as_bytes());
            config.with_client_auth_cert(vec![chain.unwrap()], key.unwrap()).unwrap()
        }
    };
    let name = ServerName::try_from("party-1").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
    rustls::StreamOwned::new(connection, socket)
}

/// Writes a frame over TLS; the answer must be the end of the connection without a byte of data.
fn expect_nothing(mut tls: rustls::StreamOwned<ClientConnection, TcpStream>, frame: &[u8]) {
    let mut answer = Vec::new();
    // Either fails, depending on when the refusal arrives.
    let _ = tls.write_all(frame);
    let _ = tls.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{} bytes", answer.len());
}

const TLS13: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

#[test]
fn tls_1_2_is_refused() {
    refused(&hasty(), "Tls12NotOffered", |cluster| {
        let trusted = cluster.authority.certificate_pem();
        let identity = cluster.authority.issue(&Role::party(2), DAY).unwrap();
        let old = &[&rustls::version::TLS12];
        expect_nothing(connect(cluster.addresses[1], trusted, Some(&identity), old), &[0; 100]);
    });
}

#[test]
fn no_certificate_is_refused() {
    refused(&hasty(), "no certificate", |cluster| {
        let trusted = cluster.authority.certificate_pem();
        expect_nothing(connect(cluster.addresses[1], trusted, None, TLS13), &[0; 100]);
    });
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    refused(&hasty(), "certificate", |cluster| {
        let trusted = cluster.authority.certificate_pem();
        let other = Authority::generate(DAY).unwrap().issue(&Role::party(2), DAY).unwrap();
        expect_nothing(connect(cluster.addresses[1], trusted, Some(&other), TLS13), &[0; 100]);
    });
}

#[test]
fn an_expired_certificate_is_refused() {
    refused(&hasty(), "expired", |cluster| {
        let trusted = cluster.authority.certificate_pem();
        let hour = Duration::from_secs(3600);
        let begin = SystemTime::now() - hour * 2;
        let old = cluster.authority.issue_for_period(&Role::party(2), begin, hour).unwrap();
        expect_nothing(connect(cluster.addresses[1], trusted, Some(&old), TLS13), &[0; 100]);
    });
}

/// A hello of a party, as the frame that opens a link.
fn hello(party: u16) -> Vec<u8> {
    let mut body = b"TRFL\x01\x00".to_vec();
    body.extend(party.to_le_bytes());
    body.extend([0; 16 + 2 + 32 + 32 + 1]);
    let mut frame = vec![0, 0, 0, 0];
    frame.extend((body.len() as u32).to_le_bytes());
    frame.extend([0; 16]);
    [frame, body].concat()
}

#[test]
fn the_right_authority_with_the_wrong_role_is_refused() {
    refused(&hasty(), "party-2 with a certificate of client alice", |cluster| {
        let trusted = cluster.authority.certificate_pem();
        let alice = cluster.authority.issue(&Role::client("alice").unwrap(), DAY).unwrap();
        expect_nothing(connect(cluster.addresses[1], trusted, Some(&alice), TLS13), &hello(2));
    });
}

#[test]
fn a_party_in_the_place_of_another_is_refused() {
    refused(&hasty(), "party-2 with a certificate of party-0", |cluster| {
        let trusted = cluster.authority.certificate_pem();
        let zero = cluster.authority.issue(&Role::party(0), DAY).unwrap();
        expect_nothing(connect(cluster.addresses[1], trusted, Some(&zero), TLS13), &hello(2));
    });
}

#[test]
fn an_oversized_frame_is_refused_before_memory_is_reserved() {
    refused(&hasty(), "more than 0", |cluster| {
        let trusted = cluster.authority.certificate_pem();
        let identity = cluster.authority.issue(&Role::party(2), DAY).unwrap();
        let mut frame = vec![1, 0, 0, 0];
        frame.extend((1u32 << 20).to_le_bytes());
        frame.extend([0; 8]);
        frame.extend((1u64 << 60).to_le_bytes());
        expect_nothing(connect(cluster.addresses[1], trusted, Some(&identity), TLS13), &frame);
    });
}

#[test]
fn a_replayed_handshake_is_refused() {
    refused(&hasty(), "", |cluster| {
        // Party 2's side of a real handshake with party 1, recorded on the way.
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let relay = TcpListener::bind("127.0.0.1:0").unwrap();
        let relayed = relay.local_addr().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| record(&relay, cluster.addresses[1], &recorded));
            let alice = cluster.authority.issue(&Role::client("alice").unwrap(), DAY).unwrap();
            let alice = Endpoint::open(Settings::new(Security::Tls(alice))).unwrap();
            let server = scope.spawn(|| cluster.endpoints[1].accept(Duration::from_secs(5)));
            let channel = alice.dial(net::Party(1), relayed).unwrap();
            drop(server.join().unwrap().unwrap());
            drop(channel);
        });
        let bytes = recorded.lock().unwrap().clone();
        assert!(bytes.len() > 500);
        write_and_read(cluster, &bytes);
        // Not a second client.
        assert!(cluster.endpoints[1].accept(Duration::from_millis(100)).is_none());
    });
}

/// Passes one connection on, keeping what the dialling side says.
fn record(relay: &TcpListener, to: SocketAddr, said: &Mutex<Vec<u8>>) {
    let (mut dialler, _) = relay.accept().unwrap();
    let mut server = TcpStream::connect(to).unwrap();
    let (mut from_server, mut to_dialler) =
        (server.try_clone().unwrap(), dialler.try_clone().unwrap());
    thread::scope(|scope| {
        scope.spawn(move || {
            let _ = io::copy(&mut from_server, &mut to_dialler);
            let _ = to_dialler.shutdown(std::net::Shutdown::Write);
        });
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = dialler.read(&mut buffer) {
            said.lock().unwrap().extend_from_slice(&buffer[..len]);
            if server.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        let _ = server.shutdown(std::net::Shutdown::Write);
    });
}
