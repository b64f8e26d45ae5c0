//! Elementwise products.

use rayon::prelude::*;

use super::{Job, loops};

/// Words per task; a task's results stay in the second-level cache between its terms.
const TASK: usize = 1 << 14;

/// `out = sum of lhs * rhs + addends`.
pub(super) fn run(job: Job<'_>, out: &mut [u64]) {
    if job.threads <= 1 {
        out.chunks_mut(TASK).enumerate().for_each(|(i, out)| chunk(job, i * TASK, out));
    } else {
        out.par_chunks_mut(TASK).enumerate().for_each(|(i, out)| chunk(job, i * TASK, out));
    }
}

fn chunk(job: Job<'_>, first: usize, out: &mut [u64]) {
    // Pieces of the first-level cache: the result is written to memory once.
    for (i, out) in out.chunks_mut(1024).enumerate() {
        let first = first + i * 1024;
        let range = first..first + out.len();
        let mut fresh = job.addends.is_empty();
        if !fresh {
            job.addends.write(first, out);
        }
        for (lhs, rhs) in job.terms {
            let (x, y) = (&lhs.words()[range.clone()], &rhs.words()[range.clone()]);
            if std::mem::take(&mut fresh) {
                loops::products(job.isa, out, x, y);
            } else {
                loops::add_products(job.isa, out, x, y);
            }
        }
    }
}
