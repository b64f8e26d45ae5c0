//! Plays tapes.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use mpc_core::{Error, Result};
use net::{PairKey, Party, Session, tape::Player};
use ring_arith::Engine;
use zeroize::Zeroizing;

use super::{
    BOUND, CHUNK, COMMON, HASH, HEADER, Header, KEY, SEALED, SEED, TapeKey, array, chunk_sum,
    unusable,
};
use crate::{DEALER, Rss, party::Setting};

/// A party's tape, open for one session after another. No other process may have it open meanwhile.
#[derive(Clone)]
pub struct Tape(Arc<Mutex<Reel>>);

/// A tape, and where it stands.
struct Reel {
    name: String,
    file: File,
    header: Header,
    key: TapeKey,
    /// The first place that is not spent.
    next: u64,
    playing: Option<Playing>,
}

/// The place that is being played.
struct Playing {
    place: u64,
    seed: Zeroizing<[u8; SEED]>,
    /// Bytes of words that were given out.
    given: u64,
}

impl Tape {
    /// Opens a tape to be consumed, and finds the first place that is not spent. `key` is the tape's, where its file
    /// does not hold it.
    ///
    /// # Errors
    /// [`net::Error::Config`] if the file is not a whole tape, cannot be written, or is open elsewhere, or if its key
    /// is missing.
    pub fn open(path: &Path, key: Option<&TapeKey>) -> Result<Self> {
        let name = path.display().to_string();
        let fail = |reason: String| unusable(&name, reason);
        let opened = File::options().read(true).write(true).open(path);
        let mut file = opened.map_err(|error| fail(format!("cannot be opened: {error}")))?;
        file.try_lock().map_err(|_| fail("another process has this tape open".to_owned()))?;
        let unreadable = |error: io::Error| fail(format!("cannot be read: {error}"));
        let len = file.metadata().map_err(unreadable)?.len();
        let mut bytes = [0; HEADER];
        if len >= HEADER as u64 {
            file.read_exact(&mut bytes).map_err(unreadable)?;
        }
        let header = Header::from_bytes(&bytes).map_err(fail)?;
        if header.party > 1 || header.start(header.places) != Some(len) {
            let reason = "the tape is not complete: copy it again, or have it made again";
            return Err(fail(reason.to_owned()));
        }
        let mut inside = Zeroizing::new([0; SEED]);
        let read = file.seek(SeekFrom::Start(KEY)).and_then(|_| file.read_exact(&mut *inside));
        read.map_err(unreadable)?;
        let key = match (*inside != [0; SEED], key) {
            (true, _) => TapeKey::new(&inside),
            (false, Some(key)) => key.clone(),
            (false, None) => return Err(fail("the tape's key is kept elsewhere".to_owned())),
        };
        if key.hash() != header.key {
            return Err(fail("the key is not this tape's".to_owned()));
        }
        let mut reel = Reel { name, file, header, key, next: 0, playing: None };
        reel.next = reel.first_unspent()?;
        Ok(Self(Arc::new(Mutex::new(reel))))
    }

    /// The key of the tape's seeds.
    #[must_use]
    pub fn key(&self) -> TapeKey {
        self.reel().key.clone()
    }

