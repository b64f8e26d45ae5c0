//! Instructions that the threads of a warp execute together.

use crate::{
    Fault,
    block::Block,
    instr::{Address, MmaShape, Op, Operand, Reg, Shuffle, Space, Vote},
    thread::State,
    wgmma,
};

/// Executes the warp instruction at which `members` (threads of one warp, ascending) have met.
pub(crate) fn warp(block: &mut Block<'_>, members: &[usize]) -> Result<(), Fault> {
    let op = block.op_at(members[0]);
    match op {
        Op::WarpSync(_) => {}
        Op::Shfl { how, d, ok, a, b, c, .. } => {
            shuffle(block, members, *how, (*d, *ok), [*a, *b, *c])
        }
        Op::VoteSync { how, d, a, .. } => vote(block, members, *how, *d, *a),
        Op::Mma { shape, d, a, b, c } => {
            whole_warp(members)?;
            match shape {
                MmaShape::Int8 { a_signed, b_signed } => {
                    int8(block, members, (*a_signed, *b_signed), d, [a, b, c])
                }
                MmaShape::F64 => f64_product(block, members, d, [a, b, c]),
            }
        }
        Op::LdMatrix { transpose, d, address } => {
            whole_warp(members)?;
            load_matrices(block, members, *transpose, d, *address)?;
        }
        _ => return Err(Fault::Unsupported("this instruction is not a warp's".into())),
    }
    block.warp_epochs[members[0] / 32] += 1;
    release(block, members.iter().copied());
    Ok(())
}

/// Executes the instruction at which a whole warp group has met.
pub(crate) fn warp_group(block: &mut Block<'_>, group: usize) -> Result<(), Fault> {
    wgmma::execute(block, group)?;
    release(block, group * 128..(group + 1) * 128);
    Ok(())
}

fn release(block: &mut Block<'_>, threads: impl Iterator<Item = usize>) {
    for t in threads {
        block.threads[t].pc += 1;
        block.threads[t].state = State::Running;
    }
}

fn whole_warp(members: &[usize]) -> Result<(), Fault> {
    if members.len() == 32 {
        return Ok(());
    }
    Err(Fault::Divergence(format!(
        "a matrix instruction needs 32 threads, {} are there",
        members.len()
    )))
}

fn shuffle(
    block: &mut Block<'_>,
    members: &[usize],
    how: Shuffle,
    (d, ok): (Reg, Option<Reg>),
    [a, b, c]: [Operand; 3],
) {
    let first = members[0] / 32 * 32;
    let values: Vec<(usize, u64)> =
        members.iter().map(|&t| (t - first, block.value(t, a))).collect();
    let results: Vec<(u64, bool)> = members
        .iter()
        .map(|&t| {
            let lane = t - first;
            let (b, c) = (block.value(t, b) as usize & 31, block.value(t, c) as usize);
            let (clamp, segment) = (c & 31, c >> 8 & 31);
            let (low, high) = (lane & segment, (lane & segment) | (clamp & !segment));
            let (source, inside) = match how {
                Shuffle::Up => {
                    (lane as isize - b as isize, lane as isize - b as isize >= high as isize)
                }
                Shuffle::Down => ((lane + b) as isize, lane + b <= high),
                Shuffle::Bfly => ((lane ^ b) as isize, lane ^ b <= high),
                Shuffle::Idx => ((low | (b & !segment)) as isize, low | (b & !segment) <= high),
            };
            let source = if inside { source as usize } else { lane };
            let value = values.iter().find(|(l, _)| *l == source).map_or(0, |(_, v)| *v);
            (value & 0xffff_ffff, inside)
        })
        .collect();
    for (&t, (value, inside)) in members.iter().zip(results) {
        block.set(t, d, value);
        if let Some(p) = ok {
            block.set(t, p, u64::from(inside));
        }
    }
}

fn vote(block: &mut Block<'_>, members: &[usize], how: Vote, d: Reg, a: Operand) {
    let ballot = members.iter().fold(0u64, |b, &t| b | (block.value(t, a) & 1) << (t % 32));
    let count = ballot.count_ones() as usize;
    let value = match how {
        Vote::Any => u64::from(count > 0),
        Vote::All => u64::from(count == members.len()),
        Vote::Ballot => ballot,
    };
    for &t in members {
        block.set(t, d, value);
    }
}

