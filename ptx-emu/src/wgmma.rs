//! Hopper's asynchronous matrix products of a warp group, `wgmma`, on 8-bit integers.

use std::collections::{HashMap, VecDeque};

use crate::{
    Error, Fault, Result,
    block::Block,
    instr::{Op, Operand, Reg, Space},
    parse::Statement,
};

/// `wgmma.mma_async.m64nNk32.s32` with its right operand, and perhaps its left, in shared memory.
#[derive(Debug, Clone)]
pub(crate) struct Wgmma {
    columns: usize,
    a_signed: bool,
    b_signed: bool,
    d: Vec<Reg>,
    /// One descriptor, or four registers of a fragment.
    a: Vec<Operand>,
    b: Operand,
    scale_d: Operand,
}

/// Products of a warp group that have been issued and not waited for.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    open: Vec<Issued>,
    groups: VecDeque<Vec<Issued>>,
    /// Accumulators of products in flight. Their registers hold [`POISON`] meanwhile.
    sums: HashMap<Reg, Sum>,
    /// `wgmma.fence` was executed since registers could last be touched.
    fenced: bool,
}

/// A register of every thread of a warp group, while products on it are in flight.
#[derive(Debug)]
struct Sum {
    products: usize,
    values: Vec<u64>,
}

/// The value of a register that must not be read.
const POISON: u64 = 0xbad0_bad0;

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.groups.is_empty()
    }
}

#[derive(Debug)]
struct Issued {
    product: Wgmma,
    /// The left operand's descriptor, or each thread's fragment.
    a: Vec<Vec<u64>>,
    b: u64,
    accumulate: bool,
}

/// Decodes `wgmma.*`.
pub(crate) fn decode(s: &Statement<'_>) -> Result<Op, Error> {
    match s.opcode[1] {
        "fence" => return Ok(Op::WgmmaFence),
        "commit_group" => return Ok(Op::WgmmaCommit),
        "wait_group" => return Ok(Op::WgmmaWait(s.imm(0)? as usize)),
        "mma_async" => {}
        _ => return Err(s.unknown()),
    }
    let shape = s.opcode.iter().find_map(|w| w.strip_prefix("m64n")?.strip_suffix("k32"));
    let columns = shape.and_then(|n| n.parse::<usize>().ok()).ok_or_else(|| s.unknown())?;
    let ["s32", a @ ("u8" | "s8"), b @ ("u8" | "s8")] = s.opcode[s.opcode.len() - 3..] else {
        return Err(s.unknown());
    };
    let d = s.regs(0)?;
    if d.len() * 2 != columns {
        return Err(s.error(format!(
            "m64n{columns} has {} accumulators, not {}",
            columns / 2,
            d.len()
        )));
    }
    let product = Wgmma {
        columns,
        a_signed: a == "s8",
        b_signed: b == "s8",
        d,
        a: s.values(1)?,
        b: s.value(2)?,
        scale_d: s.value(3)?,
    };
    Ok(Op::Wgmma(Box::new(product)))
}

impl Op {
    /// The instruction is executed by a warp group together.
    pub(crate) fn is_warp_group(&self) -> bool {
        matches!(self, Self::Wgmma(_) | Self::WgmmaFence | Self::WgmmaCommit | Self::WgmmaWait(_))
    }
}

