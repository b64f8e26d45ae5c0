//! Shared bits: gates, selections, words to bits and bits to words.

mod and;
mod decompose;
mod select;
mod weighted_sum;
