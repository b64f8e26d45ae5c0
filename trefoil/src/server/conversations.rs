//! Conversations under way at one server: what a model keeps from step to step, in memory alone.

use std::collections::HashMap;

use mpc_core::{SecretTensor, ServerProtocol};
use nn_layers::{Caches, Plan};

use crate::{
    base::{Error, Id, Result},
    wire::GONE,
};

/// The least memory that a conversation counts for, in bytes.
const LEAST: u64 = 4096;

/// The conversations of a session; the one used last stands last. All end with the session: clients have the text, and
/// send it again.
pub(super) struct Conversations<P: ServerProtocol> {
    kept: Vec<Conversation<P>>,
    /// The most bytes that they take together.
    most: u64,
}

/// A conversation of one client with one version of a model.
pub(super) struct Conversation<P: ServerProtocol> {
    client: String,
    id: Id,
    model: String,
    version: Id,
    pub(super) caches: Caches<SecretTensor<P>>,
    /// The first result of the last step.
    pub(super) last: Option<P::Share>,
    bytes: u64,
}

/// A place in a conversation: its client, its number, and the positions before it.
#[derive(Clone, Copy)]
pub(super) struct Behind<'a> {
    pub(super) client: &'a str,
    pub(super) id: Id,
    pub(super) at: usize,
    /// True if what comes there has inputs. Else it goes on from the last result.
    pub(super) given: bool,
}

impl<P: ServerProtocol> Conversations<P> {
    pub(super) fn new(most: u64) -> Self {
        Self { kept: Vec::new(), most }
    }

    /// Makes sure that a conversation has as many positions, and that there is room for `bytes` bytes of it.
    ///
    /// # Errors
    /// [`Error::Refused`] if it has fewer, or is not here any more.
    pub(super) fn check(&self, place: Behind<'_>, version: Id, bytes: u64) -> Result<()> {
        let refused = |reason: String| Err(Error::refused("conversation", reason));
        if bytes > self.most {
            return refused(format!(
                "it would take {} MiB; this server keeps {} MiB of conversations \
                 (limits.conversations_mib); begin a new one",
                bytes >> 20,
                self.most >> 20
            ));
        }
        if place.at == 0 {
            return match place.given {
                true => Ok(()),
                false => refused("the first step of a conversation has inputs".to_owned()),
            };
        }
        match self.find(place).map(|found| &self.kept[found]) {
            None => refused(format!("it is not here any more; {GONE} from the first position")),
            Some(known) if known.version != version => {
                refused(format!("its model has been replaced; {GONE} from the first position"))
            }
            Some(known) if known.caches.past() < place.at => {
                let (has, at) = (known.caches.past(), place.at);
                refused(format!("it has {has} positions here, and is to go on behind {at}"))
            }
            Some(known)
                if !place.given && (known.last.is_none() || known.caches.past() > place.at) =>
            {
                let has = known.caches.past();
                refused(format!(
                    "it has {has} positions here; a step behind {} has inputs",
                    place.at
                ))
            }
            Some(_) => Ok(()),
        }
    }

    /// A conversation without what lies behind a place: a new one if that is the beginning.
    ///
    /// # Errors
    /// Those of [`Conversations::check`].
    pub(super) fn take(
        &mut self,
        mpc: &P,
        place: Behind<'_>,
        plan: &Plan,
        (model, version): (&str, Id),
    ) -> Result<Conversation<P>> {
        self.check(place, version, 0)?;
        let known = self.find(place).map(|found| self.kept.remove(found));
        if let Some(mut known) = known.filter(|_| place.at > 0) {
            if known.caches.past() > place.at {
                known.last = None;
            }
            plan.rewind(mpc, &mut known.caches, place.at)?;
            return Ok(known);
        }
        let (client, model) = (place.client.to_owned(), model.to_owned());
        Ok(Conversation {
            client,
            id: place.id,
            model,
            version,
            caches: Caches::new(),
            last: None,
            bytes: 0,
        })
    }

    /// Keeps a conversation that takes this many bytes. Where there are too many, the client that has most loses the one
    /// that it has not used for longest.
    pub(super) fn keep(&mut self, conversation: Conversation<P>, bytes: u64) {
        self.kept.push(Conversation { bytes: bytes.max(LEAST), ..conversation });
        while self.kept.iter().map(|known| known.bytes).sum::<u64>() > self.most {
            let sizes = self.kept.iter().map(|known| (known.client.as_str(), known.bytes));
            let Some(at) = dropped(&sizes.collect::<Vec<_>>(), self.most) else { break };
            self.kept.remove(at);
        }
    }

    /// Forgets a conversation, if it is here.
    pub(super) fn close(&mut self, client: &str, id: Id) {
        self.kept.retain(|known| (known.client.as_str(), known.id) != (client, id));
    }

    /// Drops the conversations with a model that was removed.
    pub(super) fn forget(&mut self, model: &str) {
        self.kept.retain(|known| known.model != model);
    }

    fn find(&self, place: Behind<'_>) -> Option<usize> {
        let same =
            |known: &Conversation<P>| (known.client.as_str(), known.id) == (place.client, place.id);
        self.kept.iter().position(same)
    }
}

/// The conversation to drop, of those with these clients and sizes, if they take more than `most` bytes together: the first
/// of the client that has most. The last stays in any case.
fn dropped(kept: &[(&str, u64)], most: u64) -> Option<usize> {
    let (_, older) = kept.split_last()?;
    let mut of = HashMap::new();
    kept.iter().for_each(|(client, bytes)| *of.entry(client).or_insert(0) += bytes);
    if of.values().sum::<u64>() <= most {
        return None;
    }
    let greatest = older.iter().map(|(client, _)| of[client]).max()?;
    older.iter().position(|(client, _)| of[client] == greatest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_with_most_loses_its_oldest_conversation() {
        let three = [("a", 4), ("b", 3), ("b", 3), ("c", 1)];
        assert_eq!(dropped(&three, 11), None);
        assert_eq!(dropped(&three, 10), Some(1));
        assert_eq!(dropped(&[("a", 4), ("b", 3), ("c", 1)], 7), Some(0));
        // The one that was used last stays, whatever it takes.
        assert_eq!(dropped(&[("a", 1), ("b", 90)], 7), Some(0));
        assert_eq!(dropped(&[("b", 90)], 7), None);
    }
}
