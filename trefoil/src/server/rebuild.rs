//! Rebuilding what a server has lost from the two others, which hold every component of its shares between them.
//!
//! All three servers are stopped, and their operators run `trefoil store rebuild` at once: that each of them does is
//! its consent. Over a separate session
//!
//! 1. each sends the list of what it holds, and finishes or undoes what a crash interrupted
//!    ([`crate::store::repairs`]);
//! 2. for each model, data set and run that both others hold whole and the lost server does not, both compare their
//!    files with the hashes in the manifest. Then both send its public description, and each the component that it
//!    has in common with the lost server ([`Sharing::twins`]);
//! 3. both send what they have counted: openings, privacy spent, the list of revoked certificates.
//!
//! The lost server keeps what both send alike. Its shares are the same words as before: it learns nothing that it did
//! not hold, and neither of the others sends a component that the lost server never had.

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use mpc_core::{Held, Sharing};
use net::{Party, Transport};
use ring_arith::{EngineTensor, Shape, Tensor};
use serde::{Deserialize, Serialize};

use super::control::{holdings, listen, reconcile, strange, tell};
use crate::{
    base::{Digest, Error, Id, Result, Shares},
    store::{Content, Counts, Manifest, NewItem, Readers, Store, StoredShares},
    wire::CHUNK,
};

/// The public name of the session.
pub(crate) const SESSION: &str = "trefoil store rebuild";

/// The end of a rebuilding, by name.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Names that the lost server holds again.
    pub rebuilt: Vec<String>,
    /// Names that it does not, with the reason.
    pub left: Vec<(String, String)>,
}

/// A version's public part, as one of the two others holds it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Offer {
    version: Id,
    content: Content,
    owner: String,
    readers: Readers,
    /// The lengths of plan and tokenizer, and their hashes.
    clear: [(u64, Digest); 2],
    shapes: Vec<Vec<usize>>,
}

/// One server's part in a rebuilding.
struct Rebuilding<'a> {
    store: &'a Store,
    sharing: &'static dyn Sharing,
    control: &'a mut dyn Transport,
    lost: usize,
}

