//! The beginning of a link: its peer proves its role and introduces itself.

use std::sync::{Arc, atomic::Ordering};

use bytes::Bytes;

use super::{Arrival, Hub, lock};
use crate::{
    Party, Role,
    frame::Kind,
    hello::{Difference, Hello, Public, VERSION},
    link::{End, Link, Phase, Wire},
    parker::Change,
};

impl Hub {
    pub(super) fn secure(&self, link: &Arc<Link>, wire: &mut Wire) -> Result<bool, End> {
        let Some(stream) = &mut wire.stream else { return Ok(false) };
        if !stream.handshake()? {
            return Ok(false);
        }
        link.identify(stream)?;
        self.proved(link);
        if let Some(Role::Client(name)) = link.peer.get()
            && let Some(clients) = &self.clients
            && !clients.contains(name)
        {
            return Err(End::Violation(format!("the certificate of unknown client {name}")));
        }
        link.heard.store(self.now(), Ordering::Relaxed);
        wire.phase = Phase::Greeting;
        Ok(true)
    }

    /// Takes up a frame that carries no part of a message.
    pub(super) fn judge(
        &self,
        link: &Arc<Link>,
        phase: &mut Phase,
        kind: Kind,
        body: Bytes,
    ) -> Result<(), End> {
        let words =
            |body: &[u8]| String::from_utf8_lossy(body).chars().take(1000).collect::<String>();
        let text = || words(&body);
        match (kind, *phase) {
            (_, Phase::Draining) | (Kind::Ping, _) => Ok(()),
            (Kind::Hello, Phase::Greeting) => {
                let hello = Hello::decode(&body).map_err(End::Violation)?;
                self.greet(link, hello)?;
                *phase = Phase::Judging;
                Ok(())
            }
            (Kind::Close, Phase::Open) => {
                link.set_end(End::Closed);
                Ok(())
            }
            (Kind::Leave, _) => Err(End::Left(text())),
            (Kind::Cancel, _) => Err(End::Cancelled(text())),
            (Kind::Accuse, _) => {
                let missing = || End::Violation("an accusation of nobody".to_owned());
                let (&peer, reason) = body.split_first().ok_or_else(missing)?;
                Err(End::Accused(Party(usize::from(peer)), words(reason)))
            }
            (Kind::Mismatch, _) => {
                Err(End::Mismatch(Difference::decode(&body).map_err(End::Violation)?))
            }
            (kind, _) => Err(End::Violation(format!("a {kind:?} frame out of turn"))),
        }
    }

    fn greet(&self, link: &Arc<Link>, hello: Hello) -> Result<(), End> {
        self.check_role(link, &hello)?;
        if link.expected.is_some() {
            link.deliver_hello(hello);
            return Ok(());
        }
        self.proved(link);
        let lobby = match link.peer.get() {
            Some(Role::Party(_)) => &self.parties,
            _ => &self.visitors,
        };
        lobby.add(Arrival { link: link.clone(), hello })?;
        for taker in lobby.takers() {
            self.wake(&taker, Change::ARRIVED);
        }
        Ok(())
    }

    /// The hello must come from the role that the certificate proves; without certificates it is
    /// believed.
    fn check_role(&self, link: &Link, hello: &Hello) -> Result<(), End> {
        let said = match hello.party {
            Some(party) => Role::party(usize::from(party)),
            None => Role::Client("anonymous".to_owned()),
        };
        let secure = self.is_secure();
        let proved = if secure { link.peer.get() } else { link.expected.as_ref() };
        let fits = match (&said, proved) {
            (Role::Client(_), Some(Role::Client(_))) => true,
            (said, Some(proved)) => said == proved,
            (_, None) => !secure,
        };
        if !fits {
            let proved = proved.map(ToString::to_string).unwrap_or_default();
            return Err(End::Violation(format!(
                "the hello of {said} with a certificate of {proved}"
            )));
        }
        let _ = link.peer.set(said);
        Ok(())
    }

    /// The hello of a link that belongs to no session.
    pub(crate) fn plain_hello(&self) -> Hello {
        let party = self.me.map(|me| me.0 as u16);
        Hello { version: VERSION, party, job: Public::default(), fresh: [0; 32] }
    }

    /// A peer has proved its role, or claimed one where that is enough.
    fn proved(&self, link: &Link) {
        lock(&self.links).unproved.remove(&link.token);
    }
}
