//! One block: its threads, interleaved in shuffled order, and the places where they meet.

use crate::{
    Fault,
    bulk::Barriers,
    collective,
    instr::{Op, Operand},
    memory::Memory,
    parse::Kernel,
    shared::Shared,
    thread::{State, Thread},
    wgmma::Pending,
};

/// Grid and block dimensions of a launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GridShape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
}

/// A block under way.
pub(crate) struct Block<'a> {
    pub kernel: &'a Kernel,
    pub params: &'a [u8],
    pub memory: &'a mut Memory,
    pub shape: GridShape,
    pub index: [u32; 3],
    /// The block's number in its grid.
    pub number: u32,
    pub shared: Shared,
    pub dynamic_shared: usize,
    pub threads: Vec<Thread>,
    /// Registers of all threads, thread by thread.
    pub registers: Vec<u64>,
    /// Barriers passed.
    pub epoch: u32,
    /// Meetings passed, by warp.
    pub warp_epochs: Vec<u32>,
    /// Matrix products in flight, by warp group.
    pub pending: Vec<Pending>,
    /// Barriers in shared memory.
    pub barriers: Barriers,
    pub steps: u64,
    pub limit: u64,
    pub order: Order,
}

/// A small generator for the order of threads (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Order(pub u64);

impl Order {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A random order of `0..n`.
    pub(crate) fn shuffled(&mut self, n: usize) -> Vec<usize> {
        let mut items: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            items.swap(i, (self.next() % (i as u64 + 1)) as usize);
        }
        items
    }
}

impl<'a> Block<'a> {
    pub(crate) fn new(
        (kernel, params, memory): (&'a Kernel, &'a [u8], &'a mut Memory),
        shape: GridShape,
        number: u32,
        dynamic: usize,
        seed: u64,
        limit: u64,
    ) -> Self {
        let [gx, gy, _] = shape.grid;
        let threads = shape.block.iter().product::<u32>() as usize;
        let dynamic_shared = kernel.static_shared.next_multiple_of(1024);
        Self {
            kernel,
            params,
            memory,
            shape,
            index: [number % gx, number / gx % gy, number / gx / gy],
            number,
            shared: Shared::new(if dynamic == 0 {
                kernel.static_shared
            } else {
                dynamic_shared + dynamic
            }),
            dynamic_shared,
            threads: (0..threads).map(|_| Thread::new()).collect(),
            registers: vec![0; threads * kernel.registers],
            epoch: 0,
            warp_epochs: vec![0; threads.div_ceil(32)],
            pending: (0..threads.div_ceil(128)).map(|_| Pending::default()).collect(),
            barriers: Barriers::new(),
            steps: 0,
            limit,
            order: Order(seed),
        }
    }

    /// Runs the block to its end. On a fault, also the thread and its place.
    pub(crate) fn run(&mut self) -> Result<(), (usize, Fault)> {
        loop {
            let mut progress = false;
            for t in self.order.shuffled(self.threads.len()) {
                if self.threads[t].state == State::Running {
                    let quantum = 1 + (self.order.next() % 96) as u32;
                    self.run_thread(t, quantum).map_err(|fault| (t, fault))?;
                    progress = true;
                }
            }
            if self.threads.iter().all(|t| t.state == State::Done) {
                let unfinished = self.pending.iter().position(|p| !p.is_empty());
                return unfinished.map_or(Ok(()), |g| Err((g * 128, Fault::ProductsInFlight)));
            }
            progress |= self.meet()?;
            if !progress {
                return Err(self.stuck());
            }
            if self.steps > self.limit {
                return Err((0, Fault::Endless(self.limit)));
            }
        }
    }

    /// Lets threads pass the places at which all that must have arrived.
    fn meet(&mut self) -> Result<bool, (usize, Fault)> {
        let mut progress = false;
        for group in 0..self.threads.len().div_ceil(128) {
            progress |= self.meet_warps(group)?;
        }
        Ok(progress | self.meet_block())
    }

    fn meet_warps(&mut self, group: usize) -> Result<bool, (usize, Fault)> {
        let first = group * 128;
        let last = (first + 128).min(self.threads.len());
        if last - first == 128
            && self.all_at_one_place(first..last)
            && self.op_at(first).is_warp_group()
        {
            collective::warp_group(self, group).map_err(|fault| (first, fault))?;
            return Ok(true);
        }
        let mut progress = false;
        for warp in (first..last).step_by(32) {
            let lanes = warp..(warp + 32).min(last);
            for t in lanes.clone() {
                if let Some(members) = self.arrived(t, lanes.clone()) {
                    collective::warp(self, &members).map_err(|fault| (t, fault))?;
                    progress = true;
                }
            }
        }
        Ok(progress)
    }

    /// The lanes that meet at thread `t`'s warp instruction, if all of them have arrived.
    fn arrived(&self, t: usize, lanes: std::ops::Range<usize>) -> Option<Vec<usize>> {
        if self.threads[t].state != State::Waiting {
            return None;
        }
        let op = self.op_at(t);
        if op.is_warp_group() {
            return None;
        }
        let mask = match op {
            Op::Bar { .. } => return None,
            Op::WarpSync(m) | Op::Shfl { members: m, .. } | Op::VoteSync { members: m, .. } => {
                self.value(t, *m) as u32
            }
            _ => u32::MAX,
        };
        let first = lanes.start;
        let members: Vec<usize> = lanes.filter(|l| mask >> (l - first) & 1 == 1).collect();
        let pc = self.threads[t].pc;
        let there =
            |l: &usize| self.threads[*l].state == State::Waiting && self.threads[*l].pc == pc;
        (members.contains(&t) && members.iter().all(there)).then_some(members)
    }

    /// A block-wide barrier, once every thread has arrived at one of the same number.
    fn meet_block(&mut self) -> bool {
        let barrier = |t: usize| match self.op_at(t) {
            Op::Bar { id, count } if self.threads[t].state == State::Waiting => {
                Some((self.value(t, *id), count.map(|c: Operand| self.value(t, c))))
            }
            _ => None,
        };
        let Some((id, count)) = barrier(0) else { return false };
        let n = self.threads.len();
        let whole = count.is_none_or(|c| c == n as u64);
        if !whole || !(0..n).all(|t| barrier(t).is_some_and(|b| b.0 == id)) {
            return false;
        }
        self.epoch += 1;
        for thread in &mut self.threads {
            thread.pc += 1;
            thread.state = State::Running;
        }
        true
    }

    fn all_at_one_place(&self, mut threads: std::ops::Range<usize>) -> bool {
        let pc = self.threads[threads.start].pc;
        threads.all(|t| self.threads[t].state == State::Waiting && self.threads[t].pc == pc)
    }

    pub(crate) fn op_at(&self, t: usize) -> &'a Op {
        let kernel = self.kernel;
        &kernel.code[self.threads[t].pc].op
    }

    /// Why nothing can go on.
    fn stuck(&self) -> (usize, Fault) {
        let waiting = (0..self.threads.len()).filter(|&t| self.threads[t].state == State::Waiting);
        let mut lines: Vec<u32> =
            waiting.clone().map(|t| self.kernel.code[self.threads[t].pc].line).collect();
        lines.sort_unstable();
        lines.dedup();
        let done = self.threads.iter().filter(|t| t.state == State::Done).count();
        let count = waiting.clone().count();
        let text = format!(
            "{count} threads wait at lines {lines:?} and {done} have ended: they never meet at one barrier or warp instruction"
        );
        (waiting.clone().next().unwrap_or(0), Fault::Divergence(text))
    }
}
