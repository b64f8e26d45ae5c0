//! Tests of copies of a store: they come back as they were or not at all, and counts never get lower.

use std::{
    io::Read,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::{
    super::{
        backing::{Body, Object, Seen, Tag},
        export::INVENTORY,
    },
    *,
};
use crate::base::Digest;

/// A store with these names, of other shares each.
fn filled(of: Holder, key: Option<&StoreKey>, names: &[&str]) -> (PathBuf, Store) {
    let root = folder("exported");
    let store = Store::open(&root, of, key.cloned()).unwrap();
    for (at, name) in names.iter().enumerate() {
        put(&store, name, at as u64);
    }
    (root, store)
}

fn put(store: &Store, name: &str, value: u64) -> Id {
    let version = Id::random().unwrap();
    stage(store, name, version, value);
    store.commit(name, version).unwrap();
    version
}

fn empty(key: Option<&StoreKey>) -> Store {
    Store::open(&folder("imported"), holder(0), key.cloned()).unwrap()
}

fn export(store: &Store, names: &[&str], key: Option<&StoreKey>) -> Result<PathBuf> {
    let to = folder("export");
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    store.export(&to, &names, key, &mut |_, _| ()).map(|_| to)
}

/// Takes a copy in that lies under `key`, or else the store's.
fn import(store: &Store, from: &Path, key: Option<&StoreKey>, replace: bool) -> Result<Imported> {
    store.import(from, &[], key, replace, &mut |_, _| ())
}

/// A manifest without the sums, which change with the key.
fn public(mut manifest: Manifest) -> Manifest {
    let none = FileSum { bytes: 0, blake3: String::new() };
    (manifest.plan, manifest.shares, manifest.tokenizer) = (none.clone(), none, None);
    manifest
}

/// All files of a folder but those by which workers exclude each other, by their path.
fn files(root: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for name in files_in(root).unwrap() {
        let path = root.join(&name);
        if path.is_file() {
            found.push((name, fs::read(path).unwrap()));
        } else if name != "locks" {
            let inside = files(&path);
            found.extend(inside.into_iter().map(|(file, bytes)| (format!("{name}/{file}"), bytes)));
        }
    }
    found.sort();
    found
}

#[test]
fn a_copy_comes_back_as_it_was_under_any_key() {
    let [one, two] = ["one", "two"].map(|name| key_file(name).1);
    let keys = [None, Some(&one)];
    for (of, to) in keys.iter().flat_map(|of| [(*of, None), (*of, Some(&two))]) {
        let (_, store) = filled(holder(0), of, &["a", "b"]);
        let before = ["a", "b"].map(|name| load(&store, name).unwrap());
        let copy = export(&store, &[], to).unwrap();
        let names: Vec<_> = files(&copy).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 9, "8 files of versions and the inventory: {names:?}");
        let here = empty(of);
        let imported = import(&here, &copy, to, false).unwrap();
        assert_eq!(imported.taken, ["a", "b"]);
        for (manifest, shares) in before {
            let name = manifest.name.clone();
            let after = load(&here, &name).unwrap();
            assert_eq!((public(after.0), after.1), (public(manifest), shares));
            here.verify(&name).unwrap();
        }
        // Again it changes nothing.
        let before = files(here.root());
        let again = import(&here, &copy, to, false).unwrap();
        assert_eq!((again.taken.len(), again.unchanged.len()), (0, 2));
        assert_eq!(files(here.root()), before);
    }
}

#[test]
fn names_that_are_here_stay_unless_they_are_to_be_replaced() {
    for key in [None, Some(key_file("key").1)] {
        names_that_are_here_stay(key.as_ref());
    }
}

fn names_that_are_here_stay(key: Option<&StoreKey>) {
    let (root, store) = filled(holder(0), key, &["a", "b"]);
    let copy = export(&store, &[], None).unwrap();
    put(&store, "a", 7);
    store.share("b", &Readers::Everyone).unwrap();
    let damaged = root.join(Part::Plan.of("b", store.entry("b").usable("b").unwrap().version));
    fs::write(&damaged, b"[]").unwrap();
    let before = files(&root);
    let text = import(&store, &copy, None, false).unwrap_err().to_string();
    assert!(text.contains("`a`, `b`: are here already") && text.contains("--replace"), "{text}");
    assert_eq!(files(&root), before);
    assert_eq!(import(&store, &copy, None, true).unwrap().taken, ["a", "b"]);
    assert_eq!(load(&store, "a").unwrap().1, shares(0));
    let (b, held) = load(&store, "b").unwrap();
    assert_eq!((held, b.readers), (shares(1), Readers::Everyone), "its files alone were damaged");
    // Some names only.
    store.remove("a").unwrap();
    store.remove("b").unwrap();
    let names = ["b".to_owned()];
    store.import(&copy, &names, None, false, &mut |_, _| ()).unwrap();
    assert!(store.entry("a").is_absent() && !store.entry("b").is_absent());
    let names = ["c".to_owned()];
    let text = store.import(&copy, &names, None, false, &mut |_, _| ()).unwrap_err().to_string();
    assert!(text.contains("has no model, data set or run `c`"), "{text}");
}

