//! Tests of the store.

mod exported;
mod swapped;

use std::{fs, path::PathBuf, sync::Barrier, thread};

use cluster_protocols::ProtocolChoice;
use mpc_core::Parcel;
use ring_arith::{Shape, Tensor};

use super::*;
use crate::{
    base::{ClusterId, Shares, files::files_in},
    model::{About, Range},
    testing::{folder, holder, new_item},
};

fn shares(value: u64) -> Shares {
    let tensor = |words: Vec<u64>| Tensor::new(Shape::new([words.len()]).unwrap(), words).unwrap();
    vec![
        vec![tensor(vec![value, 2, 3]), tensor(vec![4, 5, value])],
        vec![tensor(vec![]), tensor(vec![])],
    ]
}

fn stage(store: &Store, name: &str, version: Id, value: u64) {
    let ranges = vec![Some(Range { low: -1.0, high: 0.1 }), None];
    let content = Content::Model { about: Box::default(), ranges };
    let shares = shares(value);
    let readers = &Readers::Named(vec!["bob".to_owned()]);
    let stored = StoredShares::of(&shares);
    let item = new_item((name, version), &content, b"{}", &stored);
    store.stage(&NewItem { readers, tokenizer: b"{}", ..item }).unwrap();
}

/// The current version, as a server reads it.
fn load(store: &Store, name: &str) -> Result<(Manifest, Shares)> {
    let manifest = store.entry(name).usable(name)?;
    store.plan(name, &manifest)?;
    store.tokenizer(name, &manifest)?;
    let shares = store.shares(name, &manifest)?;
    Ok((manifest, shares))
}

#[test]
fn a_version_is_visible_once_committed_and_survives_reopening() {
    let root = folder("store");
    let store = Store::open(&root, holder(0), None).unwrap();
    let (one, two) = (Id::random().unwrap(), Id::random().unwrap());
    stage(&store, "digits", one, 7);
    assert!(load(&store, "digits").unwrap_err().to_string().contains("no such model"));
    store.commit("digits", one).unwrap();
    stage(&store, "digits", two, 8);
    drop(store);
    let store = Store::open(&root, holder(0), None).unwrap();
    let (manifest, loaded) = load(&store, "digits").unwrap();
    assert_eq!((manifest.version, loaded), (one, shares(7)));
    store.commit("digits", two).unwrap();
    assert_eq!(load(&store, "digits").unwrap().1, shares(8));
    // A reader with the manifest of the version before gets no error about damage.
    let late = store.shares("digits", &manifest).unwrap_err().to_string();
    assert!(late.contains("replaced or removed meanwhile"), "{late}");
    assert_eq!(files_in(&root.join("models/digits")).unwrap().len(), 4);
    assert!(store.remove("digits").unwrap());
    assert!(!store.remove("digits").unwrap());
    assert!(!root.join("models/digits").exists());
}

#[test]
fn a_crash_at_any_file_leaves_the_version_in_force() {
    let root = folder("store");
    let (one, two) = (Id::random().unwrap(), Id::random().unwrap());
    let store = Store::open(&root, holder(0), None).unwrap();
    stage(&store, "m", one, 1);
    store.commit("m", one).unwrap();
    let folder = root.join("models/m");
    let leftovers = [
        format!("{two}.plan.json.tmp"),
        format!("{two}.plan.json"),
        format!("{two}.safetensors.tmp"),
        format!("{two}.safetensors"),
        format!("{two}.tokenizer.json"),
        format!("{two}.staged.tmp"),
        ".tmpAbC".to_owned(),
    ];
    for name in &leftovers {
        fs::write(folder.join(name), b"half").unwrap();
    }
    drop(store);
    let store = Store::open(&root, holder(0), None).unwrap();
    assert_eq!(load(&store, "m").unwrap().1, shares(1));
    for name in &leftovers {
        assert!(!folder.join(name).exists(), "{name}");
    }
}

