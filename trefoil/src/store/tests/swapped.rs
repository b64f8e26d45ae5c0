//! Tests of a store with a key whose files somebody has exchanged who writes to the disk: files and manifests of other
//! names, versions and servers are refused by name, also if all sums were made to fit.

use super::super::shares::sum_of;
use super::*;
use crate::base::encryption::is_sealed;

/// A store with a key, with one version of each name. Their plans and shares have the same lengths.
fn sealed(of: Holder, key: &StoreKey, names: &[&str]) -> (PathBuf, Vec<Manifest>) {
    let root = folder("swapped");
    let store = Store::open(&root, of, Some(key.clone())).unwrap();
    let put = |(at, name): (usize, &&str)| {
        let version = Id::random().unwrap();
        stage(&store, name, version, at as u64);
        store.commit(name, version).unwrap()
    };
    let manifests = names.iter().enumerate().map(put).collect();
    (root, manifests)
}

fn read(root: &Path, place: &str) -> Vec<u8> {
    fs::read(root.join(place)).unwrap()
}

fn write(root: &Path, place: &str, bytes: &[u8]) {
    fs::write(root.join(place), bytes).unwrap();
}

/// Changes a manifest and its hash, and keeps its code if there is one: all that somebody without the key can do.
fn forge(root: &Path, place: &str, change: impl Fn(String) -> String) {
    let text = String::from_utf8(read(root, place)).unwrap();
    let (head, body) = text.split_once('\n').unwrap();
    let body = change(body.to_owned());
    let code = head.split(' ').nth(3).map(|code| format!(" {code}")).unwrap_or_default();
    let head = format!("trefoil-manifest 3 {}{code}\n", blake3::hash(body.as_bytes()).to_hex());
    write(root, place, &[head.as_bytes(), body.as_bytes()].concat());
}

fn refused(root: &Path, key: &StoreKey, name: &str) -> String {
    let store = Store::open(root, holder(0), Some(key.clone())).unwrap();
    let text = load(&store, name).unwrap_err().to_string();
    assert!(text.contains(&format!("model `{name}`: damaged")), "{text}");
    text
}

#[test]
fn files_of_another_name_version_or_part_are_refused_by_name() {
    let (_, key) = key_file("swapped-key");
    let (root, manifests) = sealed(holder(0), &key, &["a", "b"]);
    let [a, b] = [&manifests[0], &manifests[1]];
    let swaps = [
        (Part::Shares.of("a", a.version), Part::Shares.of("b", b.version)),
        (Part::Plan.of("a", a.version), Part::Plan.of("b", b.version)),
        (Part::Plan.of("a", a.version), Part::Tokenizer.of("a", a.version)),
    ];
    for (here, there) in swaps {
        let (before, other) = (read(&root, &here), read(&root, &there));
        assert_eq!(before.len(), other.len());
        write(&root, &here, &other);
        assert!(refused(&root, &key, "a").contains("changed"));
        // The manifest's sum made to fit as well.
        let manifest = read(&root, "models/a/manifest");
        let sum = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
        forge(&root, "models/a/manifest", |text| text.replace(&sum(&before), &sum(&other)));
        assert!(refused(&root, &key, "a").contains("models/a/manifest: another key wrote it"));
        write(&root, "models/a/manifest", &manifest);
        write(&root, &here, &before);
    }
    let store = Store::open(&root, holder(0), Some(key)).unwrap();
    assert_eq!(load(&store, "a").unwrap().1, shares(0));
}

#[test]
fn files_of_another_server_or_cluster_under_the_same_key_are_refused_by_name() {
    let (_, key) = key_file("swapped-key");
    let cluster = ClusterId::of_key(b"another");
    for of in [holder(1), Holder { cluster, ..holder(0) }] {
        let (root, _) = sealed(holder(0), &key, &["a"]);
        let (other, _) = sealed(of, &key, &["a"]);
        fs::remove_dir_all(root.join("models/a")).unwrap();
        fs::rename(other.join("models/a"), root.join("models/a")).unwrap();
        assert!(refused(&root, &key, "a").contains(&format!("these are files of {of}")));
        let owner = |of: Holder| serde_json::to_string_pretty(&of).unwrap();
        let fields = |of: Holder| {
            let text = owner(of);
            let lines: Vec<_> = text.lines().map(|line| format!("  {}", line.trim_end())).collect();
            lines[1..lines.len() - 1].join("\n")
        };
        forge(&root, "models/a/manifest", |text| {
            assert!(text.contains(&fields(of)), "{text}");
            text.replace(&fields(of), &fields(holder(0)))
        });
        assert!(refused(&root, &key, "a").contains("another key wrote it"));
        // Nor do the files themselves open, whatever the manifest says.
        let store = Store::open(&root, holder(0), Some(key.clone())).unwrap();
        let manifest = parse_manifest(&read(&root, "models/a/manifest")).unwrap();
        store.shares("a", &manifest).unwrap_err();
        let place = store.place_of("a", manifest.version, Part::Shares);
        let bytes = read(&root, &Part::Shares.of("a", manifest.version));
        assert!(key.open(place, bytes).unwrap_err().contains("does not open"));
    }
}

