//! Tests of messages and their data.

use std::thread;

use mpc_core::Sharing;
use ring_arith::EngineTensor;
use rss_protocols::Replicated;

use super::*;
use crate::{base::Id, store::Readers, testing::connection};

const LIMIT: Duration = Duration::from_secs(10);

fn infer() -> Request {
    Request::Infer {
        job: Id::from([7; 16]),
        model: "m".to_owned(),
        version: Id::from([8; 16]),
        inputs: vec![vec![2, 3]],
        profile: true,
    }
}

#[test]
fn requests_and_replies_survive_the_wire() {
    let (mut client, mut server) = connection();
    let page = Request::Models { after: Some("m".to_owned()) };
    let share = Request::Share {
        job: Id::from([7; 16]),
        name: "m".to_owned(),
        readers: Readers::Named(vec!["bob".to_owned()]),
    };
    for request in [Request::Ping, Request::Status, Request::Jobs, page, share, infer()] {
        say(&mut client, &request).unwrap();
        assert_eq!(hear::<Request>(&mut server, LIMIT).unwrap(), request);
    }
    let replies = [Reply::Send, Reply::Done, Reply::Failed { reason: "x".to_owned() }];
    for reply in replies {
        say(&mut server, &reply).unwrap();
        assert_eq!(hear::<Reply>(&mut client, LIMIT).unwrap(), reply);
    }
}

