//! Parties over loopback, plain and under TLS.

use std::{
    net::TcpListener,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use net::{
    Canceller, Endpoint, Error, Job, Limits, Message, Party, Result, Role, Security, Session,
    Settings,
    launch::{self, Network},
};

const BOTH: [Network; 2] = [Network::InsecurePlainTcp, Network::Tls];

fn three<R: Send>(
    network: Network,
    program: impl Fn(Session) -> Result<R> + Sync,
) -> Vec<Result<R>> {
    launch::threads_over(network, 3, &Job::new("test"), program).unwrap()
}

fn body(len: usize, salt: usize) -> Bytes {
    (0..len).map(|at| (at * 31 + salt * 7 + at / 251) as u8).collect::<Vec<_>>().into()
}

#[test]
fn messages_of_all_sizes_arrive_whole_in_order_and_aligned() {
    let sizes = [0, 1, 7, 8, 24, 100, 4096, 65_536, 65_537, 1 << 20, (1 << 20) + 1, 5_000_003];
    for network in BOTH {
        let outcomes = three(network, |session| {
            let mut link = session.transport;
            let me = link.me();
            for (salt, len) in sizes.into_iter().enumerate() {
                for offset in [1, 2] {
                    let message = Message { body: body(len, salt + me.0), depth: salt as u32 };
                    link.send(me.after(offset, 3), message)?;
                }
            }
            for (salt, len) in sizes.into_iter().enumerate() {
                for offset in [1, 2] {
                    let from = me.after(offset, 3);
                    let got = link.receive(from)?;
                    assert!(got.body == body(len, salt + from.0), "{network:?} {len}");
                    assert_eq!(got.depth, salt as u32);
                    assert!(len == 0 || (got.body.as_ptr() as usize).is_multiple_of(8));
                }
            }
            link.close()
        });
        outcomes.into_iter().collect::<Result<()>>().unwrap();
    }
}

#[test]
fn pair_keys_and_session_id_are_equal_and_fresh() {
    let start = || {
        let sessions = three(Network::Tls, |session| {
            session.transport.close()?;
            Ok((session.id, session.pair_keys))
        });
        sessions.into_iter().collect::<Result<Vec<_>>>().unwrap()
    };
    let (one, two) = (start(), start());
    let key = |a: usize, b: usize| one[a].1[b].as_ref().unwrap().0;
    for party in 0..3 {
        assert_eq!(one[party].0, one[0].0);
        assert!(one[party].1[party].is_none());
        let next = (party + 1) % 3;
        assert_eq!(key(party, next), key(next, party));
        assert_ne!(key(party, next), key(next, (next + 1) % 3));
        assert_ne!(key(party, next), two[party].1[next].as_ref().unwrap().0);
    }
    assert_ne!(one[0].0, two[0].0);
}

#[test]
fn parties_that_send_far_more_than_the_bound_to_each_other_do_not_wait_for_ever() {
    for network in BOTH {
        let limits = Limits { queue: 1 << 20, ..Limits::default() };
        let endpoints = launch::endpoints(network, 2, &limits).unwrap();
        let outcomes = with_sessions(&endpoints, &Job::new("flood").parties(2), |session| {
            let mut link = session.transport;
            let peer = link.me().after(1, 2);
            let big = body(1 << 20, 3);
            for _ in 0..30 {
                link.send(peer, Message::from(big.clone()))?;
            }
            for _ in 0..30 {
                assert!(link.receive(peer)?.body == big);
            }
            link.close()
        });
        outcomes.into_iter().collect::<Result<()>>().unwrap();
    }
}

fn with_sessions<R: Send>(
    endpoints: &[Endpoint],
    job: &Job,
    program: impl Fn(Session) -> Result<R> + Sync,
) -> Vec<Result<R>> {
    let program = &program;
    thread::scope(|scope| {
        let run =
            |endpoint| scope.spawn(move || Endpoint::session(endpoint, job).and_then(program));
        let parties: Vec<_> = endpoints.iter().map(run).collect();
        parties.into_iter().map(|party| party.join().unwrap()).collect()
    })
}

#[test]
fn parties_take_the_first_generator_that_all_of_them_name() {
    let agree = |lists: [&[&str]; 3]| {
        let endpoints = launch::endpoints(Network::Tls, 3, &Limits::default()).unwrap();
        let start = |(endpoint, list): (&Endpoint, &[&str])| {
            let job = Job::new("prg").prgs(list.iter().copied());
            endpoint.session(&job).map(|session| session.prg)
        };
        thread::scope(|scope| {
            let parties =
                endpoints.iter().zip(lists).map(|party| scope.spawn(move || start(party)));
            let parties: Vec<_> = parties.collect();
            parties.into_iter().map(|party| party.join().unwrap()).collect::<Vec<_>>()
        })
    };
    let slow: &[&str] = &["chacha12"];
    for agreed in agree([&["aes-128-ctr", "chacha12"], slow, &["aes-128-ctr", "chacha12"]]) {
        assert_eq!(agreed.unwrap().as_deref(), Some("chacha12"));
    }
    for agreed in agree([&[], &[], &[]]) {
        assert_eq!(agreed.unwrap(), None);
    }
    for refused in agree([&["a", "b"], &["b", "c"], &["c", "a"]]) {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("party 0: a,b; party 1: b,c; party 2: c,a"), "{text}");
    }
    for refused in agree([slow, slow, &["aes-128-ctr"]]) {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("PRG choice differs"), "{text}");
    }
}

