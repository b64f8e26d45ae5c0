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
mod trig;

pub(crate) use {chain::*, digits::*, local::*, max::*, rounding::*, select::*, tree::*, trig::*};
