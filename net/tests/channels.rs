//! Clients and the servers of parties.

use std::{thread, time::Duration};

use bytes::Bytes;
use net::{
    Authority, Channel, Endpoint, Error, Identity, Job, Limits, Party, Role, Security, Settings,
};

const DAY: Duration = Duration::from_secs(86_400);
const SOON: Duration = Duration::from_secs(20);

fn server(identity: Identity) -> Settings {
    let settings = Settings::new(Security::Tls(identity));
    settings.listen("127.0.0.1:0".parse().unwrap()).unwrap()
}

fn party(authority: &Authority, number: usize) -> Identity {
    authority.issue(&Role::party(number), DAY).unwrap()
}

fn client(authority: &Authority, name: &str) -> Endpoint {
    let identity = authority.issue(&Role::client(name).unwrap(), DAY).unwrap();
    Endpoint::open(Settings::new(Security::Tls(identity))).unwrap()
}

fn ask(channel: &mut Channel, question: &Bytes) -> Bytes {
    channel.send(question.clone()).unwrap();
    channel.receive(SOON).unwrap().expect("an answer")
}

#[test]
fn clients_ask_servers_that_run_sessions_meanwhile() {
    let authority = Authority::generate(DAY).unwrap();
    let servers: Vec<_> = (0..3).map(|number| server(party(&authority, number))).collect();
    let mut servers: Vec<_> =
        servers.into_iter().map(|s| Endpoint::open(s.concurrent_sessions()).unwrap()).collect();
    let addresses: Vec<_> = servers.iter().map(|server| server.address().unwrap()).collect();
    servers.iter_mut().for_each(|server| server.set_peers(addresses.clone()).unwrap());
    thread::scope(|scope| {
        for server in &servers {
            // Two sessions at once, whose parties start in any order.
            for name in ["one", "two"] {
                scope.spawn(move || {
                    for round in 0..20 {
                        let job = Job::new(&format!("{name}/{round}"));
                        let mut link = server.session(&job).unwrap().transport;
                        let me = link.me();
                        let word = Bytes::from(format!("{name} {round} {me}"));
                        link.send(me.after(1, 3), word.into()).unwrap();
                        let from = me.after(2, 3);
                        let got = link.receive(from).unwrap().body;
                        assert_eq!(got, format!("{name} {round} {from}"));
                        link.close().unwrap();
                    }
                });
            }
            scope.spawn(move || {
                for _ in 0..2 {
                    let mut channel = server.accept(SOON).expect("a client");
                    assert!(matches!(channel.peer(), Role::Client(name) if name.starts_with('c')));
                    while let Ok(Some(question)) = channel.receive(SOON) {
                        channel.send(question).unwrap();
                    }
                    assert!(channel.is_over());
                }
            });
        }
        for name in ["c1", "c2"] {
            let client = client(&authority, name);
            let addresses = &addresses;
            scope.spawn(move || {
                let dial = |at: usize| client.dial(Party(at), addresses[at]).unwrap();
                let mut channels: Vec<_> = (0..3).map(dial).collect();
                for len in [0, 1, 1000, 3_000_000] {
                    let question = Bytes::from(vec![7; len]);
                    channels.iter_mut().for_each(|c| assert!(ask(c, &question) == question));
                }
            });
        }
    });
}

#[test]
fn a_client_that_is_not_configured_gets_nothing() {
    let authority = Authority::generate(DAY).unwrap();
    let settings = server(party(&authority, 0)).clients(vec!["alice".to_owned()]);
    let server = Endpoint::open(settings).unwrap();
    let refused = client(&authority, "mallory").dial(Party(0), server.address().unwrap());
    assert!(matches!(refused.map(drop), Err(Error::Channel { .. })));
    assert!(server.accept(Duration::from_millis(50)).is_none());
    let alice = client(&authority, "alice");
    let answer = thread::scope(|scope| {
        let accepted = scope.spawn(|| server.accept(SOON).unwrap().peer().clone());
        alice.dial(Party(0), server.address().unwrap()).map(drop).unwrap();
        accepted.join().unwrap()
    });
    assert_eq!(answer, Role::client("alice").unwrap());
}

#[test]
fn a_client_refuses_a_server_in_another_role() {
    let authority = Authority::generate(DAY).unwrap();
    let server = Endpoint::open(server(party(&authority, 1))).unwrap();
    let refused = client(&authority, "alice").dial(Party(0), server.address().unwrap());
    let error = refused.map(drop).unwrap_err();
    assert!(error.to_string().contains("party-0"), "{error}");
}

