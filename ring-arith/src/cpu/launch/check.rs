//! What must hold of a launch before it runs.

use crate::{Launch, Result, Tensor};

/// A launch of which is known that every source and target stays inside its tensor, that no two
/// targets meet and that the number of words fits. Unsafe code relies on this.
pub(super) struct Checked<'a, const I: usize, const O: usize>(&'a Launch<'a, Tensor, I, O>);

/// Checks a launch.
///
/// # Errors
/// [`crate::Error::Invalid`] that names the source or target.
pub(super) fn check<'a, const I: usize, const O: usize>(
    launch: &'a Launch<'a, Tensor, I, O>,
) -> Result<Checked<'a, I, O>> {
    launch.check()?;
    Ok(Checked(launch))
}

impl<'a, const I: usize, const O: usize> Checked<'a, I, O> {
    /// The launch.
    pub(super) fn launch(&self) -> &'a Launch<'a, Tensor, I, O> {
        self.0
    }

    /// Whether the targets write every word of an output. They never write one twice, so it is
    /// enough to count.
    pub(super) fn covers(&self, output: usize) -> bool {
        self.0.covers(output)
    }
}
