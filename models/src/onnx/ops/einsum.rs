//! Einsum of one or two operands, as transposition and matrix product.

use nn_layers::{Dim, Op, Reduce, ValueId};

use super::math::product;
use crate::Result;
use crate::onnx::node::Node;

/// An operand and the label of each of its axes.
struct Labelled {
    value: ValueId,
    labels: Vec<char>,
}

pub(crate) fn einsum(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let equation = n.attributes.text("equation").unwrap_or_default();
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let Some((left, right)) = equation.split_once("->") else {
        return Err(n.unsupported(format!("with equation `{equation}`, which has no `->`")));
    };
    let terms: Vec<Vec<char>> = left.split(',').map(|t| t.chars().collect()).collect();
    let output: Vec<char> = right.chars().collect();
    let inputs = n.inputs()?;
    let fits = terms.len() == inputs.len() && terms.len() <= 2;
    let plain = terms.iter().chain([&output]).all(|t| {
        t.iter().all(|c| c.is_ascii_alphabetic())
            && (0..t.len()).all(|i| !t[i + 1..].contains(&t[i]))
    });
    let ranks = terms.iter().zip(&inputs).all(|(t, &x)| t.len() == n.dims(x).len());
    let known = output.iter().all(|c| terms.iter().any(|t| t.contains(c)));
    if !fits || !plain || !ranks || !known {
        return Err(n.unsupported(format!("with equation `{equation}`")));
    }
    let mut operands: Vec<_> =
        terms.into_iter().zip(inputs).map(|(labels, value)| Labelled { value, labels }).collect();
    // Labels of one operand alone that the result lacks are summed first.
    for i in 0..operands.len() {
        let other = operands.iter().enumerate().filter(|(j, _)| *j != i);
        let other: Vec<char> = other.flat_map(|(_, o)| o.labels.clone()).collect();
        sum_lone(n, &mut operands[i], &output, &other)?;
    }
    let result = match (operands.pop(), operands.pop()) {
        (Some(y), Some(x)) => contract(n, x, y, &output)?,
        (Some(x), None) => x,
        _ => return Err(n.attributes.error("there are no operands")),
    };
    Ok(vec![permuted(n, &result, &output)?])
}

fn sum_lone(n: &mut Node<'_, '_>, x: &mut Labelled, out: &[char], other: &[char]) -> Result<()> {
    let lone = |c: &char| !out.contains(c) && !other.contains(c);
    let axes: Vec<_> = (0..x.labels.len()).filter(|&i| lone(&x.labels[i])).collect();
    if !axes.is_empty() {
        x.value = n.add(Op::Reduce { kind: Reduce::Sum, axes, keep: false }, &[x.value])?;
        x.labels.retain(|c| !lone(c));
    }
    Ok(())
}

/// The product over shared labels that the result lacks.
fn contract(n: &mut Node<'_, '_>, x: Labelled, y: Labelled, out: &[char]) -> Result<Labelled> {
    let pick = |of: &Labelled, f: &dyn Fn(&char) -> bool| -> Vec<char> {
        of.labels.iter().copied().filter(|c| f(c)).collect()
    };
    let batch = pick(&x, &|c| y.labels.contains(c) && out.contains(c));
    let inner = pick(&x, &|c| y.labels.contains(c) && !out.contains(c));
    let rows = pick(&x, &|c| !y.labels.contains(c));
    let cols = pick(&y, &|c| !x.labels.contains(c));
    let size = |n: &Node<'_, '_>, of: &Labelled, labels: &[char]| -> Vec<usize> {
        let dims = n.dims(of.value);
        let at = |c: &char| of.labels.iter().position(|l| l == c).map_or(1, |i| dims[i]);
        labels.iter().map(at).collect()
    };
    let (b, m) = (size(n, &x, &batch), size(n, &x, &rows));
    let (k, w) = (size(n, &x, &inner), size(n, &y, &cols));
    let left = permuted(n, &x, &[batch.clone(), rows.clone(), inner.clone()].concat())?;
    let right = permuted(n, &y, &[batch.clone(), inner, cols.clone()].concat())?;
    let count = |d: &[usize]| d.iter().product::<usize>();
    let matrix = |b: &[usize], r: usize, c: usize| {
        let tail = [r, c];
        Op::Reshape(b.iter().chain(&tail).map(|&d| Dim::Fixed(d)).collect())
    };
    let left = n.add(matrix(&b, count(&m), count(&k)), &[left])?;
    let right = n.add(matrix(&b, count(&k), count(&w)), &[right])?;
    let z = product(n, left, right)?;
    let dims = [b, m, w].concat().into_iter().map(Dim::Fixed).collect();
    let value = n.add(Op::Reshape(dims), &[z])?;
    Ok(Labelled { value, labels: [batch, rows, cols].concat() })
}

/// The operand with its axes in the given order.
fn permuted(n: &mut Node<'_, '_>, x: &Labelled, order: &[char]) -> Result<ValueId> {
    let axes: Option<Vec<_>> = order.iter().map(|c| x.labels.iter().position(|l| l == c)).collect();
    let axes = axes.ok_or_else(|| n.attributes.error("the equation's labels do not fit"))?;
    if axes.iter().enumerate().all(|(i, &a)| i == a) {
        return Ok(x.value);
    }
    n.add(Op::Permute(axes), &[x.value])
}
