#![doc = include_str!("../README.md")]
#![deny(unsafe_code)] // in one file there are intrinsics

/// Gives a variable another value in a mutant, which a test must notice.
macro_rules! mutant {
    ($mutant:literal, $name:ident = $value:expr) => {
        #[cfg(test)]
        let $name = if mpc_core::testing::mutants::is_active($mutant) { $value } else { $name };
    };
}

mod bits;
#[cfg(test)]
mod cheat;
mod inner;
mod keys;
mod maps;
mod part;
mod proofs;
mod ring;
mod scratch;
mod simd;
mod statement;
mod sumcheck;
#[cfg(test)]
mod tests;
mod words;

pub use proofs::{Batch, Proofs, Verdict};
pub use statement::{
    BitRelation, Fault, Finding, Kind, Known, LeftOperand, MapOperand, MapRelation, ProofCost,
    RightOperand, Side, Size, Spoken, Statements, WordRelation, evaluate, residuals,
};
