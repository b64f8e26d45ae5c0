//! A protocol of one's own, held to the conformance suite and the privacy check.
//!
//! This one computes in the open on every party: what is shared is simply sent to all. That hides nothing,
//! which the privacy check notices, but it talks, counts parties and keeps order like any protocol.

use mpc_core::{
    Finish, Linear, PlainBits, PlainShare, Plaintext, ProducedBy, Product, ProductOf, Protocol,
    Result, TestWorld, TruncationMode, Words, conformance, functions,
    privacy::{Leak, PrivacyCheck},
    provided,
};
use net::{Message, Party, Session};
use ring_arith::{BitTensor, CpuEngine, Engine, FracBits, Shape, Stream, Tensor};

/// Every party knows everything.
pub struct InTheOpen {
    session: Session,
    plain: Plaintext<CpuEngine>,
}

impl InTheOpen {
    /// A party of the protocol.
    pub fn new(session: Session) -> Result<Self> {
        Ok(Self { session, plain: Plaintext::new(CpuEngine::new(1)).modular() })
    }
}

type Share = PlainShare<CpuEngine>;

impl Protocol for InTheOpen {
    type Engine = CpuEngine;
    type Share = Share;
    type Bits = PlainBits;

    fn name(&self) -> &'static str {
        "in-the-open"
    }
    fn engine(&self) -> &CpuEngine {
        self.plain.engine()
    }
    fn me(&self) -> Party {
        self.session.transport.me()
    }
    fn parties(&self) -> usize {
        self.session.transport.parties()
    }
    fn step(&mut self, name: &str) {
        self.session.transport.step(name);
    }

    /// The owner sends its words to everybody else.
    fn input(
        &mut self,
        owner: Party,
        shapes: &[Shape],
        values: Option<&[Words<Self>]>,
    ) -> Result<Vec<Share>> {
        let mut shares = Vec::new();
        for (i, shape) in shapes.iter().enumerate() {
            let words = match values {
                Some(values) if self.me() == owner => {
                    let bytes = self.engine().download(&values[i])?.to_bytes();
                    for to in (0..self.parties()).map(Party).filter(|&to| to != owner) {
                        self.session.transport.send(to, Message::from(bytes.clone()))?;
                    }
                    values[i].clone()
                }
                _ => {
                    let body = self.session.transport.receive(owner)?.body;
                    self.engine().upload(Tensor::from_bytes(shape.clone(), body)?)?
                }
            };
            shares.push(self.constant(&words)?);
        }
        Ok(shares)
    }

    /// One of as many streams as there are parties, so that each gets another; everybody could make it.
    fn private_stream(&mut self) -> Result<Stream> {
        for _ in 0..self.me().0 {
            self.plain.private_stream()?;
        }
        let mine = self.plain.private_stream()?;
        for _ in self.me().0 + 1..self.parties() {
            self.plain.private_stream()?;
        }
        Ok(mine)
    }

    fn open_to(&mut self, to: Party, shares: &[&Share]) -> Result<Option<Vec<Words<Self>>>> {
        if self.me() == to { self.open(shares).map(Some) } else { Ok(None) }
    }

    // All the rest is local, as everybody has everything.
    fn constant(&self, value: &Words<Self>) -> Result<Share> {
        self.plain.constant(value)
    }
    fn open(&mut self, shares: &[&Share]) -> Result<Vec<Words<Self>>> {
        self.plain.open(shares)
    }
    fn open_bits(&mut self, bits: &[&PlainBits]) -> Result<Vec<BitTensor<Words<Self>>>> {
        self.plain.open_bits(bits)
    }
    fn linear(&self, map: &Linear<'_, Words<Self>>, x: &Share) -> Result<Share> {
        self.plain.linear(map, x)
    }
    fn add(&self, x: &Share, y: &Share) -> Result<Share> {
        self.plain.add(x, y)
    }
    fn sub(&self, x: &Share, y: &Share) -> Result<Share> {
        self.plain.sub(x, y)
    }
    fn concat(&self, shares: &[&Share], axis: usize) -> Result<Share> {
        self.plain.concat(shares, axis)
    }
    fn constant_bits(&self, value: &BitTensor<Words<Self>>) -> Result<PlainBits> {
        self.plain.constant_bits(value)
    }
    fn xor(&self, x: &PlainBits, y: &PlainBits) -> Result<PlainBits> {
        self.plain.xor(x, y)
    }
    fn not(&self, x: &PlainBits) -> Result<PlainBits> {
        self.plain.not(x)
    }
    fn and_public(&self, x: &PlainBits, mask: u64) -> Result<PlainBits> {
        self.plain.and_public(x, mask)
    }
    fn pick_planes(&self, x: &PlainBits, planes: &[Option<u32>]) -> Result<PlainBits> {
        self.plain.pick_planes(x, planes)
    }
    fn join_planes(&self, xs: &[&PlainBits]) -> Result<PlainBits> {
        self.plain.join_planes(xs)
    }
    fn parity(&self, x: &PlainBits) -> Result<PlainBits> {
        self.plain.parity(x)
    }
    fn reshape_bits(&self, x: &PlainBits, shape: &Shape) -> Result<PlainBits> {
        self.plain.reshape_bits(x, shape)
    }
    fn bits_width(&self, x: &PlainBits) -> u32 {
        self.plain.bits_width(x)
    }
    fn products(&mut self, jobs: &[ProductOf<'_, Self>]) -> Result<Vec<ProducedBy<Self>>> {
        // The sums alone are this protocol's own. What follows them is made of truncations, comparisons and
        // selections, and the latter two of bits and products: no need to write any of it.
        let mut sums = Vec::with_capacity(jobs.len());
        for job in jobs {
            let sum = Product { finish: Finish::Raw, ..job.clone() };
            sums.push(self.plain.product(sum)?.share);
        }
        provided::products(self, jobs, sums)
    }
    fn truncate(&mut self, jobs: &[(&Share, u32)], mode: TruncationMode) -> Result<Vec<Share>> {
        self.plain.truncate(jobs, mode)
    }
    fn to_bits(&mut self, jobs: &[(&Share, u32)]) -> Result<Vec<PlainBits>> {
        self.plain.to_bits(jobs)
    }
    fn and(&mut self, jobs: &[(&PlainBits, &PlainBits)]) -> Result<Vec<PlainBits>> {
        self.plain.and(jobs)
    }
    fn bits_to_words(&mut self, jobs: &[&PlainBits]) -> Result<Vec<Vec<Share>>> {
        self.plain.bits_to_words(jobs)
    }
}