    /// Removes the key from the tape's file. From now on the tape opens only with [`Tape::key`]: store that
    /// safely elsewhere first. A disk may keep copies of overwritten bytes; this call cannot erase those.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn without_key(&self) -> Result<()> {
        let mut reel = self.reel();
        reel.write_at(KEY, &[0; SEED])?;
        reel.file.sync_data().map_err(|error| reel.failed(&error))
    }

    /// Whose tape it is.
    #[must_use]
    pub fn party(&self) -> Party {
        Party(usize::from(self.reel().header.party))
    }

    /// The digest of the dealer's program.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        self.reel().header.digest
    }

    /// The name of both tapes of a pair, and of no others.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.reel().header.id
    }

    /// Places that are left, and places that there were.
    #[must_use]
    pub fn left(&self) -> [u64; 2] {
        let reel = self.reel();
        [reel.header.places - reel.next.min(reel.header.places), reel.header.places]
    }

    /// Examples that each place is for, by the tape's maker; 0 if unknown.
    #[must_use]
    pub fn examples(&self) -> u64 {
        self.reel().header.examples
    }

    /// The first place that this party has not used, counted from 0: the number of places where it is spent.
    #[must_use]
    pub fn next(&self) -> u64 {
        let reel = self.reel();
        reel.next.min(reel.header.places)
    }

    /// Bytes of words that the place which was begun last has given so far.
    #[must_use]
    pub fn played(&self) -> u64 {
        self.reel().playing.as_ref().map_or(0, |playing| playing.given)
    }

    /// The version that the first use bound the tape to, if it was used.
    ///
    /// # Errors
    /// If the tape cannot be read.
    pub fn bound(&self) -> Result<Option<[u8; 32]>> {
        let bound = self.reel().read_bound()?;
        Ok((bound != [0; HASH]).then_some(bound))
    }

    /// The session of two parties with the dealer on tape added to it.
    ///
    /// # Errors
    /// If the session is not one of two with a key, or this party is not the tape's.
    pub fn session(&self, session: Session) -> Result<Session> {
        let Session { transport, mut pair_keys, .. } = session;
        let me = transport.me();
        let mut reel = self.reel();
        if transport.parties() != DEALER.0 || pair_keys.len() != DEALER.0 {
            let reason = format!("a tape is for two servers, not {}", transport.parties());
            return Err(unusable(&reel.name, reason));
        }
        if me.0 != usize::from(reel.header.party) {
            let reason = format!("this is the tape of party {}, not of {me}", reel.header.party);
            return Err(unusable(&reel.name, reason));
        }
        pair_keys.push(Some(PairKey(*reel.read_seed(COMMON)?)));
        let playing = self.0.clone();
        let next = move || locked(&playing).next_words();
        Ok(Session {
            transport: Box::new(Player::new(transport, next)),
            pair_keys,
            id: reel.header.id,
            prg: Some(reel.header.generator.name().to_owned()),
        })
    }

    /// Begins the set-up for all places, as the dealer's `set_up` did, for secrets of this version. The first use
    /// binds the tape to the version for good: other secrets under the same masks would reveal their differences.
    ///
    /// # Errors
    /// If the tape was bound to another version, or cannot be written.
    pub fn set_up<E: Engine>(&self, mpc: &mut Rss<E>, version: &[u8; 32]) -> Result<()> {
        let mut reel = self.reel();
        reel.bind(version)?;
        let seed = PairKey(*reel.read_seed(COMMON)?);
        mpc.begin_place(0, &reel.header.digest, [seed.clone(), seed])
    }

    /// Agrees with the other party on the next place, makes sure that it can never be used again, and begins it;
    /// returns its number. One round, 40 bytes.
    ///
    /// # Errors
    /// If the tape is spent, the other party's tape is of another pair or bound to another version, or this one
    /// cannot be read or written.
    pub fn begin<E: Engine>(&self, mpc: &mut Rss<E>) -> Result<u64> {
        let mine = self.reel().standing()?;
        let place = mpc.compare_tapes(&mine)?;
        let seed = self.reel().take(place)?;
        let digest = self.digest();
        mpc.begin_place(place + 1, &digest, [seed.clone(), seed])?;
        Ok(place)
    }

    fn reel(&self) -> MutexGuard<'_, Reel> {
        locked(&self.0)
    }
}

/// Shows the file's name alone.
impl fmt::Debug for Tape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tape({})", self.reel().name)
    }
}

