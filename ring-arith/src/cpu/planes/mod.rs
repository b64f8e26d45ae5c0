//! Words to bit planes and back, by transposes of 64x64 bits.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod gfni;
#[cfg(target_arch = "x86_64")]
mod masks;
mod portable;

use crate::{CpuEngine, EngineTensor, Error, Kind, Result, Shape, Tensor};

/// Elements that are transposed in one go, and the words that each plane has of them: eight
/// squares, so that planes are written a cache line at a time.
const ELEMENTS: usize = 512;
const LINE: usize = ELEMENTS / 64;

/// Lines of a plane that are gathered before they are written.
const LINES: usize = 4;

/// Planes of [`ELEMENTS`] elements: `planes[j][w]` holds bit `j` of elements `64 w` to `64 w + 63`.
type Planes = [[u64; LINE]; 64];

/// Bits `low..low + width` of every element as planes.
pub(super) fn to_planes(engine: &CpuEngine, x: &Tensor, low: u32, width: u32) -> Result<Tensor> {
    if width == 0 || low.checked_add(width).is_none_or(|end| end > 64) {
        let reason = format!("bits {low}..{low}+{width} are not inside 0..64");
        return Err(Error::invalid("to planes", reason));
    }
    let (width, words) = (width as usize, x.len().div_ceil(64));
    let mut out = engine.buffer(width * words);
    let to = Columns { start: out.as_mut_ptr(), words, width };
    let squares = Squares::new(engine);
    let pieces = x.len().div_ceil(ELEMENTS * LINES);
    engine.each_of(pieces, ELEMENTS * LINES, |piece| {
        let first = piece * ELEMENTS * LINES;
        let elements = &x.words()[first..x.len().min(first + ELEMENTS * LINES)];
        let mut planes = [[[0; LINE]; 64]; LINES];
        for (chunk, planes) in elements.chunks(ELEMENTS).zip(&mut planes) {
            match chunk.try_into() {
                Ok(elements) => squares.split(elements, low, width, planes),
                Err(_) => {
                    let mut padded = [0; ELEMENTS];
                    padded[..chunk.len()].copy_from_slice(chunk);
                    squares.split(&padded, low, width, planes);
                }
            }
        }
        // SAFETY: pieces are different columns, so no other task writes to these words.
        unsafe { to.write(piece * LINE * LINES, elements.len().div_ceil(64), &planes) }
    });
    out.into_tensor(Shape::new([width, words])?)
}

/// Planes to words of `shape` with plane `j` at bit `low + j`.
pub(super) fn from_planes(
    engine: &CpuEngine,
    planes: &Tensor,
    low: u32,
    shape: &Shape,
) -> Result<Tensor> {
    let misfit = || {
        let reason = format!("planes {:?} from bit {low} do not fit {shape:?}", planes.shape());
        Error::invalid("from planes", reason)
    };
    let &[width, words] = planes.shape().dims() else { return Err(misfit()) };
    if words != shape.len().div_ceil(64) || width == 0 || low as usize + width > 64 {
        return Err(misfit());
    }
    let from = planes.words();
    let squares = Squares::new(engine);
    let mut out = engine.buffer(shape.len());
    engine.each_chunk(&mut out, ELEMENTS * LINES * 8, |piece, out| {
        let mut planes = [[0; LINE]; 64];
        for (i, out) in out.chunks_mut(ELEMENTS).enumerate() {
            let first = (piece * LINES * 8 + i) * LINE;
            let count = out.len().div_ceil(64);
            for (j, plane) in planes.iter_mut().enumerate().take(width) {
                let from = &from[j * words + first..];
                match from.first_chunk() {
                    // A copy of known length is no call.
                    Some(line) if count == LINE => *plane = *line,
                    _ => plane[..count].copy_from_slice(&from[..count]),
                }
            }
            match out.try_into() {
                Ok(out) => squares.join(&planes, low, width, out),
                Err(_) => {
                    let mut padded = [0; ELEMENTS];
                    squares.join(&planes, low, width, &mut padded);
                    out.copy_from_slice(&padded[..out.len()]);
                }
            }
        }
    });
    out.into_tensor(shape.clone())
}

/// Planes in memory, of which tasks write different columns.
struct Columns {
    start: *mut u64,
    /// Words of a plane.
    words: usize,
    /// Number of planes.
    width: usize,
}

// SAFETY: the pointer is used in `write` alone, whose callers keep to their own columns.
unsafe impl Sync for Columns {}

impl Columns {
    /// Writes words `first..first + count` of every plane.
    ///
    /// # Safety
    /// No other thread may use these words meanwhile, and the memory must be there.
    unsafe fn write(&self, first: usize, count: usize, planes: &[Planes; LINES]) {
        assert!(first + count <= self.words && count <= LINES * LINE);
        for j in 0..self.width {
            for (i, planes) in planes.iter().enumerate().take(count.div_ceil(LINE)) {
                let part = LINE.min(count - i * LINE);
                // SAFETY: checked above; column `first + i * LINE + part` is inside plane `j`.
                unsafe {
                    let to = self.start.add(j * self.words + first + i * LINE);
                    match part {
                        // A copy of known length is no call.
                        LINE => to.cast::<[u64; LINE]>().write(planes[j]),
                        _ => to.copy_from_nonoverlapping(planes[j].as_ptr(), part),
                    }
                }
            }
        }
    }
}

/// The transposes of an instruction set. A value other than `Portable` is made only on a CPU with
/// the instructions that its code needs.
#[derive(Clone, Copy)]
enum Squares {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx512Gfni,
}

impl Squares {
    fn new(engine: &CpuEngine) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let kind = engine.isa().kind();
            if kind >= Kind::Avx512 && has!("gfni") && has!("avx512vbmi") {
                return Self::Avx512Gfni;
            }
            if kind >= Kind::Avx512 {
                return Self::Avx512;
            }
            if kind >= Kind::Avx2 {
                return Self::Avx2;
            }
        }
        let _ = (engine, Kind::Portable);
        Self::Portable
    }

    /// The planes of elements, the first `width` of those from bit `low` on.
    fn split(self, elements: &[u64; ELEMENTS], low: u32, width: usize, planes: &mut Planes) {
        match self {
            Self::Portable => portable::split(elements, low, planes),
            // SAFETY: the value is the proof.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { avx2::split(elements, low, planes) },
            // SAFETY: the value is the proof.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { masks::split(elements, low, width, planes) },
            // SAFETY: the value is the proof.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Gfni => unsafe { gfni::split(elements, low, width, planes) },
        }
    }

    /// The elements whose bits from `low` on are the first `width` planes; all others are 0.
    fn join(self, planes: &Planes, low: u32, width: usize, elements: &mut [u64; ELEMENTS]) {
        match self {
            Self::Portable => portable::join(planes, low, elements),
            // SAFETY: the value is the proof.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { avx2::join(planes, low, elements) },
            // SAFETY: the value is the proof.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { masks::join(planes, low, width, elements) },
            // SAFETY: the value is the proof.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Gfni => unsafe { gfni::join(planes, low, width, elements) },
        }
    }
}
