//! The engine that a program picks when it starts.

use std::{fmt, str::FromStr};

use ring_arith::{
    Addend, AddendSource, Bilinear, CpuEngine, Engine, EngineTensor, Error, Generator, Launch,
    Place, Result, Shape, ShapeEngine, ShapeTensor, Source, Tensor, View, Window, WordKernel,
};

use crate::{CudaEngine, CudaTensor};

/// The engine for a program, as users write it: `auto`, `cpu` or `cuda:0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EngineChoice {
    /// The first CUDA device if one exists, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A CUDA device, numbered from 0.
    Cuda(usize),
}

/// The CPU, a CUDA device, or neither.
///
/// Each call is passed to one of the engines. The extra match is short compared with even the smallest
/// launch.
#[derive(Clone)]
#[non_exhaustive]
pub enum AnyEngine {
    /// The CPU.
    Cpu(CpuEngine),
    /// A CUDA device.
    Cuda(CudaEngine),
    /// None: only shapes are computed, to predict a program's cost.
    Shapes(ShapeEngine),
}

/// A tensor of [`AnyEngine`], in the memory of the engine that made it.
#[derive(Clone)]
#[non_exhaustive]
pub enum AnyTensor {
    /// In the host's memory.
    Cpu(Tensor),
    /// In a device's memory.
    Cuda(CudaTensor),
    /// A shape without words.
    Shapes(ShapeTensor),
}

impl EngineChoice {
    /// Opens the engine; a CPU engine gets `threads` threads. If [`EngineChoice::Auto`] takes the CPU,
    /// the second result is the error of the device.
    ///
    /// # Errors
    /// [`Error::Device`] if a CUDA device was asked for that cannot be used.
    pub fn open(self, threads: usize) -> Result<(AnyEngine, Option<Error>)> {
        let cpu = || AnyEngine::Cpu(CpuEngine::new(threads));
        match self {
            Self::Auto => Ok(match CudaEngine::open(0) {
                Ok(engine) => (AnyEngine::Cuda(engine), None),
                Err(reason) => (cpu(), Some(reason)),
            }),
            Self::Cpu => Ok((cpu(), None)),
            Self::Cuda(ordinal) => Ok((AnyEngine::Cuda(CudaEngine::open(ordinal)?), None)),
        }
    }
}

impl FromStr for EngineChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ordinal = |number: &str| number.parse().ok().map(Self::Cuda);
        match text {
            "auto" => Some(Self::Auto),
            "cpu" => Some(Self::Cpu),
            _ => text.strip_prefix("cuda:").and_then(ordinal),
        }
        .ok_or_else(|| {
            let text = text.escape_default();
            format!("`{text}` is no engine; it is `auto`, `cpu`, or `cuda:` with a device's number")
        })
    }
}

impl fmt::Display for EngineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// As the text that people write.
#[cfg(feature = "serde")]
impl serde::Serialize for EngineChoice {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// From the text that people write.
#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for EngineChoice {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl AnyEngine {
    /// Gives memory that is kept for later results back, beyond `words` words. Results are not affected.
    ///
    /// # Errors
    /// [`Error::Device`] if the device failed.
    pub fn trim(&self, words: usize) -> Result<()> {
        match self {
            Self::Cpu(engine) => {
                engine.buffers().trim(words);
                Ok(())
            }
            Self::Cuda(engine) => engine.trim(words),
            Self::Shapes(_) => Ok(()),
        }
    }
}

impl AnyTensor {
    fn cpu(&self) -> Result<&Tensor> {
        match self {
            Self::Cpu(tensor) => Ok(tensor),
            other => Err(other.elsewhere("the CPU computes")),
        }
    }

    fn cuda(&self) -> Result<&CudaTensor> {
        match self {
            Self::Cuda(tensor) => Ok(tensor),
            other => Err(other.elsewhere("a CUDA device computes")),
        }
    }

