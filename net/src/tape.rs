//! A party whose run is over before the others begin: what it sent is a tape that they play.
//!
//! In some protocols a party receives nothing. It can run alone, on a [`Recorder`], before any input of the others
//! exists; they run later, each on a [`Player`], which takes what that party sent to it from wherever it was kept.
//! The party on the tape is the last one of the session: party 2, if two parties talk.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;

use crate::{Error, Message, Party, Result, Transport, in_process};

/// Transports of `others` parties of one process and, last, of one that runs before them; what it
/// sends is kept in memory. Playing more than was recorded is an error.
///
/// # Panics
/// Unless `2 <= others <= 256`.
#[must_use]
pub fn in_memory(others: usize) -> Vec<Box<dyn Transport>> {
    let tapes: Arc<Mutex<Vec<VecDeque<Bytes>>>> =
        Arc::new(Mutex::new(vec![VecDeque::new(); others]));
    let player = |inner: in_process::InProcess| -> Box<dyn Transport> {
        let (tapes, me) = (tapes.clone(), inner.me());
        let next = move || {
            let body = tapes.lock().unwrap_or_else(PoisonError::into_inner)[me.0].pop_front();
            body.ok_or_else(|| Error::Misuse(format!("the tape of {me} is spent")))
        };
        Box::new(Player::new(inner, next))
    };
    let mut all: Vec<_> = in_process::transports(others).into_iter().map(player).collect();
    all.push(Box::new(Recorder::new(others, move |to: Party, body| {
        tapes.lock().unwrap_or_else(PoisonError::into_inner)[to.0].push_back(body);
        Ok(())
    })));
    all
}

/// The transport of a party that runs alone: what it sends is handed to a function, and a receive is an
/// error.
pub struct Recorder<F> {
    me: Party,
    keep: F,
    dead: Option<String>,
}

impl<F: FnMut(Party, Bytes) -> Result<()> + Send> Recorder<F> {
    /// Party `others` of a session with `others` more parties. `keep` gets each message's receiver
    /// and body.
    #[must_use]
    pub fn new(others: usize, keep: F) -> Self {
        Self { me: Party(others), keep, dead: None }
    }

    fn check(&self) -> Result<()> {
        self.dead.clone().map_or(Ok(()), |reason| Err(Error::Dead(reason)))
    }
}

impl<F: FnMut(Party, Bytes) -> Result<()> + Send> Transport for Recorder<F> {
    fn me(&self) -> Party {
        self.me
    }

    fn parties(&self) -> usize {
        self.me.0 + 1
    }

    fn send(&mut self, to: Party, message: Message) -> Result<()> {
        self.check()?;
        if to >= self.me {
            return Err(Error::no_such_peer(self.me, to, self.parties()));
        }
        (self.keep)(to, message.body)
    }

    /// Always an error, and the end of the run: the others have not even begun.
    fn receive(&mut self, from: Party) -> Result<Message> {
        self.check()?;
        let reason = format!("{} runs before the others and receives nothing from {from}", self.me);
        self.dead = Some(reason.clone());
        Err(Error::Misuse(reason))
    }

    fn step(&mut self, _name: &str) {}

    fn accuse(&mut self, peer: Party, reason: &str) -> Error {
        let reason = format!("{peer} cannot have sent anything: {reason}");
        self.dead = Some(reason.clone());
        Error::Misuse(reason)
    }

    fn fail(&mut self, reason: &str) {
        self.dead = Some(reason.to_owned());
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.check()
    }
}

/// A transport among parties that talk, with one more on tape: receives from that one play the tape, and sends to it
/// are errors, since it has already run.
pub struct Player<T, F> {
    inner: T,
    next: F,
}

impl<T: Transport, F: FnMut() -> Result<Bytes> + Send> Player<T, F> {
    /// Adds a party behind those of `inner`, whose messages to this one are what `next` gives.
    #[must_use]
    pub fn new(inner: T, next: F) -> Self {
        Self { inner, next }
    }

    fn absent(&self) -> Party {
        Party(self.inner.parties())
    }
}

impl<T: Transport, F: FnMut() -> Result<Bytes> + Send> Transport for Player<T, F> {
    fn me(&self) -> Party {
        self.inner.me()
    }

    fn parties(&self) -> usize {
        self.inner.parties() + 1
    }

    fn send(&mut self, to: Party, message: Message) -> Result<()> {
        if to == self.absent() {
            return Err(Error::Misuse(format!("{to} ran before and cannot be sent anything")));
        }
        self.inner.send(to, message)
    }

