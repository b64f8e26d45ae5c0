//! Decodes the words of an instruction into its operation.

use crate::{
    Error, Result,
    instr::{
        Address, Atomic, Binary, Cmp, MmaShape, Op, Operand, Reg, SINK, Shuffle, Space, Ternary,
        Ty, Unary, Vote,
    },
    parse::{Raw, Statement},
    wgmma,
};

/// Decodes one instruction (branches are the parser's).
pub(crate) fn decode(s: &Statement<'_>) -> Result<Op> {
    let name = s.opcode[0];
    match name {
        "add" | "sub" | "addc" | "subc" if s.has("cc") || name.ends_with('c') => s.carry(),
        "mad" | "madc" if s.has("cc") || name == "madc" => s.mad_carry(),
        "add" => s.binary(Binary::Add),
        "sub" => s.binary(Binary::Sub),
        "mul" | "mul24" if s.ty()?.is_float() || s.has("lo") => s.binary(Binary::MulLo),
        "mul" if s.has("hi") => s.binary(Binary::MulHi),
        "mul" if s.has("wide") => s.binary(Binary::MulWide),
        "div" => s.binary(Binary::Div),
        "rem" => s.binary(Binary::Rem),
        "min" => s.binary(Binary::Min),
        "max" => s.binary(Binary::Max),
        "and" => s.binary(Binary::And),
        "or" => s.binary(Binary::Or),
        "xor" => s.binary(Binary::Xor),
        "shl" => s.binary(Binary::Shl),
        "shr" => s.binary(Binary::Shr),
        "neg" => s.unary(Unary::Neg),
        "not" => s.unary(Unary::Not),
        "abs" => s.unary(Unary::Abs),
        "popc" => s.unary(Unary::Popc),
        "clz" => s.unary(Unary::Clz),
        "brev" => s.unary(Unary::Brev),
        "mad" if s.has("lo") => s.ternary(Ternary::MadLo),
        "mad" if s.has("hi") => s.ternary(Ternary::MadHi),
        "mad" if s.has("wide") => s.ternary(Ternary::MadWide),
        "fma" => s.ternary(Ternary::Fma),
        "shf" if s.has("wrap") && s.has("l") => s.ternary(Ternary::FunnelLeft),
        "shf" if s.has("wrap") && s.has("r") => s.ternary(Ternary::FunnelRight),
        "prmt" => s.ternary(Ternary::Prmt),
        "bfe" => s.ternary(Ternary::Bfe),
        "dp4a" => s.ternary(Ternary::Dot4),
        "bfi" => {
            Ok(Op::Bfi(s.ty()?, s.reg(0)?, [s.value(1)?, s.value(2)?, s.value(3)?, s.value(4)?]))
        }
        "lop3" => s.lop3(),
        "setp" => s.setp(),
        "selp" => Ok(Op::Selp(s.ty()?, s.reg(0)?, s.value(1)?, s.value(2)?, s.value(3)?)),
        "mov" => s.mov(),
        "cvt" => s.cvt(),
        "cvta" => s.cvta(),
        "ld" | "ldu" => s.ld(),
        "st" => s.st(),
        "atom" | "red" => s.atom(),
        "cp" => s.cp(),
        "bar" | "barrier" => s.bar(),
        "membar" | "fence" => Ok(Op::Nop),
        "shfl" => s.shfl(),
        "vote" => s.vote(),
        "mma" => s.mma(),
        "ldmatrix" => s.ldmatrix(),
        "wgmma" => wgmma::decode(s),
        "mbarrier" => s.mbarrier(),
        "ret" | "exit" => Ok(Op::Ret),
        _ => Err(s.unknown()),
    }
}

