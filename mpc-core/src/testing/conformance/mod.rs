//! A suite of tests that every protocol must pass, to be instantiated in the protocol's own crate.
//!
//! ```
//! # mod tests {
//! use mpc_core::Plaintext;
//! use ring_arith::CpuEngine;
//!
//! mpc_core::conformance! {
//!     // name of the module: number of parties, how a party is made from its `net::Session`
//!     plaintext: 1, |_session| Ok(Plaintext::new(CpuEngine::new(1)).modular());
//! }
//! # }
//! ```
//!
//! Each check runs all parties in a [`TestWorld`] and shares random and edge values. It calls one
//! method of [`Protocol`] over several shapes, widths and batches and compares the opened results
//! with plain arithmetic on words. All parties must open the same.

pub mod accuracy;
mod bits;
mod chains;
mod comparisons;
mod functions;
mod joining;
mod kept;
mod linear;
pub mod model;
mod parts;
mod products;
mod random;
mod shuffling;
mod sorting;
mod widths;

use net::{Party, Session};
use ring_arith::{BitTensor, Engine, EngineTensor, Tensor};

pub use bits::{
    bit_decomposition, bits_as_words, bits_of_integers, gates, local_bits, prefixes, selections,
    weighted_sums, zero_tests,
};
pub use chains::chains;
pub use comparisons::{comparisons, maxima, refusals};
pub use functions::{approximations, choices, extrema, layers, orderings, rows, trig_sums};
pub use joining::joins;
pub use kept::{kept_signs, product_sums, product_terms};
pub use linear::{inputs_and_openings, linear_maps, sums_and_concatenation};
pub use parts::{settled_parts, sums_of_parts};
pub use products::{
    fused_relu, large_tensors, product_summands, raw_products, truncated_products, truncations,
};
pub use random::randomness;
pub use shuffling::{shuffle_orders, shuffles};
pub use sorting::{distinct_numbers, sorting, sorting_by_bits};
pub use widths::{tight_widths, widest_results, widest_results_for_slow_links};

use crate::{Protocol, Result, SplitMix64, TestWorld, Words};
use model::Plain;

/// Instantiates the suite: one module of `#[test]` functions for every
/// `name: parties, constructor;`. Instead of a number a [`TestWorld`] can be given, for instance one with a
/// dealer. The constructor makes a party's protocol from its
/// [`net::Session`]. See [`mod@crate::testing::conformance`].
#[macro_export]
macro_rules! conformance {
    ($($name:ident: $parties:expr, $make:expr;)+) => {$(
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $crate::conformance_checks! { $parties, $make;
                inputs_and_openings linear_maps sums_and_concatenation
                raw_products product_summands product_terms product_sums truncated_products truncations
                fused_relu kept_signs large_tensors settled_parts sums_of_parts
                local_bits gates prefixes bit_decomposition zero_tests selections bits_as_words
                weighted_sums bits_of_integers randomness shuffles shuffle_orders
                comparisons maxima refusals
                choices orderings extrema sorting sorting_by_bits distinct_numbers joins
                approximations rows layers tight_widths widest_results
                widest_results_for_slow_links chains trig_sums
            }
        }
    )+};
}

/// One `#[test]` for each check; used by [`conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_checks {
    ($parties:expr, $make:expr; $($check:ident)+) => {$(
        #[test]
        fn $check() {
            let make = $crate::testing::conformance::constructor($make);
            $crate::testing::conformance::$check(&$crate::TestWorld::from($parties), make);
        }
    )+};
}

/// A constructor as a pointer, so that checks are compiled once for all instances of a protocol.
#[doc(hidden)]
pub fn constructor<P>(make: fn(Session) -> Result<P>) -> fn(Session) -> Result<P> {
    make
}

/// Makes a party's protocol from its session.
pub trait Make<P>: Fn(Session) -> Result<P> + Send + Sync + 'static {}
impl<P, F: Fn(Session) -> Result<P> + Send + Sync + 'static> Make<P> for F {}