#[test]
fn a_send_waits_once_the_bound_is_reached_and_memory_stays_bounded() {
    BOTH.into_iter().for_each(a_send_waits_once_the_bound_is_reached);
}

fn a_send_waits_once_the_bound_is_reached(network: Network) {
    let limits = Limits { queue: 1 << 20, ..Limits::default() };
    let endpoints = launch::endpoints(network, 2, &limits).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let told = Mutex::new(told);
    let outcomes = with_sessions(&endpoints, &Job::new("slow").parties(2), |session| {
        let mut link = session.transport;
        if link.me() == Party(0) {
            let began = Instant::now();
            for sent in 0..200 {
                link.send(Party(1), Message::from(body(1 << 20, 1)))?;
                let _ = tell.send(sent);
            }
            assert!(began.elapsed() >= Duration::from_millis(300));
        } else {
            // Party 0 can be this far only if what waits in between is bounded.
            let quiet = Duration::from_millis(300);
            let told = told.lock().unwrap();
            let last = std::iter::from_fn(|| told.recv_timeout(quiet).ok()).last();
            assert!(last.unwrap() < 50, "{last:?}");
            for _ in 0..200 {
                assert_eq!(link.receive(Party(0))?.body.len(), 1 << 20);
            }
        }
        link.close()
    });
    outcomes.into_iter().collect::<Result<()>>().unwrap();
}

#[test]
fn messages_sent_at_once_and_messages_that_had_to_queue_keep_their_order() {
    // Together far more than the sockets hold, so that most of them must wait for others to leave.
    let sizes = [8, 300_000, 64, 3 << 20, 16 << 10, 0, (1 << 20) + 5];
    for network in BOTH {
        let endpoints = launch::endpoints(network, 2, &Limits::default()).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let told = Mutex::new(told);
        let outcomes = with_sessions(&endpoints, &Job::new("order").parties(2), |session| {
            let mut link = session.transport;
            for (salt, len) in sizes.into_iter().cycle().take(40).enumerate() {
                if link.me() == Party(0) {
                    link.send(Party(1), Message::from(body(len, salt)))?;
                    if salt == 20 {
                        tell.send(()).unwrap();
                    }
                } else {
                    if salt == 0 {
                        told.lock().unwrap().recv().unwrap();
                    }
                    assert!(link.receive(Party(0))?.body == body(len, salt), "{network:?} {salt}");
                }
            }
            link.close()
        });
        outcomes.into_iter().collect::<Result<()>>().unwrap();
    }
}

#[test]
fn what_a_receiver_has_left_in_the_socket_comes_in_while_it_computes() {
    for network in BOTH {
        let limits = Limits { queue: 8 << 20, ..Limits::default() };
        let endpoints = launch::endpoints(network, 2, &limits).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let told = Mutex::new(told);
        let outcomes = with_sessions(&endpoints, &Job::new("rest").parties(2), |session| {
            let mut link = session.transport;
            for at in 0..15 {
                if link.me() == Party(0) {
                    link.send(Party(1), Message::from(body(1 << 20, at)))?;
                } else {
                    assert!(link.receive(Party(0))?.body == body(1 << 20, at));
                    if at == 0 {
                        // More than fits into the sender's queue and the sockets.
                        let sent = told.lock().unwrap().recv_timeout(Duration::from_secs(9));
                        sent.expect("everything is sent while the receiver does something else");
                    }
                }
            }
            if link.me() == Party(0) {
                tell.send(()).unwrap();
            }
            link.close()
        });
        outcomes.into_iter().collect::<Result<()>>().unwrap();
    }
}

