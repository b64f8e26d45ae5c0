//! The word kernels: every local step of the protocols, written once for all engines.

/// Declares a kernel without fields: its name, parameters and step.
macro_rules! kernel {
    ($(#[$doc:meta])* $name:ident($title:literal) [$($input:ident),*; $inputs:literal] $params:tt
        => [$outputs:literal] $body:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name;
        impl ring_arith::WordKernel<$inputs, $outputs> for $name {
            fn name(&self) -> &'static str {
                $title
            }
            #[inline(always)]
            fn step<W: ring_arith::Word>(
                &self,
                [$($input),*]: [W; $inputs],
                $params: &[W],
            ) -> [W; $outputs] {
                $body
            }
        }
    };
}

#[macro_use]
mod rounding;

mod chain;
mod digits;
mod local;
mod max;
mod select;
mod tree;

pub(crate) use chain::{
    ChainCarry, ChainDeal, ChainDealer, ChainEarly, ChainHalf, ChainRawDealer, ChainSettle,
    ChainSettleDealer, ChainWhole,
};
pub(crate) use digits::{Codes, Digits, DigitsEqual, DigitsGreater};
pub(crate) use local::{
    AddedDealer, AddedEvaluator, AndAddend, Combine, Copy, Difference, Keep, MaskedDifference,
    MaskedSum, MulDealer, MulEvaluator, Negate, PairLeft, PairRight, Scale, Shift, Split, Sum, Xor,
    Xor3, XorWord,
};
pub(crate) use max::{BitProducts, GainDealer, GainEvaluator};
pub(crate) use rounding::{
    AbyDealer, AbyShift, CarryShares, Coin, EarlyEvaluator, EarlyNearest, EarlyRoundUp, EarlySum,
    ExactDealer, ExactEvaluator, GatedDealer, RoundDealer, RoundEvaluator, TakeCarry, WholeSum,
    WithCoin,
};
pub(crate) use select::{
    ArithEvaluator, LANES, LaneDealer, LaneSum, SelectDealer, SelectEvaluator,
};
pub(crate) use tree::{
    Deal2, Deal3, Deal4, DealAll2, DealAll3, DealAll4, DealLow2, DealLow3, DealLow4, LeafMask,
    Merge2, Merge3, Merge4, MergeAll2, MergeAll3, MergeAll4, MergeLow2, MergeLow3, MergeLow4,
    OpenDealer,
};