/// Executes the instruction at which warp group `group` has met.
pub(crate) fn execute(block: &mut Block<'_>, group: usize) -> Result<(), Fault> {
    let first = group * 128;
    match block.op_at(first) {
        Op::WgmmaFence => block.pending[group].fenced = true,
        Op::Wgmma(product) => {
            if !block.pending[group].fenced {
                return Err(Fault::MissingFence);
            }
            let fragment =
                |t: usize| product.a.iter().map(|v| block.value(t, *v)).collect::<Vec<_>>();
            let a: Vec<Vec<u64>> = (first..first + 128).map(fragment).collect();
            let b = block.value(first, product.b);
            let accumulate = block.value(first, product.scale_d) & 1 == 1;
            take_sums(block, group, &product.d);
            block.pending[group].open.push(Issued {
                product: (**product).clone(),
                a,
                b,
                accumulate,
            });
        }
        Op::WgmmaCommit => {
            let open = std::mem::take(&mut block.pending[group].open);
            block.pending[group].groups.push_back(open);
        }
        Op::WgmmaWait(left) => {
            // Products finish as late as they may: operands are read, and sums written, only now.
            while block.pending[group].groups.len() > *left {
                for issued in block.pending[group].groups.pop_front().unwrap_or_default() {
                    finish(block, group, &issued)?;
                }
                block.pending[group].fenced = false;
            }
            for warp in 0..4 {
                block.warp_epochs[first / 32 + warp] += 1;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Takes the accumulators out of the threads' registers until the products on them are done.
fn take_sums(block: &mut Block<'_>, group: usize, registers: &[Reg]) {
    let threads = group * 128..(group + 1) * 128;
    for &d in registers {
        if let Some(sum) = block.pending[group].sums.get_mut(&d) {
            sum.products += 1;
            continue;
        }
        let values = threads.clone().map(|t| block.reg(t, d)).collect();
        threads.clone().for_each(|t| block.set(t, d, POISON));
        block.pending[group].sums.insert(d, Sum { products: 1, values });
    }
}

/// Gives back the accumulators on which nothing is in flight any more.
fn give_sums(block: &mut Block<'_>, group: usize, registers: &[Reg]) -> Result<(), Fault> {
    for &d in registers {
        let Some(sum) = block.pending[group].sums.get_mut(&d) else { continue };
        sum.products -= 1;
        if sum.products > 0 {
            continue;
        }
        let values = block.pending[group].sums.remove(&d).map_or(Vec::new(), |sum| sum.values);
        for (t, value) in (group * 128..).zip(values) {
            if block.reg(t, d) != POISON {
                return Err(Fault::Accumulator);
            }
            block.set(t, d, value);
        }
    }
    Ok(())
}

fn finish(block: &mut Block<'_>, group: usize, issued: &Issued) -> Result<(), Fault> {
    let first = group * 128;
    let product = &issued.product;
    let lhs = if product.a.len() == 1 {
        Descriptor(issued.a[0][0]).rows(block, first, 64)?
    } else {
        fragments(&issued.a)
    };
    let rhs = Descriptor(issued.b).rows(block, first, product.columns)?;
    let number = |v: u8, signed: bool| if signed { i32::from(v as i8) } else { i32::from(v) };
    let widen = |rows: Vec<[u8; 32]>, signed: bool| -> Vec<[i32; 32]> {
        rows.into_iter().map(|row| row.map(|v| number(v, signed))).collect()
    };
    let (lhs, rhs) = (widen(lhs, product.a_signed), widen(rhs, product.b_signed));
    for (i, d) in product.d.iter().enumerate() {
        let Some(sum) = block.pending[group].sums.get_mut(d) else { continue };
        for (t, value) in sum.values.iter_mut().enumerate() {
            let (warp, lane) = (t / 32, t % 32);
            let row = &lhs[warp * 16 + lane / 4 + 8 * (i >> 1 & 1)];
            let col = &rhs[i / 4 * 8 + lane % 4 * 2 + (i & 1)];
            let start = if issued.accumulate { *value as u32 as i32 } else { 0 };
            let terms = row.iter().zip(col).map(|(x, y)| x.wrapping_mul(*y));
            *value = u64::from(terms.fold(start, i32::wrapping_add) as u32);
        }
    }
    give_sums(block, group, &product.d)
}

/// The left operand from registers, laid out as for `mma.m16n8k32`, a warp to 16 rows.
fn fragments(a: &[Vec<u64>]) -> Vec<[u8; 32]> {
    let mut rows = vec![[0u8; 32]; 64];
    for (t, words) in a.iter().enumerate() {
        let (warp, lane) = (t / 32, t % 32);
        for (i, word) in words.iter().enumerate() {
            let row = warp * 16 + lane / 4 + 8 * (i & 1);
            let col = lane % 4 * 4 + 16 * (i >> 1);
            rows[row][col..col + 4].copy_from_slice(&word.to_le_bytes()[..4]);
        }
    }
    rows
}

/// A shared-memory matrix descriptor: PTX manual, "Matrix descriptor format", K-major.
struct Descriptor(u64);

impl Descriptor {
    /// `count` rows of 32 bytes.
    fn rows(
        &self,
        block: &mut Block<'_>,
        thread: usize,
        count: usize,
    ) -> Result<Vec<[u8; 32]>, Fault> {
        let field = |low: u32| (self.0 >> low & 0x3fff) << 4;
        let (start, leading, stride) = (field(0), field(16), field(32));
        let swizzle = self.0 >> 62;
        if self.0 >> 49 & 7 != 0 {
            return Err(Fault::Unsupported("a matrix descriptor with a base offset".into()));
        }
        let mut rows = vec![[0u8; 32]; count];
        for (r, row) in rows.iter_mut().enumerate() {
            for half in 0..2u64 {
                let (group, inner) = (r as u64 / 8, r as u64 % 8);
                let at = match swizzle {
                    0 => start + group * stride + half * leading + inner * 16,
                    1 => swizzled(start + group * stride + inner * 128 + half * 16, 7),
                    2 => swizzled(start + group * stride + inner * 64 + half * 16, 3),
                    _ => swizzled(start + group * stride + inner * 32 + half * 16, 1),
                };
                let out = &mut row[half as usize * 16..][..16];
                block.read(thread, Space::Shared, at, out)?;
            }
        }
        Ok(rows)
    }
}

/// Bits 4.. of an address, exclusive-ored with bits 7.. under `mask`.
fn swizzled(address: u64, mask: u64) -> u64 {
    address ^ ((address >> 7 & mask) << 4)
}
