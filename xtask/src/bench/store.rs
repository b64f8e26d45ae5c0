//! Reading a model's shares from a server's store: encrypted ones beside plain ones.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use ring_arith::{Shape, Tensor};
use trefoil::{
    ClusterId, Id, Shares, StoreKey,
    store::{Content, Holder, Manifest, NewItem, Readers, Store, StoredShares},
};

use super::Bench;

/// Words of a component: those of ResNet-18, about.
const WORDS: usize = 12 << 20;

const NAME: &str = "model";

/// The cases of this module.
///
/// # Errors
/// If files cannot be written or read.
pub fn cases(bench: &mut Bench) -> Result<()> {
    bench.case("store/read-encrypted", |case| {
        let folder =
            std::env::temp_dir().join(format!("trefoil-bench-store-{}", std::process::id()));
        let held = vec![held()?];
        let (plain, of_plain) = filled(&folder.join("plain"), None, &held)?;
        let key = folder.join("key");
        fs::write(&key, StoreKey::generate()?.as_bytes())?;
        // A key that others may read is refused.
        #[cfg(unix)]
        fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        let key = StoreKey::read(&key)?;
        let (encrypted, of_encrypted) = filled(&folder.join("encrypted"), Some(key), &held)?;
        let (mine, other) = case.measure_pair(
            || encrypted.shares(NAME, &of_encrypted),
            || plain.shares(NAME, &of_plain),
        );
        case.engine("cpu").threads(1).size(format!("{} MB", 16 * WORDS / 1_000_000)).timing(mine);
        case.reference("plain files", other);
        fs::remove_dir_all(&folder)?;
        Ok(())
    })
}

/// The two components of a tensor that a server holds.
fn held() -> Result<Vec<Tensor>> {
    let words =
        |seed: u64| (0..WORDS as u64).map(move |i| (i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let tensor = |seed| Tensor::new(Shape::new([WORDS])?, words(seed).collect::<Vec<_>>());
    Ok(vec![tensor(1)?, tensor(2)?])
}

/// A store with one model.
fn filled(root: &Path, key: Option<StoreKey>, shares: &Shares) -> Result<(Store, Manifest)> {
    fs::create_dir_all(root)?;
    let holder = Holder { cluster: ClusterId::of_key(b"bench"), party: 0 };
    let store = Store::open(root, holder, key)?;
    let content = Content::Model { about: Box::default(), ranges: vec![] };
    let version = Id::random()?;
    store.stage(&NewItem {
        name: NAME,
        version,
        content: &content,
        owner: "owner",
        readers: &Readers::Named(vec![]),
        plan: b"{}",
        shares: &StoredShares::of(shares),
        tokenizer: b"",
    })?;
    let manifest = store.commit(NAME, version).context("a store that was just filled")?;
    Ok((store, manifest))
}
