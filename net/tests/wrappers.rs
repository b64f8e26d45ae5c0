//! `Shaped` and `Tamper`.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use bytes::Bytes;
use net::{
    Fault, Message, Party, Result, Session, Shape, Shaped, Strike, Tamper, Transport, launch,
};

fn two<R: Send>(program: impl Fn(Session) -> Result<R> + Sync) -> Vec<R> {
    launch::threads(2, 11, program).into_iter().collect::<Result<_>>().unwrap()
}

#[test]
fn a_round_trip_takes_twice_the_delay() {
    let shape = Shape::new(Duration::from_millis(15), 1_000_000_000);
    let times = two(|session| {
        let mut link = Shaped::new(session.transport, shape);
        let peer = link.me().after(1, 2);
        let began = Instant::now();
        for _ in 0..3 {
            if link.me() == Party(0) {
                link.send(peer, Bytes::from_static(b"ping").into())?;
                link.receive(peer)?;
            } else {
                let message = link.receive(peer)?;
                link.send(peer, message)?;
            }
        }
        let time = began.elapsed();
        Box::new(link).close()?;
        Ok(time)
    });
    assert!(times[0] >= Duration::from_millis(90), "{times:?}");
    assert!(times[0] < Duration::from_millis(160), "{times:?}");
}

#[test]
fn messages_pass_at_the_bandwidth_and_share_the_delay() {
    // 2 MB at 80 Mbit/s: 200 ms, and 10 ms for the last bit to travel.
    let shape = Shape { delay: Duration::from_millis(10), bits_per_second: 80_000_000, burst: 0 };
    let times = two(|session| {
        let mut link = Shaped::new(session.transport, shape);
        let peer = link.me().after(1, 2);
        let began = Instant::now();
        for _ in 0..20 {
            link.send(peer, Bytes::from(vec![1; 100_000]).into())?;
        }
        for _ in 0..20 {
            assert_eq!(link.receive(peer)?.body.len(), 100_000);
        }
        Ok(began.elapsed())
    });
    for time in times {
        assert!((0.19..0.35).contains(&time.as_secs_f64()), "{time:?}");
    }
}

#[test]
fn a_full_bucket_leaves_at_once() {
    let shape = Shape { delay: Duration::ZERO, bits_per_second: 8_000, burst: 1000 };
    let times = two(|session| {
        let mut link = Shaped::new(session.transport, shape);
        let peer = link.me().after(1, 2);
        let began = Instant::now();
        link.send(peer, Bytes::from(vec![1; 800]).into())?;
        link.receive(peer)?;
        let first = began.elapsed();
        link.send(peer, Bytes::from(vec![1; 400]).into())?;
        link.receive(peer)?;
        Ok((first, began.elapsed()))
    });
    for (first, second) in times {
        assert!(first < Duration::from_millis(100), "{first:?}");
        assert!(second > Duration::from_millis(150), "{second:?}");
    }
}

/// The steps in which 10, 11, 12 and 13 are sent.
const ONE_STEP: [&str; 4] = ["only"; 4];

/// The messages that party 1 receives when party 0 sends 10, 11, 12 and 13 in these steps, through
/// these strikes.
fn tampered(steps: [&str; 4], strikes: Vec<Strike>) -> (usize, Vec<Vec<u8>>) {
    let got = two(|session| {
        let mut link = session.transport;
        if link.me() == Party(1) {
            let mut got = Vec::new();
            loop {
                link.step(steps[got.len().min(3)]);
                match link.receive(Party(0)) {
                    Ok(message) => got.push(message.body.to_vec()),
                    Err(_) => return Ok((0, got)),
                }
            }
        }
        let mut link = Tamper::new(link, strikes.clone());
        let struck = link.struck();
        for value in 10..14u8 {
            link.step(steps[usize::from(value - 10)]);
            link.send(Party(1), Message::from(Bytes::from(vec![value; 2])))?;
        }
        // Party 1 reads until the end, and never closes itself.
        assert!(Box::new(link).close().is_err());
        Ok((struck.load(Ordering::Relaxed), Vec::new()))
    });
    (got[0].0, got[1].1.clone())
}

#[test]
fn each_fault_does_what_it_says() {
    let plain = |values: &[u8]| values.iter().map(|&value| vec![value; 2]).collect::<Vec<_>>();
    assert_eq!(tampered(ONE_STEP, Vec::new()), (0, plain(&[10, 11, 12, 13])));
    let cases = [
        (Fault::Flip(9), vec![vec![10, 10], vec![11, 9], vec![12, 12], vec![13, 13]]),
        (Fault::Drop, plain(&[10, 12, 13])),
        (Fault::Duplicate, plain(&[10, 11, 11, 12, 13])),
        (Fault::Truncate(1), vec![vec![10, 10], vec![11], vec![12, 12], vec![13, 13]]),
        (Fault::Reorder, plain(&[10, 12, 11, 13])),
        (Fault::Delay(Duration::from_millis(5)), plain(&[10, 11, 12, 13])),
    ];
    for (fault, expected) in cases {
        assert_eq!(tampered(ONE_STEP, vec![Strike::new(fault).nth(1)]), (1, expected), "{fault:?}");
    }
}

#[test]
fn a_strike_counts_messages_of_its_step_and_peer() {
    let steps = ["early", "early", "late", "late"];
    let late = Strike::new(Fault::Drop).in_step("late").to(Party(1));
    let expected = vec![vec![10; 2], vec![11; 2], vec![12; 2]];
    assert_eq!(tampered(steps, vec![late.clone().nth(1)]), (1, expected));
    assert_eq!(tampered(steps, vec![late.nth(2)]).0, 0);
    assert_eq!(tampered(steps, vec![Strike::new(Fault::Drop).to(Party(2))]).0, 0);
}

#[test]
fn a_reordered_last_message_comes_when_the_session_closes() {
    let (struck, got) = tampered(ONE_STEP, vec![Strike::new(Fault::Reorder).nth(3)]);
    assert_eq!((struck, got.last().unwrap()[0], got.len()), (1, 13, 4));
}

#[test]
fn a_message_lost_at_the_end_of_a_step_is_noticed_at_the_next() {
    let steps = ["early", "early", "late", "late"];
    let lost = Strike::new(Fault::Drop).nth(1);
    assert_eq!(tampered(steps, vec![lost]), (1, vec![vec![10; 2]]));
}
