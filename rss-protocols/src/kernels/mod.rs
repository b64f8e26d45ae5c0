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
    ChainDeal, ChainEarly, ChainHalf, ChainLead, ChainRawLead, ChainSettle, ChainSettleLead,
    ChainWhole, ChainWrap,
};
pub(crate) use digits::{Codes, Digits, DigitsEqual, DigitsGreater};
pub(crate) use local::{
    AddedOther, AddedPivot, And3, Combine, Copy, Difference, Keep, MaskedDifference, MaskedSum,
    MulOther, MulPivot, Negate, PairLeft, PairRight, Scale, Shift, Split, Sum, Xor, Xor3, XorWord,
};
pub(crate) use max::{BitProducts, GainLead, GainOther};
pub(crate) use rounding::{
    AbyPivot, AbyShift, Coin, EarlyNearest, EarlyRoundUp, EarlySum, EarlyTop, ExactEnd, ExactLead,
    RoundLead, RoundReluLead, RoundTop, TakeCarry, WholeSum, WithCoin, WrapShares,
};
pub(crate) use select::{ArithOther, LANES, LaneLead, LaneSum, SelectLead, SelectOther};
pub(crate) use tree::{
    Deal2, Deal3, Deal4, DealAll2, DealAll3, DealAll4, DealLow2, DealLow3, DealLow4, LeafMask,
    Merge2, Merge3, Merge4, MergeAll2, MergeAll3, MergeAll4, MergeLow2, MergeLow3, MergeLow4,
    OpenLead,
};
