//! Entries for fuzzing: what parses a peer's bytes, without a socket. Not part of the interface.

use std::{io, sync::OnceLock, time::Duration};

use crate::{
    Authority, Identity, Role,
    buffer::Pool,
    frame::{Head, Kind},
    hello::{Difference, Hello, Public},
    parse::{Event, Fault, Parser},
    tls::Tls,
};

/// The result of parsing some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Whole messages.
    pub messages: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Other frames.
    pub controls: usize,
    /// True if a violation ended it.
    pub violation: bool,
}

/// Parses frames as a link does, with messages of up to `longest` bytes if it is open. The first byte of the input
/// sets the number of bytes that arrive at a time.
pub fn frames(input: &[u8], longest: Option<u64>) -> Outcome {
    let Some((&piece, mut rest)) = input.split_first() else { return Outcome::default() };
    let mut parser = Parser::new(Pool::default());
    if let Some(longest) = longest {
        parser.allow_messages(longest);
    }
    let mut outcome = Outcome::default();
    loop {
        let event = parser.next(|buf| {
            let len = buf.len().min(rest.len()).min(usize::from(piece) + 1);
            buf[..len].copy_from_slice(&rest[..len]);
            rest = &rest[len..];
            Ok(len)
        });
        match event {
            Ok(Event::Message(message, _)) => {
                outcome.messages += 1;
                outcome.bytes += message.body.len() as u64;
            }
            Ok(Event::Control(_, body)) => {
                outcome.controls += 1;
                handshake(&body);
            }
            Err(Fault::Violation(_)) => return Outcome { violation: true, ..outcome },
            Err(Fault::Io(error)) => {
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
                return outcome;
            }
        }
    }
}

/// Parses the bodies of the frames with which a link opens. Frames that can be read are written and
/// read again: the result must be the same. Returns true if they can be read.
pub fn handshake(input: &[u8]) -> bool {
    let hello = Hello::decode(input).ok().filter(|hello| hello.version == crate::hello::VERSION);
    if let Some(hello) = &hello {
        assert_eq!(Hello::decode(&hello.encode()).as_ref(), Ok(hello));
    }
    let difference = Difference::decode(input).ok();
    if let Some(difference) = &difference {
        assert_eq!(Difference::decode(&difference.encode()).as_ref(), Ok(difference));
    }
    hello.is_some() || difference.is_some()
}

/// Reads a list of revoked certificates as a member does. Says whether it has a number, by which a later list is known.
///
/// # Panics
/// If the system's random generator fails.
pub fn revoked(input: &[u8]) -> bool {
    static MEMBER: OnceLock<Identity> = OnceLock::new();
    let member = MEMBER.get_or_init(|| {
        let day = Duration::from_secs(86_400);
        let authority = Authority::generate(day).expect("there is randomness");
        authority.issue(&Role::party(0), day).expect("there is randomness")
    });
    let member = member.clone().revoked(&String::from_utf8_lossy(input));
    // Another authority signed it.
    assert!(Tls::new(&member).is_err());
    member.revocation_number().is_ok()
}

/// Conversations of a link without faults: inputs for [`frames`].
pub fn conversations() -> Vec<Vec<u8>> {
    let message = |sequence: u32, body: &[u8]| {
        let len = body.len() as u32;
        let head =
            Head { len, sequence, depth: 3, total: len.into(), ..Head::control(Kind::First, 0) };
        [&head.encode()[..], body].concat()
    };
    let control = |kind, sequence, body: &[u8]| {
        let head = Head { sequence, ..Head::control(kind, body.len()) };
        [&head.encode()[..], body].concat()
    };
    let greeting = greetings().remove(0);
    let opened = [control(Kind::Hello, 0, &greeting), message(1, &[7; 100])].concat();
    let closed = [message(0, b"word"), control(Kind::Ping, 1, b""), control(Kind::Close, 2, b"")];
    let cancelled = [message(0, b""), control(Kind::Cancel, 1, b"no room")];
    let accused = [message(0, b"x"), control(Kind::Accuse, 1, b"\x02not a key")];
    // The first byte sets the number of bytes that arrive at a time.
    let in_pieces = |piece: u8, frames: &[u8]| [&[piece], frames].concat();
    vec![
        in_pieces(0, &opened),
        in_pieces(30, &closed.concat()),
        in_pieces(255, &cancelled.concat()),
        in_pieces(3, &accused.concat()),
    ]
}

/// The frames that both sides send when a link opens: inputs for [`handshake`].
pub fn greetings() -> Vec<Vec<u8>> {
    let job = Public {
        session: [5; 16],
        cell: Some(1),
        parties: 3,
        prgs: "aes-128-ctr,chacha12".to_owned(),
        config: [6; 32],
    };
    let hello =
        |party| Hello { version: crate::hello::VERSION, party, job: job.clone(), fresh: [9; 32] };
    let sides = [(0, "3".to_owned()), (2, "2".to_owned())];
    vec![hello(Some(2)).encode(), hello(None).encode(), Difference { field: 2, sides }.encode()]
}
