//! The portable transposes, compiled for AVX2: four rows to a vector.

use super::{ELEMENTS, Planes, portable};

/// See [`portable::split`].
#[target_feature(enable = "avx2")]
pub(super) fn split(elements: &[u64; ELEMENTS], low: u32, planes: &mut Planes) {
    portable::split(elements, low, planes);
}

/// See [`portable::join`].
#[target_feature(enable = "avx2")]
pub(super) fn join(planes: &Planes, low: u32, elements: &mut [u64; ELEMENTS]) {
    portable::join(planes, low, elements);
}
