//! Einsum as transpositions and matrix products, by pairs of operands from the left.

use nn_layers::{Dim, Op, Reduce, ValueId};

use super::math::product;
use super::shape::fixed;
use crate::Result;
use crate::onnx::node::Node;

/// An operand and the label of each of its axes.
struct Labelled {
    value: ValueId,
    labels: Vec<char>,
}

pub(crate) fn einsum(n: &mut Node<'_, '_>) -> Result<Vec<ValueId>> {
    let (mut operands, output) = parsed(n)?;
    for operand in &mut operands {
        diagonal(n, operand)?;
    }
    one_size(n, &mut operands)?;
    // Labels of one operand alone that the result lacks are summed first.
    for i in 0..operands.len() {
        let other = operands.iter().enumerate().filter(|(j, _)| *j != i);
        let other: Vec<char> = other.flat_map(|(_, o)| o.labels.clone()).collect();
        sum_lone(n, &mut operands[i], &output, &other)?;
    }
    let mut left = operands.into_iter();
    let mut result = left.next().ok_or_else(|| n.attributes.error("there are no operands"))?;
    while let Some(next) = left.next() {
        // Labels that later operands share stay.
        let later = left.as_slice().iter().flat_map(|operand| operand.labels.clone());
        let wanted: Vec<_> = output.iter().copied().chain(later).collect();
        result = contract(n, result, next, &wanted)?;
    }
    Ok(vec![permuted(n, &result, &output)?])
}

/// The operands with a label for each axis, and the labels of the result. Labels of dots are made of the axis's place,
/// counted from the end.
fn parsed(n: &Node<'_, '_>) -> Result<(Vec<Labelled>, Vec<char>)> {
    let equation = n.attributes.text("equation").unwrap_or_default();
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let unsupported = || n.unsupported(format!("with equation `{equation}`"));
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (equation.as_str(), None),
    };
    let inputs = n.inputs()?;
    if left.split(',').count() != inputs.len() {
        return Err(unsupported());
    }
    let mut operands = vec![];
    let mut most = 0;
    for (term, value) in left.split(',').zip(inputs) {
        let rank = n.dims(value).len();
        let letters = term.chars().filter(|c| *c != '.').count();
        let dots = if term.contains("...") { rank.checked_sub(letters) } else { Some(0) };
        let dots = dots.ok_or_else(unsupported)?;
        most = most.max(dots);
        let labels = labels(term, dots).ok_or_else(unsupported)?;
        if labels.len() != rank {
            return Err(unsupported());
        }
        operands.push(Labelled { value, labels });
    }
    let output = match right {
        Some(right) => labels(right, most).ok_or_else(unsupported)?,
        None => {
            // Dots first, then all letters that stand once.
            let all: Vec<char> =
                operands.iter().flat_map(|operand| operand.labels.clone()).collect();
            let once = |c: &char| all.iter().filter(|other| *other == c).count() == 1;
            let mut alone: Vec<_> =
                all.iter().copied().filter(|c| c.is_ascii_alphabetic() && once(c)).collect();
            alone.sort_unstable();
            let dots = labels("...", most).ok_or_else(unsupported)?;
            [dots, alone].concat()
        }
    };
    let twice = (0..output.len()).any(|i| output[i + 1..].contains(&output[i]));
    let known = output.iter().all(|c| operands.iter().any(|operand| operand.labels.contains(c)));
    if twice || !known { Err(unsupported()) } else { Ok((operands, output)) }
}

/// The labels of a term, whose dots stand for so many axes.
fn labels(term: &str, dots: usize) -> Option<Vec<char>> {
    let (before, after) = match term.split_once("...") {
        Some((before, after)) => (before, Some(after)),
        None => (term, None),
    };
    let mut labels: Vec<char> = before.chars().collect();
    if let Some(after) = after {
        labels.extend((0..dots as u32).rev().filter_map(|i| char::from_u32(DOTS + i)));
        labels.extend(after.chars());
    }
    labels.iter().all(|c| c.is_ascii_alphabetic() || *c as u32 >= DOTS).then_some(labels)
}

/// The first of the labels of dots, beyond all letters.
const DOTS: u32 = 0xE000;

/// The elements at equal places of axes with equal labels.
fn diagonal(n: &mut Node<'_, '_>, x: &mut Labelled) -> Result<()> {
    while let Some(second) = (0..x.labels.len()).find(|&i| x.labels[..i].contains(&x.labels[i])) {
        let label = x.labels[second];
        let first = x.labels.iter().position(|c| *c == label).unwrap_or(0);
        let dims = n.dims(x.value);
        if dims[first] != dims[second] {
            let reason = format!("`{label}` is {} and {}", dims[first], dims[second]);
            return Err(n.attributes.error(reason));
        }
        let mut order: Vec<_> = (0..dims.len()).filter(|a| ![first, second].contains(a)).collect();
        let mut shape: Vec<_> = order.iter().map(|&a| dims[a]).collect();
        let axis = shape.len();
        let len = dims[first];
        shape.push(len * len);
        order.extend([first, second]);
        let moved = n.add(Op::Permute(order.clone()), &[x.value])?;
        let flat = fixed(n, moved, &shape)?;
        let indices = (0..len).map(|i| i * (len + 1)).collect();
        x.value = n.add(Op::Gather { axis, indices, squeeze: false }, &[flat])?;
        x.labels = order[..=axis].iter().map(|&a| x.labels[a]).collect();
    }
    Ok(())
}

/// Drops axes of length 1 whose label is longer elsewhere. Other lengths must be the same.
fn one_size(n: &mut Node<'_, '_>, operands: &mut [Labelled]) -> Result<()> {
    let mut sizes: Vec<(char, usize)> = vec![];
    for operand in operands.iter() {
        for (&label, size) in operand.labels.iter().zip(n.dims(operand.value)) {
            match sizes.iter_mut().find(|(other, _)| *other == label) {
                None => sizes.push((label, size)),
                Some((_, other)) if *other == 1 => *other = size,
                Some((_, other)) if size == 1 || size == *other => {}
                Some((_, other)) => {
                    let reason = format!("lengths {other} and {size} of one label do not fit");
                    return Err(n.attributes.error(reason));
                }
            }
        }
    }
    let wide = |label: char| sizes.iter().any(|&(other, size)| other == label && size != 1);
    for operand in operands {
        let dims = n.dims(operand.value);
        let kept: Vec<_> =
            (0..dims.len()).filter(|&a| dims[a] != 1 || !wide(operand.labels[a])).collect();
        if kept.len() < dims.len() {
            let shape: Vec<_> = kept.iter().map(|&a| dims[a]).collect();
            operand.value = fixed(n, operand.value, &shape)?;
            operand.labels = kept.iter().map(|&a| operand.labels[a]).collect();
        }
    }
    Ok(())
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