#[test]
fn truncated_and_changed_files_are_reported_as_damage() {
    let root = folder("store");
    let store = Store::open(&root, holder(0), None).unwrap();
    let id = Id::random().unwrap();
    stage(&store, "m", id, 1);
    store.commit("m", id).unwrap();
    let path = root.join(Part::Shares.of("m", id));
    let good = fs::read(&path).unwrap();
    fs::write(&path, &good[..good.len() - 1]).unwrap();
    assert!(store.inventory().unwrap()[0].damage.as_ref().unwrap().contains("damaged"));
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    fs::write(&path, &bad).unwrap();
    let text = load(&store, "m").unwrap_err().to_string();
    assert!(text.contains("changed") && text.contains("put the model again"), "{text}");
    fs::write(&path, &good).unwrap();
    fs::write(root.join("models/m/manifest"), b"{").unwrap();
    assert!(load(&store, "m").unwrap_err().to_string().contains("manifest"));
    store.sweep("m", false).unwrap();
    assert!(path.exists(), "shares behind a damaged manifest are kept");
    assert!(store.inventory().unwrap()[0].damage.is_some());
}

#[test]
fn a_manifest_keeps_all_that_its_owner_said_and_any_changed_byte_is_seen() {
    let root = folder("store");
    let store = Store::open(&root, holder(0), None).unwrap();
    let id = Id::random().unwrap();
    stage(&store, "m", id, 1);
    store.commit("m", id).unwrap();
    let manifest = store.entry("m").usable("m").unwrap();
    assert_eq!((manifest.holder, manifest.owner.as_str()), (holder(0), "alice"));
    assert_eq!(manifest.readers, Readers::Named(vec!["bob".to_owned()]));
    assert_eq!(manifest.model().unwrap().1, [Some(Range { low: -1.0, high: 0.1 }), None]);
    let path = root.join("models/m/manifest");
    let good = fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert!(parse_manifest(&bad).is_err(), "byte {at}");
        assert!(parse_manifest(&good[..at]).is_err(), "cut at {at}");
    }
    assert_eq!(parse_manifest(&good).unwrap(), store.labelled(manifest).unwrap());
    fs::write(&path, br#"{"format":1,"party":0}"#).unwrap();
    let old = load(&store, "m").unwrap_err().to_string();
    assert!(old.contains("layout 1") && old.contains("put the model again"), "{old}");
}

#[test]
fn folders_of_two_parties_exchanged_and_stores_of_another_cluster_are_refused() {
    let roots = [0, 1].map(|party| {
        let root = folder("store");
        let store = Store::open(&root, holder(party), None).unwrap();
        let id = Id::from([7; 16]);
        stage(&store, "m", id, party as u64);
        store.commit("m", id).unwrap();
        root
    });
    let text = Store::open(&roots[1], holder(0), None).unwrap_err().to_string();
    assert!(text.contains("belongs to party 1") && text.contains("exchanged"), "{text}");
    let other = Holder { cluster: ClusterId::of_key(b"another key"), party: 0 };
    let text = Store::open(&roots[0], other, None).unwrap_err().to_string();
    assert!(text.contains(&other.cluster.to_string()) && text.contains("made anew"), "{text}");
    // Only the models' folders exchanged: the manifest itself names its owner.
    let [mine, theirs] = roots.each_ref().map(|root| root.join("models/m"));
    fs::rename(&mine, roots[0].join("m")).unwrap();
    fs::rename(&theirs, &mine).unwrap();
    let store = Store::open(&roots[0], holder(0), None).unwrap();
    let entry = store.entry("m");
    assert!(entry.manifest().is_none());
    let text = entry.usable("m").unwrap_err().to_string();
    assert!(text.contains("files of party 1") && text.contains("models/m/manifest"), "{text}");
    let held = &store.inventory().unwrap()[0];
    assert!(held.visible.is_none() && held.damage.is_some(), "{held:?}");
    assert_eq!(files_in(&mine).unwrap().len(), 4, "another server's files are left alone");
}

#[test]
fn a_model_under_another_name_is_refused() {
    let root = folder("store");
    let store = Store::open(&root, holder(0), None).unwrap();
    let id = Id::random().unwrap();
    stage(&store, "m", id, 1);
    store.commit("m", id).unwrap();
    fs::rename(root.join("models/m"), root.join("models/n")).unwrap();
    let text = load(&store, "n").unwrap_err().to_string();
    assert!(text.contains("files of the model `m`"), "{text}");
    stage(&store, "o", id, 1);
    fs::rename(root.join("models/o"), root.join("models/p")).unwrap();
    assert!(store.commit("p", id).is_err(), "nor does such a version come into force");
}

