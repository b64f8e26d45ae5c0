//! Benchmarks of proofs against one lying party: three provers in three threads, CPU time of all of them together.

use anyhow::{Context, Result};
use dist_proofs::{Batch, Known, LeftOperand, Proofs, RightOperand, Side, Statements, Verdict};
use mpc_core::{Deal, Protocol, Security, TestWorld};
use net::launch;
use ring_arith::{Bilinear, CpuEngine, Engine, Generator, Shape, Tensor};
use rss_protocols::{Options, Rss, Share};

use super::{
    Bench, Case, Timing,
    additive::{cut, relu, truncated},
};

/// An operation on shares of a tensor.
type Work = fn(&mut Rss<CpuEngine>, &Share<Tensor>) -> mpc_core::Result<()>;

/// Operations of a checked session, and the shapes of their operands.
const SESSIONS: &[(&str, &[usize], Work)] = &[
    ("proofs/session/mul-trunc/2e5", &[200_000], cut),
    ("proofs/session/relu/2e5", &[200_000], relu),
    ("proofs/session/matmul/512", &[512, 512], |mpc, x| truncated(mpc, x, Bilinear::MATMUL)),
];

/// The cases of this module.
///
/// # Errors
/// If a party fails.
pub fn cases(bench: &mut Bench) -> Result<()> {
    bench.case("proofs/bits/layer", bits)?;
    bench.case("proofs/words/two-products", words)?;
    bench.case("proofs/matmul/1024", |case| matmul(case, 1024))?;
    SESSIONS.iter().try_for_each(|&(name, dims, work)| {
        bench.case(name, |case| {
            let checked = || session(Security::Checked, dims, work);
            let (mine, other) =
                case.measure_pair(checked, || session(Security::SemiHonest, dims, work));
            case.engine("cpu").threads(3).size(format!("{dims:?}")).timing(mine);
            case.reference("no proofs", other);
            Ok(())
        })
    })
}

/// Three parties' runs of an operation, and the proofs of its messages if they are checked.
fn session(security: Security, dims: &'static [usize], work: Work) {
    let options = Options::default().security(security);
    let make = move |session| Rss::with_options(session, CpuEngine::new(1), options);
    TestWorld::new(3).run(make, move |mpc| {
        let words = Tensor::full(Shape::new(dims)?, 3 << 20);
        let x = mpc.constant(&mpc.engine().upload(words)?)?;
        for _ in 0..4 {
            work(mpc, &x)?;
        }
        mpc.verify()
    });
}

/// Elements of a batch.
const ELEMENTS: usize = 1 << 16;

/// Batches of a session, one after the other.
const BATCHES: usize = 8;

/// The sides of a prover's statement.
type Sides = [Statements; 3];

/// What the three sides hold: random words, and a term that makes each relation true.
struct World {
    sides: Sides,
    state: u64,
    /// Tensors of the operands so far.
    left: Vec<(LeftOperand, Tensor)>,
    right: Vec<(RightOperand, Tensor)>,
}

fn known(side: Side, verifier: Side, tensor: &Tensor) -> Known<'_, Tensor> {
    if side == Side::Prover || side == verifier { Known::Here(tensor) } else { Known::Elsewhere }
}

impl World {
    fn new() -> Self {
        let sides = [Side::Prover, Side::Left, Side::Right].map(Statements::new);
        Self { sides, state: 1, left: Vec::new(), right: Vec::new() }
    }

    fn tensor(&mut self, dims: &[usize]) -> Result<Tensor> {
        let shape = Shape::new(dims)?;
        Ok(Tensor::from_fn(shape, |_| {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            self.state
        }))
    }

    /// A new left operand; returns its place.
    fn left(&mut self, dims: &[usize]) -> Result<usize> {
        let tensor = self.tensor(dims)?;
        let handles = self
            .sides
            .each_mut()
            .map(|side| side.left_operand(known(side.side(), Side::Left, &tensor)));
        self.left.push((handles[0], tensor));
        Ok(self.left.len() - 1)
    }

    /// A new right operand; returns its place.
    fn right(&mut self, dims: &[usize]) -> Result<usize> {
        let tensor = self.tensor(dims)?;
        let handles = self
            .sides
            .each_mut()
            .map(|side| side.right_operand(known(side.side(), Side::Right, &tensor)));
        self.right.push((handles[0], tensor));
        Ok(self.right.len() - 1)
    }

