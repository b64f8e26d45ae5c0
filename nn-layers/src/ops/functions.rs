//! Functions that the protocol crate computes, in the forms that networks ask for.

use mpc_core::{Protocol, SecretTensor};
use ring_arith::Shape;

use crate::graph::Unary;
use crate::{Error, Result};

fn later(op: &'static str) -> Error {
    Error::invalid(op, "is not connected")
}
pub(crate) fn sqrt<P: Protocol>(_: &mut P, _: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    Err(later("sqrt"))
}
pub(crate) fn inverse_sqrt<P: Protocol>(_: &mut P, _: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    Err(later("inverse-sqrt"))
}
pub(crate) fn softmax<P: Protocol>(
    _: &mut P,
    _: &SecretTensor<P>,
    _: usize,
    _: bool,
) -> Result<SecretTensor<P>> {
    Err(later("softmax"))
}
pub(crate) fn lrn<P: Protocol>(
    _: &mut P,
    _: &SecretTensor<P>,
    _: [f64; 3],
    _: usize,
) -> Result<SecretTensor<P>> {
    Err(later("lrn"))
}
pub(crate) fn lookup<P: Protocol>(
    _: &mut P,
    _: &SecretTensor<P>,
    _: &SecretTensor<P>,
    _: &Shape,
) -> Result<SecretTensor<P>> {
    Err(later("lookup"))
}
pub(crate) fn divide<P: Protocol>(
    _: &mut P,
    _: &SecretTensor<P>,
    _: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    Err(later("div"))
}
pub(crate) fn unary<P: Protocol>(
    _: &mut P,
    f: Unary,
    _: &SecretTensor<P>,
) -> Result<SecretTensor<P>> {
    Err(later(f.name()))
}
