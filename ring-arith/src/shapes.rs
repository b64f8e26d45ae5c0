//! An engine that computes shapes and no words.

use std::convert::Infallible;

use crate::{
    Addend, AddendSource, Bilinear, Engine, EngineTensor, Error, Generator, Launch, Result, Shape,
    Tensor, View, Window, WordKernel,
};

/// An engine whose tensors have a shape and no words.
///
/// A protocol's messages depend only on shapes. So a protocol over this engine sends as many messages of the
/// same sizes in the same rounds as over any other, almost for free. Predictions of costs use this. Operands
/// are checked as far as their shapes go. [`Engine::download`] gives zeros.
#[derive(Debug, Clone, Copy, Default)]
pub struct ShapeEngine;

/// A tensor of [`ShapeEngine`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeTensor(Shape);

impl EngineTensor for ShapeTensor {
    type Room = Infallible;

    fn shape(&self) -> &Shape {
        &self.0
    }
}

impl Engine for ShapeEngine {
    type Tensor = ShapeTensor;

    fn computes(&self) -> bool {
        false
    }

    fn name(&self) -> String {
        "shapes".to_owned()
    }

    fn generators(&self) -> Vec<Generator> {
        Generator::quick_on_this_cpu()
    }

    fn upload(&self, tensor: Tensor) -> Result<ShapeTensor> {
        Ok(ShapeTensor(tensor.shape().clone()))
    }

    /// Zeros, which the system gives without touching memory until they are read.
    fn download(&self, tensor: &ShapeTensor) -> Result<Tensor> {
        Tensor::new(tensor.0.clone(), vec![0; tensor.len()])
    }

    fn view(&self, tensor: &ShapeTensor, view: &View) -> Result<ShapeTensor> {
        view.output_shape(&tensor.0).map(ShapeTensor)
    }

    fn concat(&self, tensors: &[&ShapeTensor], axis: usize) -> Result<ShapeTensor> {
        let shapes: Vec<_> = tensors.iter().map(|tensor| &tensor.0).collect();
        Shape::concat(&shapes, axis).map(ShapeTensor)
    }

    fn sum(&self, tensor: &ShapeTensor, axes: &[usize]) -> Result<ShapeTensor> {
        tensor.0.sum(axes).map(ShapeTensor)
    }

    fn window_sum(&self, tensor: &ShapeTensor, window: &Window) -> Result<ShapeTensor> {
        window.sum_shape(&tensor.0).map(ShapeTensor)
    }

    fn bilinear(
        &self,
        op: &Bilinear,
        terms: &[(&ShapeTensor, &ShapeTensor)],
        addends: &[Addend<'_, ShapeTensor>],
    ) -> Result<ShapeTensor> {
        let name = op.name();
        let mut shapes = terms.iter().map(|(lhs, rhs)| op.output_shape(&lhs.0, &rhs.0));
        let none = || Error::invalid(name, "there is nothing to multiply");
        let shape = shapes.next().ok_or_else(none)??;
        for other in shapes {
            let other = other?;
            if other != shape {
                return Err(Error::Shapes { op: name, lhs: shape, rhs: other });
            }
        }
        for addend in addends {
            let AddendSource::Tensor(tensor) = addend.source else { continue };
            if shape.broadcast(&tensor.0, name)? != shape {
                return Err(Error::Shapes { op: name, lhs: shape, rhs: tensor.0.clone() });
            }
        }
        Ok(ShapeTensor(shape))
    }

    fn launch<K: WordKernel<I, O>, const I: usize, const O: usize>(
        &self,
        _: &K,
        launch: &Launch<'_, ShapeTensor, I, O>,
    ) -> Result<Vec<ShapeTensor>> {
        Ok(launch.outputs.iter().cloned().map(ShapeTensor).collect())
    }

    fn to_planes(&self, tensor: &ShapeTensor, low: u32, width: u32) -> Result<ShapeTensor> {
        if width == 0 || low.saturating_add(width) > 64 {
            let reason = format!("{width} bits from bit {low} on are not inside a word");
            return Err(Error::invalid("to_planes", reason));
        }
        Shape::new([width as usize, tensor.len().div_ceil(64)]).map(ShapeTensor)
    }

    fn from_planes(&self, planes: &ShapeTensor, low: u32, shape: &Shape) -> Result<ShapeTensor> {
        match planes.0.dims() {
            &[width, words]
                if width as u64 + u64::from(low) <= 64 && words == shape.len().div_ceil(64) =>
            {
                Ok(ShapeTensor(shape.clone()))
            }
            _ => {
                Err(Error::Shapes { op: "from_planes", lhs: planes.0.clone(), rhs: shape.clone() })
            }
        }
    }
}
