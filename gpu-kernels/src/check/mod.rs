//! Comparisons of a device with the CPU engine, operation by operation.
//!
//! Tests run them on the emulator, `cargo xtask gpu` on a real device. Operands are pseudo-random words
//! with edge values among them, and for products the words whose limbs make the largest sums.

mod moves;
mod products;
mod words;

use std::fmt::Display;

use ring_arith::{
    CpuEngine, Engine, EngineTensor, Error, Generator, Result, Shape, Stream, StreamKey, Tensor,
};

use crate::{CudaEngine, Method};

/// One comparison.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// A short name.
    pub name: &'static str,
    run: fn(&Pair) -> Result<()>,
}

/// The size of the operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// For the emulator and for `compute-sanitizer`: every path, few words.
    Small,
    /// For a device: also operands that fill it.
    Full,
}

/// All comparisons, those first that others depend on: matrix instructions, streams, moves,
/// kernels.
pub const CHECKS: &[Check] = &[
    Check { name: "mma-limbs", run: |p| products::matrix_instruction(p, Method::Limbs8) },
    Check { name: "wgmma-limbs", run: products::wgmma },
    Check { name: "streams", run: words::streams },
    Check { name: "views", run: moves::views },
    Check { name: "concat", run: moves::concat },
    Check { name: "sums", run: moves::sums },
    Check { name: "window-sums", run: moves::window_sums },
    Check { name: "planes", run: moves::planes },
    Check { name: "word-kernels", run: words::kernels },
    Check { name: "products", run: products::elementwise },
    Check { name: "matmul", run: products::matmul },
    Check { name: "longest-sums", run: products::longest_sums },
    Check { name: "convolutions", run: products::convolutions },
];

impl Check {
    /// Compares `device` with the CPU engine.
    ///
    /// # Errors
    /// [`Error::Device`] that names the operation and the first word that differs, or whatever the device
    /// itself reports.
    pub fn run(&self, device: &CudaEngine, extent: Extent) -> Result<()> {
        let methods = device.methods();
        (self.run)(&Pair { device: device.clone(), cpu: CpuEngine::new(0), extent, methods })
    }

    /// As [`Check::run`], products by one method alone.
    ///
    /// # Errors
    /// As [`Check::run`].
    pub fn run_only(&self, device: &CudaEngine, extent: Extent, method: Method) -> Result<()> {
        let methods = vec![method];
        (self.run)(&Pair { device: device.clone(), cpu: CpuEngine::new(0), extent, methods })
    }
}

/// The engines to compare.
struct Pair {
    device: CudaEngine,
    cpu: CpuEngine,
    extent: Extent,
    /// By which products are computed.
    methods: Vec<Method>,
}

/// Runs one operation on both engines of a [`Pair`] and compares the results.
macro_rules! same {
    ($pair:expr, $what:expr, |$engine:ident| $body:expr) => {{
        let expected = {
            let $engine = &$pair.cpu;
            $body
        };
        let found = {
            let $engine = &$pair.device;
            $engine.download(&$body)?
        };
        $pair.compare(&$what, &expected, &found)?
    }};
}
use same;

impl Pair {
    fn with_method(&self, method: Method) -> Self {
        let device = self.device.clone().with_method(method);
        Self { device, cpu: self.cpu.clone(), extent: self.extent, methods: vec![method] }
    }

    fn full(&self) -> bool {
        self.extent == Extent::Full
    }

    fn compare(&self, what: &dyn Display, expected: &Tensor, found: &Tensor) -> Result<()> {
        let differ = |reason: String| {
            Err(Error::Device { device: self.device.name(), reason: format!("{what}: {reason}") })
        };
        if expected.shape() != found.shape() {
            return differ(format!("shape {:?}, not {:?}", found.shape(), expected.shape()));
        }
        let mut pairs = expected.words().iter().zip(found.words()).enumerate();
        let wrong = pairs.clone().filter(|(_, (e, f))| e != f).count();
        match pairs.find(|(_, (e, f))| e != f) {
            Some((i, (e, f))) => differ(format!(
                "{wrong} of {} words differ, the first at {i}: {f:#x}, not {e:#x}",
                expected.words().len()
            )),
            None => Ok(()),
        }
    }
}

fn stream(generator: Generator, nonce: u64) -> Stream {
    let key: [u8; 32] = std::array::from_fn(|i| (i * 7 + 3) as u8);
    StreamKey::new(generator, &key).stream(nonce)
}

/// Pseudo-random words with edge values among them.
fn tensor(dims: &[usize], seed: u64) -> Result<Tensor> {
    let shape = Shape::new(dims)?;
    let mut words = vec![0; shape.len()];
    stream(Generator::ChaCha12, seed).fill(0, &mut words);
    let edges = [0, 1, u64::MAX, 1 << 63, u64::MAX >> 1];
    for (i, w) in words.iter_mut().enumerate().filter(|(i, _)| i % 7 == 3) {
        *w = edges[i / 7 % edges.len()];
    }
    Tensor::new(shape, words)
}