#[test]
fn a_version_that_was_found_damaged_is_refused_until_it_is_put_again() {
    let root = folder("store");
    let store = Store::open(&root, holder(0), None).unwrap();
    let [one, two] = [1, 2].map(|n| Id::from([n; 16]));
    stage(&store, "m", one, 1);
    store.commit("m", one).unwrap();
    assert!(store.verify("m").unwrap() > 0);
    let path = root.join(Part::Shares.of("m", one));
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    // The length is right, so the damage shows only when the file is read as a whole.
    store.entry("m").usable("m").unwrap();
    assert!(store.verify("m").unwrap_err().to_string().contains("changed"));
    assert!(store.entry("m").usable("m").unwrap_err().to_string().contains("changed"));
    assert!(store.inventory().unwrap()[0].damage.is_some());
    stage(&store, "m", two, 2);
    store.commit("m", two).unwrap();
    assert!(store.verify("m").unwrap() > 0);
    assert_eq!(load(&store, "m").unwrap().1, shares(2));
}

#[test]
fn a_damaged_version_that_comes_back_with_other_sums_is_usable() {
    let root = folder("store");
    let store = Store::open(&root, holder(0), Some(key_file("key").1)).unwrap();
    let id = Id::random().unwrap();
    stage(&store, "m", id, 1);
    store.commit("m", id).unwrap();
    fs::write(root.join(Part::Shares.of("m", id)), b"damaged").unwrap();
    store.verify("m").unwrap_err();
    // As a rebuilt server takes it: encrypted with a fresh salt.
    stage(&store, "m", id, 1);
    store.commit("m", id).unwrap();
    assert_eq!(load(&store, "m").unwrap().1, shares(1));
}

#[test]
fn of_components_that_are_streams_the_keys_are_kept() {
    let sharing = ProtocolChoice::Rss.sharing();
    let shapes = [vec![300], vec![2, 50]].map(|dims| Shape::new(dims).unwrap());
    let words = |shape: &Shape| Tensor::new(shape.clone(), vec![7; shape.len()]).unwrap();
    let parcels = sharing.deal(shapes.iter().map(words).collect()).unwrap();
    let mut hashes = Vec::new();
    for (party, parcel) in parcels.into_iter().enumerate() {
        let copy = Parcel { keys: parcel.keys.clone(), words: parcel.words.clone() };
        let shares = &sharing.accept(party, copy, &shapes).unwrap();
        let received = &StoredShares::received(sharing, party, parcel, &shapes).unwrap();
        assert_eq!(received.expanded_words(), 2 * 400);
        hashes.push(received.hashes());
        let store = Store::open(&folder("store"), holder(party), None).unwrap();
        let content = &Content::Model { about: Box::default(), ranges: Vec::new() };
        let version = Id::random().unwrap();
        store.stage(&new_item(("m", version), content, b"{}", received)).unwrap();
        let manifest = store.commit("m", version).unwrap();
        assert_eq!(&store.shares("m", &manifest).unwrap(), shares, "party {party}");
        let most = if party == 0 { 500 } else { 8 * 400 + 500 };
        assert!(manifest.shares.bytes < most, "party {party}: {} bytes", manifest.shares.bytes);
    }
    for [(one, at), (other, same)] in sharing.twins() {
        assert_eq!(hashes[*one][*at], hashes[*other][*same]);
    }
    assert_ne!(hashes[0][0], hashes[0][1]);
}

#[test]
fn a_manifest_that_changes_in_its_place_is_read_again_and_has_its_labels_when_asked() {
    let root = folder("store");
    let store = Store::open(&root, holder(0), None).unwrap();
    let id = Id::random().unwrap();
    let about = About { labels: vec!["cat".to_owned(), "dog".to_owned()], ..About::default() };
    let content = Content::Model { about: Box::new(about), ranges: Vec::new() };
    store.stage(&new_item(("m", id), &content, b"{}", &StoredShares::of(&shares(1)))).unwrap();
    store.commit("m", id).unwrap();
    let read = || store.entry("m").usable("m");
    assert!(read().unwrap().model().unwrap().0.labels.is_empty());
    assert_eq!(store.labelled(read().unwrap()).unwrap().model().unwrap().0.labels, ["cat", "dog"]);
    // Of one length, one after the other, so that the file's time may be the same.
    for reader in ["bob", "eve", "dan"] {
        let readers = Readers::Named(vec![reader.to_owned()]);
        store.share("m", &readers).unwrap();
        assert_eq!(read().unwrap().readers, readers);
    }
    assert_eq!(store.labelled(read().unwrap()).unwrap().model().unwrap().0.labels, ["cat", "dog"]);
    let before = read().unwrap();
    fs::write(root.join("models/m/manifest"), b"damaged").unwrap();
    assert!(read().unwrap_err().to_string().contains("damaged"));
    assert!(store.labelled(before.clone()).unwrap_err().to_string().contains("damaged"));
    store.remove("m").unwrap();
    assert!(read().unwrap_err().to_string().contains("no such model"));
    assert!(store.labelled(before).unwrap_err().to_string().contains("replaced or removed"));
}

