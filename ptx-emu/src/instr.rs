//! Decoded instructions.

/// A register of a thread: an index into its file of 64-bit slots.
pub(crate) type Reg = u32;

/// The destination of a result that is never read.
pub(crate) const SINK: Reg = 0;

/// A scalar type, by its width and how it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Pred,
    Unsigned,
    Signed,
    Float,
}

/// A PTX type such as `.u32`; `.b32` is unsigned here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ty {
    pub kind: Kind,
    pub bits: u32,
}

impl Ty {
    pub(crate) const U32: Self = Self { kind: Kind::Unsigned, bits: 32 };

    /// The type named by an opcode's suffix.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if name == "pred" {
            return Some(Self { kind: Kind::Pred, bits: 1 });
        }
        let kind = match name.as_bytes().first()? {
            b'u' | b'b' => Kind::Unsigned,
            b's' => Kind::Signed,
            b'f' => Kind::Float,
            _ => return None,
        };
        let bits = match &name[1..] {
            "8" => 8,
            "16" => 16,
            "32" => 32,
            "64" => 64,
            _ => return None,
        };
        Some(Self { kind, bits })
    }

    pub(crate) fn bytes(self) -> usize {
        self.bits as usize / 8
    }

    /// Drops the bits above the type's width.
    pub(crate) fn mask(self, value: u64) -> u64 {
        if self.bits == 64 { value } else { value & ((1 << self.bits) - 1) }
    }

    /// The value as a signed number.
    pub(crate) fn signed(self, value: u64) -> i64 {
        let unused = 64 - self.bits;
        ((value << unused) as i64) >> unused
    }

    pub(crate) fn is_signed(self) -> bool {
        self.kind == Kind::Signed
    }

    pub(crate) fn is_float(self) -> bool {
        self.kind == Kind::Float
    }
}

/// A source operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operand {
    Reg(Reg),
    /// The complement of a predicate.
    Not(Reg),
    Imm(u64),
    Special(Special),
}

/// A special register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    Tid(usize),
    Ntid(usize),
    Ctaid(usize),
    Nctaid(usize),
    Lane,
    DynamicSmem,
}

/// A state space; `Generic` is resolved by the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    Shared,
    Const,
    Param,
}

