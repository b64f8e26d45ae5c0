//! Tapes as files: made once, played by two parties, each place at most once.

use std::{
    collections::BTreeSet,
    env,
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use mpc_core::{Finish, Product, Protocol, Result, TruncationMode};
use net::{Party, Session, in_process::sessions_from_seed, launch::run_all};
use ring_arith::{Bilinear, CpuEngine, Generator, Shape, Tensor};
use rss_protocols::{Dealer, Options, Rss, Share, Tape};

type Mpc = Rss<CpuEngine>;

const DIGEST: [u8; 32] = [4; 32];
const VERSION: [u8; 32] = [9; 32];

/// Rows of the input; large enough for several chunks, and more than one chunk of a tape.
const N: usize = 150_000;

fn shape(n: usize) -> Shape {
    Shape::new([n]).unwrap()
}

/// Weights, which all places have in common.
fn weights(mpc: &mut Mpc, n: usize, addend: Option<&Tensor>) -> Result<Share<Tensor>> {
    let addends = addend.map(std::slice::from_ref);
    Ok(mpc.input_sums(&[shape(n)], addends)?.remove(0))
}

/// What is run at a place: the ReLU of an input times the weights.
fn program(mpc: &mut Mpc, weights: &Share<Tensor>, addend: Option<&Tensor>) -> Result<Tensor> {
    let n = mpc_core::ShareTensor::shape(weights).len();
    let x = mpc.input_sums(&[shape(n)], addend.map(std::slice::from_ref))?.remove(0);
    let finish = Finish::TruncateRelu { bits: 20, mode: TruncationMode::Early, keep: false };
    let product = mpc.product(Product::new(Bilinear::Mul, &x, weights, finish))?.share;
    Ok(mpc.open(&[&product])?.remove(0))
}

/// Two files of a pair of tapes.
fn make(folder: &Path, secret: u8, places: u64, n: usize) -> [PathBuf; 2] {
    fs::create_dir_all(folder).unwrap();
    let paths = [0, 1].map(|party| folder.join(format!("{secret}-{party}.tape")));
    let files = paths.each_ref().map(|path| File::create(path).unwrap());
    let (engine, options) = (CpuEngine::new(1), Options::default());
    let generator = Generator::Aes128Ctr;
    let mut dealer = Dealer::new(engine, options, generator, &[secret; 32], DIGEST, files).unwrap();
    let weights = dealer.set_up(|mpc| weights(mpc, n, None)).unwrap();
    for _ in 0..places {
        let opened = dealer.deal(|mpc| program(mpc, &weights, None)).unwrap();
        assert!(opened.words().iter().all(|word| *word == 0), "a dealer sees nothing");
    }
    dealer.finish().unwrap();
    paths
}

/// A folder for a test's files, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("trefoil-tape-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Both addends of a secret, as a client cuts it.
fn addends(secret: impl Fn(usize) -> u64, n: usize) -> [Tensor; 2] {
    let mask = |i: usize| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [
        Tensor::from_fn(shape(n), mask),
        Tensor::from_fn(shape(n), |i| secret(i).wrapping_sub(mask(i))),
    ]
}

fn party(session: Session, tape: &Tape) -> Result<Mpc> {
    Rss::dealt(tape.session(session)?, CpuEngine::new(1), Options::default())
}

/// What each of both parties makes of its tape.
fn both<R: Send>(
    paths: &[PathBuf; 2],
    run: impl Fn(Session, Tape) -> Result<R> + Sync,
) -> Vec<Result<R>> {
    run_all(sessions_from_seed(2, 3), |session| {
        let tape = Tape::open(&paths[session.transport.me().0], None)?;
        run(session, tape)
    })
}

#[track_caller]
fn refused<R>(outcomes: Vec<Result<R>>, text: &str) {
    for outcome in outcomes {
        let error = outcome.map(drop).expect_err("this must be refused").to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn two_parties_compute_from_tapes_that_were_made_before() {
    let folder = Folder::new("right");
    let paths = make(&folder.0, 1, 3, N);
    let value = |i: usize| ((i as u64 % 64) << 20).wrapping_sub(30 << 20);
    let weight = |i: usize| (2 + i as u64 % 3) << 20;
    let (x, w) = (addends(value, N), addends(weight, N));
    // Two sessions: the second goes on where the first stopped.
    for (runs, left) in [(2, 1), (1, 0)] {
        let outcomes = both(&paths, |session, tape| {
            let me = session.transport.me().0;
            let mut mpc = party(session, &tape)?;
            assert_eq!((mpc.info().name, mpc.parties(), mpc.me()), ("rss-dealt", 2, Party(me)));
            tape.set_up(&mut mpc, &VERSION)?;
            let weights = weights(&mut mpc, N, Some(&w[me]))?;
            let mut opened = Vec::new();
            for _ in 0..runs {
                let place = tape.begin(&mut mpc)?;
                opened.push((place, program(&mut mpc, &weights, Some(&x[me]))?));
            }
            assert_eq!(tape.left(), [left, 3]);
            mpc.close()?;
            Ok(opened)
        });
        for opened in outcomes.into_iter().map(Result::unwrap) {
            for (at, (place, words)) in opened.iter().enumerate() {
                assert_eq!(*place, 3 - left - runs + at as u64);
                for (i, word) in words.words().iter().enumerate() {
                    let product = (value(i) as i64 >> 20) * (weight(i) as i64 >> 20);
                    let want = (product.max(0) as u64) << 20;
                    assert!(word.abs_diff(want) <= 2, "{i}: {word} for {want}");
                }
            }
        }
    }
    refused(
        both(&paths, |session, tape| {
            let mut mpc = party(session, &tape)?;
            tape.set_up(&mut mpc, &VERSION)?;
            tape.begin(&mut mpc)
        }),
        "all its 3 places were used",
    );
}

#[test]
fn what_is_wrong_with_a_tape_is_said() {
    let folder = Folder::new("wrong");
    let paths = make(&folder.0, 1, 4, 64);
    let other = make(&folder.0, 2, 1, 64);
    let begin = |session: Session, tape: Tape| {
        let mut mpc = party(session, &tape)?;
        tape.set_up(&mut mpc, &VERSION)?;
        tape.begin(&mut mpc)
    };
    refused(both(&[paths[0].clone(), other[1].clone()], begin), "not of one pair");
    refused(both(&[paths[1].clone(), paths[0].clone()], begin), "not of party");
    let taken = |want| {
        let places = both(&paths, begin).into_iter().map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(places, [want, want]);
    };
    // What one party spent is lost for the other too.
    let before = fs::read(&paths[1]).unwrap();
    taken(0);
    fs::write(&paths[1], before).unwrap();
    taken(1);
    refused(
        both(&paths, |session, tape| {
            let mut mpc = party(session, &tape)?;
            tape.set_up(&mut mpc, &[8; 32])
        }),
        "another version",
    );
    // The second was bound above.
    refused(
        both(&other, |session, tape| {
            let version = if session.transport.me() == Party(0) { [8; 32] } else { VERSION };
            let mut mpc = party(session, &tape)?;
            tape.set_up(&mut mpc, &version)?;
            tape.begin(&mut mpc)
        }),
        "different versions",
    );
    let open = Tape::open(&paths[0], None).unwrap();
    let again = Tape::open(&paths[0], None).map(drop).unwrap_err().to_string();
    assert!(again.contains("another process"), "{again}");
    drop(open);
    // More words than the tape has. Whoever notices first ends the session of both.
    let outcomes = both(&paths, |session, tape| {
        let me = session.transport.me().0;
        let mut mpc = party(session, &tape)?;
        tape.set_up(&mut mpc, &VERSION)?;
        let addend = Tensor::zeros(shape(64));
        let weights = weights(&mut mpc, 64, Some(&addend))?;
        tape.begin(&mut mpc)?;
        program(&mut mpc, &weights, Some(&addend))?;
        program(&mut mpc, &weights, Some(&addend)).map(|_| me)
    });
    let errors: Vec<_> = outcomes.into_iter().map(|o| o.unwrap_err().to_string()).collect();
    assert!(errors.iter().any(|error| error.contains("takes more words")), "{errors:?}");
    // Damage, of the last place's words.
    let mut bytes = fs::read(&paths[0]).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&paths[0], &bytes).unwrap();
    let outcomes = both(&paths, |session, tape| {
        let mut mpc = party(session, &tape)?;
        tape.set_up(&mut mpc, &VERSION)?;
        let addend = Tensor::zeros(shape(64));
        let weights = weights(&mut mpc, 64, Some(&addend))?;
        while tape.left()[0] > 0 {
            tape.begin(&mut mpc)?;
            program(&mut mpc, &weights, Some(&addend))?;
        }
        Ok(())
    });
    let error = outcomes[0].as_ref().unwrap_err().to_string();
    assert!(error.contains("is damaged"), "{error}");
    for (len, text) in [(last, "not complete"), (100, "not a tape")] {
        fs::write(&paths[0], &bytes[..len]).unwrap();
        let error = Tape::open(&paths[0], None).map(drop).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    bytes[40] ^= 1;
    fs::write(&paths[0], &bytes).unwrap();
    let error = Tape::open(&paths[0], None).map(drop).unwrap_err().to_string();
    assert!(error.contains("first bytes are damaged"), "{error}");
}

#[test]
fn a_tape_without_its_key_is_worth_nothing_and_with_it_what_it_was() {
    let folder = Folder::new("key");
    let paths = make(&folder.0, 1, 1, 64);
    let keys = paths.each_ref().map(|path| {
        let tape = Tape::open(path, None).unwrap();
        let key = tape.key();
        let bytes = fs::read(path).unwrap();
        assert!(bytes.windows(32).any(|it| it == key.bytes()), "the dealer put it there");
        tape.without_key().unwrap();
        let bytes = fs::read(path).unwrap();
        assert!(!bytes.windows(32).any(|it| it == key.bytes()), "it is still there");
        assert_eq!(format!("{key:?}"), "TapeKey");
        key
    });
    let text = Tape::open(&paths[0], None).map(drop).unwrap_err().to_string();
    assert!(text.contains("kept elsewhere"), "{text}");
    let text = Tape::open(&paths[0], Some(&keys[1])).map(drop).unwrap_err().to_string();
    assert!(text.contains("not this tape's"), "{text}");
    let opened = run_all(sessions_from_seed(2, 3), |session| {
        let me = session.transport.me().0;
        let tape = Tape::open(&paths[me], Some(&keys[me]))?;
        let mut mpc = party(session, &tape)?;
        tape.set_up(&mut mpc, &VERSION)?;
        let one = addends(|_| 1 << 20, 64)[me].clone();
        let weights = weights(&mut mpc, 64, Some(&one))?;
        tape.begin(&mut mpc)?;
        program(&mut mpc, &weights, Some(&one))
    });
    for words in opened.into_iter().map(Result::unwrap) {
        assert!(words.words().iter().all(|word| word.abs_diff(1 << 20) <= 2), "{words:?}");
    }
}

/// A seed decides every mask of its place, and party 0 has no words whose checksum would notice.
#[test]
fn a_damaged_seed_is_found() {
    let folder = Folder::new("seed");
    let paths = make(&folder.0, 1, 1, 64);
    let sound = fs::read(&paths[0]).unwrap();
    // Behind the header, the binding and the key: the seed of all places, and that of the first.
    for (at, what) in [(192 + 64, "set up"), (192 + 64 + 64, "begin")] {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        fs::write(&paths[0], &bytes).unwrap();
        let outcomes = both(&paths, |session, tape| {
            let mut mpc = party(session, &tape)?;
            tape.set_up(&mut mpc, &VERSION)?;
            tape.begin(&mut mpc)
        });
        let text = outcomes[0].as_ref().unwrap_err().to_string();
        assert!(text.contains("a seed of the tape is damaged"), "{what}: {text}");
    }
}

/// In the environment of a process that is about to be killed: the folder of its tapes.
const VICTIM: &str = "TREFOIL_TEST_TAPES";

/// Places of tapes for processes that are killed.
const PLACES: u64 = 5_000;

/// Takes places and says so, until it is killed.
fn take_places(folder: &Path) {
    let paths = [0, 1].map(|party| folder.join(format!("1-{party}.tape")));
    let outcomes = both(&paths, |session, tape| {
        let me = session.transport.me().0;
        let mut mpc = party(session, &tape)?;
        tape.set_up(&mut mpc, &VERSION)?;
        while tape.left()[0] > 0 {
            let place = tape.begin(&mut mpc)?;
            let mut out = std::io::stdout().lock();
            // The harness may have begun a line.
            write!(out, "\nused {me} {place}\n").and_then(|()| out.flush()).unwrap();
        }
        Ok(())
    });
    outcomes.into_iter().for_each(|outcome| outcome.unwrap());
}

#[test]
fn no_place_is_used_twice_whenever_a_process_is_killed() {
    if let Some(folder) = env::var_os(VICTIM) {
        return take_places(Path::new(&folder));
    }
    let folder = Folder::new("killed");
    let [zero, one] = make(&folder.0, 1, PLACES, 1);
    let mut used = [BTreeSet::new(), BTreeSet::new()];
    let mut spans = 0;
    for trial in 0..100 {
        let mut child = Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                "tape::no_place_is_used_twice_whenever_a_process_is_killed",
                "--nocapture",
            ])
            .env(VICTIM, &folder.0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines =
            BufReader::new(child.stdout.take().unwrap()).lines().map_while(std::result::Result::ok);
        // Up to so many places, then the rest that it still manages to take.
        let mut said: Vec<_> = lines.by_ref().take(5 * (trial % 5)).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        said.extend(lines);
        let mut some = false;
        for line in said {
            // The harness says other things.
            let words: Vec<_> = line.split(' ').collect();
            let &["used", me, place] = &words[..] else { continue };
            let (Ok(me), Ok(place)) = (me.parse::<usize>(), place.parse::<u64>()) else { continue };
            some = true;
            assert!(used[me].insert(place), "party {me} used place {place} twice");
        }
        spans += u32::from(some);
    }
    assert!(spans >= 10, "only {spans} of 100 processes lived long enough to use a place");
    let left = [zero, one].map(|path| Tape::open(&path, None).unwrap().left()[0]);
    for (used, left) in used.iter().zip(left) {
        let last = *used.last().expect("places were used");
        assert!(left <= PLACES - 1 - last, "a used place is not spent");
    }
}