impl Statement<'_> {
    /// The opcode has this suffix.
    pub(crate) fn has(&self, suffix: &str) -> bool {
        self.opcode.contains(&suffix)
    }

    pub(crate) fn error(&self, reason: impl Into<String>) -> Error {
        Error::Parse { line: self.line, reason: reason.into() }
    }

    pub(crate) fn unknown(&self) -> Error {
        self.error(format!("instruction `{}` is not known", self.opcode.join(".")))
    }

    /// The last type in the opcode.
    fn ty(&self) -> Result<Ty> {
        self.opcode.iter().rev().find_map(|w| Ty::parse(w)).ok_or_else(|| self.unknown())
    }

    pub(crate) fn value(&self, i: usize) -> Result<Operand> {
        match self.operands.get(i) {
            Some(Raw::Value(v)) => Ok(*v),
            _ => {
                Err(self
                    .error(format!("operand {i} of `{}` must be a value", self.opcode.join("."))))
            }
        }
    }

    fn optional(&self, i: usize) -> Result<Option<Operand>> {
        if i < self.operands.len() { self.value(i).map(Some) } else { Ok(None) }
    }

    pub(crate) fn imm(&self, i: usize) -> Result<u64> {
        match self.value(i)? {
            Operand::Imm(v) => Ok(v),
            _ => Err(self
                .error(format!("operand {i} of `{}` must be a constant", self.opcode.join(".")))),
        }
    }

    pub(crate) fn reg(&self, i: usize) -> Result<Reg> {
        match self.value(i)? {
            Operand::Reg(r) => Ok(r),
            _ => Err(self
                .error(format!("operand {i} of `{}` must be a register", self.opcode.join(".")))),
        }
    }

    fn address(&self, i: usize) -> Result<Address> {
        match self.operands.get(i) {
            Some(Raw::Address(a)) => Ok(*a),
            _ => Err(self
                .error(format!("operand {i} of `{}` must be an address", self.opcode.join(".")))),
        }
    }

    /// A vector operand, or a single value as one of length 1.
    pub(crate) fn values(&self, i: usize) -> Result<Vec<Operand>> {
        match self.operands.get(i) {
            Some(Raw::Vector(v)) => Ok(v.clone()),
            _ => Ok(vec![self.value(i)?]),
        }
    }

    pub(crate) fn regs(&self, i: usize) -> Result<Vec<Reg>> {
        let reg = |v: &Operand| match v {
            Operand::Reg(r) => Ok(*r),
            _ => Err(self.error("a destination must be a register")),
        };
        self.values(i)?.iter().map(reg).collect()
    }

    fn binary(&self, op: Binary) -> Result<Op> {
        Ok(Op::Binary(op, self.ty()?, self.reg(0)?, self.value(1)?, self.value(2)?))
    }

    fn unary(&self, op: Unary) -> Result<Op> {
        Ok(Op::Unary(op, self.ty()?, self.reg(0)?, self.value(1)?))
    }

    fn ternary(&self, op: Ternary) -> Result<Op> {
        Ok(Op::Ternary(
            op,
            self.ty()?,
            self.reg(0)?,
            self.value(1)?,
            self.value(2)?,
            self.value(3)?,
        ))
    }

    fn carry(&self) -> Result<Op> {
        Ok(Op::Carry {
            ty: self.ty()?,
            subtract: self.opcode[0].starts_with("sub"),
            carry_in: self.opcode[0].ends_with('c'),
            carry_out: self.has("cc"),
            d: self.reg(0)?,
            a: self.value(1)?,
            b: self.value(2)?,
        })
    }

    fn mad_carry(&self) -> Result<Op> {
        Ok(Op::MadCarry {
            ty: self.ty()?,
            high: self.has("hi"),
            carry_in: self.opcode[0] == "madc",
            carry_out: self.has("cc"),
            d: self.reg(0)?,
            a: self.value(1)?,
            b: self.value(2)?,
            c: self.value(3)?,
        })
    }

    fn lop3(&self) -> Result<Op> {
        let table = self.imm(4)? as u8;
        Ok(Op::Lop3(self.reg(0)?, [self.value(1)?, self.value(2)?, self.value(3)?], table))
    }

    fn setp(&self) -> Result<Op> {
        let cmp = match self.opcode[1] {
            "eq" => Cmp::Eq,
            "ne" => Cmp::Ne,
            "lt" | "lo" => Cmp::Lt,
            "le" | "ls" => Cmp::Le,
            "gt" | "hi" => Cmp::Gt,
            "ge" | "hs" => Cmp::Ge,
            _ => return Err(self.unknown()),
        };
        let combine = match self.opcode[2] {
            "and" => Some(Binary::And),
            "or" => Some(Binary::Or),
            "xor" => Some(Binary::Xor),
            _ => None,
        };
        let (d, not_d) = match self.operands.first() {
            Some(Raw::Pair(p, q)) => (*p, Some(*q)),
            _ => (self.reg(0)?, None),
        };
        let and = combine.map(|op| Ok::<_, Error>((op, self.value(3)?))).transpose()?;
        Ok(Op::Setp { cmp, ty: self.ty()?, d, not_d, a: self.value(1)?, b: self.value(2)?, and })
    }

    fn mov(&self) -> Result<Op> {
        let ty = self.ty()?;
        match (&self.operands[..], self.operands.len()) {
            ([Raw::Vector(_), _], 2) => Ok(Op::Unpack(ty, self.regs(0)?, self.value(1)?)),
            ([_, Raw::Vector(_)], 2) => Ok(Op::Pack(ty, self.reg(0)?, self.values(1)?)),
            _ => Ok(Op::Mov(ty, self.reg(0)?, self.value(1)?)),
        }
    }

    fn cvt(&self) -> Result<Op> {
        let types: Vec<Ty> = self.opcode.iter().filter_map(|w| Ty::parse(w)).collect();
        let [to, from] = types[..] else { return Err(self.unknown()) };
        if self.has("sat") {
            return Err(self.unknown());
        }
        Ok(Op::Cvt { to, from, d: self.reg(0)?, a: self.value(1)? })
    }

    fn cvta(&self) -> Result<Op> {
        let space = self.space()?;
        Ok(Op::Cvta { space, to_space: self.has("to"), d: self.reg(0)?, a: self.value(1)? })
    }

    fn space(&self) -> Result<Space> {
        let named = self.opcode.iter().find_map(|w| match w.split("::").next()? {
            "global" => Some(Space::Global),
            "shared" => Some(Space::Shared),
            "const" => Some(Space::Const),
            "param" => Some(Space::Param),
            "local" => None,
            _ => None,
        });
        if self.has("local") { Err(self.unknown()) } else { Ok(named.unwrap_or(Space::Generic)) }
    }

    fn ld(&self) -> Result<Op> {
        Ok(Op::Ld {
            space: self.space()?,
            ty: self.ty()?,
            d: self.regs(0)?,
            address: self.address(1)?,
        })
    }

    fn st(&self) -> Result<Op> {
        Ok(Op::St {
            space: self.space()?,
            ty: self.ty()?,
            address: self.address(0)?,
            values: self.values(1)?,
        })
    }

    fn atom(&self) -> Result<Op> {
        let find = |w: &&str| match *w {
            "add" => Some(Atomic::Add),
            "and" => Some(Atomic::And),
            "or" => Some(Atomic::Or),
            "xor" => Some(Atomic::Xor),
            "min" => Some(Atomic::Min),
            "max" => Some(Atomic::Max),
            "exch" => Some(Atomic::Exch),
            "cas" => Some(Atomic::Cas),
            _ => None,
        };
        let op = self.opcode.iter().find_map(find).ok_or_else(|| self.unknown())?;
        // `red` has no destination.
        let first = usize::from(self.opcode[0] == "atom");
        let d = if first == 1 { self.reg(0)? } else { SINK };
        Ok(Op::Atom {
            space: self.space()?,
            op,
            ty: self.ty()?,
            d,
            address: self.address(first)?,
            b: self.value(first + 1)?,
            c: self.optional(first + 2)?,
        })
    }

    fn cp(&self) -> Result<Op> {
        if self.has("bulk") {
            return self.cp_bulk();
        }
        if !self.has("async") {
            return Err(self.unknown());
        }
        if self.has("commit_group") {
            return Ok(Op::CpCommit);
        }
        if self.has("wait_all") {
            return Ok(Op::CpWait(0));
        }
        if self.has("wait_group") {
            return Ok(Op::CpWait(self.imm(0)? as usize));
        }
        let bytes = self.imm(2)? as usize;
        if !matches!(bytes, 4 | 8 | 16) {
            return Err(self.error(format!("cp.async copies 4, 8 or 16 bytes, not {bytes}")));
        }
        let src_bytes = self.optional(3)?;
        Ok(Op::CpAsync { dst: self.address(0)?, src: self.address(1)?, bytes, src_bytes })
    }

    fn cp_bulk(&self) -> Result<Op> {
        let ["cp", "async", "bulk", "shared::cluster" | "shared::cta", "global", rest @ ..] =
            &self.opcode[..]
        else {
            return Err(self.unknown());
        };
        if rest != ["mbarrier::complete_tx::bytes"] {
            return Err(self.unknown());
        }
        let (dst, src, barrier) = (self.address(0)?, self.address(1)?, self.address(3)?);
        Ok(Op::CpBulk { dst, src, bytes: self.value(2)?, barrier })
    }

    fn mbarrier(&self) -> Result<Op> {
        match self.opcode[1..] {
            ["init", "shared::cta", "b64"] => {
                Ok(Op::BarrierInit { barrier: self.address(0)?, count: self.value(1)? })
            }
            // The state that an arrival returns is not kept.
            ["arrive", "expect_tx", "shared::cta", "b64"] if self.reg(0)? == SINK => {
                Ok(Op::BarrierArrive { barrier: self.address(1)?, bytes: self.value(2)? })
            }
            ["try_wait", "parity", "shared::cta", "b64"] => Ok(Op::BarrierTest {
                d: self.reg(0)?,
                barrier: self.address(1)?,
                parity: self.value(2)?,
            }),
            _ => Err(self.unknown()),
        }
    }

    fn bar(&self) -> Result<Op> {
        if self.has("warp") {
            return Ok(Op::WarpSync(self.value(0)?));
        }
        if !self.has("sync") {
            return Err(self.unknown());
        }
        Ok(Op::Bar { id: self.value(0)?, count: self.optional(1)? })
    }

    fn shfl(&self) -> Result<Op> {
        let how = match self.opcode.get(2) {
            Some(&"up") => Shuffle::Up,
            Some(&"down") => Shuffle::Down,
            Some(&"bfly") => Shuffle::Bfly,
            Some(&"idx") => Shuffle::Idx,
            _ => return Err(self.unknown()),
        };
        let (d, ok) = match self.operands.first() {
            Some(Raw::Pair(d, p)) => (*d, Some(*p)),
            _ => (self.reg(0)?, None),
        };
        let (a, b, c) = (self.value(1)?, self.value(2)?, self.value(3)?);
        Ok(Op::Shfl { how, d, ok, a, b, c, members: self.value(4)? })
    }

    fn vote(&self) -> Result<Op> {
        let how = match self.opcode.get(2) {
            Some(&"any") => Vote::Any,
            Some(&"all") => Vote::All,
            Some(&"ballot") => Vote::Ballot,
            _ => return Err(self.unknown()),
        };
        Ok(Op::VoteSync { how, d: self.reg(0)?, a: self.value(1)?, members: self.value(2)? })
    }

    fn mma(&self) -> Result<Op> {
        let shape = match self.opcode[3..] {
            ["m16n8k32", "row", "col", "s32", a @ ("u8" | "s8"), b @ ("u8" | "s8"), "s32"] => {
                MmaShape::Int8 { a_signed: a == "s8", b_signed: b == "s8" }
            }
            ["m8n8k4", "row", "col", "f64", "f64", "f64", "f64"] => MmaShape::F64,
            _ => return Err(self.unknown()),
        };
        let (d, a, b, c) = (self.regs(0)?, self.values(1)?, self.values(2)?, self.values(3)?);
        let fits = match shape {
            MmaShape::Int8 { .. } => (d.len(), a.len(), b.len(), c.len()) == (4, 4, 2, 4),
            MmaShape::F64 => (d.len(), a.len(), b.len(), c.len()) == (2, 1, 1, 2),
        };
        if fits { Ok(Op::Mma { shape, d, a, b, c }) } else { Err(self.unknown()) }
    }

    fn ldmatrix(&self) -> Result<Op> {
        let d = self.regs(0)?;
        if !self.has("m8n8") || !matches!(d.len(), 1 | 2 | 4) {
            return Err(self.unknown());
        }
        Ok(Op::LdMatrix { transpose: self.has("trans"), d, address: self.address(1)? })
    }
}