#[test]
fn a_second_server_on_the_same_folder_is_refused() {
    let root = folder("store");
    let first = Store::open(&root, holder(0), None).unwrap();
    assert!(
        Store::open(&root, holder(0), None).unwrap_err().to_string().contains("another server")
    );
    drop(first);
    Store::open(&root, holder(0), None).unwrap();
}

#[cfg(unix)]
#[test]
fn shares_are_readable_by_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let root = folder("store");
    let store = Store::open(&root, holder(0), None).unwrap();
    let id = Id::random().unwrap();
    stage(&store, "m", id, 1);
    let parts = [Part::Plan, Part::Shares, Part::Tokenizer].map(|part| part.of("m", id));
    for path in parts.iter().chain([&staged_at("m", id)]).map(|place| root.join(place)) {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
    }
    assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn staged_versions_are_committed_only_if_some_server_has_them_in_force() {
    let [old, new, lost] = [1, 2, 3].map(|n| Id::from([n; 16]));
    let holding = |visible, staged: &[Id]| Holding {
        name: "m".to_owned(),
        visible,
        staged: staged.to_vec(),
        damage: None,
    };
    // Party 0 had committed `new` when the others crashed; `lost` was staged by one alone.
    let all = [
        vec![holding(Some(new), &[])],
        vec![holding(Some(old), &[new])],
        vec![holding(Some(old), &[new, lost])],
    ];
    assert_eq!(repairs(0, &all), []);
    assert_eq!(repairs(1, &all), [Repair::Commit("m".into(), new)]);
    let expected = [Repair::Commit("m".into(), new), Repair::Discard("m".into(), lost)];
    assert_eq!(repairs(2, &all), expected);
}

/// A key of a store, from a file as its operator has it.
fn key_file(name: &str) -> (PathBuf, StoreKey) {
    let file = folder(name).join("store.key");
    fs::write(&file, StoreKey::generate().unwrap().as_bytes()).unwrap();
    #[cfg(unix)]
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let key = StoreKey::read(&file).unwrap();
    (file, key)
}

#[test]
fn a_store_with_a_key_shows_nothing_of_its_shares_on_the_disk() {
    let root = folder("sealed");
    let (_, key) = key_file("sealed-key");
    let version = Id::random().unwrap();
    let secret = 0x5eed_f00d_dead_beef_u64;
    {
        let store = Store::open(&root, holder(0), Some(key.clone())).unwrap();
        stage(&store, "m", version, secret);
        let manifest = store.commit("m", version).unwrap();
        assert_eq!(store.shares("m", &manifest).unwrap(), shares(secret));
        assert_eq!(store.plan("m", &manifest).unwrap(), b"{}");
        assert!(store.verify("m").unwrap() > 0);
    }
    for file in fs::read_dir(root.join("models/m")).unwrap() {
        let bytes = fs::read(file.unwrap().path()).unwrap();
        let word = secret.to_le_bytes();
        assert!(!bytes.windows(8).any(|it| it == word), "a share lies in the clear");
    }
    for (key, reason) in
        [(None, "this server has no key"), (Some(key_file("other").1), "another key wrote it")]
    {
        let store = Store::open(&root, holder(0), key).unwrap();
        let text = load(&store, "m").unwrap_err().to_string();
        assert!(text.contains(reason), "{reason}: {text}");
    }
}

