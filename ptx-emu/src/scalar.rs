//! Arithmetic of single values, as the PTX manual defines it.

use crate::instr::{Atomic, Binary, Cmp, Kind, Ternary, Ty, Unary};

/// A two-operand instruction. Integer division by zero gives all ones, as on devices.
pub(crate) fn binary(op: Binary, ty: Ty, a: u64, b: u64) -> u64 {
    if ty.is_float() {
        return float(op, ty, a, b);
    }
    let signed = ty.is_signed();
    let value = match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::MulLo => a.wrapping_mul(b),
        Binary::MulHi => (wide(ty, a, b) >> ty.bits) as u64,
        Binary::MulWide => {
            return Ty { bits: (ty.bits * 2).min(64), ..ty }.mask(wide(ty, a, b) as u64);
        }
        Binary::Div if ty.mask(b) == 0 => u64::MAX,
        Binary::Rem if ty.mask(b) == 0 => a,
        Binary::Div if signed => ty.signed(a).wrapping_div(ty.signed(b)) as u64,
        Binary::Rem if signed => ty.signed(a).wrapping_rem(ty.signed(b)) as u64,
        Binary::Div => ty.mask(a) / ty.mask(b),
        Binary::Rem => ty.mask(a) % ty.mask(b),
        Binary::Min | Binary::Max => {
            let less = if signed { ty.signed(a) < ty.signed(b) } else { ty.mask(a) < ty.mask(b) };
            if less == (op == Binary::Min) { a } else { b }
        }
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Shl => shift_left(a, b),
        Binary::Shr if signed => (ty.signed(a) >> amount(b).min(63)) as u64,
        Binary::Shr => ty.mask(a).checked_shr(amount(b)).unwrap_or(0),
    };
    ty.mask(value)
}

/// Shift counts are 32-bit and clamp at the width.
fn amount(count: u64) -> u32 {
    count as u32
}

fn shift_left(a: u64, count: u64) -> u64 {
    a.checked_shl(amount(count)).unwrap_or(0)
}

/// The double-width product.
fn wide(ty: Ty, a: u64, b: u64) -> u128 {
    if ty.is_signed() {
        (i128::from(ty.signed(a)) * i128::from(ty.signed(b))) as u128
    } else {
        u128::from(ty.mask(a)) * u128::from(ty.mask(b))
    }
}

fn float(op: Binary, ty: Ty, a: u64, b: u64) -> u64 {
    let apply = |x: f64, y: f64| match op {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::MulLo => x * y,
        Binary::Div => x / y,
        Binary::Min => x.min(y),
        Binary::Max => x.max(y),
        _ => f64::NAN,
    };
    if ty.bits == 64 {
        return apply(f64::from_bits(a), f64::from_bits(b)).to_bits();
    }
    // One operation on two f32 values rounds correctly through f64.
    let (x, y) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
    u64::from((apply(f64::from(x), f64::from(y)) as f32).to_bits())
}

/// A one-operand instruction.
pub(crate) fn unary(op: Unary, ty: Ty, a: u64) -> u64 {
    if ty.is_float() {
        let sign = 1u64 << (ty.bits - 1);
        return match op {
            Unary::Neg => a ^ sign,
            Unary::Abs => a & !sign,
            _ => a,
        };
    }
    let value = match op {
        Unary::Neg => a.wrapping_neg(),
        Unary::Not if ty.kind == Kind::Pred => a ^ 1,
        Unary::Not => !a,
        Unary::Abs => ty.signed(a).unsigned_abs(),
        Unary::Popc => u64::from(ty.mask(a).count_ones()),
        Unary::Clz => u64::from(ty.mask(a).leading_zeros() - (64 - ty.bits)),
        Unary::Brev => ty.mask(a).reverse_bits() >> (64 - ty.bits),
    };
    ty.mask(value)
}

/// A three-operand instruction.
pub(crate) fn ternary(op: Ternary, ty: Ty, a: u64, b: u64, c: u64) -> u64 {
    match op {
        Ternary::Fma if ty.bits == 64 => {
            f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)).to_bits()
        }
        Ternary::Fma => {
            let [x, y, z] = [a, b, c].map(|v| f32::from_bits(v as u32));
            u64::from(x.mul_add(y, z).to_bits())
        }
        Ternary::MadLo => ty.mask(a.wrapping_mul(b).wrapping_add(c)),
        Ternary::MadHi => ty.mask(binary(Binary::MulHi, ty, a, b).wrapping_add(c)),
        Ternary::MadWide => {
            let wide = Ty { bits: (ty.bits * 2).min(64), ..ty };
            wide.mask(binary(Binary::MulWide, ty, a, b).wrapping_add(c))
        }
        Ternary::FunnelLeft => {
            let count = c as u32 & 31;
            ((joined(a, b) << count) >> 32) & 0xffff_ffff
        }
        Ternary::FunnelRight => (joined(a, b) >> (c as u32 & 31)) & 0xffff_ffff,
        Ternary::Prmt => permute(joined(a, b), c),
        Ternary::Bfe => {
            let (start, len) = (b as u32 & 255, c as u32 & 255);
            let field = ty.mask(a).checked_shr(start).unwrap_or(0);
            if len == 0 {
                0
            } else if len >= ty.bits {
                field
            } else if ty.is_signed() {
                ty.mask(Ty { bits: len, ..ty }.signed(field) as u64)
            } else {
                field & ((1 << len) - 1)
            }
        }
        Ternary::Dot4 => {
            let byte = |v: u64, i: u32| {
                let b = (v >> (8 * i)) as u8;
                if ty.is_signed() { i64::from(b as i8) } else { i64::from(b) }
            };
            let sum: i64 = (0..4).map(|i| byte(a, i) * byte(b, i)).sum();
            Ty::U32.mask(c.wrapping_add_signed(sum))
        }
    }
}

