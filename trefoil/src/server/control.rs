//! What servers tell each other beside the shares of a job: one JSON text a message.

use net::{Party, Transport};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Error, Result};

/// Says the same to all others and hears all, as the named step. The own place is left empty.
pub(crate) fn exchange<T: Default + DeserializeOwned>(
    control: &mut dyn Transport,
    step: &str,
    mine: &impl Serialize,
) -> Result<Vec<T>> {
    let me = control.me().0;
    let parties = control.parties();
    let others = || (0..parties).filter(move |&party| party != me);
    control.step(step);
    for party in others() {
        tell(control, party, mine)?;
    }
    let mut all: Vec<T> = Vec::with_capacity(parties);
    for party in 0..parties {
        all.push(if party == me { T::default() } else { listen(control, party)? });
    }
    Ok(all)
}

/// Says something to another server.
pub(crate) fn tell(control: &mut dyn Transport, party: usize, body: &impl Serialize) -> Result<()> {
    let frame = serde_json::to_vec(body)
        .map_err(|cause| Error::Internal(format!("message to party {party}: {cause}")))?;
    Ok(control.send(Party(party), bytes::Bytes::from(frame).into())?)
}

/// Hears what another server says.
pub(crate) fn listen<T: DeserializeOwned>(control: &mut dyn Transport, party: usize) -> Result<T> {
    let message = control.receive(Party(party))?;
    serde_json::from_slice(&message.body).map_err(|cause| strange(control, party, cause))
}

/// Ends the session since a server said what no correct one says, and tells the others who and why.
pub(crate) fn strange(
    control: &mut dyn Transport,
    party: usize,
    reason: impl std::fmt::Display,
) -> Error {
    let advice = "run the same program on all servers";
    control.accuse(Party(party), &format!("{reason}; {advice}")).into()
}
