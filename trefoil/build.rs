//! Hashes the sources that decide what servers say to each other, so that two programs of one version number that were
//! built of different sources do not compute together.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// What counts of this crate.
const OWN: [&str; 4] = ["wire", "training", "server", "model/program"];

/// The crates whose sources count as a whole.
const CRATES: [&str; 10] = [
    "ring-arith",
    "float-embed",
    "gpu-kernels",
    "net",
    "mpc-core",
    "rss-protocols",
    "additive-dealer",
    "dealt-protocols",
    "nn-layers",
    "cluster-protocols",
];

/// Bytes of the hash that are kept: 64 bits tell any two builds apart.
const LETTERS: usize = 16;

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let beside = |name: &&str| here.join("..").join(name).join("src");
    let mut folders: Vec<_> = OWN.iter().map(|name| here.join("src").join(name)).collect();
    folders.extend(CRATES.iter().map(beside));
    let mut hash = blake3::Hasher::new();
    for folder in folders {
        println!("cargo:rerun-if-changed={}", folder.display());
        let mut files = Vec::new();
        collect(&folder, &mut files);
        files.sort();
        for file in files {
            let name = file.strip_prefix(&here).unwrap_or(&file).to_string_lossy().into_owned();
            let bytes = fs::read(&file).unwrap_or_default();
            hash.update(name.as_bytes()).update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
        }
    }
    let letters = hash.finalize().to_hex();
    println!("cargo:rustc-env=TREFOIL_SOURCES={}", &letters[..LETTERS]);
}

/// A source file, or all below a folder but tests; none where there is nothing, as beside a crate that was packaged
/// alone.
fn collect(place: &Path, files: &mut Vec<PathBuf>) {
    if place.file_stem().is_some_and(|name| name == "tests") {
        return;
    }
    if place.is_file() {
        if place.extension().is_some_and(|it| it == "rs" || it == "ptx") {
            files.push(place.to_owned());
        }
        return;
    }
    let Ok(entries) = fs::read_dir(place) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        collect(&path, files);
    }
}
