//! The seam between protocols and the hardware that does their local work.

use std::fmt;

use crate::{Addend, Bilinear, Generator, Launch, Place, Result, Shape, Tensor, View, WordKernel};

/// A tensor of words that lives where its engine computes. Clones share their words.
#[allow(clippy::len_without_is_empty)] // emptiness is no case of its own
pub trait EngineTensor: Clone + fmt::Debug + Send + Sync + 'static {
    /// Memory for a tensor whose parts are made one by one; see [`Engine::room`]. `Infallible` for
    /// an engine without rooms.
    type Room: Clone + fmt::Debug + Send + Sync + 'static;

    /// The shape.
    fn shape(&self) -> &Shape;

    /// Number of words.
    fn len(&self) -> usize {
        self.shape().len()
    }
}

/// An engine: holds tensors of words and does local work on them.
///
/// Every method checks its operands before it computes, and never branches on a word's value.
/// Results do not depend on the number of threads, the instruction set or the device. A device
/// engine may return before the work is done; [`Engine::download`] waits for it.
pub trait Engine: Clone + fmt::Debug + Send + Sync + 'static {
    /// The engine's tensors.
    type Tensor: EngineTensor;

    /// The engine's name for reports: `cpu/avx512/2`, `cuda/H200`.
    fn name(&self) -> String;

    /// False if tensors have shapes and no words, so that all words are 0.
    fn computes(&self) -> bool {
        true
    }

    /// The secure generators whose streams this engine makes quickly, best first. Parties on
    /// different machines take one that all of them name.
    fn generators(&self) -> Vec<Generator>;

    /// Brings a tensor from the host's memory. Free on the CPU.
    ///
    /// # Errors
    /// [`crate::Error::Device`] if the device's memory is too small.
    fn upload(&self, tensor: Tensor) -> Result<Self::Tensor>;

    /// Brings a tensor to the host's memory. Free on the CPU.
    ///
    /// # Errors
    /// [`crate::Error::Device`] if the device failed.
    fn download(&self, tensor: &Self::Tensor) -> Result<Tensor>;

    /// Moves words. Reshapes, and slices of the outermost axis, are free on the CPU.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the view does not fit the tensor.
    fn view(&self, tensor: &Self::Tensor, view: &View) -> Result<Self::Tensor>;

    /// Concatenates along an axis.
    ///
    /// # Errors
    /// [`crate::Error::Shapes`] if other axes differ, [`crate::Error::Invalid`] without operands.
    fn concat(&self, tensors: &[&Self::Tensor], axis: usize) -> Result<Self::Tensor>;

    /// Sums over axes, which stay with length 1.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if an axis does not exist or is named twice.
    fn sum(&self, tensor: &Self::Tensor, axes: &[usize]) -> Result<Self::Tensor>;

    /// `[.., H, W]` to `[.., OH, OW]`: sums of the words under each position of a window.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the window does not fit.
    fn window_sum(&self, tensor: &Self::Tensor, window: &crate::Window) -> Result<Self::Tensor>;

    /// The sum of one bilinear map over several pairs of operands, plus addends, in one pass.
    ///
    /// # Errors
    /// [`crate::Error::Shapes`] or [`crate::Error::Invalid`] if operands do not fit.
    fn bilinear(
        &self,
        op: &Bilinear,
        terms: &[(&Self::Tensor, &Self::Tensor)],
        addends: &[Addend<'_, Self::Tensor>],
    ) -> Result<Self::Tensor>;

    /// Runs a word kernel; returns the tensors of [`Launch::outputs`].
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if a source or target leaves its tensor, or two targets meet.
    fn launch<K: WordKernel<I, O>, const I: usize, const O: usize>(
        &self,
        kernel: &K,
        launch: &Launch<'_, Self::Tensor, I, O>,
    ) -> Result<Vec<Self::Tensor>>;

    /// Room for a tensor of `len` words. [`Engine::launch_into`] makes its parts, and [`Engine::seal`]
    /// turns them into one tensor without a copy. `None` from an engine without rooms.
    fn room(&self, len: usize) -> Option<<Self::Tensor as EngineTensor>::Room> {
        let _ = len;
        None
    }

    /// As [`Engine::launch`], with outputs made in place: output `i` at `places[i]`, if that is set.
    /// Without room they are separate tensors.
    ///
    /// # Errors
    /// As [`Engine::launch`]; [`crate::Error::Invalid`] if a place leaves its room or was taken before.
    fn launch_into<K: WordKernel<I, O>, const I: usize, const O: usize>(
        &self,
        kernel: &K,
        launch: &Launch<'_, Self::Tensor, I, O>,
        places: &[Option<Place<'_, Self::Tensor>>],
    ) -> Result<Vec<Self::Tensor>> {
        let _ = places;
        self.launch(kernel, launch)
    }

    /// A room's words under a shape, of which these are the parts, in order. Parts made elsewhere are
    /// copied. `None` if they do not fill the room, or if a part is still being made.
    fn seal(
        &self,
        room: &<Self::Tensor as EngineTensor>::Room,
        parts: &[&Self::Tensor],
        shape: &Shape,
    ) -> Option<Self::Tensor> {
        let _ = (room, parts, shape);
        None
    }

    /// Bits `low..low + width` of every element as planes: `[width, ceil(n / 64)]`, plane `j` holding
    /// bit `low + j`, element `i` at bit `i % 64` of word `i / 64`. Lanes past the last element are 0.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] unless `1 <= width` and `low + width <= 64`.
    fn to_planes(&self, tensor: &Self::Tensor, low: u32, width: u32) -> Result<Self::Tensor>;

    /// The inverse: planes `[width, ceil(n / 64)]` to words of `shape` with plane `j` at bit
    /// `low + j`, all other bits 0.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if planes and shape do not fit or `low + width > 64`.
    #[allow(clippy::wrong_self_convention)] // the engine is not what is converted
    fn from_planes(&self, planes: &Self::Tensor, low: u32, shape: &Shape) -> Result<Self::Tensor>;
}