#[test]
fn a_message_longer_than_a_client_may_send_ends_its_channel_alone() {
    let authority = Authority::generate(DAY).unwrap();
    let limits = Limits { client_message: 1000, ..Limits::default() };
    let server = Endpoint::open(server(party(&authority, 0)).limits(limits)).unwrap();
    let address = server.address().unwrap();
    let alice = client(&authority, "alice");
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut greedy = server.accept(SOON).unwrap();
            let error = greedy.receive(SOON).unwrap_err();
            assert!(error.to_string().contains("more than 1000"), "{error}");
            let mut modest = server.accept(SOON).unwrap();
            let question = modest.receive(SOON).unwrap().unwrap();
            modest.send(question).unwrap();
            assert!(modest.receive(SOON).is_err());
        });
        let mut channel = alice.dial(Party(0), address).unwrap();
        channel.send(Bytes::from(vec![0; 1001])).unwrap();
        assert!(channel.receive(SOON).is_err());
        let mut channel = alice.dial(Party(0), address).unwrap();
        assert_eq!(ask(&mut channel, &Bytes::from(vec![1; 1000])).len(), 1000);
    });
}

#[test]
fn a_client_that_does_not_read_is_given_up_when_its_time_is_over() {
    let authority = Authority::generate(DAY).unwrap();
    let limits = Limits { client_queue: 64 << 10, ..Limits::default() };
    let server = Endpoint::open(server(party(&authority, 0)).limits(limits)).unwrap();
    let address = server.address().unwrap();
    let identity = authority.issue(&Role::client("alice").unwrap(), DAY).unwrap();
    let limits = Limits { queue: 64 << 10, ..Limits::default() };
    let alice = Endpoint::open(Settings::new(Security::Tls(identity)).limits(limits)).unwrap();
    let word = Bytes::from(vec![7; 64 << 10]);
    thread::scope(|scope| {
        let accepted = scope.spawn(|| server.accept(SOON).unwrap());
        let mut deaf = alice.dial(Party(0), address).unwrap();
        let mut channel = accepted.join().unwrap();
        // Both sides and their systems keep far less.
        let error = (0..1000)
            .find_map(|_| channel.send_within(word.clone(), Duration::from_millis(200)).err());
        let error = error.expect("64 MiB are not taken").to_string();
        assert!(error.contains("has not read what was sent to it for 200ms"), "{error}");
        // The channel works as before if the client reads after all.
        assert_eq!(deaf.receive(SOON).unwrap().unwrap(), word);
        let reads = scope.spawn(move || while let Ok(Some(_)) = deaf.receive(SOON) {});
        channel.send_within(word.clone(), SOON).unwrap();
        drop(channel);
        reads.join().unwrap();
    });
}

#[test]
fn parties_do_not_dial_and_clients_hold_no_sessions() {
    let authority = Authority::generate(DAY).unwrap();
    let server = Endpoint::open(server(party(&authority, 0))).unwrap();
    let address = server.address().unwrap();
    assert!(matches!(server.dial(Party(1), address).map(drop), Err(Error::Misuse(_))));
    let alice = client(&authority, "alice");
    assert!(matches!(alice.session(&Job::new("x")).map(drop), Err(Error::Misuse(_))));
    assert!(matches!(server.session(&Job::new("x")).map(drop), Err(Error::Misuse(_))));
}

#[test]
fn an_endpoint_that_closes_sends_what_is_queued_and_then_takes_nobody() {
    const MESSAGES: usize = 50;
    let authority = Authority::generate(DAY).unwrap();
    let server = Endpoint::open(server(party(&authority, 0))).unwrap();
    let address = server.address().unwrap();
    let alice = client(&authority, "alice");
    let mut near = thread::scope(|scope| {
        let dialled = scope.spawn(|| alice.dial(Party(0), address).unwrap());
        let mut far = server.accept(SOON).unwrap();
        // More than sockets take: the rest waits in the endpoint's queue.
        let sends = scope.spawn(move || {
            let sent = (0..MESSAGES).map(|_| far.send(vec![7; 64 << 10].into()));
            sent.collect::<Result<Vec<()>, _>>().unwrap();
            far
        });
        let near = dialled.join().unwrap();
        let mut far = sends.join().unwrap();
        let closed = scope.spawn(|| server.close(SOON));
        thread::scope(|scope| {
            let reads = scope.spawn(move || {
                let mut near = near;
                for _ in 0..MESSAGES {
                    assert_eq!(near.receive(SOON).unwrap().unwrap().len(), 64 << 10);
                }
                near
            });
            // A receiver at the other end gets the error too.
            assert!(matches!(far.receive(SOON), Err(Error::Channel { .. })));
            closed.join().unwrap();
            reads.join().unwrap()
        })
    });
    assert!(matches!(near.receive(SOON), Err(Error::Channel { .. })));
    assert!(alice.dial(Party(0), address).is_err());
}
