//! The conditions on a launch before it runs.

use crate::bounds::covers;
use crate::{Launch, Result, Shape, Source, Target, Tensor};

/// A checked launch: every source and target stays inside its tensor, targets do not overlap and
/// the number of words fits. Unsafe code relies on this.
///
/// The type does not carry the numbers of sources and targets, so that the code after it is
/// compiled once and not for each kernel.
#[derive(Clone, Copy)]
pub(super) struct Checked<'a> {
    rows: usize,
    cols: usize,
    sources: &'a [Source<'a, Tensor>],
    outputs: &'a [Shape],
    targets: &'a [Target],
}

/// Checks a launch.
///
/// # Errors
/// [`crate::Error::Invalid`] that names the source or target.
pub(super) fn check<'a, const I: usize, const O: usize>(
    launch: &'a Launch<'a, Tensor, I, O>,
) -> Result<Checked<'a>> {
    launch.check()?;
    let Launch { rows, cols, ref sources, outputs, ref targets, .. } = *launch;
    Ok(Checked { rows, cols, sources, outputs, targets })
}

impl<'a> Checked<'a> {
    /// Rows and columns.
    pub(super) fn space(&self) -> [usize; 2] {
        [self.rows, self.cols]
    }

    /// The source of each input word.
    pub(super) fn sources(&self) -> &'a [Source<'a, Tensor>] {
        self.sources
    }

    /// Shapes of the tensors that the launch makes.
    pub(super) fn outputs(&self) -> &'a [Shape] {
        self.outputs
    }

    /// The target of each output word.
    pub(super) fn targets(&self) -> &'a [Target] {
        self.targets
    }

    /// True if the targets write every word of an output.
    pub(super) fn covers(&self, output: usize) -> bool {
        covers(self.space(), self.outputs, self.targets, output)
    }
}