    fn shapes(&self) -> Result<&ShapeTensor> {
        match self {
            Self::Shapes(tensor) => Ok(tensor),
            other => Err(other.elsewhere("shapes alone are computed")),
        }
    }

    /// The error for an operand that another engine made.
    fn elsewhere(&self, here: &str) -> Error {
        let lies = match self {
            Self::Cpu(_) => "lies in the host's memory",
            Self::Cuda(_) => "lies on a CUDA device",
            Self::Shapes(_) => "has no words",
        };
        Error::Invalid { op: "engine", reason: format!("an operand {lies}, but {here}") }
    }
}

impl EngineTensor for AnyTensor {
    /// Only the CPU has such a thing.
    type Room = <Tensor as EngineTensor>::Room;

    fn shape(&self) -> &Shape {
        match self {
            Self::Cpu(tensor) => tensor.shape(),
            Self::Cuda(tensor) => tensor.shape(),
            Self::Shapes(tensor) => tensor.shape(),
        }
    }
}

impl Engine for AnyEngine {
    type Tensor = AnyTensor;

    fn name(&self) -> String {
        match self {
            Self::Cpu(engine) => engine.name(),
            Self::Cuda(engine) => engine.name(),
            Self::Shapes(engine) => engine.name(),
        }
    }

    fn computes(&self) -> bool {
        match self {
            Self::Cpu(engine) => engine.computes(),
            Self::Cuda(engine) => engine.computes(),
            Self::Shapes(engine) => engine.computes(),
        }
    }

    fn generators(&self) -> Vec<Generator> {
        match self {
            Self::Cpu(engine) => engine.generators(),
            Self::Cuda(engine) => engine.generators(),
            Self::Shapes(engine) => engine.generators(),
        }
    }

    fn upload(&self, tensor: Tensor) -> Result<AnyTensor> {
        match self {
            Self::Cpu(engine) => engine.upload(tensor).map(AnyTensor::Cpu),
            Self::Cuda(engine) => engine.upload(tensor).map(AnyTensor::Cuda),
            Self::Shapes(engine) => engine.upload(tensor).map(AnyTensor::Shapes),
        }
    }

    fn download(&self, tensor: &AnyTensor) -> Result<Tensor> {
        match self {
            Self::Cpu(engine) => engine.download(tensor.cpu()?),
            Self::Cuda(engine) => engine.download(tensor.cuda()?),
            Self::Shapes(engine) => engine.download(tensor.shapes()?),
        }
    }

    fn view(&self, tensor: &AnyTensor, view: &View) -> Result<AnyTensor> {
        match self {
            Self::Cpu(engine) => engine.view(tensor.cpu()?, view).map(AnyTensor::Cpu),
            Self::Cuda(engine) => engine.view(tensor.cuda()?, view).map(AnyTensor::Cuda),
            Self::Shapes(engine) => engine.view(tensor.shapes()?, view).map(AnyTensor::Shapes),
        }
    }

    fn concat(&self, tensors: &[&AnyTensor], axis: usize) -> Result<AnyTensor> {
        match self {
            Self::Cpu(engine) => {
                engine.concat(&all(tensors, AnyTensor::cpu)?, axis).map(AnyTensor::Cpu)
            }
            Self::Cuda(engine) => {
                engine.concat(&all(tensors, AnyTensor::cuda)?, axis).map(AnyTensor::Cuda)
            }
            Self::Shapes(engine) => {
                engine.concat(&all(tensors, AnyTensor::shapes)?, axis).map(AnyTensor::Shapes)
            }
        }
    }

    fn sum(&self, tensor: &AnyTensor, axes: &[usize]) -> Result<AnyTensor> {
        match self {
            Self::Cpu(engine) => engine.sum(tensor.cpu()?, axes).map(AnyTensor::Cpu),
            Self::Cuda(engine) => engine.sum(tensor.cuda()?, axes).map(AnyTensor::Cuda),
            Self::Shapes(engine) => engine.sum(tensor.shapes()?, axes).map(AnyTensor::Shapes),
        }
    }