#[test]
fn a_store_is_encrypted_anew_whatever_lay_there_and_whenever_it_is_interrupted() {
    let root = folder("rekeyed");
    let keys = [None, Some(key_file("one").1), Some(key_file("two").1), None];
    let version = Id::random().unwrap();
    {
        let store = Store::open(&root, holder(0), None).unwrap();
        stage(&store, "m", version, 6);
        store.commit("m", version).unwrap();
    }
    for two in keys.windows(2) {
        let store = Store::open(&root, holder(0), two[1].clone()).unwrap();
        load(&store, "m").unwrap_err();
        if two[0].is_some() {
            let text = store.rekey(None).unwrap_err().to_string();
            assert!(text.contains("--from"), "{text}");
        }
        assert_eq!(store.rekey(two[0].as_ref()).unwrap(), 1);
        // Again it changes nothing.
        store.rekey(two[0].as_ref()).unwrap();
        let manifest = store.entry("m").usable("m").unwrap();
        assert_eq!(store.shares("m", &manifest).unwrap(), shares(6));
        assert_eq!(store.tokenizer("m", &manifest).unwrap(), b"{}");
    }
    // Leftovers of a crash are dropped if the new manifest was not there yet, and else become current.
    let models = root.join("models/m");
    fs::write(models.join(format!("{version}.safetensors.rekeyed")), "half").unwrap();
    let store = Store::open(&root, holder(0), None).unwrap();
    let manifest = store.entry("m").usable("m").unwrap();
    assert_eq!(store.shares("m", &manifest).unwrap(), shares(6));
    assert_eq!(fs::read_dir(&models).unwrap().count(), 4);
    let parts =
        ["safetensors", "plan.json", "tokenizer.json"].map(|end| format!("{version}.{end}"));
    for name in parts.iter().map(String::as_str).chain(["manifest"]) {
        fs::rename(models.join(name), models.join(format!("{name}.rekeyed"))).unwrap();
    }
    drop(store);
    let store = Store::open(&root, holder(0), None).unwrap();
    assert_eq!(store.shares("m", &store.entry("m").usable("m").unwrap()).unwrap(), shares(6));
}

/// The store of a cell whose claims hold for `seconds`.
fn cell(root: &Path, cell: u16, hold: u64) -> Store {
    Store::open_as(root, holder(0), None, Worker::Cell(cell), Duration::from_secs(hold)).unwrap()
}

#[test]
fn of_two_changes_at_once_through_two_cells_none_is_lost() {
    let root = folder("cells");
    let cells = [0, 1].map(|number| cell(&root, number, 60));
    let version = Id::random().unwrap();
    stage(&cells[0], "m", version, 1);
    cells[0].commit("m", version).unwrap();
    let add = |store: &Store, name: String| {
        store.rewrite("m", |manifest| {
            let Readers::Named(names) = &mut manifest.readers else { unreachable!() };
            names.push(name.clone());
            Ok(())
        })
    };
    let start = Barrier::new(2);
    thread::scope(|scope| {
        for (number, store) in cells.iter().enumerate() {
            let start = &start;
            scope.spawn(move || {
                for turn in 0..200 {
                    start.wait();
                    add(store, format!("{number}-{turn}")).unwrap();
                }
            });
        }
    });
    for store in &cells {
        let Readers::Named(names) = store.entry("m").usable("m").unwrap().readers else {
            unreachable!()
        };
        // One was there from the start.
        assert_eq!(names.len(), 401);
    }
}

#[test]
fn what_a_cell_writes_or_has_staged_is_left_to_it_until_its_time_is_over() {
    let root = folder("cells");
    let [zero, one] = [0, 1].map(|number| cell(&root, number, 3600));
    let [written, staged, current] = [1, 2, 3].map(|n| Id::from([n; 16]));
    zero.claim_version("m", written).unwrap();
    zero.write_part("m", written, Part::Plan, &mut |file| file.write_all(b"{}")).unwrap();
    stage(&zero, "m", staged, 2);
    stage(&one, "m", current, 3);
    // Making another version current, starting and comparing removes nothing of the other cell's.
    one.commit("m", current).unwrap();
    assert!(one.inventory().unwrap().iter().all(|held| held.staged.is_empty()));
    drop(one);
    let one = cell(&root, 1, 3600);
    let files = |version: Id| {
        let files = one.files_under("m").unwrap();
        files.iter().filter(|file| file.starts_with(&version.to_string())).count()
    };
    assert_eq!((files(written), files(staged), files(current)), (2, 5, 3));
    assert_eq!(zero.inventory().unwrap()[0].staged, [staged]);
    // The cell's successor drops what was not finished, and is asked about what was.
    drop(zero);
    let zero = cell(&root, 0, 0);
    assert_eq!((files(written), files(staged)), (0, 5));
    zero.discard("m", staged).unwrap();
    assert_eq!(files(staged), 0);
    // A claim that is over is anyone's.
    stage(&zero, "m", staged, 2);
    zero.claim_version("m", written).unwrap();
    assert_eq!(one.inventory().unwrap()[0].staged, [staged]);
    one.sweep("m", false).unwrap();
    assert_eq!(files(written), 0);
    one.commit("m", staged).unwrap();
    assert_eq!(load(&zero, "m").unwrap().1, shares(2));
}