#[test]
fn a_manifest_that_was_forged_or_is_of_another_version_or_state_is_refused_by_name() {
    let (_, key) = key_file("swapped-key");
    let (root, manifests) = sealed(holder(0), &key, &["a"]);
    let first = read(&root, "models/a/manifest");
    // Readers that the owner did not allow.
    forge(&root, "models/a/manifest", |text| text.replace("\"bob\"", "\"eve\""));
    assert!(refused(&root, &key, "a").contains("another key wrote it"));
    // The same without a code, as a plain store has it.
    let text = String::from_utf8(first.clone()).unwrap();
    let (_, body) = text.split_once('\n').unwrap();
    write(&root, "models/a/manifest", &seal(body.replace("\"bob\"", "\"eve\"").as_bytes()));
    assert!(refused(&root, &key, "a").contains("written without one"));
    write(&root, "models/a/manifest", &first);
    // A version that is staged, and was not made current by all servers.
    let version = Id::random().unwrap();
    {
        let store = Store::open(&root, holder(0), Some(key.clone())).unwrap();
        stage(&store, "a", version, 9);
    }
    write(&root, "models/a/manifest", &read(&root, &staged_at("a", version)));
    assert!(refused(&root, &key, "a").contains("another key wrote it"));
    write(&root, "models/a/manifest", &first);
    {
        let store = Store::open(&root, holder(0), Some(key.clone())).unwrap();
        assert_eq!(load(&store, "a").unwrap().0.version, manifests[0].version);
        store.commit("a", version).unwrap();
    }
    // The manifest before, without the files that it was written with.
    write(&root, "models/a/manifest", &first);
    assert!(refused(&root, &key, "a").contains("0 bytes where"));
}

#[test]
fn a_whole_name_of_before_is_not_told_from_the_newest() {
    let (_, key) = key_file("swapped-key");
    let (root, manifests) = sealed(holder(0), &key, &["a"]);
    let before: Vec<_> = files_in(&root.join("models/a"))
        .unwrap()
        .into_iter()
        .map(|file| (item("a", &file), read(&root, &item("a", &file))))
        .collect();
    {
        let store = Store::open(&root, holder(0), Some(key.clone())).unwrap();
        let version = Id::random().unwrap();
        stage(&store, "a", version, 9);
        store.commit("a", version).unwrap();
    }
    before.iter().for_each(|(place, bytes)| write(&root, place, bytes));
    // The other servers have another version, and refuse jobs on it.
    let store = Store::open(&root, holder(0), Some(key)).unwrap();
    assert_eq!(load(&store, "a").unwrap().0.version, manifests[0].version);
}

#[test]
fn what_an_earlier_program_left_under_the_same_key_is_refused_until_it_is_encrypted_again() {
    let (_, key) = key_file("swapped-key");
    let (root, manifests) = sealed(holder(0), &key, &["a"]);
    // As an earlier program wrote it: files that are bound to no server, a manifest without a code.
    let mut manifest = manifests[0].clone();
    for (part, bytes) in [(Part::Plan, &b"{}"[..]), (Part::Tokenizer, b"{}")] {
        let version = manifest.version;
        let loose = Place { version, ..Place::loose("a", part.name()) };
        let sealed = key.seal(loose, bytes).unwrap();
        let sum = sum_of(&*sealed).unwrap();
        write(&root, &part.of("a", version), &sealed);
        match part {
            Part::Plan => manifest.plan = sum,
            _ => manifest.tokenizer = Some(sum),
        }
    }
    write(&root, "models/a/manifest", &sealed_at(&manifest, None).unwrap());
    assert!(refused(&root, &key, "a").contains("trefoil store rekey"));
    let store = Store::open(&root, holder(0), Some(key)).unwrap();
    assert_eq!(store.rekey(None).unwrap(), 1);
    assert_eq!(load(&store, "a").unwrap().1, shares(0));
    assert!(is_sealed(&read(&root, &Part::Plan.of("a", manifest.version))));
}
