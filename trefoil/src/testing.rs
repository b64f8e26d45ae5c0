//! What the unit tests of this crate share.

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

use crate::{
    Error, Result,
    store::{ClusterId, Holder},
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
