//! A non-blocking byte stream, plain or under TLS, that knows whether it is worth asking.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};

use mio::{event::Event, net::TcpStream};
use rustls::Connection;

use crate::{frame::HEAD, tls::explain};

/// Bytes of a plain socket that are read ahead, beyond what the caller asks for: many small frames
/// at once. Bytes that are read ahead are copied once more. So after as many bytes of a message, no
/// more is read ahead than the next frame's head.
const STAGING: usize = 4 << 10;

/// A connected socket.
pub(crate) struct Stream {
    socket: Socket,
    pub(crate) tls: Option<Box<Connection>>,
    /// Bytes of a plain socket that were read ahead: `staging[start..end]`.
    staging: Vec<u8>,
    start: usize,
    end: usize,
    /// True if TLS may hold decrypted bytes.
    decrypted: bool,
}

/// The socket and what is known of it. Readiness is reported by the poll once each time it changes,
/// so it is remembered here.
struct Socket {
    stream: TcpStream,
    readable: bool,
    writable: bool,
    /// The peer has announced the end: it is still to be read.
    ending: bool,
}

impl Stream {
    pub(crate) fn new(stream: TcpStream, tls: Option<Connection>) -> Self {
        Self {
            socket: Socket { stream, readable: true, writable: true, ending: false },
            tls: tls.map(Box::new),
            staging: Vec::new(),
            start: 0,
            end: 0,
            decrypted: false,
        }
    }

    pub(crate) fn source(&mut self) -> &mut TcpStream {
        &mut self.socket.stream
    }

    /// Takes up a report of the poll.
    pub(crate) fn ready(&mut self, event: &Event) {
        self.socket.ending |= event.is_read_closed() || event.is_error();
        self.socket.readable |= event.is_readable() || self.socket.ending;
        self.socket.writable |= event.is_writable() || event.is_error();
    }

    /// Makes the next read ask the socket, even if the poll has not reported it.
    pub(crate) fn look_again(&mut self) {
        self.socket.readable = true;
    }

    /// True if a read may succeed.
    pub(crate) fn can_read(&self) -> bool {
        self.socket.readable || self.decrypted || self.start < self.end
    }

    pub(crate) fn can_write(&self) -> bool {
        self.socket.writable
    }

    /// Takes the TLS handshake as far as it goes. True once it is done.
    pub(crate) fn handshake(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        loop {
            while tls.wants_write() && self.socket.writable {
                allow_blocking(tls.write_tls(&mut self.socket))?;
            }
            if !tls.is_handshaking() {
                self.decrypted = true;
                return Ok(true);
            }
            if !self.socket.readable {
                return Ok(false);
            }
            match tls.read_tls(&mut self.socket) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                outcome => allow_blocking(outcome)?,
            };
            process(tls, &mut self.socket)?;
        }
    }

    /// Reads what is there; 0 at the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` if nothing is there.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.tls {
            Some(_) => self.read_decrypted(buf),
            None => self.read_plain(buf),
        }
    }

    fn read_plain(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.start == self.end {
            self.staging.resize(STAGING, 0);
            let ahead = if buf.len() < STAGING { STAGING } else { HEAD };
            let into = &mut [IoSliceMut::new(buf), IoSliceMut::new(&mut self.staging[..ahead])];
            let read = self.socket.read_vectored(into)?;
            (self.start, self.end) = (0, read.saturating_sub(buf.len()));
            return Ok(read.min(buf.len()));
        }
        let len = buf.len().min(self.end - self.start);
        buf[..len].copy_from_slice(&self.staging[self.start..self.start + len]);
        self.start += len;
        Ok(len)
    }

    fn read_decrypted(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return Err(io::ErrorKind::NotConnected.into()) };
        loop {
            if self.decrypted {
                match tls.reader().read(buf) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    outcome => return outcome,
                }
                self.decrypted = false;
            }
            if !self.socket.readable {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if tls.read_tls(&mut self.socket)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            process(tls, &mut self.socket)?;
            self.decrypted = true;
        }
    }

    /// Takes bytes to be sent and returns how many it took.
    ///
    /// # Errors
    /// `WouldBlock` if it can take none now.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.write_vectored(slices) };
        if !flush_tls(tls, &mut self.socket)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken = tls.writer().write_vectored(slices)?;
        flush_tls(tls, &mut self.socket)?;
        Ok(taken)
    }

    /// Hands what was taken to the socket. True once all of it is.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        match &mut self.tls {
            Some(tls) => flush_tls(tls, &mut self.socket),
            None => Ok(true),
        }
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn finish(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            // If this does not reach the peer, it learns of it from the end of the connection.
            let _ = flush_tls(tls, &mut self.socket);
        }
        let _ = self.socket.stream.shutdown(std::net::Shutdown::Write);
    }
}

/// Works off what was read; TLS's reply goes to the peer at once.
fn process(tls: &mut Connection, socket: &mut Socket) -> io::Result<()> {
    let outcome = tls.process_new_packets();
    if tls.wants_write() && socket.writable && (outcome.is_err() || !tls.is_handshaking()) {
        let sent = allow_blocking(tls.write_tls(socket));
        if outcome.is_ok() {
            sent?;
        }
    }
    match outcome {
        Ok(_) => Ok(()),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, explain(&error))),
    }
}

fn flush_tls(tls: &mut Connection, socket: &mut Socket) -> io::Result<bool> {
    while tls.wants_write() {
        if !socket.writable {
            return Ok(false);
        }
        allow_blocking(tls.write_tls(socket))?;
    }
    Ok(true)
}

fn allow_blocking(outcome: io::Result<usize>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buf)])
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let asked: usize = bufs.iter().map(|buf| buf.len()).sum();
        loop {
            match self.stream.read_vectored(bufs) {
                Ok(len) => {
                    // A short read of a stream empties it: the poll will report what comes next.
                    self.readable = len == asked || len == 0 || self.ending;
                    return Ok(len);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.readable = false;
                    return Err(error);
                }
            }
        }
    }
}

impl Socket {
    fn attempt(
        &mut self,
        write: impl Fn(&mut TcpStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            match write(&mut self.stream) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.writable = false;
                    return Err(error);
                }
                outcome => return outcome,
            }
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.attempt(|stream| stream.write(buf))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.attempt(|stream| stream.write_vectored(slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
