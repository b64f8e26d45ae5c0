//! The places of the results of a matrix product.

use std::marker::PhantomData;

/// The place of row `r` and column `(image, y, x)` of a product in the result:
/// `base + r * row_stride + image * image_stride + y * stride[0] + x * stride[1]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    /// Word of row 0, column 0.
    pub base: usize,
    /// Words from one row to the next.
    pub row_stride: usize,
    /// Columns per image, along height and width.
    pub size: [usize; 2],
    /// Words from one image to the next.
    pub image_stride: usize,
    /// Words from one column to the next, along height and width.
    pub stride: [usize; 2],
}

impl Output {
    /// A matrix of `n` columns whose strides are given.
    pub(super) fn matrix(base: usize, row_stride: usize, n: usize, column_stride: usize) -> Self {
        let size = [1, n.max(1)];
        Self { base, row_stride, size, image_stride: 0, stride: [0, column_stride] }
    }

    /// The word of row 0 and the first of `columns`, if these follow one another.
    pub(super) fn plain(&self, columns: &std::ops::Range<usize>) -> Option<usize> {
        let [ny, nx] = self.size;
        let line = columns.start / nx;
        if self.stride[1] != 1 || line != (columns.end - 1) / nx {
            return None;
        }
        let (image, y, x) = (line / ny, line % ny, columns.start % nx);
        Some(self.base + image * self.image_stride + y * self.stride[0] + x)
    }

    /// Calls `each(word, column, count)` for pieces of `columns` whose words follow one another, or
    /// lie `stride[1]` apart.
    #[inline]
    pub(super) fn pieces(
        &self,
        row: usize,
        columns: std::ops::Range<usize>,
        mut each: impl FnMut(usize, usize, usize),
    ) {
        let [ny, nx] = self.size;
        let start = self.base + row * self.row_stride;
        if ny == 1 && columns.end <= nx {
            each(start + columns.start * self.stride[1], 0, columns.len());
            return;
        }
        let mut column = columns.start;
        while column < columns.end {
            let (image, y, x) = (column / nx / ny, column / nx % ny, column % nx);
            let count = (nx - x).min(columns.end - column);
            let word = image * self.image_stride + y * self.stride[0] + x * self.stride[1];
            each(start + word, column - columns.start, count);
            column += count;
        }
    }
}

/// Rows of words of a result that are the current thread's to write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'a> {
    words: *mut u64,
    /// Words from one row to the next.
    pub stride: usize,
    /// Number of rows.
    pub rows: usize,
    /// Words in each row.
    pub columns: usize,
    /// Add to the words that are there.
    pub add: bool,
    lifetime: PhantomData<&'a mut [u64]>,
}

impl Rows<'_> {
    /// One of the rows.
    pub(super) fn row(&mut self, index: usize) -> &mut [u64] {
        assert!(index < self.rows);
        // SAFETY: in bounds as `Sink::rows` checked, and not shared by its caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.words.add(index * self.stride), self.columns) }
    }

    /// The first word of the first row.
    pub(super) fn words(&self) -> *mut u64 {
        self.words
    }
}

/// A result that several threads fill, each its own part.
#[derive(Clone, Copy)]
pub(super) struct Sink<'a> {
    words: *mut u64,
    len: usize,
    lifetime: PhantomData<&'a mut [u64]>,
}

// SAFETY: a sink is a mutable slice whose users promise, in `piece`, to stay out of each other's way.
unsafe impl Send for Sink<'_> {}
// SAFETY: as above.
unsafe impl Sync for Sink<'_> {}

impl<'a> Sink<'a> {
    /// Takes the slice for as long as the sink lives.
    pub(super) fn new(words: &'a mut [u64]) -> Self {
        Self { words: words.as_mut_ptr(), len: words.len(), lifetime: PhantomData }
    }

    /// Some consecutive words.
    ///
    /// # Safety
    /// No other piece that is alive has a word in common with this one.
    #[allow(clippy::mut_from_ref)] // the caller promises that pieces are disjoint
    pub(super) unsafe fn piece(&self, start: usize, len: usize) -> &mut [u64] {
        assert!(start <= self.len && len <= self.len - start, "a piece leaves the result");
        // SAFETY: in bounds by the assertion; unique by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.words.add(start), len) }
    }

    /// `count` rows of `columns` words, the first at `start`.
    ///
    /// # Safety
    /// While the rows are in use, no other code uses their words.
    pub(super) unsafe fn rows(
        &self,
        start: usize,
        stride: usize,
        [count, columns]: [usize; 2],
        add: bool,
    ) -> Rows<'a> {
        let end = start + count.saturating_sub(1) * stride + columns;
        assert!(end <= self.len, "rows leave the result");
        // SAFETY: in bounds by the assertion.
        let words = unsafe { self.words.add(start) };
        Rows { words, stride, rows: count, columns, add, lifetime: PhantomData }
    }
}