#[test]
fn counts_never_get_lower_by_a_copy_that_comes_back() {
    let run = Digest::of(&[b"run"]);
    let tape = "0123456789ab";
    let client = Digest::of(&[b"client"]).letters();
    let count = |store: &Store, to: u64| {
        let raise = |kind: &str, key: &str| {
            let set = |count: &mut u64| {
                *count = to;
                Ok(())
            };
            store.ledger().update(kind, key, set).unwrap();
        };
        store.ledger().open(run, to as u32, to as u32).unwrap();
        store.ledger().revoke(to).unwrap();
        raise(TAPES, tape);
        raise("days/20000", &client);
    };
    let counted = |store: &Store| {
        let ledger = store.ledger();
        let opened = ledger.opened(run).unwrap();
        let read = |kind: &str, key: &str| ledger.read::<u64>(kind, key).unwrap();
        let others = [ledger.revoked().unwrap(), read(TAPES, tape), read("days/20000", &client)];
        (opened, others)
    };
    let (_, store) = filled(holder(0), None, &["a"]);
    count(&store, 5);
    let early = export(&store, &[], None).unwrap();
    count(&store, 9);
    let late = export(&store, &["a"], None).unwrap();
    let nine = counted(&store);
    assert_eq!((nine.0.weights, nine.1), (9, [9; 3]));
    import(&store, &early, None, true).unwrap();
    assert_eq!(counted(&store), nine);
    let here = empty(None);
    import(&here, &early, None, false).unwrap();
    assert_eq!(counted(&here).1, [5; 3]);
    import(&here, &late, None, false).unwrap();
    assert_eq!(counted(&here), nine);
}

#[test]
fn what_is_not_a_whole_copy_of_this_server_is_refused_by_name_and_changes_nothing() {
    let [one, two] = ["one", "two"].map(|name| key_file(name).1);
    let (root, store) = filled(holder(0), Some(&one), &["a", "b"]);
    let here = empty(Some(&one));
    let before = files(here.root());
    let refused = |from: &Path, key: Option<&StoreKey>, reason: &str| {
        let error = import(&here, from, key, false).unwrap_err();
        assert!(error.to_string().contains(reason), "{reason}: {error}");
        assert_eq!(files(here.root()), before, "{reason}");
        error.exit_code()
    };
    let cluster = ClusterId::of_key(b"another");
    for of in [holder(1), Holder { cluster, ..holder(0) }] {
        let copy = export(&filled(of, Some(&one), &["a"]).1, &[], None).unwrap();
        assert_eq!(refused(&copy, None, &format!("export of {of}")), 3);
    }
    assert_eq!(refused(&root, None, "no `inventory`"), 3);
    let plain = export(&filled(holder(0), None, &["a"]).1, &[], None).unwrap();
    assert_eq!(refused(&plain, None, "not encrypted"), 3);
    let other = export(&store, &[], Some(&two)).unwrap();
    assert_eq!(refused(&other, None, "name the key of the export with --key"), 3);
    let text = import(&empty(None), &other, None, false).unwrap_err().to_string();
    assert!(text.contains("name its key with --key"), "{text}");

    let copy = export(&store, &[], None).unwrap();
    for (file, bytes) in files(&copy) {
        let mut changed = bytes.clone();
        *changed.last_mut().unwrap() ^= 1;
        fs::write(copy.join(&file), &changed).unwrap();
        assert_eq!(refused(&copy, None, "changed"), 8, "{file}");
        fs::remove_file(copy.join(&file)).unwrap();
        let absent =
            if file == INVENTORY { "no `inventory`" } else { &format!("{file}: it is missing") };
        refused(&copy, None, absent);
        fs::write(copy.join(&file), bytes).unwrap();
    }
    // A name of an older copy, all of it, within this one.
    put(&store, "a", 9);
    let newer = export(&store, &[], None).unwrap();
    fs::remove_dir_all(newer.join("models/a")).unwrap();
    fs::rename(copy.join("models/a"), newer.join("models/a")).unwrap();
    assert_eq!(refused(&newer, None, "models/a/manifest"), 8);

    let text = Store::open(&copy, holder(0), Some(one)).unwrap_err().to_string();
    assert!(text.contains("it is an export"), "{text}");
}

