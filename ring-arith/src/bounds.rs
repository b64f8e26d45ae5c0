//! Checks of launches: every engine makes them before it runs anything.

use crate::{EngineTensor, Error, Launch, Result, Shape, Source, Target};

impl<T: EngineTensor, const I: usize, const O: usize> Launch<'_, T, I, O> {
    /// Checks that every source and target stays inside its tensor, that targets do not overlap and
    /// that the number of words fits.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names the source or target.
    pub fn check(&self) -> Result<()> {
        check([self.rows, self.cols], &self.sources, self.outputs, &self.targets)
    }

    /// True if the targets of a checked launch write every word of an output. They never write a
    /// word twice, so counting is enough.
    pub fn covers(&self, output: usize) -> bool {
        covers([self.rows, self.cols], self.outputs, &self.targets, output)
    }
}

/// See [`Launch::covers`].
pub(crate) fn covers(
    [rows, cols]: [usize; 2],
    outputs: &[Shape],
    targets: &[Target],
    output: usize,
) -> bool {
    let targets = targets.iter().filter(|t| t.tensor == output).count();
    targets * rows * cols == outputs[output].len()
}

/// The check of every launch, whatever its numbers of sources and targets: compiled once.
fn check<T: EngineTensor>(
    [rows, cols]: [usize; 2],
    sources: &[Source<'_, T>],
    outputs: &[Shape],
    targets: &[Target],
) -> Result<()> {
    if rows.checked_mul(cols).is_none_or(|n| n > isize::MAX as usize / 8) {
        return Err(invalid(format!("{rows} x {cols} words are too many")));
    }
    for (i, source) in sources.iter().enumerate() {
        check_source(source, rows, cols)
            .map_err(|reason| invalid(format!("source {i}: {reason}")))?;
    }
    for (o, target) in targets.iter().enumerate() {
        check_target(target, rows, cols, outputs)
            .map_err(|reason| invalid(format!("target {o}: {reason}")))?;
        for (p, other) in targets[..o].iter().enumerate() {
            if meet(target, other, rows, cols) {
                return Err(invalid(format!("targets {p} and {o} write the same word")));
            }
        }
    }
    Ok(())
}

fn invalid(reason: String) -> Error {
    Error::invalid("launch", reason)
}

/// First word not reached from `offset` by rows of `cols` words, `stride` apart.
fn end(offset: usize, stride: usize, rows: usize, cols: usize) -> Option<usize> {
    if rows == 0 || cols == 0 {
        return Some(offset);
    }
    offset.checked_add((rows - 1).checked_mul(stride)?)?.checked_add(cols)
}

fn check_source<T: EngineTensor>(
    source: &Source<'_, T>,
    rows: usize,
    cols: usize,
) -> Result<(), String> {
    let (len, end) = match *source {
        Source::Tensor { tensor, offset, row_stride } => {
            (tensor.len(), end(offset, row_stride, rows, cols))
        }
        Source::PerRow { tensor, offset } => (tensor.len(), offset.checked_add(rows)),
        Source::Stream { offset, row_stride, .. } => {
            let end = || {
                let last = (rows as u64).saturating_sub(1).checked_mul(row_stride)?;
                offset.checked_add(last)?.checked_add(cols as u64)
            };
            if end().is_none_or(|end| end > 1 << 63) {
                return Err(format!("positions from {offset} on leave the stream"));
            }
            return Ok(());
        }
    };
    if end.is_none_or(|end| end > len) {
        return Err(format!("{rows} x {cols} words leave the tensor of {len} words"));
    }
    Ok(())
}

fn check_target(
    target: &Target,
    rows: usize,
    cols: usize,
    outputs: &[Shape],
) -> Result<(), String> {
    let Some(shape) = outputs.get(target.tensor) else {
        return Err(format!("there is no output {}", target.tensor));
    };
    let len = shape.len();
    if end(target.offset, target.row_stride, rows, cols).is_none_or(|end| end > len) {
        return Err(format!("{rows} x {cols} words leave the output of {len} words"));
    }
    if rows > 1 && target.row_stride < cols {
        return Err(format!("rows of {cols} words overlap at a stride of {}", target.row_stride));
    }
    Ok(())
}

/// True if two targets inside the bounds of their outputs write a common word.
fn meet(a: &Target, b: &Target, rows: usize, cols: usize) -> bool {
    if a.tensor != b.tensor || rows == 0 || cols == 0 {
        return false;
    }
    let last = |t: &Target| t.offset + (rows - 1) * t.row_stride + cols;
    if last(a) <= b.offset || last(b) <= a.offset {
        return false;
    }
    if rows == 1 {
        return true;
    }
    if a.row_stride == b.row_stride {
        // Row r of one meets row r + k of the other for the two k around their distance.
        let (apart, stride) = (a.offset.abs_diff(b.offset), a.row_stride);
        let (k, rest) = (apart / stride, apart % stride);
        return (k < rows && rest < cols) || (k + 1 < rows && stride - rest < cols);
    }
    // Both lists of rows are sorted: scan them together.
    let (mut i, mut j) = (0, 0);
    while i < rows && j < rows {
        let (x, y) = (a.offset + i * a.row_stride, b.offset + j * b.row_stride);
        if x.abs_diff(y) < cols {
            return true;
        }
        if x < y { i += 1 } else { j += 1 }
    }
    false
}