#[test]
fn leaving_cancels_and_names_who_and_where() {
    for network in BOTH {
        let outcomes = three(network, |session| {
            let mut link = session.transport;
            link.step("test/leave");
            if link.me() == Party(1) {
                return link.send(Party(0), Message::from(body(10, 1)));
            }
            if link.me() == Party(0) {
                assert_eq!(link.receive(Party(1))?.body.len(), 10);
            }
            link.receive(Party(1)).map(drop)
        });
        assert!(outcomes[1].is_ok());
        for me in [0, 2] {
            let error = outcomes[me].as_ref().unwrap_err();
            assert!(error.to_string().contains("test/leave"), "{error}");
            assert!(matches!(error, Error::Cancelled { .. }), "{error}");
        }
    }
}

#[test]
fn a_canceller_ends_the_session_of_all() {
    let endpoints = launch::endpoints(Network::Tls, 3, &Limits::default()).unwrap();
    let canceller = Canceller::default();
    let job = Job::new("cancel").canceller(&canceller);
    let began = Instant::now();
    let outcomes = with_sessions(&endpoints, &job, |session| {
        let mut link = session.transport;
        if link.me() == Party(0) {
            canceller.cancel("the client has gone");
        }
        let from = link.me().after(1, 3);
        link.receive(from).map(drop)
    });
    assert!(began.elapsed() < Duration::from_secs(2));
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains("the client has gone"), "{error}");
    }
}

#[test]
fn one_endpoint_runs_many_sessions_one_after_the_other() {
    let limits = Limits { start: Duration::from_secs(5), ..Limits::default() };
    let endpoints = launch::endpoints(Network::Tls, 3, &limits).unwrap();
    for round in 0..50 {
        let outcomes = with_sessions(&endpoints, &Job::new(&format!("job {round}")), |session| {
            let mut link = session.transport;
            let me = link.me();
            link.send(me.after(1, 3), Message::from(body(1000, round)))?;
            assert!(link.receive(me.after(2, 3))?.body == body(1000, round));
            link.close()
        });
        outcomes.into_iter().collect::<Result<()>>().unwrap();
    }
}

#[test]
fn closing_over_unread_messages_is_an_error() {
    let outcomes = three(Network::Tls, |session| {
        let mut link = session.transport;
        let word = || Message::from(body(6, 0));
        match link.me() {
            Party(0) => {
                link.send(Party(1), word())?;
                link.send(Party(2), word())?;
            }
            // Once the word has come round, party 0 has sent what remains unread.
            Party(1) => drop(link.receive(Party(2))?),
            _ => {
                link.receive(Party(0))?;
                link.send(Party(1), word())?;
                // Party 1 has gone before party 2 says its farewell, which must not wait to be taken.
                thread::sleep(Duration::from_millis(300));
            }
        }
        link.close()
    });
    assert!(matches!(outcomes[1], Err(Error::Violation { peer: Party(0), .. })), "{outcomes:?}");
}

#[test]
fn plain_tcp_refuses_other_machines_unless_told() {
    use net::{Role, Security, Settings};
    let open = |beyond_loopback| {
        let role = Role::party(0);
        let security = Security::InsecurePlainTcp { role, beyond_loopback };
        let peers = ["127.0.0.1:9", "192.0.2.1:9"];
        Endpoint::open(Settings::new(security).peers(peers))
    };
    assert!(matches!(open(false), Err(Error::Config { .. })));
    assert!(open(true).is_ok());
}

/// In one process, and over both networks.
fn everywhere<R: Send>(
    program: impl Fn(Session) -> Result<R> + Sync,
    check: impl Fn(Vec<Result<R>>),
) {
    check(launch::threads(3, 7, &program));
    BOTH.into_iter().for_each(|network| check(three(network, &program)));
}

