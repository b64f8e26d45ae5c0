//! Messages among all parties at once, with their costs.

use bytes::Bytes;
use net::{Collectives, Error, Message, Metered, Party, Report, Result, Transport, launch};

/// Runs a program at all parties; its results, and bytes and rounds of all.
fn all<R: Send>(
    parties: usize,
    program: impl Fn(&mut dyn Transport) -> Result<R> + Sync,
) -> (Vec<R>, Report) {
    let results = launch::threads(parties, 3, |session| {
        let mut link = Metered::new(session.transport);
        let meter = link.meter();
        let result = program(&mut link)?;
        Box::new(link).close()?;
        Ok((result, meter.stats()))
    });
    let results: Vec<_> = results.into_iter().collect::<Result<_>>().unwrap();
    let (results, stats): (Vec<_>, Vec<_>) = results.into_iter().unzip();
    (results, Report::of(&stats))
}

fn part(party: usize) -> Bytes {
    Bytes::from(vec![party as u8; party + 1])
}

/// Words of a party, whose sums leave the range of a word.
fn words(party: usize, n: usize) -> Vec<u64> {
    (0..n as u64).map(|i| u64::MAX / 2 + i * (party as u64 + 1)).collect()
}

fn sums(parties: usize, n: usize) -> Vec<u64> {
    let mut sums = vec![0u64; n];
    for party in 0..parties {
        sums.iter_mut().zip(words(party, n)).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
    }
    sums
}

#[test]
fn bytes_reach_who_they_are_for_at_the_stated_cost() {
    for p in 2..=5 {
        let root = Party(p - 1);
        let (got, cost) = all(p, |link| {
            let body = (link.me() == root).then(|| part(4));
            link.broadcast(root, body)
        });
        assert!(got.iter().all(|got| *got == part(4)));
        assert_eq!((cost.bytes, cost.rounds), (5 * (p as u64 - 1), 1));

        let (got, cost) = all(p, |link| {
            let parts = (link.me() == root).then(|| (0..p).map(part).collect());
            link.scatter(root, parts)
        });
        assert_eq!(got, (0..p).map(part).collect::<Vec<_>>());
        let others: usize = (0..p - 1).map(|party| party + 1).sum();
        assert_eq!((cost.bytes, cost.rounds), (others as u64, 1));

        let (got, cost) = all(p, |link| link.gather(root, part(link.me().0)));
        let whole: Vec<_> = (0..p).map(part).collect();
        for (party, got) in got.into_iter().enumerate() {
            assert_eq!(got, (party == root.0).then(|| whole.clone()));
        }
        assert_eq!((cost.bytes, cost.rounds), (others as u64, 1));

        let (got, cost) = all(p, |link| link.all_gather(part(link.me().0)));
        assert!(got.iter().all(|got| *got == whole));
        let lengths: usize = (1..=p).sum();
        assert_eq!((cost.bytes, cost.rounds), ((lengths * (p - 1)) as u64, 1));

        let (_, cost) = all(p, |link| link.barrier());
        assert_eq!((cost.bytes, cost.rounds), (0, 1));
    }
}

#[test]
fn sums_are_those_of_all_parties_at_the_stated_cost() {
    for (p, n) in [(2, 7), (3, 1), (3, 2), (3, 9), (4, 4), (5, 1000), (3, 0)] {
        let root = Party(1);
        let (got, cost) = all(p, |link| link.reduce(root, words(link.me().0, n)));
        for (party, got) in got.into_iter().enumerate() {
            assert_eq!(got, (party == root.0).then(|| sums(p, n)));
        }
        assert_eq!((cost.bytes, cost.rounds), ((8 * n * (p - 1)) as u64, 1));

        let (got, cost) = all(p, |link| link.all_reduce(words(link.me().0, n)));
        assert!(got.iter().all(|got| *got == sums(p, n)), "{p} parties, {n} words");
        let (bytes, rounds) = match p == 2 || n < p {
            true => (8 * n * (p - 1) * p, 1),
            // Each place is sent to the party that adds it up by all others, and its sum back to them.
            false => (16 * n * (p - 1), 2),
        };
        assert_eq!((cost.bytes, cost.rounds), (bytes as u64, rounds), "{p} parties, {n}");
    }
}

#[test]
fn wrong_calls_are_misuse_and_wrong_messages_name_their_sender() {
    let outcomes = launch::threads(2, 3, |session| {
        let mut link = session.transport;
        let error = if link.me() == Party(0) {
            let error = link.broadcast(Party(0), None).unwrap_err();
            assert!(matches!(error, Error::Misuse(_)), "{error}");
            let error = link.scatter(Party(0), Some(vec![part(0)])).unwrap_err();
            assert!(error.to_string().contains("1 parts for 2 parties"), "{error}");
            link.send(Party(1), Message::from(Bytes::from_static(b"12345")))?;
            link.receive(Party(1)).map(drop).unwrap_err()
        } else {
            let error = link.broadcast(Party(0), Some(part(1))).unwrap_err();
            assert!(error.to_string().contains("only party 0"), "{error}");
            link.reduce(Party(1), vec![1, 2]).unwrap_err()
        };
        Ok::<_, Error>(error)
    });
    let [at_sender, at_receiver] = [0, 1].map(|party| outcomes[party].as_ref().unwrap());
    let violation = matches!(at_receiver, Error::Violation { peer: Party(0), .. });
    assert!(violation && at_receiver.to_string().contains("5 bytes in the place of 2 words"));
    assert!(matches!(at_sender, Error::Accused { .. } | Error::Cancelled { .. }), "{at_sender}");
}