#[test]
fn one_cell_at_a_time_changes_a_name_and_its_successor_gives_it_back() {
    let root = folder("cells");
    let [zero, one] = [0, 1].map(|number| cell(&root, number, 3600));
    let change = zero.begin_change("m").unwrap();
    let other = one.begin_change("n").unwrap();
    zero.end_change(change).unwrap();
    one.end_change(other).unwrap();
    let change = one.begin_change("m").unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| zero.begin_change("m"));
        one.end_change(change).unwrap();
        zero.end_change(waiting.join().unwrap().unwrap()).unwrap();
    });
    // A cell that died in the middle of a change.
    let _ = one.begin_change("m").unwrap();
    let text = zero.begin_change("m").unwrap_err().to_string();
    assert!(text.contains("`m`: cell 1 is changing it; try again"), "{text}");
    drop(one);
    let one = cell(&root, 1, 0);
    one.end_old_changes().unwrap();
    let change = zero.begin_change("m").unwrap();
    zero.end_change(change).unwrap();
    // One whose time is over.
    let _ = one.begin_change("m").unwrap();
    let _ = zero.begin_change("m").unwrap();
}

#[test]
fn two_servers_that_would_be_the_same_worker_are_refused_by_name() {
    let root = folder("cells");
    let open = |worker| {
        let opened = Store::open_as(&root, holder(0), None, worker, HOLD);
        opened.map_err(|error| error.to_string())
    };
    let zero = open(Worker::Cell(0)).unwrap();
    let _one = open(Worker::Cell(1)).unwrap();
    assert!(
        open(Worker::Cell(0)).unwrap_err().contains("another server uses this folder as cell 0")
    );
    assert!(open(Worker::Alone).unwrap_err().contains("another server uses this folder"));
    drop(zero);
    open(Worker::Cell(0)).unwrap();
    let root = folder("alone");
    let _alone = Store::open(&root, holder(0), None).unwrap();
    let text = Store::open_as(&root, holder(0), None, Worker::Cell(0), HOLD).unwrap_err();
    assert!(text.to_string().contains("a server without [cells]"), "{text}");
}

#[test]
fn a_backing_does_each_conditional_step_once() {
    let root = folder("backing");
    let [zero, one] = [0, 1].map(|cell| Files::open(&root, Worker::Cell(cell)).unwrap());
    assert!(zero.read("a/b").unwrap().is_none() && zero.look("a/b").unwrap().is_none());
    assert!(zero.swap("a/b", b"1", None).unwrap());
    assert!(!one.swap("a/b", b"2", None).unwrap());
    let first = one.read("a/b").unwrap().unwrap();
    assert_eq!(first.bytes, b"1");
    assert!(one.swap("a/b", b"2", Some(&first.tag)).unwrap());
    assert!(!zero.swap("a/b", b"3", Some(&first.tag)).unwrap());
    assert!(!zero.remove("a/b", Some(&first.tag)).unwrap());
    assert_eq!(zero.list("a").unwrap(), ["b"]);
    assert_eq!(zero.look("a/b").unwrap().unwrap().bytes, 1);
    let second = zero.read("a/b").unwrap().unwrap();
    assert!(one.remove("a/b", Some(&second.tag)).unwrap());
    assert!(!one.remove("a/b", None).unwrap());
    one.prune("a");
    assert!(!root.join("a").exists() && one.list("a").unwrap().is_empty());
    let failed = zero.write("a/b", &mut |_| Err(io::Error::other("no more")));
    assert!(failed.unwrap_err().to_string().contains("no more"));
    assert!(zero.read("a/b").unwrap().is_none());
    assert!(zero.list("unfinished").unwrap().is_empty());
}