    fn window_sum(&self, tensor: &AnyTensor, window: &Window) -> Result<AnyTensor> {
        match self {
            Self::Cpu(engine) => engine.window_sum(tensor.cpu()?, window).map(AnyTensor::Cpu),
            Self::Cuda(engine) => engine.window_sum(tensor.cuda()?, window).map(AnyTensor::Cuda),
            Self::Shapes(engine) => {
                engine.window_sum(tensor.shapes()?, window).map(AnyTensor::Shapes)
            }
        }
    }

    fn bilinear(
        &self,
        op: &Bilinear,
        terms: &[(&AnyTensor, &AnyTensor)],
        addends: &[Addend<'_, AnyTensor>],
    ) -> Result<AnyTensor> {
        match self {
            Self::Cpu(engine) => {
                let (terms, addends) = maps(terms, addends, AnyTensor::cpu)?;
                engine.bilinear(op, &terms, &addends).map(AnyTensor::Cpu)
            }
            Self::Cuda(engine) => {
                let (terms, addends) = maps(terms, addends, AnyTensor::cuda)?;
                engine.bilinear(op, &terms, &addends).map(AnyTensor::Cuda)
            }
            Self::Shapes(engine) => {
                let (terms, addends) = maps(terms, addends, AnyTensor::shapes)?;
                engine.bilinear(op, &terms, &addends).map(AnyTensor::Shapes)
            }
        }
    }

    fn launch<K: WordKernel<I, O>, const I: usize, const O: usize>(
        &self,
        kernel: &K,
        launch: &Launch<'_, AnyTensor, I, O>,
    ) -> Result<Vec<AnyTensor>> {
        match self {
            Self::Cpu(engine) => {
                let made = engine.launch(kernel, &on(launch, AnyTensor::cpu)?)?;
                Ok(made.into_iter().map(AnyTensor::Cpu).collect())
            }
            Self::Cuda(engine) => {
                let made = engine.launch(kernel, &on(launch, AnyTensor::cuda)?)?;
                Ok(made.into_iter().map(AnyTensor::Cuda).collect())
            }
            Self::Shapes(engine) => {
                let made = engine.launch(kernel, &on(launch, AnyTensor::shapes)?)?;
                Ok(made.into_iter().map(AnyTensor::Shapes).collect())
            }
        }
    }

    fn room(&self, len: usize) -> Option<<AnyTensor as EngineTensor>::Room> {
        match self {
            Self::Cpu(engine) => engine.room(len),
            Self::Cuda(_) | Self::Shapes(_) => None,
        }
    }

    fn launch_into<K: WordKernel<I, O>, const I: usize, const O: usize>(
        &self,
        kernel: &K,
        launch: &Launch<'_, AnyTensor, I, O>,
        places: &[Option<Place<'_, AnyTensor>>],
    ) -> Result<Vec<AnyTensor>> {
        match self {
            Self::Cpu(engine) => {
                let places: Vec<_> = places.iter().map(|at| at.as_ref().map(place)).collect();
                let launch = on(launch, AnyTensor::cpu)?;
                let made = engine.launch_into(kernel, &launch, &places)?;
                Ok(made.into_iter().map(AnyTensor::Cpu).collect())
            }
            Self::Cuda(_) | Self::Shapes(_) => self.launch(kernel, launch),
        }
    }

    fn seal(
        &self,
        room: &<AnyTensor as EngineTensor>::Room,
        parts: &[&AnyTensor],
        shape: &Shape,
    ) -> Option<AnyTensor> {
        match self {
            Self::Cpu(engine) => {
                let parts = all(parts, AnyTensor::cpu).ok()?;
                engine.seal(room, &parts, shape).map(AnyTensor::Cpu)
            }
            Self::Cuda(_) | Self::Shapes(_) => None,
        }
    }

    fn to_planes(&self, tensor: &AnyTensor, low: u32, width: u32) -> Result<AnyTensor> {
        match self {
            Self::Cpu(engine) => engine.to_planes(tensor.cpu()?, low, width).map(AnyTensor::Cpu),
            Self::Cuda(engine) => engine.to_planes(tensor.cuda()?, low, width).map(AnyTensor::Cuda),
            Self::Shapes(engine) => {
                engine.to_planes(tensor.shapes()?, low, width).map(AnyTensor::Shapes)
            }
        }
    }

    fn from_planes(&self, planes: &AnyTensor, low: u32, shape: &Shape) -> Result<AnyTensor> {
        match self {
            Self::Cpu(engine) => engine.from_planes(planes.cpu()?, low, shape).map(AnyTensor::Cpu),
            Self::Cuda(engine) => {
                engine.from_planes(planes.cuda()?, low, shape).map(AnyTensor::Cuda)
            }
            Self::Shapes(engine) => {
                engine.from_planes(planes.shapes()?, low, shape).map(AnyTensor::Shapes)
            }
        }
    }
}

/// A function that returns an engine's own tensor.
type Pick<T> = fn(&AnyTensor) -> Result<&T>;

fn all<'a, T>(tensors: &[&'a AnyTensor], pick: Pick<T>) -> Result<Vec<&'a T>> {
    tensors.iter().map(|tensor| pick(tensor)).collect()
}