/// `b` above `a`, each 32 bits.
fn joined(a: u64, b: u64) -> u64 {
    (Ty::U32.mask(b) << 32) | Ty::U32.mask(a)
}

/// `prmt`: each nibble of the selector picks a byte, or copies of its sign.
fn permute(bytes: u64, selector: u64) -> u64 {
    (0..4).fold(0, |out, i| {
        let pick = (selector >> (4 * i)) & 15;
        let byte = (bytes >> (8 * (pick & 7))) & 255;
        let byte = match (pick & 8 != 0, byte & 128 != 0) {
            (false, _) => byte,
            (true, true) => 255,
            (true, false) => 0,
        };
        out | (byte << (8 * i))
    })
}

/// `bfi`: `len` bits of `a` at `start` of `b`.
pub(crate) fn insert(ty: Ty, a: u64, b: u64, start: u64, len: u64) -> u64 {
    let (start, len) = (start as u32 & 255, len as u32 & 255);
    let ones = if len >= 64 { u64::MAX } else { (1 << len) - 1 };
    let mask = ones.checked_shl(start).unwrap_or(0);
    ty.mask((b & !mask) | (a.checked_shl(start).unwrap_or(0) & mask))
}

/// `lop3`: any function of three bits, given by its table.
pub(crate) fn lop3(a: u64, b: u64, c: u64, table: u8) -> u64 {
    (0..8u32).filter(|i| table >> i & 1 == 1).fold(0, |out, i| {
        let pick = |v: u64, bit: u32| if i >> bit & 1 == 1 { v } else { !v };
        out | (Ty::U32.mask(pick(a, 2) & pick(b, 1) & pick(c, 0)))
    })
}

/// A comparison.
pub(crate) fn compare(cmp: Cmp, ty: Ty, a: u64, b: u64) -> bool {
    let order = if ty.is_float() {
        let value = |v: u64| {
            if ty.bits == 64 { f64::from_bits(v) } else { f64::from(f32::from_bits(v as u32)) }
        };
        value(a).partial_cmp(&value(b))
    } else if ty.is_signed() {
        Some(ty.signed(a).cmp(&ty.signed(b)))
    } else {
        Some(ty.mask(a).cmp(&ty.mask(b)))
    };
    // A NaN compares false; `ne` of a NaN (unordered) is not used by integer code.
    order.is_some_and(|o| match cmp {
        Cmp::Eq => o.is_eq(),
        Cmp::Ne => o.is_ne(),
        Cmp::Lt => o.is_lt(),
        Cmp::Le => o.is_le(),
        Cmp::Gt => o.is_gt(),
        Cmp::Ge => o.is_ge(),
    })
}

/// A conversion. Floats to integers round towards zero; integers to floats to nearest.
pub(crate) fn convert(to: Ty, from: Ty, a: u64) -> u64 {
    if from.is_float() {
        let value =
            if from.bits == 64 { f64::from_bits(a) } else { f64::from(f32::from_bits(a as u32)) };
        return match (to.kind, to.bits) {
            (Kind::Float, 64) => value.to_bits(),
            (Kind::Float, _) => u64::from((value as f32).to_bits()),
            (Kind::Signed, bits) => {
                let limit = (1i128 << (bits - 1)) as f64;
                to.mask(value.max(-limit).min(limit - 1.0) as i64 as u64)
            }
            _ => to.mask(value.max(0.0) as u64),
        };
    }
    let value = if from.is_signed() { from.signed(a) as u64 } else { from.mask(a) };
    match (to.is_float(), to.bits, from.is_signed()) {
        (false, ..) => to.mask(value),
        (true, 64, true) => (value as i64 as f64).to_bits(),
        (true, 64, false) => (value as f64).to_bits(),
        (true, _, true) => u64::from((value as i64 as f32).to_bits()),
        (true, _, false) => u64::from((value as f32).to_bits()),
    }
}

/// The new value of an atomic; `c` is the value stored by a successful `cas`.
pub(crate) fn atomic(op: Atomic, ty: Ty, old: u64, b: u64, c: u64) -> u64 {
    match op {
        Atomic::Add => binary(Binary::Add, ty, old, b),
        Atomic::And => old & b,
        Atomic::Or => old | b,
        Atomic::Xor => old ^ b,
        Atomic::Min => binary(Binary::Min, ty, old, b),
        Atomic::Max => binary(Binary::Max, ty, old, b),
        Atomic::Exch => b,
        Atomic::Cas => {
            if old == b {
                c
            } else {
                old
            }
        }
    }
}