impl Reel {
    /// Spends a place for good, then gives its seed.
    fn take(&mut self, place: u64) -> Result<PairKey> {
        let places = self.header.places;
        if place >= places {
            let reason = format!("the tape is spent: all its {places} places were used");
            return Err(self.unusable(reason));
        }
        let start = self.start(place)?;
        if self.is_spent(start)? {
            return Err(self.unusable(format!("place {place} is spent")));
        }
        let seed = self.read_seed(start)?;
        // Places that the other party spent and this one did not are left out, and spent too.
        let first = self.next;
        mutant!("tape: skipped places keep their seeds", first = place);
        for skipped in first..=place {
            let start = self.start(skipped)?;
            self.write_at(start, &[0; SEED])?;
        }
        self.file.sync_data().map_err(|error| self.failed(&error))?;
        self.next = self.fresh_from(place + 1)?;
        self.playing = Some(Playing { place, seed: seed.clone(), given: 0 });
        Ok(PairKey(*seed))
    }

    /// The next chunk of the place that is being played.
    fn next_words(&mut self) -> net::Result<Bytes> {
        self.read_words().map_err(|error| match error {
            Error::Net(error) => error,
            other => net::Error::Misuse(other.to_string()),
        })
    }

    fn read_words(&mut self) -> Result<Bytes> {
        let Some(Playing { place, seed, given }) = &self.playing else {
            return Err(self.unusable("no place of the tape was begun"));
        };
        let (place, given, seed) = (*place, *given, seed.clone());
        let due = (self.header.words - given).min(CHUNK as u64);
        if due == 0 {
            let reason = "the tape is for another program: this one takes more words";
            return Err(self.unusable(reason));
        }
        let number = given / CHUNK as u64;
        let before = SEALED as u64 + number * (CHUNK + HASH) as u64;
        let start = self.start(place)? + before;
        let mut hash = [0; HASH];
        self.read_at(start, &mut hash)?;
        // Read, not zeroed first.
        let mut words = Vec::with_capacity(due as usize);
        let read = (&self.file).take(due).read_to_end(&mut words);
        read.map_err(|error| self.failed(&error))?;
        if words.len() as u64 != due {
            return Err(self.unusable("the tape is not complete"));
        }
        if chunk_sum(&seed, place, number, &words) != hash {
            return Err(
                self.unusable(format!("place {place} is damaged; the next one may be whole"))
            );
        }
        if let Some(playing) = &mut self.playing {
            playing.given += due;
        }
        Ok(Bytes::from(words))
    }

    /// The first place from one on whose seed is there.
    fn fresh_from(&mut self, mut place: u64) -> Result<u64> {
        while place < self.header.places {
            let start = self.start(place)?;
            if !self.is_spent(start)? {
                break;
            }
            place += 1;
        }
        Ok(place)
    }

    /// Spent places come first.
    fn first_unspent(&mut self) -> Result<u64> {
        let (mut spent, mut fresh) = (0, self.header.places);
        while spent < fresh {
            let middle = spent + (fresh - spent) / 2;
            let start = self.start(middle)?;
            if self.is_spent(start)? {
                spent = middle + 1;
            } else {
                fresh = middle;
            }
        }
        Ok(spent)
    }

    /// The words to compare with the other party: the pair's name and a hash of the version; and the next place.
    fn standing(&mut self) -> Result<[u64; 5]> {
        let bound = self.read_bound()?;
        let bound = *blake3::hash(&bound).as_bytes();
        let id = self.header.id;
        let [a, b, c, d] = [&id[..8], &id[8..], &bound[..8], &bound[8..]]
            .map(|bytes| u64::from_le_bytes(array(bytes)));
        Ok([a, b, c, d, self.next])
    }

    /// Ties the tape to a version, or refuses another than the one it is tied to.
    fn bind(&mut self, version: &[u8; 32]) -> Result<()> {
        let bound = self.read_bound()?;
        if bound == *version {
            return Ok(());
        }
        if bound != [0; HASH] {
            let reason = "the tape was begun with another version of the model: have one made for this version";
            return Err(self.unusable(reason));
        }
        self.write_at(BOUND, version)?;
        self.file.sync_data().map_err(|error| self.failed(&error))
    }

    fn read_bound(&mut self) -> Result<[u8; HASH]> {
        let mut bound = [0; HASH];
        self.read_at(BOUND, &mut bound)?;
        Ok(bound)
    }