/// The operands of a bilinear map.
type Operands<'a, T> = (Vec<(&'a T, &'a T)>, Vec<Addend<'a, T>>);

fn maps<'a, T>(
    terms: &[(&'a AnyTensor, &'a AnyTensor)],
    addends: &[Addend<'a, AnyTensor>],
    pick: Pick<T>,
) -> Result<Operands<'a, T>> {
    let terms = terms.iter().map(|(lhs, rhs)| Ok((pick(lhs)?, pick(rhs)?)));
    let addends = addends.iter().map(|addend| {
        let source = match addend.source {
            AddendSource::Tensor(tensor) => AddendSource::Tensor(pick(tensor)?),
            AddendSource::Stream { stream, first } => AddendSource::Stream { stream, first },
        };
        Ok(Addend { source, negate: addend.negate })
    });
    Ok((terms.collect::<Result<_>>()?, addends.collect::<Result<_>>()?))
}

/// A place in a room of the CPU's.
fn place<'a>(place: &Place<'a, AnyTensor>) -> Place<'a, Tensor> {
    Place { room: place.room, start: place.start }
}

/// The same launch on an engine's own tensors.
fn on<'a, T: EngineTensor, const I: usize, const O: usize>(
    launch: &Launch<'a, AnyTensor, I, O>,
    pick: Pick<T>,
) -> Result<Launch<'a, T, I, O>> {
    let Launch { rows, cols, params, outputs, targets, .. } = *launch;
    let sources = launch.sources.each_ref().map(|source| {
        Ok(match *source {
            Source::Tensor { tensor, offset, row_stride } => {
                Source::Tensor { tensor: pick(tensor)?, offset, row_stride }
            }
            Source::PerRow { tensor, offset } => Source::PerRow { tensor: pick(tensor)?, offset },
            Source::Stream { stream, offset, row_stride } => {
                Source::Stream { stream, offset, row_stride }
            }
        })
    });
    let sources: Vec<_> = sources.into_iter().collect::<Result<_>>()?;
    let sources = <[_; I]>::try_from(sources)
        .map_err(|_| Error::invalid("engine", "a launch lost one of its sources"))?;
    Ok(Launch { rows, cols, sources, params, outputs, targets })
}

impl fmt::Debug for AnyEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// Shows the shape alone: words may be shares.
impl fmt::Debug for AnyTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(tensor) => tensor.fmt(f),
            Self::Cuda(tensor) => tensor.fmt(f),
            Self::Shapes(tensor) => tensor.fmt(f),
        }
    }
}
