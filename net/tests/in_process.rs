//! Parties as threads of one process.

use bytes::Bytes;
use net::{Error, Message, Party, Result, Session, in_process, launch};

fn message(bytes: &'static [u8]) -> Message {
    Message::from(Bytes::from_static(bytes))
}

fn three<R: Send>(program: impl Fn(Session) -> Result<R> + Sync) -> Vec<Result<R>> {
    launch::threads(3, 7, program)
}

#[test]
fn messages_arrive_in_order_and_without_a_copy() {
    let got = three(|session| {
        let mut link = session.transport;
        let me = link.me();
        let sent: Vec<Bytes> = (0..1000u32).map(|i| Bytes::from(vec![i as u8; 40])).collect();
        for body in &sent {
            link.send(me.after(1, 3), Message::from(body.clone()))?;
        }
        let mut got = Vec::new();
        for _ in 0..1000 {
            got.push(link.receive(me.after(2, 3))?.body);
        }
        link.close()?;
        Ok((sent, got))
    });
    let got: Vec<_> = got.into_iter().collect::<Result<_>>().unwrap();
    for me in 0..3 {
        let (sent, received) = (&got[me].0, &got[(me + 1) % 3].1);
        assert_eq!(sent, received);
        for (sent, received) in sent.iter().zip(received) {
            assert_eq!(sent.as_ptr(), received.as_ptr());
        }
    }
}

#[test]
fn each_pair_holds_one_key_of_its_own() {
    let sessions = in_process::sessions_from_seed(3, 5);
    let key = |a: usize, b: usize| sessions[a].pair_keys[b].as_ref().unwrap().0;
    for a in 0..3 {
        assert!(sessions[a].pair_keys[a].is_none());
        assert_eq!(key(a, (a + 1) % 3), key((a + 1) % 3, a));
    }
    assert_ne!(key(0, 1), key(1, 2));
    assert_ne!(key(0, 1), key(0, 2));
    assert_ne!(key(0, 1), in_process::sessions_from_seed(3, 6)[0].pair_keys[1].as_ref().unwrap().0);
    assert_eq!(format!("{:?}", sessions[0].pair_keys[1]), "Some(PairKey(..))");
}

#[test]
fn a_party_that_leaves_cancels_the_session_of_the_others() {
    let outcomes = three(|session| {
        let mut link = session.transport;
        link.step("test/leave");
        if link.me() == Party(1) {
            return Ok(());
        }
        link.receive(Party(1)).map(drop)
    });
    for me in [0, 2] {
        let error = outcomes[me].as_ref().unwrap_err();
        assert!(matches!(error, Error::Cancelled { by: Party(1), .. }), "{error}");
        assert!(error.to_string().contains("test/leave"), "{error}");
    }
}

#[test]
fn what_was_sent_before_leaving_still_arrives() {
    let outcomes = three(|session| {
        let mut link = session.transport;
        if link.me() == Party(1) {
            return link.send(Party(0), message(b"last"));
        }
        if link.me() == Party(0) {
            assert_eq!(&link.receive(Party(1))?.body[..], b"last");
        }
        Ok(())
    });
    outcomes.into_iter().collect::<Result<()>>().unwrap();
}

#[test]
fn parties_that_all_wait_find_out_instead_of_hanging() {
    let outcomes = three(|session| {
        let mut link = session.transport;
        let from = link.me().after(1, 3);
        link.step("test/stuck");
        link.receive(from).map(drop)
    });
    for outcome in &outcomes {
        let error = outcome.as_ref().unwrap_err();
        assert!(error.to_string().contains("test/stuck"), "{error}");
    }
    let stalled = |outcome: &&Result<()>| matches!(outcome, Err(Error::Stalled { .. }));
    assert!(outcomes.iter().filter(stalled).count() >= 1);
}

#[test]
fn after_an_error_the_session_is_dead_and_says_why() {
    let outcomes = three(|session| {
        let mut link = session.transport;
        if link.me() == Party(0) {
            let first = link.receive(Party(1)).unwrap_err();
            let second = link.send(Party(2), message(b"x")).unwrap_err();
            assert!(matches!(&second, Error::Dead(why) if *why == first.to_string()), "{second}");
            assert!(matches!(link.close(), Err(Error::Dead(_))));
        }
        Ok(())
    });
    outcomes.into_iter().collect::<Result<()>>().unwrap();
}

#[test]
fn misuse_is_refused_and_leaves_the_session_alive() {
    let outcomes = three(|session| {
        let mut link = session.transport;
        for peer in [link.me(), Party(3)] {
            assert!(matches!(link.send(peer, message(b"x")), Err(Error::Misuse(_))));
            assert!(matches!(link.receive(peer), Err(Error::Misuse(_))));
        }
        link.close()
    });
    outcomes.into_iter().collect::<Result<()>>().unwrap();
}

#[test]
fn closing_over_unread_messages_is_an_error() {
    let outcomes = three(|session| {
        let mut link = session.transport;
        if link.me() == Party(0) {
            link.send(Party(1), message(b"unread"))?;
        }
        link.close()
    });
    assert!(matches!(outcomes[1], Err(Error::Violation { peer: Party(0), .. })));
}

#[test]
fn a_panic_of_one_party_ends_all_and_is_passed_on() {
    let outcome = std::panic::catch_unwind(|| {
        three(|session| {
            let mut link = session.transport;
            assert!(link.me() != Party(2), "party 2 fails on purpose");
            link.receive(Party(2)).map(drop)
        })
    });
    assert!(outcome.is_err());
}