#[test]
fn damaged_names_are_not_copied_and_all_are_told() {
    let (root, store) = filled(holder(0), None, &["a", "b", "c"]);
    for name in ["a", "b"] {
        let version = store.entry(name).usable(name).unwrap().version;
        fs::write(root.join(Part::Plan.of(name, version)), b"[]").unwrap();
    }
    let error = export(&store, &[], None).unwrap_err();
    assert_eq!(error.exit_code(), 8);
    let text = error.to_string();
    assert!(text.contains("`a`") && text.contains("`b`") && text.contains("name them"), "{text}");
    let copy = export(&store, &["c"], None).unwrap();
    let here = empty(None);
    assert_eq!(import(&here, &copy, None, false).unwrap().taken, ["c"]);
    let text = export(&store, &["c", "d"], None).unwrap_err().to_string();
    assert!(text.contains("has no model, data set or run `d`"), "{text}");
    let text = store.export(&copy, &["c".to_owned()], None, &mut |_, _| ()).unwrap_err();
    assert!(text.to_string().contains("is there already"), "{text}");
    // A damaged count is one as well.
    store.ledger().open(Digest::of(&[b"run"]), 1, 1).unwrap();
    assert!(store.ledger().damage().unwrap().is_empty());
    let opened = root.join("counts/opened").join(Digest::of(&[b"run"]).letters());
    fs::write(&opened, b"{}").unwrap();
    assert_eq!(store.ledger().damage().unwrap()[0].0, opened.display().to_string());
    let text = export(&store, &["c"], None).unwrap_err().to_string();
    assert!(text.contains("what this server has counted"), "{text}");
}

/// Files of which nothing is written any more after some steps, as if the process had been killed.
#[derive(Debug)]
struct Mortal {
    files: Files,
    left: AtomicUsize,
}

impl Mortal {
    fn step(&self) -> Result<()> {
        let one_less = |left: usize| left.checked_sub(1);
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        left.map(drop).map_err(|_| Error::Internal("killed".to_owned()))
    }
}

impl Backing for Mortal {
    fn place(&self, name: &str) -> String {
        self.files.place(name)
    }

    fn look(&self, name: &str) -> Result<Option<Seen>> {
        self.files.look(name)
    }

    fn open(&self, name: &str) -> Result<Option<Box<dyn Read>>> {
        self.files.open(name)
    }

    fn read(&self, name: &str) -> Result<Option<Object>> {
        self.files.read(name)
    }

    fn write(&self, name: &str, body: &mut Body<'_>) -> Result<()> {
        self.step()?;
        self.files.write(name, body)
    }

    fn swap(&self, name: &str, bytes: &[u8], was: Option<&Tag>) -> Result<bool> {
        self.step()?;
        self.files.swap(name, bytes, was)
    }

    fn remove(&self, name: &str, was: Option<&Tag>) -> Result<bool> {
        self.step()?;
        self.files.remove(name, was)
    }

    fn list(&self, under: &str) -> Result<Vec<String>> {
        self.files.list(under)
    }

    fn prune(&self, under: &str) {
        self.files.prune(under);
    }
}

#[test]
fn an_import_that_is_killed_at_any_step_leaves_each_name_as_it_was_or_whole() {
    let (_, key) = key_file("key");
    let (_, store) = filled(holder(0), Some(&key), &["a", "b"]);
    let copy = export(&store, &[], None).unwrap();
    for steps in 0.. {
        assert!(steps < 100, "it does not end");
        let root = folder("killed");
        let older = {
            let store = Store::open(&root, holder(0), Some(key.clone())).unwrap();
            put(&store, "a", 5)
        };
        let outcome = {
            let files = Files::open(&root, Worker::Alone).unwrap();
            let backing = Arc::new(Mortal { files, left: steps.into() });
            import(&Store::over(&root, backing, holder(0), Some(key.clone())), &copy, None, true)
        };
        let store = Store::open(&root, holder(0), Some(key.clone())).unwrap();
        let (a, held) = load(&store, "a").unwrap();
        let expected = if a.version == older { shares(5) } else { shares(0) };
        assert_eq!(held, expected, "step {steps}");
        if !store.entry("b").is_absent() {
            assert_eq!(load(&store, "b").unwrap().1, shares(1), "step {steps}");
        }
        for held in store.inventory().unwrap().iter().filter(|held| held.is_kept()) {
            store.verify(&held.name).unwrap();
        }
        if outcome.is_ok() {
            break;
        }
        // The same command again goes on.
        import(&store, &copy, None, true).unwrap();
        assert_eq!(load(&store, "a").unwrap().1, shares(0));
        assert_eq!(load(&store, "b").unwrap().1, shares(1));
    }
    // The copy itself is as it was.
    assert_eq!(import(&empty(Some(&key)), &copy, None, false).unwrap().taken, ["a", "b"]);
}
