//! Tests of the threads that an endpoint wakes, and of the bytes that it holds for a client.

use std::thread::Scope;

use super::*;
use crate::{Channel, Endpoint, Role, Security};

const SOON: Duration = Duration::from_secs(60);

/// A server and a client of it, on this machine.
fn server_and_client(limits: &Limits) -> (Endpoint, Endpoint) {
    let endpoint = |role: Role, listens: bool| {
        let settings = Settings::new(Security::InsecurePlainTcp { role, beyond_loopback: false });
        let settings = settings.limits(limits.clone());
        let here = "127.0.0.1:0".parse().unwrap();
        Endpoint::open(if listens { settings.listen(here).unwrap() } else { settings }).unwrap()
    };
    (endpoint(Role::party(0), true), endpoint(Role::Client("c".to_owned()), false))
}

/// Both ends of a new channel: the server's, the client's.
fn channel(server: &Endpoint, client: &Endpoint) -> (Channel, Channel) {
    let address = server.address().unwrap();
    thread::scope(|scope| {
        let dialled = scope.spawn(|| client.dial(Party(0), address).unwrap());
        (server.accept(SOON).unwrap(), dialled.join().unwrap())
    })
}

/// Lets a thread wait on each channel until the other end closes it.
fn wait_on_all<'scope>(scope: &'scope Scope<'scope, '_>, channels: Vec<Channel>) {
    for mut channel in channels {
        scope.spawn(move || while let Ok(Some(_)) = channel.receive(SOON) {});
    }
}

#[test]
fn a_message_wakes_the_thread_that_waits_for_it_and_no_other() {
    // Heartbeats pass all the time, and concern no thread.
    let limits = Limits { heartbeat: Duration::from_millis(10), ..Limits::default() };
    let (server, client) = server_and_client(&limits);
    let (idle, others): (Vec<_>, Vec<_>) = (0..100).map(|_| channel(&server, &client)).unzip();
    let (mut busy, mut asking) = channel(&server, &client);
    thread::scope(|scope| {
        wait_on_all(scope, idle);
        let wakes = || server.engine().hub.wakes.load(Ordering::Relaxed);
        scope.spawn(move || {
            while let Ok(Some(question)) = busy.receive(SOON) {
                busy.send(question).unwrap();
            }
        });
        let (before, began) = (wakes(), Instant::now());
        let mut messages = 0;
        while began.elapsed() < Duration::from_millis(500) {
            asking.send(Bytes::from_static(b"question")).unwrap();
            asking.receive(SOON).unwrap().unwrap();
            messages += 1;
        }
        let woken = wakes() - before;
        assert!(woken <= messages, "{woken} for {messages} messages beside 100 idle threads");
        drop(asking);
        drop(others);
    });
}

#[test]
fn a_client_that_floods_and_does_not_read_takes_no_more_than_its_queue() {
    const MESSAGE: usize = 64 << 10;
    let limits = Limits { client_queue: 1 << 20, ..Limits::default() };
    let (server, client) = server_and_client(&limits);
    let (mut busy, mut flooding) = channel(&server, &client);
    for _ in 0..100 {
        flooding.send(vec![7; MESSAGE].into()).unwrap();
    }
    let server_link = busy.link().clone();
    let came = || server_link.waiting();
    let until = Instant::now() + SOON;
    while !came().1 && Instant::now() < until {
        thread::yield_now();
    }
    assert!(came().1, "reading goes on after {} bytes", came().0);
    thread::scope(|scope| {
        // More than the client's queue and the sockets take: this waits until the client reads.
        scope.spawn(|| {
            for _ in 0..200 {
                busy.send(vec![8; MESSAGE].into()).unwrap();
            }
            for _ in 0..100 {
                assert!(busy.receive(SOON).unwrap().is_some());
            }
        });
        for _ in 0..200 {
            assert!(came().0 <= limits.client_queue + 2 * MESSAGE, "{} bytes wait", came().0);
            assert!(flooding.receive(SOON).unwrap().is_some());
        }
    });
}

#[test]
fn a_leader_that_leaves_wakes_one_thread_to_lead() {
    let (server, client) = server_and_client(&Limits::default());
    let (mut busy, mut asking) = channel(&server, &client);
    let (others, idle): (Vec<_>, Vec<_>) = (0..20).map(|_| channel(&server, &client)).unzip();
    thread::scope(|scope| {
        // At the client's end each thread leads, if no other does.
        wait_on_all(scope, idle);
        scope.spawn(move || {
            while let Ok(Some(question)) = busy.receive(SOON) {
                busy.send(question).unwrap();
            }
        });
        let wakes = || client.engine().hub.wakes.load(Ordering::Relaxed);
        let before = wakes();
        const MESSAGES: u64 = 200;
        for _ in 0..MESSAGES {
            asking.send(Bytes::from_static(b"question")).unwrap();
            asking.receive(SOON).unwrap().unwrap();
        }
        let woken = wakes() - before;
        assert!(woken <= 2 * MESSAGES, "{woken} for {MESSAGES} messages");
        drop(asking);
        drop(others);
    });
}

#[test]
fn the_endpoints_thread_takes_over_when_a_leader_leaves_after_a_long_wait() {
    let (server, client) = server_and_client(&Limits::default());
    let (mut far, mut near) = channel(&server, &client);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| while near.receive(SOON).unwrap().unwrap() != "last" {});
        let hub = &client.engine().hub;
        let mut sent = Instant::now();
        while !hub.rest.resting.load(Ordering::SeqCst) {
            assert!(!receiver.is_finished());
            // If the endpoint's thread came to lead first, a message has the receiver lead from then on.
            if sent.elapsed() > Duration::from_millis(300) {
                far.send(Bytes::from_static(b"word")).unwrap();
                sent = Instant::now();
            }
            thread::yield_now();
        }
        far.send(Bytes::from_static(b"last")).unwrap();
    });
    // Nobody waits at the client, and yet its sockets are served: heartbeats, closing.
    drop(far);
    let began = Instant::now();
    while !near.is_over() {
        assert!(began.elapsed() < SOON);
        thread::yield_now();
    }
}

#[test]
fn a_wake_up_between_look_and_sleep_is_not_lost_and_others_do_not_wake() {
    let parker = Parker::sleeping();
    assert!(!parker.wake(Change::ANY), "nobody waits");
    parker.want(Change::ARRIVED);
    assert!(!parker.wake(Change::ROOM), "nobody waits for room");
    parker.wake(Change::ARRIVED);
    // Would block forever if the wake-up were lost.
    parker.sleep(None);
    parker.want_nothing();
    assert!(!parker.wake(Change::ANY));
}