    /// True if the seed at an offset was destroyed.
    fn is_spent(&mut self, at: u64) -> Result<bool> {
        let mut under = [0; SEED];
        self.read_at(at, &mut under)?;
        Ok(under == [0; SEED])
    }

    fn read_seed(&mut self, at: u64) -> Result<Zeroizing<[u8; SEED]>> {
        let mut sealed = [0; SEALED];
        self.read_at(at, &mut sealed)?;
        let seed = self.key.open(at, &sealed);
        seed.ok_or_else(|| self.unusable("a seed of the tape is damaged: have it made again"))
    }

    fn start(&self, place: u64) -> Result<u64> {
        self.header.start(place).ok_or_else(|| self.unusable("the tape is not complete"))
    }

    fn read_at(&mut self, at: u64, bytes: &mut [u8]) -> Result<()> {
        let read = self.file.seek(SeekFrom::Start(at)).and_then(|_| self.file.read_exact(bytes));
        read.map_err(|error| self.failed(&error))
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let written = self.file.seek(SeekFrom::Start(at)).and_then(|_| self.file.write_all(bytes));
        written.map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> Error {
        self.unusable(format!("cannot be read and written: {error}"))
    }

    fn unusable(&self, reason: impl Into<String>) -> Error {
        unusable(&self.name, reason)
    }
}

fn locked<T>(reel: &Mutex<T>) -> MutexGuard<'_, T> {
    // After a panic the state on disk is right: a place is spent before anything else happens.
    reel.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<E: Engine> Rss<E> {
    /// Tells the other of two parties where this one's tape stands; returns the place that both can take.
    fn compare_tapes(&mut self, mine: &[u64; 5]) -> Result<u64> {
        if self.setting != Setting::Dealt || self.deals() {
            return Err(unusable("tape", "a tape is played by one of two parties with a dealer"));
        }
        let theirs = self.exchange_words(mine)?;
        if theirs[..2] != mine[..2] {
            let reason = "the two servers' tapes are not of one pair: both must be of one making";
            return Err(unusable("tape", reason));
        }
        if theirs[2..4] != mine[2..4] {
            let reason = "the two servers began their tapes with different versions";
            return Err(unusable("tape", reason));
        }
        Ok(mine[4].max(theirs[4]))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{env, fs};

    use mpc_core::{Finish, Product, Protocol};
    use ring_arith::{Bilinear, CpuEngine, Generator, Shape};

    use super::*;
    use crate::{Dealer, Options};

    const PLACES: u64 = 5;

    /// Places that the other party used and this one did not are as useless as those that it used.
    #[test]
    pub(crate) fn places_that_are_skipped_lose_their_seeds() {
        let folder = env::temp_dir().join(format!("trefoil-skipped-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let paths = [0, 1].map(|party| folder.join(format!("{party}.tape")));
        let files = paths.each_ref().map(|path| File::create(path).unwrap());
        let (engine, options) = (CpuEngine::new(1), Options::default());
        let mut dealer =
            Dealer::new(engine, options, Generator::Aes128Ctr, &[7; 32], [4; 32], files).unwrap();
        for _ in 0..PLACES {
            let square = |mpc: &mut Rss<CpuEngine>| {
                let x = mpc.input_sums(&[Shape::new([8])?], None)?.remove(0);
                mpc.product(Product::new(Bilinear::Mul, &x, &x, Finish::Raw)).map(drop)
            };
            dealer.deal(square).unwrap();
        }
        dealer.finish().unwrap();
        let tape = Tape::open(&paths[0], None).unwrap();
        let mut reel = tape.reel();
        reel.take(0).unwrap();
        reel.take(3).unwrap();
        let spent = (0..PLACES).map(|place| {
            let start = reel.start(place).unwrap();
            reel.is_spent(start).unwrap()
        });
        assert_eq!(spent.collect::<Vec<_>>(), [true, true, true, true, false]);
        assert!((0..4).all(|place| reel.take(place).is_err()));
        drop(reel);
        assert_eq!(tape.left(), [1, PLACES]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