#[test]
fn a_message_of_another_step_is_an_error_that_names_both_parties_and_the_step() {
    let program = |session: Session| {
        let mut link = session.transport;
        let (me, peers) = (link.me(), [link.me().after(1, 3), link.me().after(2, 3)]);
        link.step("together");
        link.send(peers[0], Message::from(body(8, 1)))?;
        link.receive(peers[1])?;
        link.step(if me == Party(1) { "conv1" } else { "conv2" });
        link.send(peers[0], Message::from(body(8, 1)))?;
        link.receive(peers[1]).map(drop)
    };
    everywhere(program, |outcomes| {
        let errors: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        let names = |text: &str, parties: [&str; 2], step: &str| {
            parties.iter().all(|party| text.contains(party)) && text.contains(step)
        };
        // One of the two found it first, and told the others of it.
        let found = errors.iter().map(ToString::to_string).any(|text| {
            names(&text, ["party 1", "party 0"], "`conv1`")
                || names(&text, ["party 2", "party 1"], "`conv2`")
        });
        assert!(found, "{errors:?}");
        assert!(errors.iter().any(|error| matches!(error, Error::Violation { .. })), "{errors:?}");
    });
}

#[test]
fn what_a_reader_found_wrong_reaches_the_third_party_with_who_and_why() {
    let program = |session: Session| {
        let mut link = session.transport;
        link.step("next job");
        match link.me().0 {
            0 => {
                link.receive(Party(2))?;
                let error = link.accuse(Party(2), "a header that is not JSON");
                assert!(matches!(link.receive(Party(2)), Err(Error::Dead(_))));
                Err(error)
            }
            1 => link.receive(Party(0)).map(drop),
            _ => {
                link.send(Party(0), Message::from(body(8, 1)))?;
                link.receive(Party(0)).map(drop)
            }
        }
    };
    everywhere(program, |outcomes| {
        let errors: Vec<_> = outcomes.into_iter().map(Result::unwrap_err).collect();
        assert!(matches!(errors[0], Error::Violation { peer: Party(2), .. }), "{errors:?}");
        for told in &errors[1..] {
            // The accused may leave before its accuser has told the third.
            assert!(matches!(told, Error::Accused { peer: Party(2), .. }), "{errors:?}");
            assert!(told.to_string().contains("a header that is not JSON"), "{told}");
        }
    });
}

#[test]
fn what_a_party_itself_cannot_do_reaches_the_others_with_who_and_why() {
    let program = |session: Session| {
        let mut link = session.transport;
        link.step("save");
        if link.me() != Party(1) {
            return link.receive(Party(1)).map(drop);
        }
        link.fail("the disk is full");
        let dead = link.send(Party(0), Message::from(body(8, 1)));
        assert!(
            matches!(&dead, Err(Error::Dead(reason)) if reason == "the disk is full"),
            "{dead:?}"
        );
        dead
    };
    everywhere(program, |outcomes| {
        for me in [0, 2] {
            let text = outcomes[me].as_ref().unwrap_err().to_string();
            for part in ["party 1", "`save`", "the disk is full"] {
                assert!(text.contains(part), "{text}");
            }
        }
    });
}

#[test]
fn a_party_is_found_again_after_its_name_got_another_address() {
    let plain = |party: usize| {
        let role = Role::party(party);
        Settings::new(Security::InsecurePlainTcp { role, beyond_loopback: false })
            .peers(["zero.example:7100", "one.example:7100"])
    };
    let listens = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (Endpoint::open(plain(0).listener(listener)).unwrap(), address)
    };
    let (asked, known) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (count, table) = (asked.clone(), known.clone());
    let resolver = move |name: &str| {
        assert_eq!(name, "zero.example:7100");
        count.fetch_add(1, Ordering::SeqCst);
        Ok(table.lock().unwrap().clone())
    };
    let dials = Endpoint::open(plain(1).resolver(Arc::new(resolver))).unwrap();
    let job = Job::new("moved").parties(2);
    for _ in 0..2 {
        // The resolver's last address comes first, and no process listens there any more.
        let before = asked.load(Ordering::SeqCst);
        thread::scope(|scope| {
            let joins = scope.spawn(|| dials.session(&job));
            while asked.load(Ordering::SeqCst) < before + 2 {
                thread::yield_now();
            }
            let (endpoint, address) = listens();
            *known.lock().unwrap() = vec![address];
            let other = endpoint.session(&job).unwrap();
            let session = joins.join().unwrap().unwrap();
            thread::scope(|scope| {
                scope.spawn(|| other.transport.close().unwrap());
                session.transport.close().unwrap();
            });
        });
    }
}