/// `[base + offset]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address {
    pub base: Operand,
    pub offset: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    MulLo,
    MulHi,
    MulWide,
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
    Shl,
    Shr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unary {
    Neg,
    Not,
    Abs,
    Popc,
    Clz,
    Brev,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ternary {
    MadLo,
    MadHi,
    MadWide,
    Fma,
    /// `shf.l.wrap`, `shf.r.wrap`.
    FunnelLeft,
    FunnelRight,
    Prmt,
    Bfe,
    /// `dp4a`.
    Dot4,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Atomic {
    Add,
    And,
    Or,
    Xor,
    Min,
    Max,
    Exch,
    Cas,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Bfly,
    Idx,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vote {
    Any,
    All,
    Ballot,
}

/// A matrix multiply-accumulate of one warp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MmaShape {
    /// `m16n8k32`, 32-bit sums of 8-bit products.
    Int8 { a_signed: bool, b_signed: bool },
    /// `m8n8k4` in f64.
    F64,
}

/// The operation of an instruction.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Nop,
    Binary(Binary, Ty, Reg, Operand, Operand),
    /// `add.cc`, `addc`, `addc.cc`, `sub.cc`, ...: (type, subtract, carry in, carry out, ...).
    Carry {
        ty: Ty,
        subtract: bool,
        carry_in: bool,
        carry_out: bool,
        d: Reg,
        a: Operand,
        b: Operand,
    },
    /// `mad.lo.cc`, `madc.hi` and so on.
    MadCarry {
        ty: Ty,
        high: bool,
        carry_in: bool,
        carry_out: bool,
        d: Reg,
        a: Operand,
        b: Operand,
        c: Operand,
    },
    Unary(Unary, Ty, Reg, Operand),
    Ternary(Ternary, Ty, Reg, Operand, Operand, Operand),
    Bfi(Ty, Reg, [Operand; 4]),
    Lop3(Reg, [Operand; 3], u8),
    Setp {
        cmp: Cmp,
        ty: Ty,
        d: Reg,
        not_d: Option<Reg>,
        a: Operand,
        b: Operand,
        and: Option<(Binary, Operand)>,
    },
    Selp(Ty, Reg, Operand, Operand, Operand),
    Mov(Ty, Reg, Operand),
    Pack(Ty, Reg, Vec<Operand>),
    Unpack(Ty, Vec<Reg>, Operand),
    Cvt {
        to: Ty,
        from: Ty,
        d: Reg,
        a: Operand,
    },
    /// Between a generic address and one of `space`.
    Cvta {
        space: Space,
        to_space: bool,
        d: Reg,
        a: Operand,
    },
    Ld {
        space: Space,
        ty: Ty,
        d: Vec<Reg>,
        address: Address,
    },
    St {
        space: Space,
        ty: Ty,
        address: Address,
        values: Vec<Operand>,
    },
    Atom {
        space: Space,
        op: Atomic,
        ty: Ty,
        d: Reg,
        address: Address,
        b: Operand,
        c: Option<Operand>,
    },
    CpAsync {
        dst: Address,
        src: Address,
        bytes: usize,
        src_bytes: Option<Operand>,
    },
    CpCommit,
    CpWait(usize),
    /// `cp.async.bulk` from global to shared memory, counted by the barrier at an address.
    CpBulk {
        dst: Address,
        src: Address,
        bytes: Operand,
        barrier: Address,
    },
    /// `mbarrier.init` with its count of arrivals.
    BarrierInit {
        barrier: Address,
        count: Operand,
    },
    /// `mbarrier.arrive.expect_tx` with the bytes to come.
    BarrierArrive {
        barrier: Address,
        bytes: Operand,
    },
    /// `mbarrier.try_wait.parity`.
    BarrierTest {
        d: Reg,
        barrier: Address,
        parity: Operand,
    },
    Bra(usize),
    Ret,
    // Instructions at which threads meet.
    Bar {
        id: Operand,
        count: Option<Operand>,
    },
    WarpSync(Operand),
    Shfl {
        how: Shuffle,
        d: Reg,
        ok: Option<Reg>,
        a: Operand,
        b: Operand,
        c: Operand,
        members: Operand,
    },
    VoteSync {
        how: Vote,
        d: Reg,
        a: Operand,
        members: Operand,
    },
    Mma {
        shape: MmaShape,
        d: Vec<Reg>,
        a: Vec<Operand>,
        b: Vec<Operand>,
        c: Vec<Operand>,
    },
    LdMatrix {
        transpose: bool,
        d: Vec<Reg>,
        address: Address,
    },
    /// `wgmma.fence`, `wgmma.commit_group`, `wgmma.wait_group N`.
    WgmmaFence,
    WgmmaCommit,
    WgmmaWait(usize),
    Wgmma(Box<crate::wgmma::Wgmma>),
}

impl Op {
    /// The instruction is executed by the threads of a warp (or block) together.
    pub(crate) fn is_collective(&self) -> bool {
        matches!(
            self,
            Self::Bar { .. }
                | Self::WarpSync(_)
                | Self::Shfl { .. }
                | Self::VoteSync { .. }
                | Self::Mma { .. }
                | Self::LdMatrix { .. }
                | Self::WgmmaFence
                | Self::WgmmaCommit
                | Self::WgmmaWait(_)
                | Self::Wgmma(_)
        )
    }
}

/// An instruction with its guard and its line.
#[derive(Debug, Clone)]
pub(crate) struct Instr {
    /// Executed only if the predicate has the given value.
    pub guard: Option<(Reg, bool)>,
    pub op: Op,
    pub line: u32,
}
