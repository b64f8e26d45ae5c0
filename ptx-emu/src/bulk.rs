//! Barriers in shared memory (`mbarrier`) and the bulk copies that they count.
//!
//! A copy arrives only after threads have asked for it a few times, and all that time its bytes may not be
//! touched. A thread that does not ask at all meets bytes in flight, unless another thread asked before.

use std::collections::HashMap;

use crate::{
    Fault,
    block::Block,
    instr::{Op, Space},
    thread::aligned,
};

/// A block's barriers, by their addresses.
pub(crate) type Barriers = HashMap<u64, Barrier>;

/// Polls of a barrier that nothing can complete, after which the kernel is stopped.
const PATIENCE: u32 = 100_000;

#[derive(Debug)]
pub(crate) struct Barrier {
    count: u64,
    /// Arrivals and bytes that the current phase still waits for.
    arrivals: u64,
    bytes: i64,
    phase: u64,
    copies: Vec<Copy>,
    /// Polls until the copies arrive, or since there was anything to wait for.
    polls: u32,
}

#[derive(Debug)]
struct Copy {
    dst: u64,
    src: u64,
    bytes: usize,
}

impl Barrier {
    /// Ends the phase if nothing is missing from it.
    fn settle(&mut self) {
        if self.arrivals == 0 && self.bytes == 0 {
            self.phase += 1;
            self.arrivals = self.count;
            self.polls = 0;
        }
    }
}

/// Executes one of the four instructions for thread `t`.
pub(crate) fn execute(block: &mut Block<'_>, t: usize, op: &Op) -> Result<(), Fault> {
    match *op {
        Op::BarrierInit { barrier, count } => {
            let (at, count) = (block.at(t, barrier), block.value(t, count));
            aligned(at, 8)?;
            let now = block.moment(t);
            block.shared.write(at, now, &[0; 8])?;
            let (copies, polls) = (Vec::new(), 0);
            let fresh = Barrier { count, arrivals: count, bytes: 0, phase: 0, copies, polls };
            block.barriers.insert(at, fresh);
        }
        Op::BarrierArrive { barrier, bytes } => {
            let bytes = block.value(t, bytes) as i64;
            let at = block.at(t, barrier);
            let barrier = known(block, t, at)?;
            if barrier.arrivals == 0 {
                return Err(Fault::Barrier("more threads arrive than it counts".into()));
            }
            barrier.arrivals -= 1;
            barrier.bytes += bytes;
            barrier.settle();
        }
        Op::BarrierTest { d, barrier, parity } => {
            let (at, parity) = (block.at(t, barrier), block.value(t, parity) & 1);
            let done = known(block, t, at)?.phase & 1 != parity;
            if !done {
                poll(block, at)?;
            }
            block.set(t, d, u64::from(done));
        }
        Op::CpBulk { dst, src, bytes, barrier } => {
            let (dst, src) = (block.at(t, dst), block.at(t, src));
            let (bytes, at) = (block.value(t, bytes) as u32 as usize, block.at(t, barrier));
            aligned(dst, 16)?;
            aligned(src, 16)?;
            aligned(bytes as u64, 16)?;
            let now = block.moment(t);
            block.shared.begin_copy(dst, now, bytes)?;
            let polls = 1 + (block.order.next() % 200) as u32;
            let barrier = known(block, t, at)?;
            barrier.copies.push(Copy { dst, src, bytes });
            barrier.polls = polls;
        }
        _ => {}
    }
    Ok(())
}

/// The barrier at an address, if the thread may know of it.
fn known<'a>(block: &'a mut Block<'_>, t: usize, at: u64) -> Result<&'a mut Barrier, Fault> {
    // Reading the word finds threads without a barrier after the initialisation.
    block.read(t, Space::Shared, at, &mut [0; 8])?;
    let missing = || Fault::Barrier(format!("no barrier was initialised at {at:#x}"));
    block.barriers.get_mut(&at).ok_or_else(missing)
}

/// A thread polled too early: the copies advance by a step.
fn poll(block: &mut Block<'_>, at: u64) -> Result<(), Fault> {
    let Some(barrier) = block.barriers.get_mut(&at) else { return Ok(()) };
    if barrier.copies.is_empty() {
        barrier.polls += 1;
        if barrier.polls > PATIENCE {
            let Barrier { arrivals, bytes, .. } = barrier;
            let missing = format!("{arrivals} arrivals and {bytes} bytes never come");
            return Err(Fault::Barrier(missing));
        }
        return Ok(());
    }
    barrier.polls = barrier.polls.saturating_sub(1);
    if barrier.polls > 0 {
        return Ok(());
    }
    for copy in std::mem::take(&mut barrier.copies) {
        let mut value = vec![0; copy.bytes];
        block.memory.read(copy.src, block.number, &mut value)?;
        block.shared.end_copy(copy.dst, None, &value)?;
        barrier.bytes -= copy.bytes as i64;
    }
    barrier.settle();
    Ok(())
}
