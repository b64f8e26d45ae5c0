//! The part of cuBLAS that the CUDA engine uses, over the emulated device's memory.

use std::ffi::c_int;

use crate::{Driver, INVALID_VALUE, SUCCESS, put, with};

/// A handle of cuBLAS; all are alike.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasCreate_v2(handle: *mut usize) -> c_int {
    // SAFETY: an out parameter of the library's interface.
    unsafe { put(handle, 1) }
}

/// Does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn cublasDestroy_v2(_handle: usize) -> c_int {
    SUCCESS
}

/// All streams are alike.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSetStream_v2(_handle: usize, _stream: usize) -> c_int {
    SUCCESS
}

/// Column-major products `c = alpha * op(a) * op(b) + beta * c` with `op` 0 for none, 1 for the transpose.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasDgemmStridedBatched(
    _handle: usize,
    op_a: c_int,
    op_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const f64,
    a: u64,
    lda: c_int,
    step_a: i64,
    b: u64,
    ldb: c_int,
    step_b: i64,
    beta: *const f64,
    c: u64,
    ldc: c_int,
    step_c: i64,
    batches: c_int,
) -> c_int {
    // SAFETY: scalars lie in the host's memory.
    let (alpha, beta) = unsafe { (*alpha, *beta) };
    let [m, n, k, lda, ldb, ldc, batches] =
        [m, n, k, lda, ldb, ldc, batches].map(|x| usize::try_from(x).unwrap_or(0));
    with(|d| {
        let d = d.flush();
        for batch in 0..batches as i64 {
            let at = |base: u64, step: i64| base.wrapping_add_signed(8 * step * batch);
            let (ra, ca) = if op_a == 0 { (m, k) } else { (k, m) };
            let (rb, cb) = if op_b == 0 { (k, n) } else { (n, k) };
            let x = load(d, at(a, step_a), ra, ca, lda);
            let y = load(d, at(b, step_b), rb, cb, ldb);
            let z = load(d, at(c, step_c), m, n, ldc);
            let (Some(x), Some(y), Some(mut z)) = (x, y, z) else { return INVALID_VALUE };
            for j in 0..n {
                for i in 0..m {
                    let term = |l: usize| {
                        let x = if op_a == 0 { x[l * lda + i] } else { x[i * lda + l] };
                        let y = if op_b == 0 { y[j * ldb + l] } else { y[l * ldb + j] };
                        x * y
                    };
                    let sum: f64 = (0..k).map(term).sum();
                    // If beta is 0, the old value does not count, even if it is not a number.
                    let old = if beta == 0.0 { 0.0 } else { beta * z[j * ldc + i] };
                    z[j * ldc + i] = alpha * sum + old;
                }
            }
            let bytes: Vec<u8> = z.iter().flat_map(|v| v.to_le_bytes()).collect();
            let Ok(memory) = d.device.bytes(at(c, step_c), bytes.len()) else {
                return INVALID_VALUE;
            };
            memory.copy_from_slice(&bytes);
        }
        SUCCESS
    })
}

/// A column-major matrix in device memory, with its `ld` words from one column to the next.
fn load(d: &mut Driver, address: u64, rows: usize, columns: usize, ld: usize) -> Option<Vec<f64>> {
    let bytes = d.device.bytes(address, (ld * columns.saturating_sub(1) + rows) * 8).ok()?;
    let word = |w: &[u8]| f64::from_le_bytes(w.try_into().unwrap_or_default());
    Some(bytes.chunks_exact(8).map(word).collect())
}
