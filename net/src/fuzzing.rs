//! Entries for fuzzing: what parses a peer's bytes, without a socket. Not part of the interface.

use std::io;

use crate::{
    buffer::Pool,
    hello::{Difference, Hello},
    parse::{Event, Fault, Parser},
};

/// What parsing some bytes has led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Whole messages.
    pub messages: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Other frames.
    pub controls: usize,
    /// Whether a violation ended it.
    pub violation: bool,
}

/// Parses frames as a link does, with messages of up to `longest` bytes if it is open. The first byte
/// of the input says how many bytes arrive at a time.
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
            Ok(Event::Message(message)) => {
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

/// Parses the bodies of the frames with which a link opens. What can be read is written and read
/// again: it must be the same.
pub fn handshake(input: &[u8]) {
    if let Ok(hello) = Hello::decode(input)
        && hello.version == crate::hello::VERSION
    {
        assert_eq!(Hello::decode(&hello.encode()).as_ref(), Ok(&hello));
    }
    if let Ok(difference) = Difference::decode(input) {
        assert_eq!(Difference::decode(&difference.encode()).as_ref(), Ok(&difference));
    }
}