#[test]
fn another_version_and_unknown_fields_are_refused_with_a_sentence() {
    let text = |frame: &str| parse::<Request>(frame.as_bytes()).unwrap_err().to_string();
    let older = text(r#"{"trefoil":1,"say":"ping"}"#);
    assert!(older.contains("speaks version 1") && older.contains("version 10"), "{older}");
    assert!(older.contains("run the same program on all machines"), "{older}");
    assert!(text(r#"{"trefoil":10,"say":"dance"}"#).contains("not understood"));
    assert!(text(r#"{"trefoil":10,"say":"ping","more":1}"#).contains("not understood"));
    assert!(text(r#"{"trefoil":10,"say":{"remove":{"job":"x"}}}"#).contains("not understood"));
    assert!(text("GET / HTTP/1.1").contains("not a header"));
    assert_eq!(parse::<Request>(br#"{"trefoil":10,"say":"ping"}"#).unwrap(), Request::Ping);
}

#[test]
fn headers_of_requests_are_small_on_both_sides() {
    let (mut client, mut server) = connection();
    let long = "x".repeat(REQUEST);
    let text = say(&mut client, &Request::Model { name: long.clone() }).unwrap_err().to_string();
    assert!(text.contains("262144"), "{text}");
    client.send(format!(r#"{{"trefoil":10,"say":"{long}"}}"#).into()).unwrap();
    let text = hear::<Request>(&mut server, LIMIT).unwrap_err().to_string();
    assert!(text.contains("at most 262144 are read"), "{text}");
}

#[test]
fn parts_larger_than_a_frame_arrive_whole() {
    let words: Vec<u64> = (0..1_200_000).collect();
    let shape = Shape::new([words.len()]).unwrap();
    let secret = [Tensor::new(shape.clone(), words).unwrap()];
    for (party, part) in Replicated.deal(secret.to_vec()).unwrap().iter().enumerate() {
        let (mut client, mut server) = connection();
        let mut sent = 0;
        send_parcel(&mut client, part, &mut |bytes| sent += bytes).unwrap();
        let shapes = [shape.clone()];
        let received =
            receive_parcel(&mut server, Replicated.contents(party), &shapes, &mut pace()).unwrap();
        assert_eq!(received.words, part.words);
        assert_eq!(sent, 8 * part.words.iter().map(|w| w.len() as u64).sum::<u64>());
    }
}

#[test]
fn data_that_are_not_as_announced_are_refused() {
    let shape = [Shape::new([1024]).unwrap()];
    let send = |frames: &[usize]| {
        let (mut client, mut server) = connection();
        frames.iter().for_each(|&n| client.send(Bytes::from(vec![0; n])).unwrap());
        drop(client);
        receive_parcel(&mut server, Replicated.contents(1), &shape, &mut pace()).map(|_| ())
    };
    send(&[32, 8192]).unwrap();
    send(&[32, 8000, 192]).unwrap();
    for frames in [&[64, 8192][..], &[32, 8193], &[32, 0], &[0], &[32, 4096], &[]] {
        assert!(send(frames).is_err(), "{frames:?}");
    }
    // Crumbs, which cost more to keep than they carry.
    let text = send(&[32, 4096, 1000, 3096]).unwrap_err().to_string();
    assert!(text.contains("frames of less than 1024 bytes"), "{text}");
}

#[test]
fn who_sends_slower_than_the_least_rate_is_refused_however_regularly_he_does() {
    let (mut client, mut server) = connection();
    let sender = thread::spawn(move || {
        // Until the server hangs up: a frame each 20 ms is 50 KiB/s.
        while client.send(Bytes::from(vec![0; 1024])).is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let mut pace = Pace::at_least(Duration::from_millis(200), 1 << 20);
    let text = receive_bytes(&mut server, 1 << 30, &mut pace).unwrap_err().to_string();
    assert!(text.contains("slower than 1024 KiB/s (limits.upload_kib_per_second)"), "{text}");
    drop(server);
    sender.join().unwrap();
}

/// Keeps how long it was allowed to wait for room; its reader takes one frame, and then stops.
#[derive(Default)]
struct Slow(Vec<Duration>);

impl Channel for Slow {
    fn send(&mut self, _frame: Bytes) -> Result<()> {
        unreachable!("it might never return")
    }

    fn send_within(&mut self, _frame: Bytes, limit: Duration) -> Result<()> {
        self.0.push(limit);
        if self.0.len() == 1 { Ok(()) } else { Err(Error::Internal("no room".to_owned())) }
    }

    fn receive(&mut self, _limit: Duration) -> Result<Bytes> {
        unreachable!("nothing is said")
    }

    fn is_over(&self) -> bool {
        false
    }
}

#[test]
fn who_reads_slower_than_the_least_rate_is_given_up() {
    let mut channel = Slow::default();
    let mut pace = Pace::at_least(LIMIT, 1 << 10);
    let text = send_bytes_at(&mut channel, &vec![0; 3 * CHUNK], &mut pace).unwrap_err().to_string();
    assert!(text.contains("no room"), "{text}");
    let [first, second] = channel.0[..] else { panic!("{:?}", channel.0) };
    // 4096 s more for the 4 MiB that have gone.
    let earned = Duration::from_secs(4096);
    assert!(first <= LIMIT && second <= LIMIT + earned && second > LIMIT + earned / 2);
}

fn pace() -> Pace {
    Pace::frames(LIMIT)
}

#[test]
fn huge_shapes_are_refused_before_anything_is_reserved() {
    let text =
        |dims: Vec<Vec<usize>>| check_shapes(&dims, 1 << 30).map(|_| ()).unwrap_err().to_string();
    assert!(text(vec![vec![1 << 20, 1 << 20]]).contains("limits.upload_mib"));
    assert!(text(vec![vec![usize::MAX, usize::MAX]]).contains("too many elements"));
    assert!(text(vec![vec![1; 9]]).contains("dimensions"));
    assert!(text(vec![vec![]; MOST_TENSORS + 1]).contains("tensors"));
    assert!(text(vec![vec![1 << 26]; 3]).contains("MiB"));
    assert!(check_upload(u64::MAX, 1 << 30).is_err());
    assert_eq!(check_shapes(&[vec![2, 3], vec![]], 1 << 10).unwrap().len(), 2);
}

#[test]
fn a_stalled_sender_does_not_hold_a_server_for_ever() {
    let (_client, mut server) = connection();
    let mut pace = Pace::frames(Duration::from_millis(20));
    let waited = thread::spawn(move || receive_bytes(&mut server, 8, &mut pace).map(|_| ()));
    assert!(waited.join().unwrap().is_err());
}