    fn receive(&mut self, from: Party) -> Result<Message> {
        if from != self.absent() {
            return self.inner.receive(from);
        }
        match (self.next)() {
            Ok(body) => Ok(Message::from(body)),
            Err(error) => {
                self.inner.fail(&error.to_string());
                Err(error)
            }
        }
    }

    fn on_tape(&self, peer: Party) -> bool {
        peer == self.absent() || self.inner.on_tape(peer)
    }

    fn step(&mut self, name: &str) {
        self.inner.step(name);
    }

    /// Nobody but this party's own tape can be meant where the one on tape is accused.
    fn accuse(&mut self, peer: Party, reason: &str) -> Error {
        if peer != self.absent() {
            return self.inner.accuse(peer, reason);
        }
        let reason = format!("the tape does not fit what is run: {reason}");
        self.inner.fail(&reason);
        Error::Misuse(reason)
    }

    fn fail(&mut self, reason: &str) {
        self.inner.fail(reason);
    }

    fn close(self: Box<Self>) -> Result<()> {
        Box::new(self.inner).close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Metered, Report,
        in_process::{sessions_from_seed, transports},
    };

    fn body(byte: u8, len: usize) -> Bytes {
        Bytes::from(vec![byte; len])
    }

    #[test]
    fn what_is_recorded_is_played_to_whom_it_was_sent() {
        let mut all = in_memory(2);
        let mut dealer = all.pop().unwrap();
        assert_eq!((dealer.me(), dealer.parties()), (Party(2), 3));
        for (to, byte) in [(0, 1), (1, 2), (0, 3)] {
            dealer.send(Party(to), body(byte, 5).into()).unwrap();
        }
        assert!(matches!(dealer.send(Party(2), body(0, 1).into()), Err(Error::Misuse(_))));
        for (me, player) in all.iter_mut().enumerate() {
            assert_eq!((player.me(), player.parties()), (Party(me), 3));
            assert!(player.on_tape(Party(2)) && !player.on_tape(Party(1 - me)));
            let first = player.receive(Party(2)).unwrap().body;
            assert_eq!(first, body(me as u8 + 1, 5));
            if me == 0 {
                assert_eq!(player.receive(Party(2)).unwrap().body, body(3, 5));
            }
            assert!(player.receive(Party(2)).unwrap_err().to_string().contains("spent"));
            assert!(matches!(player.send(Party(2), body(0, 1).into()), Err(Error::Misuse(_))));
        }
    }

    #[test]
    fn a_receive_ends_the_run_of_who_runs_before_the_others() {
        let mut dealer = Recorder::new(2, |_, _| Ok(()));
        let error = dealer.receive(Party(1)).unwrap_err().to_string();
        assert!(error.contains("party 2 runs before the others"), "{error}");
        assert!(matches!(dealer.send(Party(0), body(0, 8).into()), Err(Error::Dead(_))));
        assert!(Box::new(dealer).close().is_err());
    }

    #[test]
    fn a_tape_that_ends_early_ends_the_session_of_all() {
        let mut two = transports(2).into_iter();
        let (one, mut other) = (two.next().unwrap(), two.next().unwrap());
        let mut player = Player::new(one, || Err(Error::Misuse("the tape is spent".to_owned())));
        assert!(player.receive(Party(2)).unwrap_err().to_string().contains("spent"));
        drop(player);
        assert!(other.receive(Party(0)).unwrap_err().to_string().contains("the tape is spent"));
    }

    #[test]
    fn what_comes_from_a_tape_is_no_round_and_counted_apart() {
        let stats = crate::launch::run_all(sessions_from_seed(2, 1), |session| {
            let me = session.transport.me().0;
            let player = Player::new(session.transport, || Ok(body(7, 100)));
            let mut metered = Metered::new(player);
            metered.step("played");
            metered.receive(Party(2)).unwrap();
            metered.receive(Party(2)).unwrap();
            metered.step("talked");
            metered.send(Party(1 - me), body(1, 8).into()).unwrap();
            metered.receive(Party(1 - me)).unwrap();
            metered.meter().stats()
        });
        let report = Report::of(&stats);
        assert_eq!((report.bytes, report.played, report.rounds), (16, 400, 1));
        let [played, talked] = ["played", "talked"].map(|name| report.step(name).unwrap());
        assert_eq!((played.bytes, played.played, played.rounds), (0, 400, 0));
        assert_eq!((talked.bytes, talked.played, talked.rounds), (16, 0, 1));
        assert_eq!((stats[0].bytes_played(), stats[0].received[2].messages), (200, 0));
    }
}
