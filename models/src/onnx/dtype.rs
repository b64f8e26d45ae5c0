//! Element types of ONNX: their numbers, names, and the possible elements of each.

pub(crate) const FLOAT: i32 = 1;
pub(crate) const UINT8: i32 = 2;
pub(crate) const INT8: i32 = 3;
pub(crate) const UINT16: i32 = 4;
pub(crate) const INT16: i32 = 5;
pub(crate) const INT32: i32 = 6;
pub(crate) const INT64: i32 = 7;
pub(crate) const STRING: i32 = 8;
pub(crate) const BOOL: i32 = 9;
pub(crate) const FLOAT16: i32 = 10;
pub(crate) const DOUBLE: i32 = 11;
pub(crate) const UINT32: i32 = 12;
pub(crate) const UINT64: i32 = 13;
pub(crate) const BFLOAT16: i32 = 16;
const FLOAT8E4M3FN: i32 = 17;
const FLOAT8E4M3FNUZ: i32 = 18;
const FLOAT8E5M2: i32 = 19;
const FLOAT8E5M2FNUZ: i32 = 20;
const UINT4: i32 = 21;
const INT4: i32 = 22;
const FLOAT4E2M1: i32 = 23;
const FLOAT8E8M0: i32 = 24;
const UINT2: i32 = 25;
const INT2: i32 = 26;

/// The names, by number.
const NAMES: [&str; 27] = [
    "undefined",
    "float",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    "string",
    "bool",
    "float16",
    "double",
    "uint32",
    "uint64",
    "complex64",
    "complex128",
    "bfloat16",
    "float8e4m3fn",
    "float8e4m3fnuz",
    "float8e5m2",
    "float8e5m2fnuz",
    "uint4",
    "int4",
    "float4e2m1",
    "float8e8m0",
    "uint2",
    "int2",
];

/// The name of an element type.
pub(crate) fn name(kind: i32) -> &'static str {
    usize::try_from(kind).ok().and_then(|i| NAMES.get(i)).copied().unwrap_or("unknown")
}

/// True if elements are real numbers; `None` for types that no tensor here has.
pub(crate) fn is_float(kind: i32) -> Option<bool> {
    match kind {
        FLOAT | FLOAT16 | DOUBLE | BFLOAT16 => Some(true),
        FLOAT8E4M3FN..=FLOAT8E5M2FNUZ | FLOAT4E2M1 | FLOAT8E8M0 => Some(true),
        UINT8 | INT8 | UINT16 | INT16 | INT32 | INT64 | BOOL | UINT32 | UINT64 => Some(false),
        UINT4 | INT4 | UINT2 | INT2 => Some(false),
        _ => None,
    }
}

/// Bits of one element in raw data.
pub(crate) fn bits(kind: i32) -> usize {
    match kind {
        DOUBLE | INT64 | UINT64 => 64,
        FLOAT | INT32 | UINT32 => 32,
        FLOAT16 | BFLOAT16 | INT16 | UINT16 => 16,
        UINT4 | INT4 | FLOAT4E2M1 => 4,
        UINT2 | INT2 => 2,
        _ => 8,
    }
}

fn is_signed(kind: i32) -> bool {
    matches!(kind, INT8 | INT16 | INT32 | INT64 | INT4 | INT2)
}

/// The least and the greatest integer of a type.
pub(crate) fn limits(kind: i32) -> (i64, i64) {
    match (kind, bits(kind), is_signed(kind)) {
        (BOOL, ..) => (0, 1),
        (_, 64, true) => (i64::MIN, i64::MAX),
        (_, 64, false) => (0, i64::MAX),
        (_, bits, true) => (-1 << (bits - 1), (1 << (bits - 1)) - 1),
        (_, bits, false) => (0, (1 << bits) - 1),
    }
}

/// An integer modulo the size of its type.
pub(crate) fn wrapped(kind: i32, value: i64) -> i64 {
    let unused = 64 - bits(kind) as u32;
    match kind {
        BOOL => i64::from(value != 0),
        _ if is_signed(kind) => value << unused >> unused,
        _ => ((value as u64) << unused >> unused) as i64,
    }
}

/// A float format of a byte or less.
struct Small {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    /// The value that stands for numbers beyond the largest.
    beyond: f64,
    largest: f64,
}

fn small(kind: i32) -> Option<Small> {
    let (exponent, mantissa, bias, beyond, largest) = match kind {
        FLOAT8E4M3FN => (4, 3, 7, f64::NAN, 448.0),
        FLOAT8E4M3FNUZ => (4, 3, 8, f64::NAN, 240.0),
        FLOAT8E5M2 => (5, 2, 15, f64::INFINITY, 57344.0),
        FLOAT8E5M2FNUZ => (5, 2, 16, f64::NAN, 57344.0),
        FLOAT4E2M1 => (2, 1, 1, 6.0, 6.0),
        _ => return None,
    };
    Some(Small { exponent, mantissa, bias, beyond, largest })
}

/// The number that the bits of a float of a byte or less encode.
pub(crate) fn small_float(kind: i32, bits: u8) -> f64 {
    let Some(format) = small(kind) else {
        // FLOAT8E8M0 is an exponent alone.
        return if bits == 255 { f64::NAN } else { f64::from(i32::from(bits) - 127).exp2() };
    };
    let Small { exponent, mantissa, bias, .. } = format;
    let fraction = f64::from(u32::from(bits) & ((1 << mantissa) - 1));
    let power = (u32::from(bits) >> mantissa & ((1 << exponent) - 1)) as i32;
    let negative = u32::from(bits) >> (exponent + mantissa) & 1 == 1;
    let unit = f64::from(1 - bias - mantissa as i32).exp2();
    let magnitude = match power {
        0 => fraction * unit,
        _ => (fraction + f64::from(1 << mantissa)) * unit * f64::from(power - 1).exp2(),
    };
    let special = match kind {
        FLOAT8E4M3FN => bits & 127 == 127,
        FLOAT8E4M3FNUZ | FLOAT8E5M2FNUZ => bits == 128,
        FLOAT8E5M2 if bits & 127 == 124 => {
            return if negative { f64::NEG_INFINITY } else { f64::INFINITY };
        }
        FLOAT8E5M2 => bits & 127 > 124,
        _ => false,
    };
    match (special, negative) {
        (true, _) => f64::NAN,
        (false, true) => -magnitude,
        (false, false) => magnitude,
    }
}

/// A real number rounded to the nearest of a type, ties to even. With `saturate`, numbers that are too large become
/// the largest.
pub(crate) fn rounded(kind: i32, value: f64, saturate: bool) -> f64 {
    match kind {
        FLOAT => f64::from(value as f32),
        FLOAT16 => half::f16::from_f32(value as f32).into(),
        BFLOAT16 => half::bf16::from_f32(value as f32).into(),
        FLOAT8E8M0 => {
            let exact = value.abs().log2();
            let up = exact.ceil().clamp(-127.0, 127.0);
            up.exp2()
        }
        _ => match small(kind) {
            None => value,
            Some(_) if value.is_nan() => value,
            Some(format) => {
                let least = 1 - format.bias;
                let power = (value.abs().log2().floor().max(f64::from(least))) as i32;
                let unit = f64::from(power - format.mantissa as i32).exp2();
                let near = (value.abs() / unit).round_ties_even() * unit;
                let near = match near > format.largest {
                    true if saturate && (value.is_finite() || !format.beyond.is_infinite()) => {
                        format.largest
                    }
                    true => format.beyond,
                    false => near,
                };
                near.copysign(value)
            }
        },
    }
}
