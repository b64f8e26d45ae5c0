//! The choice of a product's method, by shape and device. No other code decides this.
//!
//! A limb product takes 36 multiply-adds of bytes for one of words, at rates that make it much faster. But
//! its tiles are padded to 64 rows, 64 or 96 columns and 32 terms, and splitting the operands costs two more
//! launches and eight bytes written and read for each of their elements. The integer kernels do not have
//! these costs, and win for small and for thin products.
//!
//! `cargo xtask gpu` times every method on squares and on thin products (`chooser/..`) and prints the
//! range in which each is fastest. The thresholds below are calculated, not yet measured on a device. A
//! launch takes about 3 us, in which the integer kernels do some 10 million multiply-adds. A side of 24
//! uses three eighths of a tile's 64: products of limbs should still be faster there.

use float_embed::LimbPlan;
use ring_arith::{Error, Result};

use crate::{Method, cublas::Blas, device::Device, limbs::Form, products::Plan};

/// From this many multiply-adds on, limbs pay.
const SMALL: usize = 1 << 22;
/// From this many rows, columns and terms on, limbs pay.
const SHORT: usize = 24;

/// The method that computes a product.
pub(crate) enum Chosen<'a> {
    Integer,
    Limbs(Form),
    Floats((&'a Blas, LimbPlan)),
}

/// The methods that a device can run, [`Method::Automatic`] apart.
pub(crate) fn methods(device: &Device, blas: Option<&Blas>) -> Vec<Method> {
    let mut methods = vec![Method::Integer];
    if blas.is_some() {
        methods.extend([Method::F64Limbs16, Method::F64Limbs22]);
    }
    methods.push(Method::Limbs8);
    if has_wgmma(device) {
        methods.push(Method::Wgmma);
    }
    methods
}

/// `wgmma` exists on compute capability 9.x and on no other.
fn has_wgmma(device: &Device) -> bool {
    device.driver.capability().0 == 9
}

/// The method for these products, terms of one sum.
///
/// # Errors
/// [`Error::Invalid`] if the device does not support the chosen method.
pub(crate) fn choose<'a>(
    device: &Device,
    (asked, blas): (Method, Option<&'a Blas>),
    plans: &[Plan],
) -> Result<Chosen<'a>> {
    let pays = |p: &Plan| {
        let shortest = p.rows.min(p.cols).min(p.depth);
        shortest >= SHORT && p.rows * p.cols * p.depth * p.batches >= SMALL
    };
    let floats = |plan| match blas {
        Some(blas) => Ok(Chosen::Floats((blas, plan))),
        None => {
            let reason = "limbs of f64 need cuBLAS: load it by `CudaEngine::with_cublas`";
            Err(Error::invalid("method", reason))
        }
    };
    match asked {
        // Without terms there is nothing to split.
        _ if plans.iter().any(|p| p.depth == 0) => Ok(Chosen::Integer),
        Method::Automatic if !plans.iter().all(pays) => Ok(Chosen::Integer),
        Method::Automatic if has_wgmma(device) => Ok(Chosen::Limbs(Form::WGMMA)),
        Method::Automatic | Method::Limbs8 => Ok(Chosen::Limbs(Form::MMA)),
        Method::Integer => Ok(Chosen::Integer),
        Method::F64Limbs16 => floats(LimbPlan::F64_4X16),
        Method::F64Limbs22 => floats(LimbPlan::F64_3X22_BALANCED),
        Method::Wgmma if has_wgmma(device) => Ok(Chosen::Limbs(Form::WGMMA)),
        Method::Wgmma => {
            let (major, minor) = device.driver.capability();
            let reason =
                format!("wgmma needs compute capability 9.x, the device has {major}.{minor}");
            Err(Error::invalid("method", reason))
        }
    }
}
