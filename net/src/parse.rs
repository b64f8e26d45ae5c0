//! Turns a stream of bytes into frames and messages, within bounds.

use std::io;

use bytes::Bytes;

use crate::{
    Message,
    buffer::{Buffer, Pool},
    frame::{CONTROL, HEAD, Head, Kind},
    step::StepTag,
};

/// A parsed unit of a stream of bytes.
pub(crate) enum Event {
    /// A whole message, and the step it was sent in.
    Message(Message, StepTag),
    /// A frame of any other kind, with its body.
    Control(Kind, Bytes),
}

/// Why no event came.
pub(crate) enum Fault {
    /// The stream has nothing now, or has failed.
    Io(io::Error),
    /// The peer sent what no correct peer sends.
    Violation(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<String> for Fault {
    fn from(reason: String) -> Self {
        Self::Violation(reason)
    }
}

/// The state between two reads of one direction of a link.
pub(crate) struct Parser {
    pool: Pool,
    /// Longest message; none are allowed while this is `None`.
    longest: Option<u64>,
    sequence: u32,
    head: [u8; HEAD],
    head_len: usize,
    now: Option<Head>,
    /// The body of a control frame, as far as it has come.
    control: Vec<u8>,
    /// The message under way, with the number of its bytes that have come and its first head.
    message: Option<(Buffer, usize, Head)>,
    /// The end in the message of the part that is being received.
    part_end: usize,
}

impl Parser {
    pub(crate) fn new(pool: Pool) -> Self {
        Self {
            pool,
            longest: None,
            sequence: 0,
            head: [0; HEAD],
            head_len: 0,
            now: None,
            control: Vec::new(),
            message: None,
            part_end: 0,
        }
    }

    /// Messages of up to this many bytes may come from now on.
    pub(crate) fn allow_messages(&mut self, longest: u64) {
        self.longest = Some(longest);
    }

    /// Reads until a whole event has come.
    ///
    /// # Errors
    /// Those of `read`, after which reading may go on, and violations, after which it may not.
    pub(crate) fn next(
        &mut self,
        mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> Result<Event, Fault> {
        loop {
            let head = match self.now {
                Some(head) => head,
                None => self.read_head(&mut read)?,
            };
            let event = match head.kind {
                Kind::First | Kind::More => self.read_part(&mut read)?,
                _ => Some(self.read_control(head, &mut read)?),
            };
            self.now = None;
            if let Some(event) = event {
                return Ok(event);
            }
        }
    }

    fn read_head(
        &mut self,
        read: &mut impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> Result<Head, Fault> {
        while self.head_len < HEAD {
            self.head_len += some(read(&mut self.head[self.head_len..]))?;
        }
        self.head_len = 0;
        let head = Head::decode(&self.head, self.longest.unwrap_or(0))?;
        if head.sequence != self.sequence {
            let reason = format!("frame {} where {} was due", head.sequence, self.sequence);
            return Err(reason.into());
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.begin(head)?;
        self.now = Some(head);
        Ok(head)
    }

    fn begin(&mut self, head: Head) -> Result<(), String> {
        match (head.kind, &self.message) {
            (Kind::First | Kind::More, _) if self.longest.is_none() => {
                return Err("a message before the link is open".to_owned());
            }
            (Kind::First, None) => {
                let too_long = |_| "a message that this machine cannot address".to_owned();
                let total = usize::try_from(head.total).map_err(too_long)?;
                self.message = Some((self.pool.take(total), 0, head));
                self.part_end = head.len as usize;
            }
            (Kind::More, Some((buffer, have, first))) => {
                let end = have + head.len as usize;
                let parts = [&head, first].map(|head| (head.total, head.depth, head.step));
                if parts[0] != parts[1] || end > buffer.len() {
                    return Err("a part that does not fit its message".to_owned());
                }
                self.part_end = end;
            }
            (Kind::First, Some(_)) => return Err("a message within a message".to_owned()),
            (Kind::More, None) => return Err("a part of no message".to_owned()),
            (Kind::Close, Some(_)) => return Err("the end within a message".to_owned()),
            _ => self.control = Vec::with_capacity((head.len as usize).min(CONTROL)),
        }
        Ok(())
    }

    fn read_part(
        &mut self,
        read: &mut impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> Result<Option<Event>, Fault> {
        let Some((buffer, have, _)) = &mut self.message else { return Ok(None) };
        while *have < self.part_end {
            *have += some(read(&mut buffer.bytes()[*have..self.part_end]))?;
        }
        if *have < buffer.len() {
            return Ok(None);
        }
        let whole = self.message.take();
        Ok(whole.map(|(buffer, _, head)| {
            let message = Message { body: buffer.freeze(), depth: head.depth };
            Event::Message(message, head.step)
        }))
    }

    fn read_control(
        &mut self,
        head: Head,
        read: &mut impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> Result<Event, Fault> {
        let len = head.len as usize;
        while self.control.len() < len {
            let have = self.control.len();
            let mut part = [0; 512];
            let want = part.len().min(len - have);
            let got = some(read(&mut part[..want]))?;
            self.control.extend_from_slice(&part[..got]);
        }
        Ok(Event::Control(head.kind, std::mem::take(&mut self.control).into()))
    }
}

/// The end of the stream is not what the caller of `read` waits for.
fn some(read: io::Result<usize>) -> io::Result<usize> {
    match read {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        outcome => outcome,
    }
}
