//! The messages between servers beside the shares of a job: one JSON text a message.

use net::{Party, Transport};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    base::{Error, Result},
    store::{Holding, Repair, Store, repairs},
};

/// Exchanges the servers' lists of what they hold, and finishes or undoes what a crash interrupted: this cell's own work,
/// and that of cells whose time is over.
pub(crate) fn reconcile(store: &Store, control: &mut dyn Transport) -> Result<()> {
    let holdings = holdings(store, control, "compare models")?;
    for repair in repairs(control.me().0, &holdings) {
        tracing::info!(?repair, "finishing an interrupted put");
        let repaired = match repair {
            Repair::Commit(name, version) => store.commit(&name, version).map(drop),
            Repair::Discard(name, version) => store.discard(&name, version),
        };
        if let Err(error) = repaired {
            // This model is refused until it is put again; all others work.
            tracing::error!(%error, "an interrupted put could not be finished");
        }
    }
    store.end_old_changes()
}

/// Holdings of all servers, by server, as the named step.
pub(crate) fn holdings(
    store: &Store,
    control: &mut dyn Transport,
    step: &str,
) -> Result<Vec<Vec<Holding>>> {
    let mine = store.inventory()?;
    let mut holdings = exchange::<Vec<Holding>>(control, step, &mine)?;
    holdings[control.me().0] = mine;
    Ok(holdings)
}

/// Sends the same to all others and receives from all, as the named step. The own place is left empty.
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

/// Receives another server's message.
pub(crate) fn listen<T: DeserializeOwned>(control: &mut dyn Transport, party: usize) -> Result<T> {
    let message = control.receive(Party(party))?;
    serde_json::from_slice(&message.body).map_err(|cause| strange(control, party, cause))
}

/// Ends the session since a server sent what no correct one sends, and names it and the reason to the others.
pub(crate) fn strange(
    control: &mut dyn Transport,
    party: usize,
    reason: impl std::fmt::Display,
) -> Error {
    let advice = "run the same program on all servers";
    control.accuse(Party(party), &format!("{reason}; {advice}")).into()
}
