//! The one call of cuBLAS that products of f64 limbs need, from a library found at run time.

use std::{
    ffi::{OsString, c_int, c_longlong, c_void},
    path::Path,
};

use libloading::Library;
use ring_arith::{Error, Result};

use crate::device::Device;

/// Names under which loaders know the library, the newest first.
const NAMES: [&str; 3] = ["libcublas.so.13", "libcublas.so.12", "libcublas.so"];

type Create = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
type Destroy = unsafe extern "C" fn(*mut c_void) -> c_int;
type SetStream = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type Dgemm = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const f64,
    u64,
    c_int,
    c_longlong,
    u64,
    c_int,
    c_longlong,
    *const f64,
    u64,
    c_int,
    c_longlong,
    c_int,
) -> c_int;

/// cuBLAS on the stream of one device.
pub(crate) struct Blas {
    handle: *mut c_void,
    destroy: Destroy,
    dgemm: Dgemm,
    /// The functions above live as long as it.
    _library: Library,
}

// SAFETY: a handle may be used from any thread, one at a time; calls only queue work, and cuBLAS guards
// its handle with its own lock.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

/// Row-major matrices of f64 in device memory: `c[rows][cols] = or += a[rows][depth] * b[cols][depth]^T`, for
/// each of `batches`, which follow one another.
#[derive(Clone, Copy)]
pub(crate) struct Product {
    pub rows: usize,
    pub cols: usize,
    pub depth: usize,
    pub batches: usize,
    pub a: u64,
    pub b: u64,
    pub c: u64,
    pub accumulate: bool,
}

impl Blas {
    /// Loads `path`, or the library that the loader knows.
    pub(crate) fn load(device: &Device, path: Option<&Path>) -> Result<Self> {
        let names: Vec<OsString> = match path {
            Some(path) => vec![path.into()],
            None => NAMES.map(OsString::from).to_vec(),
        };
        // SAFETY: cuBLAS's initialisers have no preconditions.
        let found = names.iter().find_map(|name| unsafe { Library::new(name) }.ok());
        let library = found.ok_or_else(|| {
            let reason = format!(
                "cuBLAS is not installed (looked for {names:?}); give the path of its library, or use \
                 another method"
            );
            device.driver.failure(reason)
        })?;
        let lacks = |name: &str| device.driver.failure(format!("the cuBLAS library has no {name}"));
        // SAFETY: the types are those of cublas_v2.h.
        let (create, destroy, set_stream, dgemm) = unsafe {
            (
                *library.get::<Create>(b"cublasCreate_v2").map_err(|_| lacks("cublasCreate_v2"))?,
                *library
                    .get::<Destroy>(b"cublasDestroy_v2")
                    .map_err(|_| lacks("cublasDestroy_v2"))?,
                *library
                    .get::<SetStream>(b"cublasSetStream_v2")
                    .map_err(|_| lacks("cublasSetStream_v2"))?,
                *library
                    .get::<Dgemm>(b"cublasDgemmStridedBatched")
                    .map_err(|_| lacks("cublasDgemmStridedBatched"))?,
            )
        };
        let mut handle = std::ptr::null_mut();
        device.driver.enter()?;
        // SAFETY: an out parameter.
        check(device, "cublasCreate", unsafe { create(&mut handle) })?;
        let blas = Self { handle, destroy, dgemm, _library: library };
        // SAFETY: handle and stream live.
        check(device, "cublasSetStream", unsafe {
            set_stream(handle, device.driver.stream().cast())
        })?;
        Ok(blas)
    }

    /// Queues a product.
    ///
    /// # Safety
    /// The addresses are of live buffers that hold the matrices.
    pub(crate) unsafe fn multiply(&self, device: &Device, p: Product) -> Result<()> {
        let small = |n: usize| {
            c_int::try_from(n).map_err(|_| Error::invalid("f64 limbs", format!("{n} is too large")))
        };
        let (m, n, k) = (small(p.cols)?, small(p.rows)?, small(p.depth)?);
        let step = |x: usize, y: usize| (x * y) as c_longlong;
        let (alpha, beta) = (1.0, if p.accumulate { 1.0 } else { 0.0 });
        const PLAIN: c_int = 0;
        const TRANSPOSED: c_int = 1;
        device.driver.enter()?;
        // SAFETY: the caller's promise. cuBLAS is column-major, so that the transposed product is asked for.
        let status = unsafe {
            (self.dgemm)(
                self.handle,
                TRANSPOSED,
                PLAIN,
                m,
                n,
                k,
                &alpha,
                p.b,
                k,
                step(p.cols, p.depth),
                p.a,
                k,
                step(p.rows, p.depth),
                &beta,
                p.c,
                m,
                step(p.rows, p.cols),
                small(p.batches)?,
            )
        };
        check(device, "cublasDgemmStridedBatched", status)
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: the handle is not used any more; it waits for its work by itself.
        unsafe { (self.destroy)(self.handle) };
    }
}

fn check(device: &Device, call: &str, status: c_int) -> Result<()> {
    match status {
        0 => Ok(()),
        3 => Err(device.driver.failure(format!("{call}: cuBLAS found too little memory"))),
        _ => Err(device.driver.failure(format!("{call} failed with status {status}"))),
    }
}
