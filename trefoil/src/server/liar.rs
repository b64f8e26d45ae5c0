//! A server that lies, to test those beside it. Only builds with the feature `liar` contain it.

use std::{
    env,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use net::{Fault, Strike, Tamper, Transport};

/// The step in which the server lies: it flips a bit of the first message.
const STEP: &str = "TREFOIL_LIES_IN";

/// The messages that were changed in the session that lies.
static TOLD: Mutex<Option<Arc<AtomicUsize>>> = Mutex::new(None);

/// The transport of a session, which changes one message if the environment says so and no earlier session has.
pub(super) fn lying(transport: Box<dyn Transport>) -> Box<dyn Transport> {
    let Ok(step) = env::var(STEP) else { return transport };
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.as_ref().is_some_and(|told| told.load(Ordering::Relaxed) > 0) {
        return transport;
    }
    let transport = Tamper::new(transport, vec![Strike::new(Fault::Flip(64)).in_step(&step)]);
    *told = Some(transport.struck());
    Box::new(transport)
}
