//! Three parties prove to each other that the products they sent are right; one of them may lie.
//!
//! `cargo run -p trefoil-proofs --example liar` for honest parties, `cargo run -p trefoil-proofs --example liar 1` for a party 1
//! that sends one wrong word of 100,000.

use dist_proofs::{Batch, Known, Proofs, Side, Statements, Verdict};
use net::{Party, launch};
use ring_arith::{Generator, Shape, Tensor};

/// Words that each party sends.
const WORDS: usize = 100_000;

/// The parts of a party's message: `q = x y + m`. In a protocol these words are held, drawn from streams, or received.
struct Message {
    x: Tensor,
    y: Tensor,
    m: Tensor,
    q: Tensor,
}

impl Message {
    fn of(party: Party, lies: bool) -> Result<Self, ring_arith::Error> {
        let tensor = |number: u64| {
            let factor = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(2 * party.0 as u64 + number);
            Ok(Tensor::from_fn(Shape::new([WORDS])?, |at| factor.wrapping_mul(at as u64 + 1)))
        };
        let [x, y, m] = [tensor(1)?, tensor(3)?, tensor(5)?];
        let factors = x.words().iter().zip(y.words()).zip(m.words());
        let mut q: Vec<u64> =
            factors.map(|((x, y), m)| x.wrapping_mul(*y).wrapping_add(*m)).collect();
        if lies {
            q[WORDS / 2] ^= 1 << 63;
        }
        Ok(Self { x, y, m, q: Tensor::vector(q) })
    }

    /// The statement about it: its left verifier holds `x` and the mask `m`, the right one holds `y` and receives `q`.
    fn statements(&self, side: Side) -> Statements {
        let known = |tensor, verifier| {
            if side == Side::Prover || side == verifier {
                Known::Here(tensor)
            } else {
                Known::Elsewhere
            }
        };
        let mut statements = Statements::new(side);
        let x = statements.left_operand(known(&self.x, Side::Left));
        let y = statements.right_operand(known(&self.y, Side::Right));
        let relation = statements.words(64, WORDS).about("product: q", 0..WORDS).product(x, y);
        relation.left(known(&self.m, Side::Left)).minus_right(known(&self.q, Side::Right));
        statements
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let liar = std::env::args().nth(1).map(|party| party.parse().map(Party)).transpose()?;
    let messages = [0, 1, 2].map(|party| Message::of(Party(party), liar == Some(Party(party))));
    let messages: Vec<Message> = messages.into_iter().collect::<Result<_, _>>()?;
    let verdicts = launch::threads(3, 1, |mut session| {
        let me = session.transport.me();
        let mut proofs = Proofs::new(&session, Generator::Aes128Ctr)?;
        let batch = Batch {
            prover: &messages[me.0].statements(Side::Prover),
            left: &messages[me.after(2, 3).0].statements(Side::Left),
            right: &messages[me.after(1, 3).0].statements(Side::Right),
        };
        let cost = batch.prover.cost();
        let verdict = proofs.run(&mut *session.transport, batch)?;
        session.transport.close()?;
        net::Result::<_>::Ok((cost, verdict))
    });
    for (party, outcome) in verdicts.into_iter().enumerate() {
        let (cost, verdict) = outcome?;
        let verdict = match verdict {
            Verdict::Accepted => "accepts".to_owned(),
            Verdict::Rejected { suspects: [a, b], step } => format!("suspects {a} or {b}: {step}"),
        };
        println!("party {party}, with a proof of {} bytes, {verdict}", cost.prover_bytes);
    }
    Ok(())
}