/// Runs one server's part in rebuilding the store of server `lost`, which may be this one. `progress` gets the number
/// of names that are done, and of all. The report is the same at all three.
///
/// # Errors
/// [`Error::Refused`] if the protocol does not keep a server's shares at the others; [`Error::Net`] if another server
/// has gone; [`Error::File`] if this store cannot be read or written. Names that were rebuilt before stay.
pub fn rebuild(
    store: &Store,
    sharing: &'static dyn Sharing,
    control: &mut dyn Transport,
    lost: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Report> {
    check(sharing, lost)?;
    let mut rebuilding = Rebuilding { store, sharing, control, lost };
    let names = rebuilding.compare()?;
    let mut report = Report::default();
    for (at, name) in names.iter().enumerate() {
        progress(at, names.len());
        match rebuilding.item(name)? {
            Ok(()) => report.rebuilt.push(name.clone()),
            Err(reason) => report.left.push((name.clone(), reason)),
        }
    }
    rebuilding.counts()?;
    Ok(report)
}

/// Checks that the others hold every component of a server's shares.
///
/// # Errors
/// [`Error::Refused`] if they cannot.
pub(crate) fn check(sharing: &dyn Sharing, lost: usize) -> Result<()> {
    if lost >= sharing.servers() {
        let reason = format!("there is no party {lost} among {} servers", sharing.servers());
        return Err(Error::refused("rebuild", reason));
    }
    if (0..sharing.components()).all(|index| twin(sharing, lost, index).is_some()) {
        return Ok(());
    }
    let reason = format!(
        "with `{}` the other servers do not hold a server's shares: restore a backup of the data folder, or put \
         everything again",
        sharing.name()
    );
    Err(Error::refused("rebuild", reason))
}

/// The other server that holds a component of a server's shares, and its index there.
fn twin(sharing: &dyn Sharing, server: usize, index: usize) -> Option<(usize, usize)> {
    sharing.twins().iter().find_map(|&[one, other]| match (server, index) {
        place if place == one => Some(other),
        place if place == other => Some(one),
        _ => None,
    })
}

impl Rebuilding<'_> {
    fn me(&self) -> usize {
        self.control.me().0
    }

    fn is_lost(&self) -> bool {
        self.me() == self.lost
    }

    /// The servers that are not lost, in their order.
    fn others(&self) -> Vec<usize> {
        (0..self.sharing.servers()).filter(|&party| party != self.lost).collect()
    }

    /// Names that are to be rebuilt: each server finds the same. Finishes or undoes first what a crash interrupted.
    fn compare(&mut self) -> Result<Vec<String>> {
        if self.is_lost() {
            // The others compare each file with its hash when they send it; here none is read otherwise.
            for held in self.store.inventory()? {
                let _ = self.store.verify(&held.name);
            }
        }
        reconcile(self.store, self.control)?;
        let holdings = holdings(self.store, self.control, "compare stores")?;
        let held = self.others().into_iter().flat_map(|party| &holdings[party]);
        let names: BTreeSet<&String> = held.map(|holding| &holding.name).collect();
        let whole = |party: usize, name: &str| {
            let found = holdings[party].iter().find(|holding| holding.name == name)?;
            found.visible.filter(|_| found.damage.is_none())
        };
        let wanted = |name: &str| {
            let version = whole(self.others()[0], name);
            version.is_none() || whole(self.lost, name) != version
        };
        Ok(names.into_iter().filter(|name| wanted(name)).cloned().collect())
    }

    /// Rebuilds the item of one name, or returns why that is not possible. All servers return the same.
    fn item(&mut self, name: &str) -> Result<Result<(), String>> {
        self.control.step("rebuild");
        if self.is_lost() {
            let outcome = self.take(name)?;
            for party in self.others() {
                tell(self.control, party, &outcome)?;
            }
            return Ok(outcome);
        }
        let (offer, held) = match self.own(name) {
            Ok((offer, clear, shares)) => (Ok(offer), Some((clear, shares))),
            Err(error) => (Err(error.to_string()), None),
        };
        tell(self.control, self.lost, &offer)?;
        let wanted: bool = listen(self.control, self.lost)?;
        match (offer, held) {
            (Ok(offer), Some((clear, shares))) if wanted => {
                self.give(offer.content.sharing(self.sharing)?, clear, &shares)?;
            }
            _ if wanted => {
                return Err(strange(self.control, self.lost, "it wants what was not offered"));
            }
            _ => {}
        }
        listen(self.control, self.lost)
    }

    /// This server's version under a name, compared with its manifest.
    fn own(&self, name: &str) -> Result<(Offer, [Vec<u8>; 2], Shares)> {
        let manifest = self.store.labelled(self.store.entry(name).usable(name)?)?;
        let plan = self.store.plan(name, &manifest)?;
        let tokenizer = match manifest.tokenizer {
            Some(_) => self.store.tokenizer(name, &manifest)?,
            None => Vec::new(),
        };
        let shares = self.store.shares(name, &manifest)?;
        let Manifest { version, content, owner, readers, .. } = manifest;
        let shapes = shares.iter().map(|held| held[0].shape().dims().to_vec()).collect();
        let clear = [plan, tokenizer];
        let described = clear.each_ref().map(|bytes| (bytes.len() as u64, Digest::of(&[bytes])));
        Ok((Offer { version, content, owner, readers, clear: described, shapes }, clear, shares))
    }

    /// Sends the lost server what is in the clear, if that comes from this server, and the component that both hold.
    fn give(&mut self, sharing: &dyn Sharing, clear: [Vec<u8>; 2], shares: &Shares) -> Result<()> {
        if self.me() == self.others()[0] {
            for bytes in clear {
                self.send(&bytes.into())?;
            }
        }
        for index in 0..sharing.components() {
            let Some((party, own)) = twin(sharing, self.lost, index) else { continue };
            if party == self.me() {
                for held in shares {
                    self.send(&held[own].to_bytes())?;
                }
            }
        }
        Ok(())
    }

    /// Takes the item that the others offer under a name into the store, or returns why not.
    fn take(&mut self, name: &str) -> Result<Result<(), String>> {
        let mut offers = Vec::new();
        for party in self.others() {
            let offer: Result<Offer, String> = listen(self.control, party)?;
            offers.push(offer.map_err(|reason| format!("party {party}: {reason}")));
        }
        let offers: Result<Vec<Offer>, String> = offers.into_iter().collect();
        let agreed = offers.and_then(|offers| self.agreed(offers));
        for party in self.others() {
            tell(self.control, party, &agreed.is_ok())?;
        }
        let (offer, shapes) = match agreed {
            Ok(agreed) => agreed,
            Err(reason) => return Ok(Err(reason)),
        };
        let from = self.others()[0];
        let mut clear = Vec::new();
        for (length, _) in &offer.clear {
            clear.push(self.receive(from, *length)?);
        }
        let mut shares: Shares = shapes.iter().map(|_| Held::new()).collect();
        let sharing = offer.content.sharing(self.sharing)?;
        for index in 0..sharing.components() {
            let Some((party, _)) = twin(sharing, self.lost, index) else { continue };
            for (held, shape) in shares.iter_mut().zip(&shapes) {
                let bytes = self.receive(party, shape.len() as u64 * 8)?;
                held.push(Tensor::from_bytes(shape.clone(), bytes)?);
            }
        }
        if clear.iter().zip(&offer.clear).any(|(bytes, (_, sum))| Digest::of(&[bytes]) != *sum) {
            let reason = "its plan or tokenizer is not the one that both others hold";
            return Ok(Err(reason.to_owned()));
        }
        self.store.stage(&NewItem {
            name,
            version: offer.version,
            content: &offer.content,
            owner: &offer.owner,
            readers: &offer.readers,
            plan: &clear[0],
            shares: &StoredShares::of(&shares),
            tokenizer: &clear[1],
        })?;
        self.store.commit(name, offer.version)?;
        Ok(Ok(()))
    }

    /// The public part that both offers have in common, and the shapes of the shares.
    fn agreed(&self, offers: Vec<Offer>) -> Result<(Offer, Vec<Shape>), String> {
        let [mut one, other] = <[Offer; 2]>::try_from(offers)
            .map_err(|offers| format!("{} servers offer it, not 2", offers.len()))?;
        let others = self.others();
        let differ = |what: &str, advice: &str| {
            let (one, other) = (others[0], others[1]);
            Err(format!("parties {one} and {other} hold {what}; {advice}"))
        };
        let same = match (&mut one.content, &other.content) {
            (Content::Run(one), Content::Run(other)) => one.agree(other),
            (one, other) => one == other,
        };
        if one.version != other.version {
            return differ("other versions of it", "its owner must put it again");
        }
        if !same
            || one.owner != other.owner
            || one.clear != other.clear
            || one.shapes != other.shapes
        {
            return differ("it differently", "its owner must put it again");
        }
        if one.readers != other.readers {
            return differ("other readers of it", "its owner must share it again");
        }
        let shapes = one.shapes.iter().map(|dims| Shape::new(dims.clone()));
        let shapes = shapes.collect::<Result<_, _>>().map_err(|cause| cause.to_string())?;
        Ok((one, shapes))
    }

    /// The others send the lost server their counts.
    fn counts(&mut self) -> Result<()> {
        self.control.step("counts");
        if !self.is_lost() {
            return tell(self.control, self.lost, &self.store.ledger().counts()?);
        }
        for party in self.others() {
            let counts: Counts = listen(self.control, party)?;
            self.store.ledger().take(counts)?;
        }
        Ok(())
    }

    fn send(&mut self, bytes: &Bytes) -> Result<()> {
        for from in (0..bytes.len()).step_by(CHUNK) {
            let chunk = bytes.slice(from..bytes.len().min(from + CHUNK));
            self.control.send(Party(self.lost), chunk.into())?;
        }
        Ok(())
    }

    fn receive(&mut self, party: usize, length: u64) -> Result<Bytes> {
        let mut bytes = BytesMut::new();
        while (bytes.len() as u64) < length {
            let chunk = self.control.receive(Party(party))?.body;
            let left = length - bytes.len() as u64;
            if chunk.is_empty() || chunk.len() as u64 > left.min(CHUNK as u64) {
                let reason = format!("it sent {} bytes where {left} are left", chunk.len());
                return Err(strange(self.control, party, reason));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes.freeze())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        sync::{Arc, Mutex},
        thread,
    };

    use net::{Message, in_process::transports};
    use rss_protocols::{Addends, Replicated};

    use super::*;
    use crate::{
        model::About,
        testing::{Hooked, Hooks, folder, holder},
    };

    /// The bodies that a server has sent.
    #[derive(Default)]
    struct Sent(Mutex<Vec<Bytes>>);

    impl Hooks for Sent {
        fn sends(&self, _step: &str, _from: Party, _to: Party, message: Message) -> Message {
            self.0.lock().unwrap().push(message.body.clone());
            message
        }
    }

    const WORDS: usize = 100;

    /// Component `index` of every tensor's shares.
    fn component(index: usize) -> Tensor {
        let words = (0..WORDS).map(|at| (u64::MAX / 3 * (index as u64 + 1)) ^ at as u64);
        Tensor::new(Shape::new([WORDS]).unwrap(), words.collect()).unwrap()
    }

    fn store(party: usize) -> Store {
        Store::open(&folder("rebuild"), holder(party), None).unwrap()
    }

    /// Keeps a model at one server.
    fn put(store: &Store, party: usize, name: &str, version: Id, owner: &str) {
        let held = vec![component(party), component((party + 1) % 3)];
        let empty = Tensor::new(Shape::new([0]).unwrap(), Vec::new()).unwrap();
        let labels = vec!["cat".to_owned(), "dog".to_owned()];
        let about = About { labels, ..About::default() };
        let item = NewItem {
            name,
            version,
            content: &Content::Model { about: Box::new(about), ranges: Vec::new() },
            owner,
            readers: &Readers::Named(vec!["bob".to_owned()]),
            plan: &vec![b'p'; CHUNK + 7],
            shares: &StoredShares::of(&vec![held, vec![empty; 2]]),
            tokenizer: b"{}",
        };
        store.stage(&item).unwrap();
        store.commit(name, version).unwrap();
    }

    /// All servers rebuild what one has lost. Returns the report and what each has sent.
    fn run(stores: &[Store; 3], lost: usize) -> (Report, Vec<Vec<Bytes>>) {
        let ends = thread::scope(|scope| {
            let parts = stores.iter().zip(transports(3)).map(|(store, links)| {
                let sent = Arc::new(Sent::default());
                let mut control = Hooked::new(Box::new(links), sent.clone());
                scope.spawn(move || {
                    let report = rebuild(store, &Replicated, &mut control, lost, &mut |_, _| {});
                    Box::new(control).close().unwrap();
                    (report.unwrap(), std::mem::take(&mut *sent.0.lock().unwrap()))
                })
            });
            let parts: Vec<_> = parts.collect();
            parts.into_iter().map(|part| part.join().unwrap()).collect::<Vec<_>>()
        });
        let (reports, sent): (Vec<_>, _) = ends.into_iter().unzip();
        assert!(reports.iter().all(|report| *report == reports[0]), "{reports:?}");
        (reports[0].clone(), sent)
    }

    #[test]
    fn a_lost_store_is_rebuilt_word_for_word_and_nothing_else_is_sent() {
        let version = Id::random().unwrap();
        for lost in 0..3 {
            let mut stores = [0, 1, 2].map(store);
            for (party, store) in stores.iter().enumerate() {
                put(store, party, "m", version, "alice");
                store.ledger().open(Digest::of(&[b"run"]), party as u32, 9).unwrap();
            }
            let read = |store: &Store| {
                let manifest = store.labelled(store.entry("m").usable("m").unwrap()).unwrap();
                let (plan, shares) = (store.plan("m", &manifest), store.shares("m", &manifest));
                let Manifest { version, content, owner, readers, .. } = manifest;
                (plan.unwrap(), shares.unwrap(), version, content, owner, readers)
            };
            let before = read(&stores[lost]);
            stores[lost] = store(lost);
            let (report, sent) = run(&stores, lost);
            assert_eq!(report, Report { rebuilt: vec!["m".to_owned()], left: Vec::new() });
            assert_eq!(read(&stores[lost]), before);
            let most = (0..3).filter(|&party| party != lost).max().unwrap();
            let opened = stores[lost].ledger().opened(Digest::of(&[b"run"])).unwrap();
            assert_eq!((opened.weights, opened.metrics), (most as u32, 9));
            // The third component is at both others, and leaves neither of them.
            let words = |index| component(index).to_bytes();
            let all: Vec<&Bytes> = sent.iter().flatten().collect();
            let times = |index| all.iter().filter(|body| ***body == words(index)).count();
            let third = (lost + 2) % 3;
            assert_eq!((times(lost), times((lost + 1) % 3), times(third)), (1, 1, 0));
            let piece = words(third).slice(..32);
            let within = |body: &Bytes| body.windows(32).any(|window| *window == piece);
            assert!(!all.into_iter().any(within));
            // Names that are there are not sent again.
            let (report, sent) = run(&stores, lost);
            assert_eq!(report, Report::default());
            assert!(sent.iter().flatten().all(|body| body.len() < 4096));
        }
    }

    #[test]
    fn weights_in_the_clear_come_back_from_one_server() {
        let version = Id::random().unwrap();
        let about = About { public_weights: true, ..About::default() };
        let shares: Shares = vec![vec![component(0)], vec![component(1)]];
        for lost in 0..3 {
            let stores = [0, 1, 2].map(store);
            for (_, store) in stores.iter().enumerate().filter(|(party, _)| *party != lost) {
                let item = NewItem {
                    name: "m",
                    version,
                    content: &Content::Model { about: Box::new(about.clone()), ranges: Vec::new() },
                    owner: "alice",
                    readers: &Readers::Everyone,
                    plan: b"plan",
                    shares: &StoredShares::of(&shares),
                    tokenizer: b"",
                };
                store.stage(&item).unwrap();
                store.commit("m", version).unwrap();
            }
            let (report, sent) = run(&stores, lost);
            assert_eq!(report, Report { rebuilt: vec!["m".to_owned()], left: Vec::new() });
            let manifest = stores[lost].entry("m").usable("m").unwrap();
            assert_eq!(stores[lost].shares("m", &manifest).unwrap(), shares);
            let words = component(0).to_bytes();
            assert_eq!(sent.iter().flatten().filter(|body| **body == words).count(), 1);
        }
    }

    #[test]
    fn what_the_others_do_not_hold_alike_is_left() {
        let stores = [0, 1, 2].map(store);
        let [one, two] = [(); 2].map(|()| Id::random().unwrap());
        for party in [0, 2] {
            let store = &stores[party];
            put(store, party, "good", one, "alice");
            put(store, party, "versions", if party == 0 { one } else { two }, "alice");
            put(store, party, "owners", one, if party == 0 { "alice" } else { "bob" });
            put(store, party, "damaged", one, "alice");
            put(store, party, "readers", one, "alice");
        }
        put(&stores[0], 0, "alone", one, "alice");
        stores[2].share("readers", &Readers::Everyone).unwrap();
        let shares = stores[2].folder("damaged").join(format!("{one}.safetensors"));
        let mut bytes = fs::read(&shares).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&shares, bytes).unwrap();
        let (report, _) = run(&stores, 1);
        assert_eq!(report.rebuilt, ["good"]);
        let left: Vec<_> =
            report.left.iter().map(|(name, reason)| (name.as_str(), reason.as_str())).collect();
        let wanted = [
            ("alone", "party 2: "),
            ("damaged", "its contents have changed"),
            ("owners", "hold it differently"),
            ("readers", "share it again"),
            ("versions", "other versions of it"),
        ];
        assert_eq!(left.len(), wanted.len(), "{left:?}");
        for ((name, reason), (wanted, part)) in left.into_iter().zip(wanted) {
            assert!(name == wanted && reason.contains(part), "{name}: {reason}");
        }
        assert_eq!(stores[1].inventory().unwrap().len(), 1);
    }

    #[test]
    fn what_a_crash_left_staged_is_finished_first() {
        let stores = [0, 1, 2].map(store);
        let [one, two] = [(); 2].map(|()| Id::random().unwrap());
        for party in [0, 2] {
            put(&stores[party], party, "m", one, "alice");
        }
        // The next version is current at party 0, and party 2 has staged it: all had.
        put(&stores[0], 0, "m", two, "alice");
        put(&stores[2], 2, "n", two, "alice");
        let (from, to) = (stores[2].folder("n"), stores[2].folder("m"));
        let text = fs::read_to_string(from.join("manifest")).unwrap();
        let body = text.split_once('\n').unwrap().1.replace("\"n\"", "\"m\"");
        fs::write(to.join(format!("{two}.staged")), crate::store::seal(body.as_bytes())).unwrap();
        for kind in ["plan.json", "safetensors", "tokenizer.json"] {
            let file = format!("{two}.{kind}");
            fs::copy(from.join(&file), to.join(&file)).unwrap();
        }
        stores[2].remove("n").unwrap();
        let (report, _) = run(&stores, 1);
        assert_eq!(report, Report { rebuilt: vec!["m".to_owned()], left: Vec::new() });
        for store in &stores {
            assert_eq!(store.entry("m").usable("m").unwrap().version, two);
        }
    }

    #[test]
    fn two_servers_cannot_rebuild_each_other() {
        let text = check(&Addends, 0).unwrap_err().to_string();
        assert!(text.contains("restore a backup"), "{text}");
        check(&Replicated, 3).unwrap_err();
        for lost in 0..3 {
            check(&Replicated, lost).unwrap();
        }
    }
}