    /// A relation of bits of these products; a right factor of one plane serves in all.
    fn bits(&mut self, planes: usize, products: &[(usize, usize)]) -> Result<()> {
        let words = ELEMENTS / 64;
        let left = self.tensor(&[planes, words])?;
        let mut sum = left.words().to_vec();
        for &(a, b) in products {
            let factors = self.left[a].1.words().iter().zip(self.right[b].1.words().iter().cycle());
            sum.iter_mut().zip(factors).for_each(|(sum, (a, b))| *sum ^= a & b);
        }
        let right = Tensor::vector(sum);
        for statements in &mut self.sides {
            let side = statements.side();
            let mut relation = statements.bits(planes, ELEMENTS);
            for &(a, b) in products {
                let other = &self.right[b];
                let one_plane = planes > 1 && other.1.words().len() == words;
                relation = relation.product(
                    self.left[a].0,
                    if one_plane { other.0.in_every_plane() } else { other.0 },
                );
            }
            relation.left(known(side, Side::Left, &left)).right(known(side, Side::Right, &right));
        }
        Ok(())
    }
}

/// The relations of bits of a dealer for a product, its truncation and ReLU: as many planes, relations and products as the
/// protocol's reference has.
fn dealer() -> Result<World> {
    let words = ELEMENTS / 64;
    let mut world = World::new();
    let pair = |world: &mut World, planes| {
        Ok::<_, anyhow::Error>((world.left(&[planes, words])?, world.right(&[planes, words])?))
    };
    // Bits of a sum, carries of fields.
    let sum = [pair(&mut world, 43)?, pair(&mut world, 43)?];
    world.bits(43, &sum)?;
    let fields = pair(&mut world, 40)?;
    world.bits(40, &[fields])?;
    // Codes of digits, dealt products.
    let [x, y] = [pair(&mut world, 58)?, pair(&mut world, 58)?];
    world.bits(58, &[x, y])?;
    world.bits(58, &[(x.0, y.1), (y.0, x.1)])?;
    let dealt = pair(&mut world, 17)?;
    world.bits(17, &[dealt])?;
    Ok(world)
}

/// Those of each of its peers.
fn peer() -> Result<World> {
    let words = ELEMENTS / 64;
    let mut world = World::new();
    let fields = world.left(&[20, words])?;
    let bit = world.right(&[1, words])?;
    world.bits(20, &[(fields, bit)])?;
    for _ in 0..18 {
        let codes = (0..8).map(|_| world.left(&[1, words])).collect::<Result<Vec<_>>>()?;
        for _ in 0..2 {
            let products = codes
                .iter()
                .map(|&code| Ok((code, world.right(&[1, words])?)))
                .collect::<Result<Vec<_>>>()?;
            world.bits(1, &products)?;
        }
    }
    Ok(world)
}

fn bits(case: &mut Case) -> Result<()> {
    let worlds = [dealer()?, peer()?, peer()?];
    let planes = worlds.iter().flat_map(|world| {
        let left = world.left.iter().map(|(_, tensor)| tensor);
        left.chain(world.right.iter().map(|(_, tensor)| tensor))
    });
    let planes: Vec<_> = planes.cloned().collect();
    let limit =
        case.measure(|| planes.iter().map(|tensor| sum(tensor.words())).fold(0, u64::wrapping_add));
    measure(case, worlds.map(|world| world.sides), ELEMENTS as f64, "ns of CPU an element")?;
    case.size(format!("2^16 elements, {} planes", planes.len()))
        .reference("reading all planes once", limit);
    Ok(())
}

/// A relation of two products of words at each of three provers.
fn words(case: &mut Case) -> Result<()> {
    let mut worlds = [World::new(), World::new(), World::new()];
    let mut factors = Vec::new();
    for world in &mut worlds {
        let pairs = [(); 2].map(|()| {
            Ok::<_, anyhow::Error>((world.left(&[ELEMENTS])?, world.right(&[ELEMENTS])?))
        });
        let pairs = pairs.into_iter().collect::<Result<Vec<_>>>()?;
        let left = world.tensor(&[ELEMENTS])?;
        let mut total = left.words().to_vec();
        for &(a, b) in &pairs {
            let (a, b) = (&world.left[a].1, &world.right[b].1);
            let words = a.words().iter().zip(b.words());
            total
                .iter_mut()
                .zip(words)
                .for_each(|(sum, (a, b))| *sum = sum.wrapping_add(a.wrapping_mul(*b)));
            factors.push((a.clone(), b.clone()));
        }
        let right = Tensor::vector(total);
        for statements in &mut world.sides {
            let side = statements.side();
            let relation = statements.words(64, ELEMENTS);
            let relation = pairs.iter().fold(relation, |relation, &(a, b)| {
                relation.product(world.left[a].0, world.right[b].0)
            });
            relation.left(known(side, Side::Left, &left)).minus_right(known(
                side,
                Side::Right,
                &right,
            ));
        }
    }
    let engine = CpuEngine::new(1);
    let limit = case.try_measure(|| -> ring_arith::Result<()> {
        factors
            .iter()
            .try_for_each(|(a, b)| engine.bilinear(&Bilinear::Mul, &[(a, b)], &[]).map(drop))
    })?;
    measure(case, worlds.map(|world| world.sides), ELEMENTS as f64 * 3.0, "ns of CPU a relation")?;
    case.size("3 * 2^16 relations").reference("the products", limit);
    Ok(())
}

