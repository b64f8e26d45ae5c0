//! One thread's instructions, up to the next place where threads meet.

use std::collections::VecDeque;

use crate::{
    Fault,
    block::Block,
    bulk,
    instr::{Address, Atomic, Op, Operand, Reg, Space, Special, Ty},
    parse::{CONST_BASE, SHARED_BASE},
    scalar,
    shared::Moment,
};

/// The state of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    /// At a collective instruction.
    Waiting,
    Done,
}

/// A thread's own state; its registers lie in the block's file.
#[derive(Debug)]
pub(crate) struct Thread {
    pub pc: usize,
    pub state: State,
    pub carry: bool,
    copies: Copies,
}

/// Asynchronous copies: those not yet in a group, and groups in order.
#[derive(Debug, Default)]
struct Copies {
    open: Vec<Copy>,
    groups: VecDeque<Vec<Copy>>,
}

#[derive(Debug, Clone, Copy)]
struct Copy {
    dst: u64,
    src: u64,
    bytes: usize,
    from_src: usize,
}

impl Thread {
    pub(crate) fn new() -> Self {
        Self { pc: 0, state: State::Running, carry: false, copies: Copies::default() }
    }
}

impl Block<'_> {
    /// Runs thread `t` for at most `steps` instructions, or until it waits or ends.
    pub(crate) fn run_thread(&mut self, t: usize, steps: u32) -> Result<(), Fault> {
        let kernel = self.kernel;
        for _ in 0..steps {
            let instr = &kernel.code[self.threads[t].pc];
            if let Some((guard, value)) = instr.guard
                && (self.reg(t, guard) & 1 == 1) != value
            {
                self.threads[t].pc += 1;
                continue;
            }
            self.steps += 1;
            match &instr.op {
                Op::Ret => {
                    self.threads[t].state = State::Done;
                    return Ok(());
                }
                Op::Bra(target) => self.threads[t].pc = *target,
                op if op.is_collective() => {
                    self.threads[t].state = State::Waiting;
                    return Ok(());
                }
                op => {
                    self.execute(t, op)?;
                    self.threads[t].pc += 1;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn reg(&self, t: usize, r: Reg) -> u64 {
        self.registers[t * self.kernel.registers + r as usize]
    }

    pub(crate) fn set(&mut self, t: usize, r: Reg, value: u64) {
        self.registers[t * self.kernel.registers + r as usize] = value;
    }

    pub(crate) fn value(&self, t: usize, operand: Operand) -> u64 {
        match operand {
            Operand::Reg(r) => self.reg(t, r),
            Operand::Not(r) => self.reg(t, r) ^ 1,
            Operand::Imm(v) => v,
            Operand::Special(special) => self.special(t, special),
        }
    }

    fn special(&self, t: usize, special: Special) -> u64 {
        let [bx, by, _] = self.shape.block.map(|d| d as usize);
        let value = match special {
            Special::Tid(0) => t % bx,
            Special::Tid(1) => t / bx % by,
            Special::Tid(_) => t / bx / by,
            Special::Ntid(axis) => self.shape.block[axis] as usize,
            Special::Ctaid(axis) => self.index[axis] as usize,
            Special::Nctaid(axis) => self.shape.grid[axis] as usize,
            Special::Lane => t % 32,
            Special::DynamicSmem => self.dynamic_shared,
        };
        value as u64
    }

    pub(crate) fn moment(&self, t: usize) -> Moment {
        Moment { thread: t as u32, block_epoch: self.epoch, warp_epoch: self.warp_epochs[t / 32] }
    }

    fn execute(&mut self, t: usize, op: &Op) -> Result<(), Fault> {
        match op {
            Op::Binary(op, ty, d, a, b) => {
                let value = scalar::binary(*op, *ty, self.value(t, *a), self.value(t, *b));
                self.set(t, *d, value);
            }
            Op::Unary(op, ty, d, a) => {
                let value = scalar::unary(*op, *ty, self.value(t, *a));
                self.set(t, *d, value);
            }
            Op::Ternary(op, ty, d, a, b, c) => {
                let value = scalar::ternary(
                    *op,
                    *ty,
                    self.value(t, *a),
                    self.value(t, *b),
                    self.value(t, *c),
                );
                self.set(t, *d, value);
            }
            Op::Mov(ty, d, a) => {
                let value = ty.mask(self.value(t, *a));
                self.set(t, *d, value);
            }
            Op::Setp { cmp, ty, d, not_d, a, b, and } => {
                let mut holds = scalar::compare(*cmp, *ty, self.value(t, *a), self.value(t, *b));
                let mut other = !holds;
                if let Some((op, p)) = and {
                    let p = self.value(t, *p) & 1;
                    let join = |x: bool| scalar::binary(*op, Ty::U32, u64::from(x), p) & 1 == 1;
                    (holds, other) = (join(holds), join(other));
                }
                self.set(t, *d, u64::from(holds));
                if let Some(q) = not_d {
                    self.set(t, *q, u64::from(other));
                }
            }
            Op::Selp(ty, d, a, b, p) => {
                let pick = if self.value(t, *p) & 1 == 1 { *a } else { *b };
                let value = ty.mask(self.value(t, pick));
                self.set(t, *d, value);
            }
            Op::Cvt { to, from, d, a } => {
                let value = scalar::convert(*to, *from, self.value(t, *a));
                self.set(t, *d, value);
            }
            Op::Ld { space, ty, d, address } => self.load(t, *space, *ty, d, *address)?,
            Op::St { space, ty, address, values } => {
                self.store(t, *space, *ty, *address, values)?
            }
            Op::Carry { .. } | Op::MadCarry { .. } => self.carrying(t, op),
            Op::Bfi(ty, d, [a, b, start, len]) => {
                let [a, b, start, len] = [a, b, start, len].map(|v| self.value(t, *v));
                self.set(t, *d, scalar::insert(*ty, a, b, start, len));
            }
            Op::Lop3(d, [a, b, c], table) => {
                let [a, b, c] = [a, b, c].map(|v| self.value(t, *v));
                self.set(t, *d, scalar::lop3(a, b, c, *table));
            }
            Op::Pack(ty, d, parts) => {
                let bits = ty.bits / parts.len() as u32;
                let part = |i: usize| {
                    Ty { bits, ..*ty }.mask(self.value(t, parts[i])) << (bits * i as u32)
                };
                let value = (0..parts.len()).map(part).fold(0, |x, y| x | y);
                self.set(t, *d, value);
            }
            Op::Unpack(ty, parts, a) => {
                let (value, bits) = (self.value(t, *a), ty.bits / parts.len() as u32);
                for (i, d) in parts.iter().enumerate() {
                    self.set(t, *d, Ty { bits, ..*ty }.mask(value >> (bits * i as u32)));
                }
            }
            Op::Cvta { space, to_space, d, a } => {
                let base = match space {
                    Space::Shared => SHARED_BASE,
                    _ => 0,
                };
                let value = self.value(t, *a);
                let value =
                    if *to_space { value.wrapping_sub(base) } else { value.wrapping_add(base) };
                self.set(t, *d, value);
            }
            Op::Atom { .. } => self.atomic(t, op)?,
            Op::CpAsync { dst, src, bytes, src_bytes } => {
                let from_src = src_bytes.map_or(*bytes, |b| self.value(t, b) as usize);
                self.begin_copy(t, self.at(t, *dst), self.at(t, *src), *bytes, from_src)?;
            }
            Op::CpCommit => {
                let copies = &mut self.threads[t].copies;
                let group = std::mem::take(&mut copies.open);
                copies.groups.push_back(group);
            }
            Op::CpWait(left) => self.end_copies(t, *left)?,
            Op::CpBulk { .. }
            | Op::BarrierInit { .. }
            | Op::BarrierArrive { .. }
            | Op::BarrierTest { .. } => bulk::execute(self, t, op)?,
            Op::Nop => {}
            _ => {
                return Err(Fault::Unsupported(
                    "an instruction that threads execute together".into(),
                ));
            }
        }
        Ok(())
    }

    fn carrying(&mut self, t: usize, op: &Op) {
        let carry = u128::from(self.threads[t].carry);
        let (ty, out, d, sum) = match *op {
            Op::Carry { ty, subtract, carry_in, carry_out, d, a, b } => {
                let (a, b) =
                    (u128::from(ty.mask(self.value(t, a))), u128::from(ty.mask(self.value(t, b))));
                let carry = if carry_in { carry } else { 0 };
                // A borrow shows in the bit above the width, like a carry.
                let sum =
                    if subtract { a.wrapping_sub(b).wrapping_sub(carry) } else { a + b + carry };
                (ty, carry_out, d, sum)
            }
            Op::MadCarry { ty, high, carry_in, carry_out, d, a, b, c } => {
                let [a, b, c] = [a, b, c].map(|v| u128::from(ty.mask(self.value(t, v))));
                let product =
                    if high { (a * b) >> ty.bits } else { u128::from(ty.mask((a * b) as u64)) };
                (ty, carry_out, d, product + c + if carry_in { carry } else { 0 })
            }
            _ => return,
        };
        if out {
            self.threads[t].carry = (sum >> ty.bits) & 1 == 1;
        }
        self.set(t, d, ty.mask(sum as u64));
    }

    /// The value of `[base + offset]`.
    pub(crate) fn at(&self, t: usize, address: Address) -> u64 {
        self.value(t, address.base).wrapping_add_signed(address.offset)
    }

    fn load(
        &mut self,
        t: usize,
        space: Space,
        ty: Ty,
        d: &[Reg],
        address: Address,
    ) -> Result<(), Fault> {
        let mut buffer = [0u8; 32];
        let size = ty.bytes();
        let bytes = &mut buffer[..size * d.len()];
        self.read(t, space, self.at(t, address), bytes)?;
        for (i, d) in d.iter().enumerate() {
            let mut word = [0u8; 8];
            word[..size].copy_from_slice(&buffer[i * size..][..size]);
            let value = u64::from_le_bytes(word);
            // A signed load extends to the register's width.
            self.set(t, *d, if ty.is_signed() { ty.signed(value) as u64 } else { value });
        }
        Ok(())
    }

    fn store(
        &mut self,
        t: usize,
        space: Space,
        ty: Ty,
        address: Address,
        values: &[Operand],
    ) -> Result<(), Fault> {
        let mut buffer = [0u8; 32];
        let size = ty.bytes();
        for (i, v) in values.iter().enumerate() {
            buffer[i * size..][..size].copy_from_slice(&self.value(t, *v).to_le_bytes()[..size]);
        }
        self.write(t, space, self.at(t, address), &buffer[..size * values.len()])
    }

    pub(crate) fn read(
        &mut self,
        t: usize,
        space: Space,
        address: u64,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        aligned(address, out.len())?;
        let now = self.moment(t);
        match space.resolve(address) {
            (Space::Param, at) => copy(self.params, "parameter", at, out),
            (Space::Const, at) => copy(&self.kernel.constants, "constant", at, out),
            (Space::Shared, at) => self.shared.read(at, now, out),
            (_, at) => self.memory.read(at, self.number, out),
        }
    }

    fn write(&mut self, t: usize, space: Space, address: u64, value: &[u8]) -> Result<(), Fault> {
        aligned(address, value.len())?;
        let now = self.moment(t);
        match space.resolve(address) {
            (Space::Shared, at) => self.shared.write(at, now, value),
            (Space::Global, at) => self.memory.write(at, self.number, value),
            _ => Err(Fault::Unsupported("a store to constant or parameter memory".into())),
        }
    }

    fn atomic(&mut self, t: usize, op: &Op) -> Result<(), Fault> {
        let Op::Atom { space, op, ty, d, address, b, c } = op else { return Ok(()) };
        let (address, size) = (self.at(t, *address), ty.bytes());
        aligned(address, size)?;
        let (b, c) = (self.value(t, *b), c.map_or(0, |c| self.value(t, c)));
        let cell = match space.resolve(address) {
            (Space::Shared, at) => self.shared.cell(at, size)?,
            (Space::Global, at) => self.memory.cell(at, size)?,
            _ => {
                return Err(Fault::Unsupported("an atomic on constant or parameter memory".into()));
            }
        };
        let mut word = [0u8; 8];
        word[..size].copy_from_slice(cell);
        let old = u64::from_le_bytes(word);
        let new = scalar::atomic(*op, *ty, old, ty.mask(b), c);
        debug_assert!(*op != Atomic::Cas || size >= 4, "cas is 32 or 64 bits wide");
        cell.copy_from_slice(&new.to_le_bytes()[..size]);
        self.set(t, *d, old);
        Ok(())
    }

    fn begin_copy(
        &mut self,
        t: usize,
        dst: u64,
        src: u64,
        bytes: usize,
        from_src: usize,
    ) -> Result<(), Fault> {
        aligned(dst, bytes)?;
        aligned(src, bytes)?;
        if from_src > bytes {
            return Err(Fault::Unsupported(format!("cp.async takes {from_src} of {bytes} bytes")));
        }
        let now = self.moment(t);
        self.shared.begin_copy(dst, now, bytes)?;
        self.threads[t].copies.open.push(Copy { dst, src, bytes, from_src });
        Ok(())
    }

    /// Lets copies arrive until at most `left` groups are under way. They arrive as late as allowed.
    fn end_copies(&mut self, t: usize, left: usize) -> Result<(), Fault> {
        while self.threads[t].copies.groups.len() > left {
            let group = self.threads[t].copies.groups.pop_front().unwrap_or_default();
            for copy in group {
                let mut value = [0u8; 16];
                if copy.from_src > 0 {
                    self.memory.read(copy.src, self.number, &mut value[..copy.from_src])?;
                }
                let now = self.moment(t);
                self.shared.end_copy(copy.dst, Some(now), &value[..copy.bytes])?;
            }
        }
        Ok(())
    }
}

impl Space {
    /// The state space of a possibly generic address, and the address in it.
    fn resolve(self, address: u64) -> (Self, u64) {
        match self {
            Self::Generic if address >= CONST_BASE => (Self::Const, address - CONST_BASE),
            Self::Generic if address >= SHARED_BASE => (Self::Shared, address - SHARED_BASE),
            Self::Generic => (Self::Global, address),
            Self::Const => (Self::Const, address.wrapping_sub(CONST_BASE)),
            space => (space, address),
        }
    }
}

pub(crate) fn aligned(address: u64, bytes: usize) -> Result<(), Fault> {
    if address.is_multiple_of(bytes as u64) {
        Ok(())
    } else {
        Err(Fault::Misaligned { address, bytes })
    }
}

/// Reads from parameter or constant memory, which threads never write.
fn copy(from: &[u8], space: &'static str, at: u64, out: &mut [u8]) -> Result<(), Fault> {
    let start = usize::try_from(at).unwrap_or(usize::MAX);
    match start.checked_add(out.len()).and_then(|end| from.get(start..end)) {
        Some(bytes) => {
            out.copy_from_slice(bytes);
            Ok(())
        }
        None => Err(Fault::OutOfBounds { space, address: at, bytes: out.len() }),
    }
}