fn main() {
    // A few checks of the conformance suite, with four parties. In a crate's tests the macro
    // `conformance!` runs all of them; tests/own_protocol.rs does so for this protocol.
    let world = TestWorld::new(4);
    conformance::inputs_and_openings(&world, InTheOpen::new);
    conformance::truncated_products(&world, InTheOpen::new);
    conformance::comparisons(&world, InTheOpen::new);
    println!("computes as it should");
    // Every function and every layer works on it already.
    let spread = world.run(InTheOpen::new, |mpc| {
        let mine = (mpc.me() == Party(2)).then_some(&[0.5, 2.25, -1.0][..]);
        let x = functions::input(mpc, Party(2), &Shape::new([3])?, mine, FracBits::DEFAULT)?;
        let (largest, smallest) = (functions::max(mpc, &x, 0)?, functions::min(mpc, &x, 0)?);
        let spread = functions::sub(mpc, &largest, &smallest)?;
        functions::reveal(mpc, &spread)
    });
    println!("party 1 learns {:?}", spread[1]);
    match privacy() {
        Ok(()) => println!("and hides its inputs"),
        Err(leak) => println!("but it hides nothing: {leak}"),
    }
}

/// Whether what parties receive says nothing about a secret of party 0.
pub fn privacy() -> std::result::Result<(), Leak> {
    PrivacyCheck::new(3).run(|session, secret| {
        let mut mpc = InTheOpen::new(session)?;
        let shape = Shape::new([4])?;
        let words = Tensor::new(shape.clone(), vec![secret as u64; 4])?;
        let mine = (mpc.me() == Party(0)).then_some(std::slice::from_ref(&words));
        mpc.input(Party(0), &[shape], mine).map(drop)
    })
}
