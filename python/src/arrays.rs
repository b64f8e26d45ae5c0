//! NumPy's arrays as words, and back.

use numpy::{PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;
use ring_arith::{EngineTensor, FixedPoint, FracBits};
use trefoil::analysis::Known;

use crate::errors::{Failure, Kind, Result};

/// The bound that the encoding of any number guarantees: a word below `2^62` in magnitude.
pub(crate) const ENCODED_WIDTH: u32 = 63;

/// An array of public numbers in a fixed-point format.
#[pyclass(frozen, module = "trefoil._trefoil")]
pub(crate) struct Public {
    pub(crate) known: Known,
}

#[pymethods]
impl Public {
    /// Encodes an array of `float64`, `float32` or `int64` in C order; integers have 0 fraction bits.
    #[new]
    fn new(py: Python<'_>, array: &Bound<'_, PyAny>, frac: u32) -> PyResult<Self> {
        if let Ok(array) = array.extract::<PyReadonlyArrayDyn<'_, f64>>() {
            let (dims, values) = (array.shape().to_vec(), contiguous(array.as_slice())?);
            return Ok(py.detach(|| Self::encode(dims, |code| code.encode(values), frac))?);
        }
        if let Ok(array) = array.extract::<PyReadonlyArrayDyn<'_, f32>>() {
            let (dims, values) = (array.shape().to_vec(), contiguous(array.as_slice())?);
            return Ok(py.detach(|| Self::encode(dims, |code| code.encode_f32(values), frac))?);
        }
        let array: PyReadonlyArrayDyn<'_, i64> = array.extract()?;
        let (dims, values) = (array.shape().to_vec(), contiguous(array.as_slice())?);
        Ok(py.detach(|| Self::integers(dims, values))?)
    }

    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.known.words.shape().dims().to_vec()
    }

    #[getter]
    fn frac(&self) -> u32 {
        self.known.frac
    }

    #[getter]
    fn width(&self) -> u32 {
        self.known.width
    }
}

impl Public {
    fn encode(
        dims: Vec<usize>,
        encode: impl FnOnce(FixedPoint) -> ring_arith::Result<Vec<u64>>,
        frac: u32,
    ) -> Result<Self> {
        let words = encode(FixedPoint(FracBits::new(frac)?))?;
        Ok(Self { known: Known::new(dims, words, frac)? })
    }

    fn integers(dims: Vec<usize>, values: &[i64]) -> Result<Self> {
        if let Some(at) = values.iter().position(|v| v.unsigned_abs() >= 1 << 62) {
            let text = format!("element {at} is {}, not below 2^62 in magnitude", values[at]);
            return Err(Failure::new(Kind::Range, text));
        }
        let words = values.iter().map(|&value| value as u64).collect();
        Ok(Self { known: Known::new(dims, words, 0)? })
    }
}

/// Keys of a join from names, by [`mpc_core::functions::join_keys`].
#[pyfunction]
pub(crate) fn join_keys(secret: [u8; 32], names: Vec<Vec<u8>>) -> Vec<u64> {
    mpc_core::functions::join_keys(&secret, names)
}

fn contiguous<T>(slice: Result<&[T], impl std::fmt::Display>) -> Result<&[T]> {
    slice.map_err(|_| Failure::input("the array must be in C order without gaps"))
}