/// Runs a program and returns the result that all parties agree on.
///
/// # Panics
/// If a party fails or the parties' results differ.
pub fn agreed<P: Protocol, T: PartialEq + std::fmt::Debug + Send + 'static>(
    world: &TestWorld,
    make: impl Make<P>,
    program: impl Fn(&mut P) -> Result<T> + Send + Sync + 'static,
) -> T {
    let mut results = world.run(make, program).into_iter();
    let first = results.next().expect("a world has a party");
    for (i, other) in results.enumerate() {
        assert!(first == other, "parties 0 and {} differ; {}", i + 1, world.replay());
    }
    first
}

/// Shares tensors; the owners take turns, so that every party owns some.
///
/// # Errors
/// See [`Protocol::input`].
pub fn share<P: Protocol>(mpc: &mut P, tensors: &[Plain]) -> Result<Vec<P::Share>> {
    let owners = mpc.parties();
    let mut shares = Vec::with_capacity(tensors.len());
    for (i, tensor) in tensors.iter().enumerate() {
        let owner = Party(i % owners);
        let mine = if mpc.me() == owner { Some(vec![upload(mpc, tensor)?]) } else { None };
        shares.extend(mpc.input(owner, &[tensor.shape()], mine.as_deref())?);
    }
    Ok(shares)
}

/// Shares bits: the low `width` bits of words.
///
/// # Errors
/// See [`Protocol::to_bits`].
pub fn share_bits<P: Protocol>(mpc: &mut P, words: &Plain, width: u32) -> Result<P::Bits> {
    let share = share(mpc, std::slice::from_ref(words))?.remove(0);
    Ok(mpc.to_bits(&[(&share, width)])?.remove(0))
}

/// Opens shares.
///
/// # Errors
/// See [`Protocol::open`].
pub fn open<P: Protocol>(mpc: &mut P, shares: &[&P::Share]) -> Result<Vec<Plain>> {
    mpc.open(shares)?.iter().map(|words| download(mpc, words)).collect()
}

/// Opens bits, as one word for each element.
///
/// # Errors
/// See [`Protocol::open_bits`].
pub fn open_bits<P: Protocol>(mpc: &mut P, bits: &[&P::Bits]) -> Result<Vec<Plain>> {
    let opened = mpc.open_bits(bits)?;
    opened.iter().map(|b| words_of_bits(mpc, b)).collect()
}

fn words_of_bits<P: Protocol>(mpc: &P, bits: &BitTensor<Words<P>>) -> Result<Plain> {
    let words = mpc.engine().from_planes(bits.planes(), 0, bits.shape())?;
    download(mpc, &words)
}

/// Brings a tensor to the engine.
fn upload<P: Protocol>(mpc: &P, tensor: &Plain) -> Result<Words<P>> {
    Ok(mpc.engine().upload(Tensor::new(tensor.shape(), tensor.words.clone())?)?)
}

/// Brings a tensor back.
fn download<P: Protocol>(mpc: &P, words: &Words<P>) -> Result<Plain> {
    let host = mpc.engine().download(words)?;
    Ok(Plain { dims: host.shape().dims().to_vec(), words: host.words().to_vec() })
}

/// The generator of a world's test data.
fn data(world: &TestWorld) -> SplitMix64 {
    SplitMix64::new(world.seed())
}

/// Shapes that every check passes through: scalars, around a plane's word, several axes.
fn shapes() -> Vec<Vec<usize>> {
    let shapes: [&[usize]; 8] = [&[], &[1], &[7], &[64], &[65], &[3, 5], &[2, 1, 33], &[200]];
    shapes.iter().map(|s| s.to_vec()).collect()
}

/// Compares tensors one by one, with the seed in the message.
#[track_caller]
fn expect(world: &TestWorld, what: &str, got: &[Plain], want: &[Plain]) {
    assert_eq!(got.len(), want.len(), "{what}: number of results; {}", world.replay());
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert_eq!(got.dims, want.dims, "{what}: shape of result {i}; {}", world.replay());
        if let Some(at) = got.words.iter().zip(&want.words).position(|(a, b)| a != b) {
            let (a, b) = (got.words[at] as i64, want.words[at] as i64);
            panic!("{what}: result {i} at {at} is {a}, should be {b}; {}", world.replay());
        }
    }
}