/// Byte `i` of a 32-bit fragment register, as a number.
fn byte(word: u64, i: usize, signed: bool) -> i32 {
    let b = (word >> (8 * i)) as u8;
    if signed { i32::from(b as i8) } else { i32::from(b) }
}

/// `mma.m16n8k32`: PTX manual, "Matrix fragments for mma.m16n8k32". 32-bit sums wrap.
fn int8(
    block: &mut Block<'_>,
    members: &[usize],
    (a_signed, b_signed): (bool, bool),
    d: &[Reg],
    [a, b, c]: [&[Operand]; 3],
) {
    let mut lhs = [[0i32; 32]; 16];
    let mut rhs = [[0i32; 32]; 8];
    for (lane, &t) in members.iter().enumerate() {
        let (row, quad) = (lane / 4, lane % 4);
        for (i, operand) in a.iter().enumerate() {
            let word = block.value(t, *operand);
            for e in 0..4 {
                lhs[row + 8 * (i & 1)][quad * 4 + e + 16 * (i >> 1)] = byte(word, e, a_signed);
            }
        }
        for (i, operand) in b.iter().enumerate() {
            let word = block.value(t, *operand);
            for e in 0..4 {
                rhs[row][quad * 4 + e + 16 * i] = byte(word, e, b_signed);
            }
        }
    }
    for (lane, &t) in members.iter().enumerate() {
        for (i, &d) in d.iter().enumerate() {
            let (row, col) = (lane / 4 + 8 * (i >> 1), lane % 4 * 2 + (i & 1));
            let start = block.value(t, c[i]) as u32 as i32;
            let sum = (0..32).fold(start, |s, k| s.wrapping_add(lhs[row][k] * rhs[col][k]));
            block.set(t, d, u64::from(sum as u32));
        }
    }
}

/// `mma.m8n8k4.f64`: fused multiply-adds in the order of k.
fn f64_product(block: &mut Block<'_>, members: &[usize], d: &[Reg], [a, b, c]: [&[Operand]; 3]) {
    let read = |block: &Block<'_>, v: Operand| -> Vec<f64> {
        members.iter().map(|&t| f64::from_bits(block.value(t, v))).collect()
    };
    let (lhs, rhs) = (read(block, a[0]), read(block, b[0]));
    for (lane, &t) in members.iter().enumerate() {
        for (i, &d) in d.iter().enumerate() {
            let (row, col) = (lane / 4, lane % 4 * 2 + i);
            let start = f64::from_bits(block.value(t, c[i]));
            let sum = (0..4).fold(start, |s, k| lhs[row * 4 + k].mul_add(rhs[col * 4 + k], s));
            block.set(t, d, sum.to_bits());
        }
    }
}

/// `ldmatrix`: lanes `8 i .. 8 i + 8` give the row addresses of matrix `i`.
fn load_matrices(
    block: &mut Block<'_>,
    members: &[usize],
    transpose: bool,
    d: &[Reg],
    address: Address,
) -> Result<(), Fault> {
    for (matrix, &d) in d.iter().enumerate() {
        let mut rows = [[0u16; 8]; 8];
        for (i, row) in rows.iter_mut().enumerate() {
            let t = members[matrix * 8 + i];
            let mut bytes = [0u8; 16];
            let at = block.at(t, address);
            block.read(t, Space::Shared, at, &mut bytes)?;
            for (j, value) in row.iter_mut().enumerate() {
                *value = u16::from_le_bytes([bytes[2 * j], bytes[2 * j + 1]]);
            }
        }
        for (lane, &t) in members.iter().enumerate() {
            let (row, pair) = (lane / 4, lane % 4 * 2);
            let pick = |e: usize| if transpose { rows[pair + e][row] } else { rows[row][pair + e] };
            block.set(t, d, u64::from(pick(0)) | u64::from(pick(1)) << 16);
        }
    }
    Ok(())
}