/// What each of three parties owes for its part of a matrix product.
fn matmul(case: &mut Case, n: usize) -> Result<()> {
    let engine = CpuEngine::new(1);
    let mut worlds = [World::new(), World::new(), World::new()];
    let mut factors = None;
    for world in &mut worlds {
        let [x1, y1] = [world.left(&[n, n])?, world.left(&[n, n])?];
        let [x2, y2] = [world.right(&[n, n])?, world.right(&[n, n])?];
        let of_left = |at: usize| &world.left[at].1;
        let of_right = |at: usize| &world.right[at].1;
        let terms = [(of_left(x1), of_right(y2)), (of_right(x2), of_left(y1))];
        let right = engine.bilinear(&Bilinear::MATMUL, &terms, &[])?;
        factors = Some(terms.map(|(a, b)| (a.clone(), b.clone())));
        let shape = Shape::new([n, n])?;
        for statements in &mut world.sides {
            let side = statements.side();
            let relation = statements.map(&Bilinear::MATMUL, &shape, &shape)?;
            let relation = relation.product(world.left[x1].0, world.right[y2].0);
            let relation = relation.product(world.right[x2].0, world.left[y1].0);
            relation.minus_right(known(side, Side::Right, &right));
        }
    }
    let factors = factors.context("there are three parties")?;
    let limit = case.try_measure(|| {
        engine.bilinear(&Bilinear::MATMUL, &[(&factors[0].0, &factors[0].1)], &[])
    })?;
    // The prover contracts four matrices, each verifier two; and one the result.
    measure(
        case,
        worlds.map(|world| world.sides),
        (3 * 9 * n * n) as f64,
        "ns of CPU a word contracted",
    )?;
    case.size(format!("{n} x {n}")).reference("one product", limit);
    Ok(())
}

/// Proves three statements at once.
fn measure(case: &mut Case, statements: [Sides; 3], units: f64, unit: &str) -> Result<Timing> {
    let cost = statements.each_ref().map(|sides| sides[0].cost());
    let timing = case.try_measure(|| {
        let verdicts = launch::threads(3, 1, |mut session| {
            let me = session.transport.me();
            let mut proofs = Proofs::new(&session, Generator::Aes128Ctr)?;
            let batch = Batch {
                prover: &statements[me.0][0],
                left: &statements[me.after(2, 3).0][1],
                right: &statements[me.after(1, 3).0][2],
            };
            for _ in 1..BATCHES {
                if let rejected @ Verdict::Rejected { .. } =
                    proofs.run(&mut *session.transport, batch)?
                {
                    return Ok(rejected);
                }
            }
            let verdict = proofs.run(&mut *session.transport, batch)?;
            session.transport.close()?;
            net::Result::<Verdict>::Ok(verdict)
        });
        verdicts.into_iter().try_for_each(|verdict| match verdict? {
            Verdict::Accepted => Ok(()),
            Verdict::Rejected { step, .. } => Err(anyhow::anyhow!("rejected: {step}")),
        })
    })?;
    let cpu = timing.cpu.context("the system counts CPU time")?;
    case.engine("cpu")
        .threads(3)
        .timing(timing)
        .rate_is(cpu * 1e9 / (units * BATCHES as f64), unit);
    case.bytes_per_party(cost.iter().map(|cost| cost.prover_bytes as u64).max().unwrap_or(0));
    case.rounds(cost.iter().map(|cost| cost.rounds as u64).max().unwrap_or(0));
    Ok(timing)
}

fn sum(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, word| sum ^ word)
}
