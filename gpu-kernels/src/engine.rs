//! The engine: every operation of [`ring_arith::Engine`] on one device.

use std::{fmt, path::Path, sync::Arc};

use ring_arith::{
    Addend, Bilinear, Engine, EngineTensor, Generator, Launch, Result, Shape, Stream, Tensor, View,
    Window, WordKernel,
};

use crate::{
    CudaTensor, chooser, cublas::Blas, device::Device, launch, moves, products, streams, sums,
};

/// Local work on a CUDA device, on one stream. Clones share the device's memory and stream.
#[derive(Clone)]
pub struct CudaEngine {
    device: Device,
    method: Method,
    blas: Option<Arc<Blas>>,
}

/// The methods for bilinear maps. All give the same words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Method {
    /// By shape and device: the tensor cores for large products, else integer arithmetic.
    #[default]
    Automatic,
    /// 64-bit integer arithmetic.
    Integer,
    /// 36 products of 8-bit limbs on the tensor cores, by `mma.sync`.
    Limbs8,
    /// The same by `wgmma`: only on compute capability 9.x (Hopper).
    Wgmma,
    /// Ten products of four 16-bit limbs in `f64` by cuBLAS, as CryptGPU computes: for comparison. Needs
    /// [`CudaEngine::with_cublas`].
    F64Limbs16,
    /// The same with six products of three limbs of at most 22 bits, balanced around 0.
    F64Limbs22,
}

impl CudaEngine {
    /// Opens device `ordinal`, numbered from 0.
    ///
    /// # Errors
    /// [`ring_arith::Error::Device`] if the driver or the device is missing, or if the device is
    /// older than compute capability 8.0.
    pub fn open(ordinal: usize) -> Result<Self> {
        Ok(Self { device: Device::open(ordinal)?, method: Method::Automatic, blas: None })
    }

    /// The same device with another way to compute products: for tests and measurements.
    #[must_use]
    pub fn with_method(self, method: Method) -> Self {
        Self { method, ..self }
    }

    /// The same device with cuBLAS, from `library` or from the system loader's paths.
    ///
    /// # Errors
    /// [`ring_arith::Error::Device`] if it is not installed or does not start.
    pub fn with_cublas(self, library: Option<&Path>) -> Result<Self> {
        let blas = Blas::load(&self.device, library)?;
        Ok(Self { blas: Some(Arc::new(blas)), ..self })
    }

    /// The same device with another limit on the bytes of limbs of one operand of a product, for devices
    /// with little memory. The default is 512 MiB; the limit is never less than a tile needs.
    #[must_use]
    pub fn with_limb_memory(mut self, bytes: usize) -> Self {
        self.device.room = bytes;
        self
    }

    /// The methods that this device can run, [`Method::Automatic`] apart.
    #[must_use]
    pub fn methods(&self) -> Vec<Method> {
        chooser::methods(&self.device, self.blas.as_deref())
    }

    /// The generator that sessions with a party on this engine should choose.
    pub const GENERATOR: Generator = Generator::ChaCha12;

    /// Words `first..` of a stream as a tensor, for tests: kernels generate these words in
    /// registers.
    ///
    /// # Errors
    /// [`ring_arith::Error::Invalid`] if the positions leave the stream.
    pub fn stream(&self, stream: &Stream, first: u64, shape: Shape) -> Result<CudaTensor> {
        streams::fill(&self.device, stream, first, shape)
    }

    /// A copy of a tensor's words, made by the driver: the baseline for other work on memory.
    ///
    /// # Errors
    /// [`ring_arith::Error::Device`] if the device's memory is too small.
    pub fn copy(&self, tensor: &CudaTensor) -> Result<CudaTensor> {
        let out = self.device.empty(tensor.shape().clone())?;
        self.device.driver.copy(out.address(), tensor.address(), tensor.len() * 8)?;
        Ok(out)
    }

    /// Gives device memory that is kept for later results back, unless it is at most `words` words.
    ///
    /// # Errors
    /// [`ring_arith::Error::Device`] if the device failed.
    pub fn trim(&self, words: usize) -> Result<()> {
        self.device.driver.trim(words.saturating_mul(8))
    }

    /// Waits for all queued work.
    ///
    /// # Errors
    /// [`ring_arith::Error::Device`] if any of it failed.
    pub fn synchronize(&self) -> Result<()> {
        self.device.driver.synchronize()
    }
}

impl Engine for CudaEngine {
    type Tensor = CudaTensor;

    fn name(&self) -> String {
        let (major, minor) = self.device.driver.capability();
        format!("cuda/{}/sm_{major}{minor}", self.device.driver.name())
    }

    fn generators(&self) -> Vec<Generator> {
        vec![Self::GENERATOR]
    }

    fn upload(&self, tensor: Tensor) -> Result<CudaTensor> {
        self.device.upload(&tensor)
    }

    fn download(&self, tensor: &CudaTensor) -> Result<Tensor> {
        self.device.download(tensor)
    }

    fn view(&self, tensor: &CudaTensor, view: &View) -> Result<CudaTensor> {
        moves::view(&self.device, tensor, view)
    }

    fn concat(&self, tensors: &[&CudaTensor], axis: usize) -> Result<CudaTensor> {
        moves::concat(&self.device, tensors, axis)
    }

    fn sum(&self, tensor: &CudaTensor, axes: &[usize]) -> Result<CudaTensor> {
        sums::sum(&self.device, tensor, axes)
    }

    fn window_sum(&self, tensor: &CudaTensor, window: &Window) -> Result<CudaTensor> {
        sums::window_sum(&self.device, tensor, window)
    }

    fn bilinear(
        &self,
        op: &Bilinear,
        terms: &[(&CudaTensor, &CudaTensor)],
        addends: &[Addend<'_, CudaTensor>],
    ) -> Result<CudaTensor> {
        products::bilinear(&self.device, (self.method, self.blas.as_deref()), op, terms, addends)
    }

    fn launch<K: WordKernel<I, O>, const I: usize, const O: usize>(
        &self,
        kernel: &K,
        launch: &Launch<'_, CudaTensor, I, O>,
    ) -> Result<Vec<CudaTensor>> {
        launch::launch(&self.device, kernel, launch)
    }

    fn to_planes(&self, tensor: &CudaTensor, low: u32, width: u32) -> Result<CudaTensor> {
        sums::to_planes(&self.device, tensor, low, width)
    }

    fn from_planes(&self, planes: &CudaTensor, low: u32, shape: &Shape) -> Result<CudaTensor> {
        sums::from_planes(&self.device, planes, low, shape)
    }
}

impl fmt::Debug for CudaEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}
