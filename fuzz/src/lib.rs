#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod edits;
mod readers;
mod seeds;

use std::fs;
use std::path::{Path, PathBuf};

/// Something that reads bytes of somebody else.
pub struct Target {
    /// Its name, which its corpus and its libFuzzer program bear too.
    pub name: &'static str,
    /// Inputs as they should be.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Reads an input and uses the value; returns true if the input was accepted. Panics if an accepted
    /// value is inconsistent.
    pub read: fn(&[u8]) -> bool,
    /// Damaged inputs that the check feeds to it.
    pub inputs: u32,
    /// MiB of memory that it may take beyond that for its seeds.
    pub memory: u64,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "frames",
        seeds: seeds::frames,
        read: readers::frames,
        inputs: 400_000,
        memory: 64,
    },
    Target {
        name: "handshake",
        seeds: seeds::handshake,
        read: readers::handshake,
        inputs: 200_000,
        memory: 64,
    },
    Target {
        name: "request",
        seeds: seeds::requests,
        read: readers::request,
        inputs: 20_000,
        memory: 256,
    },
    Target {
        name: "reply",
        seeds: seeds::replies,
        read: readers::reply,
        inputs: 20_000,
        memory: 256,
    },
    Target {
        name: "queue",
        seeds: seeds::queue,
        read: readers::queue,
        inputs: 20_000,
        memory: 256,
    },
    Target { name: "plan", seeds: seeds::plans, read: readers::plan, inputs: 30_000, memory: 256 },
    Target {
        name: "analysis",
        seeds: seeds::analyses,
        read: readers::analysis,
        inputs: 3_000,
        memory: 256,
    },
    Target {
        name: "train_request",
        seeds: seeds::train_requests,
        read: readers::train_request,
        inputs: 10_000,
        memory: 256,
    },
    Target {
        name: "manifest",
        seeds: seeds::manifests,
        read: readers::manifest,
        inputs: 20_000,
        memory: 256,
    },
    Target {
        name: "config",
        seeds: seeds::configs,
        read: readers::config,
        inputs: 5_000,
        memory: 256,
    },
    Target {
        name: "run_file",
        seeds: seeds::run_files,
        read: readers::run_file,
        inputs: 20_000,
        memory: 256,
    },
    Target {
        name: "shares",
        seeds: seeds::shares,
        read: readers::shares,
        inputs: 20_000,
        memory: 64,
    },
    Target { name: "saved", seeds: seeds::saved, read: readers::saved, inputs: 20_000, memory: 64 },
    Target { name: "tape", seeds: seeds::tapes, read: readers::tape, inputs: 5_000, memory: 64 },
    Target {
        name: "revoked",
        seeds: seeds::revoked,
        read: readers::revoked,
        inputs: 20_000,
        memory: 64,
    },
    Target { name: "http", seeds: seeds::http, read: readers::http, inputs: 100_000, memory: 64 },
    Target { name: "onnx", seeds: seeds::onnx, read: readers::onnx, inputs: 20_000, memory: 256 },
    Target {
        name: "weights",
        seeds: seeds::weights,
        read: readers::weights,
        inputs: 10_000,
        memory: 256,
    },
    Target {
        name: "picture",
        seeds: seeds::pictures,
        read: readers::picture,
        inputs: 2_000,
        memory: 256,
    },
    Target { name: "csv", seeds: seeds::tables, read: readers::table, inputs: 20_000, memory: 256 },
    Target { name: "npy", seeds: seeds::arrays, read: readers::array, inputs: 20_000, memory: 256 },
    Target { name: "idx", seeds: seeds::idx, read: readers::idx, inputs: 20_000, memory: 256 },
];

/// The target of a name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

impl Target {
    /// Inputs that failed once, with their files.
    #[must_use]
    pub fn corpus(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(self.name);
        let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
        let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        paths.into_iter().filter_map(|path| Some((path.clone(), fs::read(path).ok()?))).collect()
    }
}
