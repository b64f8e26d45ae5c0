//! Short forms of an engine's launch.

use mpc_core::Error;
use ring_arith::{
    Engine, EngineTensor, Launch, Place, Result, Shape, Source, Target, View, WordKernel,
};

use crate::kernels::{Copy, Sum};

/// Runs a kernel with one output on whole tensors of one length.
pub(crate) fn map<E: Engine, K: WordKernel<I, 1>, const I: usize>(
    engine: &E,
    kernel: &K,
    shape: &Shape,
    inputs: [&E::Tensor; I],
    params: &[u64],
) -> Result<E::Tensor> {
    let sources = inputs.map(whole);
    let [out] = words(engine, kernel, shape, sources, params)?;
    Ok(out)
}

/// Runs a kernel over the words of `shape`; each output is a separate tensor.
pub(crate) fn words<E: Engine, K: WordKernel<I, O>, const I: usize, const O: usize>(
    engine: &E,
    kernel: &K,
    shape: &Shape,
    sources: [Source<'_, E::Tensor>; I],
    params: &[u64],
) -> Result<[E::Tensor; O]> {
    words_into(engine, kernel, shape, sources, params, [const { None }; O])
}

/// As [`words`], with outputs made where they belong.
pub(crate) fn words_into<E: Engine, K: WordKernel<I, O>, const I: usize, const O: usize>(
    engine: &E,
    kernel: &K,
    shape: &Shape,
    sources: [Source<'_, E::Tensor>; I],
    params: &[u64],
    places: [Option<Place<'_, E::Tensor>>; O],
) -> Result<[E::Tensor; O]> {
    let outputs = vec![shape.clone(); O];
    let targets = std::array::from_fn(|tensor| Target { tensor, offset: 0, row_stride: 0 });
    let launch = Launch { rows: 1, cols: shape.len(), sources, params, outputs: &outputs, targets };
    Ok(array(engine.launch_into(kernel, &launch, &places)?))
}

/// As many items as are asked for: those of a launch.
pub(crate) fn array<T, const N: usize>(items: Vec<T>) -> [T; N] {
    items.try_into().ok().expect("a launch has as many sources, targets and outputs as its kernel")
}

/// A source's words as a tensor: for instance a draw that becomes a component.
pub(crate) fn made<E: Engine>(
    engine: &E,
    shape: &Shape,
    source: Source<'_, E::Tensor>,
) -> Result<E::Tensor> {
    made_into(engine, shape, source, None)
}

/// As [`made`], where the tensor belongs.
pub(crate) fn made_into<E: Engine>(
    engine: &E,
    shape: &Shape,
    source: Source<'_, E::Tensor>,
    place: Option<Place<'_, E::Tensor>>,
) -> Result<E::Tensor> {
    let [made] = words_into(engine, &Copy, shape, [source], &[], [place])?;
    Ok(made)
}

/// Runs a kernel over rows of planes of `cols` words; `outputs` are numbers of planes.
pub(crate) fn planes<E, K, const I: usize, const O: usize, const N: usize>(
    engine: &E,
    kernel: &K,
    [rows, cols]: [usize; 2],
    sources: Vec<Source<'_, E::Tensor>>,
    params: &[u64],
    outputs: [usize; N],
    targets: Vec<Target>,
) -> Result<[E::Tensor; N]>
where
    E: Engine,
    K: WordKernel<I, O>,
{
    let shapes = outputs.iter().map(|&n| Shape::new([n, cols])).collect::<Result<Vec<_>>>()?;
    let sources = array(sources);
    let targets = array(targets);
    let launch = Launch { rows, cols, sources, params, outputs: &shapes, targets };
    Ok(array(engine.launch(kernel, &launch)?))
}

/// Runs a kernel over rows of words into one tensor of a shape.
pub(crate) fn rows<E: Engine, K: WordKernel<I, O>, const I: usize, const O: usize>(
    engine: &E,
    kernel: &K,
    [rows, cols]: [usize; 2],
    sources: [Source<'_, E::Tensor>; I],
    shape: Shape,
    targets: [Target; O],
) -> Result<E::Tensor> {
    rows_into(engine, kernel, [rows, cols], sources, shape, targets, None)
}

/// As [`rows`], where the tensor belongs.
pub(crate) fn rows_into<E: Engine, K: WordKernel<I, O>, const I: usize, const O: usize>(
    engine: &E,
    kernel: &K,
    [rows, cols]: [usize; 2],
    sources: [Source<'_, E::Tensor>; I],
    shape: Shape,
    targets: [Target; O],
    place: Option<Place<'_, E::Tensor>>,
) -> Result<E::Tensor> {
    let launch = Launch { rows, cols, sources, params: &[], outputs: &[shape], targets };
    let [made] = array(engine.launch_into(kernel, &launch, &[place])?);
    Ok(made)
}

/// The sum of two tensors of one shape.
pub(crate) fn add<E: Engine>(engine: &E, x: &E::Tensor, y: &E::Tensor) -> Result<E::Tensor> {
    map(engine, &Sum, x.shape(), [x, y], &[])
}

/// As [`add`], where the sum belongs.
pub(crate) fn add_into<E: Engine>(
    engine: &E,
    x: &E::Tensor,
    y: &E::Tensor,
    place: Option<Place<'_, E::Tensor>>,
) -> Result<E::Tensor> {
    let [sum] = words_into(engine, &Sum, x.shape(), [whole(x), whole(y)], &[], [place])?;
    Ok(sum)
}

/// A whole tensor as one row.
pub(crate) fn whole<T>(tensor: &T) -> Source<'_, T> {
    Source::Tensor { tensor, offset: 0, row_stride: 0 }
}

/// Planes of a tensor: row `r` is plane `plane + r * stride`, planes of `cols` words.
pub(crate) fn plane_of<T>(tensor: &T, plane: usize, stride: usize, cols: usize) -> Source<'_, T> {
    Source::Tensor { tensor, offset: plane * cols, row_stride: stride * cols }
}

/// A target in planes: row `r` goes to plane `plane + r * stride` of output `tensor`.
pub(crate) fn to_plane(tensor: usize, plane: usize, stride: usize, cols: usize) -> Target {
    Target { tensor, offset: plane * cols, row_stride: stride * cols }
}

/// The words as one axis.
pub(crate) fn flat<E: Engine>(engine: &E, x: &E::Tensor) -> Result<E::Tensor> {
    engine.view(x, &View::Reshape(Shape::new([x.len()])?))
}

/// Elements `start..end` of a tensor of one axis.
pub(crate) fn slice<E: Engine>(
    engine: &E,
    x: &E::Tensor,
    axis: usize,
    start: usize,
    end: usize,
) -> Result<E::Tensor> {
    engine.view(x, &View::Slice { axis, start, end, step: 1 })
}

/// An attribute that cannot be accepted.
pub(crate) fn invalid(op: &'static str, reason: impl Into<String>) -> Error {
    Error::Invalid { op, reason: reason.into() }
}
