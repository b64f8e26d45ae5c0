//! Threads and what they share. A model checker takes its place in `tests/models.rs`.

pub(crate) use std::{
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering, fence},
    },
    thread::{Thread, park_timeout},
};
