//! Changes of elements' types.

use nn_layers::{Binary, HostTensor, Unary, ValueId};

use super::whole;
use crate::Result;
use crate::onnx::dtype;
use crate::onnx::node::Node;

pub(crate) fn cast(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let x = n.input(0)?;
    let to = if n.operator == "CastLike" { n.kind(1) } else { n.attributes.int("to", 0) as i32 };
    let float = dtype::is_float(to)
        .ok_or_else(|| n.unsupported(format!("to elements of type {}", dtype::name(to))))?;
    let Some(value) = n.to.graph.constant_value(x) else {
        return Ok(vec![computed_cast(n, x, to, float)?]);
    };
    // What grows with the cached positions is computed again for each number of them.
    if n.to.grows() && float && !value.is_int() && dtype::bits(to) >= 16 {
        return Ok(vec![x]);
    }
    let values = value.floats();
    let cast = if float {
        let saturate = n.attributes.int("saturate", 1) != 0;
        let rounded = values.iter().map(|&v| dtype::rounded(to, v, saturate));
        HostTensor::new(value.dims(), rounded.collect())?
    } else if to == dtype::BOOL {
        HostTensor::integers(value.dims(), values.iter().map(|&v| (v != 0.0).into()).collect())?
    } else {
        let whole: Vec<i64> = match value.as_ints() {
            Ok(ints) => ints.to_vec(),
            Err(_) => values.iter().map(|&v| v as i64).collect(),
        };
        HostTensor::integers(value.dims(), whole.iter().map(|&v| dtype::wrapped(to, v)).collect())?
    };
    let name = n.attributes.name;
    let secret = float && n.to.graph.is_secret(x);
    Ok(vec![if secret { n.to.graph.weight(name, cast) } else { n.to.graph.public(name, cast) }])
}

/// A value that is computed on shares as elements of another type. Real numbers keep their precision, whatever
/// type of real numbers they are said to have.
fn computed_cast(n: &mut Node<'_, '_>, x: ValueId, to: i32, float: bool) -> Result<ValueId> {
    let kind = n.kind(0);
    if to == dtype::BOOL {
        if kind == dtype::BOOL {
            return Ok(x);
        }
        let zero = if n.to.is_integer(x) { n.whole(0)? } else { n.number(0.0) };
        let is_zero = n.binary_op(Binary::Equal, x, zero)?;
        return n.unary(Unary::Not, is_zero);
    }
    if float && dtype::bits(to) < 16 {
        return Err(n.unsupported(format!("of computed values to {}", dtype::name(to))));
    }
    if float {
        return Ok(x);
    }
    if !n.to.is_integer(x) {
        let truncated = whole::truncated(n, x)?;
        return whole::wrapped(n, truncated, to);
    }
    let (least, most) = dtype::limits(kind);
    let (from, until) = dtype::limits(to);
    if from <= least && most <= until { Ok(x) } else { whole::wrapped(n, x, to) }
}
