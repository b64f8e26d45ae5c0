//! Helpers that the unit tests of this crate share.

use std::{
    env, fs,
    path::PathBuf,
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use bytes::Bytes;
use net::{Message, Party, Transport};

use crate::{
    base::{ClusterId, Error, Id, Result},
    store::{Content, Holder, NewItem, Readers, StoredShares},
    wire::Channel,
};

/// A fresh, empty folder. Folders of earlier runs are left to the system's cleaning.
pub(crate) fn folder(name: &str) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = env::temp_dir().join(format!("trefoil-{name}-{}-{count}", process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("the temporary folder is writable");
    path
}

/// A party of the cluster that all tests of stores are in.
pub(crate) fn holder(party: usize) -> Holder {
    Holder { cluster: ClusterId::of_key(b"a key"), party }
}

/// A version of alice's that everyone may use, with a plan and shares of this content.
pub(crate) fn new_item<'a>(
    (name, version): (&'a str, Id),
    content: &'a Content,
    plan: &'a [u8],
    shares: &'a StoredShares,
) -> NewItem<'a> {
    let (owner, readers) = ("alice", &Readers::Everyone);
    NewItem { name, version, content, owner, readers, plan, shares, tokenizer: b"" }
}

/// Both ends of a connection within this process.
pub(crate) fn connection() -> (Local, Local) {
    let ((one, other_in), (other, one_in)) = (mpsc::channel(), mpsc::channel());
    let over = Arc::new(AtomicBool::new(false));
    let end = |out, incoming| Local { out, incoming, over: over.clone() };
    (end(one, one_in), end(other, other_in))
}

/// One end of a connection within this process.
pub(crate) struct Local {
    out: mpsc::Sender<Bytes>,
    incoming: mpsc::Receiver<Bytes>,
    over: Arc<AtomicBool>,
}

impl Channel for Local {
    fn send(&mut self, frame: Bytes) -> Result<()> {
        self.out.send(frame).map_err(|_| gone("has gone"))
    }

    fn send_within(&mut self, frame: Bytes, _limit: Duration) -> Result<()> {
        self.send(frame)
    }

    fn receive(&mut self, limit: Duration) -> Result<Bytes> {
        self.incoming.recv_timeout(limit).map_err(|cause| gone(&cause.to_string()))
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
    }
}

fn gone(reason: &str) -> Error {
    Error::Unreachable { server: "the other end".to_owned(), reason: reason.to_owned() }
}

/// Links on which a test sees and changes messages.
pub(crate) struct Hooked {
    links: Box<dyn Transport>,
    step: String,
    hooks: Arc<dyn Hooks>,
}

/// A test's hand in messages; it leaves them as they are, unless it overrides this.
pub(crate) trait Hooks: Send + Sync {
    fn sends(&self, _step: &str, _from: Party, _to: Party, message: Message) -> Message {
        message
    }

    fn receives(&self, _step: &str, _me: Party, _from: Party, message: Message) -> Message {
        message
    }

    fn fails(&self, _error: &net::Error) {}
}

impl Hooked {
    pub(crate) fn new(links: Box<dyn Transport>, hooks: Arc<dyn Hooks>) -> Self {
        Self { links, step: String::new(), hooks }
    }
}

impl Transport for Hooked {
    fn me(&self) -> Party {
        self.links.me()
    }

    fn parties(&self) -> usize {
        self.links.parties()
    }

    fn send(&mut self, to: Party, message: Message) -> net::Result<()> {
        let message = self.hooks.sends(&self.step, self.me(), to, message);
        self.links.send(to, message).inspect_err(|error| self.hooks.fails(error))
    }

    fn receive(&mut self, from: Party) -> net::Result<Message> {
        let came = self.links.receive(from).inspect_err(|error| self.hooks.fails(error));
        Ok(self.hooks.receives(&self.step, self.me(), from, came?))
    }

    fn step(&mut self, name: &str) {
        name.clone_into(&mut self.step);
        self.links.step(name);
    }

    fn accuse(&mut self, peer: Party, reason: &str) -> net::Error {
        self.links.accuse(peer, reason)
    }

    fn fail(&mut self, reason: &str) {
        self.links.fail(reason);
    }

    fn close(self: Box<Self>) -> net::Result<()> {
        self.links.close()
    }
}
