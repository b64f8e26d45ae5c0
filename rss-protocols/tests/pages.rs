//! The bits that a protocol's page names are those that travel.

use mpc_core::{
    Finish, Line, Product, Protocol, Result, ServerProtocol, TestWorld, TrigSum, TrigTerm,
    TruncationMode,
};
use net::{Metered, Party, Session};
use ring_arith::{Bilinear, CpuEngine, Shape, Tensor};
use rss_protocols::{Rss, Share};

type Mpc = Rss<CpuEngine>;

/// Elements of one chunk, whose dealer is party 0, left party 1 and right party 2.
const N: usize = 2048;

/// The bits that a page's table names, by sender and receiver.
fn named(page: &str) -> [[u64; 3]; 3] {
    let mut bits = [[0; 3]; 3];
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        for (from, cell) in row.split('|').skip(2).take(3).enumerate() {
            let Some((number, rest)) = cell.trim().split_once(" bit") else { continue };
            let to = if rest.contains(" to left") { 1 } else { 2 };
            bits[from][to] += number.parse::<u64>().unwrap();
        }
    }
    bits
}

/// The bits that an operation sends for each element, by sender and receiver. `prepare` comes first and is not counted.
fn sent<T: 'static>(
    prepare: fn(&mut Mpc, &Share<Tensor>) -> Result<T>,
    operation: fn(&mut Mpc, &Share<Tensor>, T) -> Result<()>,
) -> [[u64; 3]; 3] {
    let program = move |mut session: Session| {
        let metered = Metered::new(session.transport);
        let meter = metered.meter();
        session.transport = Box::new(metered);
        let mut mpc = Rss::new(session, CpuEngine::new(1))?;
        let values = [Tensor::from_fn(Shape::new([N])?, |i| i as u64)];
        let mine = (mpc.me() == Party(0)).then_some(&values[..]);
        let x = mpc.input(Party(0), &[Shape::new([N])?], mine)?.remove(0);
        let prepared = prepare(&mut mpc, &x)?;
        mpc.begin_job(&[0; 32])?;
        meter.reset();
        operation(&mut mpc, &x, prepared)?;
        Ok([0, 1, 2].map(|to| meter.stats().sent[to].bytes * 8 / N as u64))
    };
    let sent: Vec<_> = TestWorld::new(3).try_sessions(program);
    let [zero, one, two] = <[_; 3]>::try_from(sent).unwrap().map(Result::unwrap);
    [zero, one, two]
}

fn squared(
    finish: Finish<'_, <Mpc as Protocol>::Bits>,
    mpc: &mut Mpc,
    x: &Share<Tensor>,
) -> Result<()> {
    mpc.product(Product::new(Bilinear::Mul, x, x, finish)).map(drop)
}

#[test]
fn the_page_of_the_relu_names_the_bits_of_each_link() {
    let measured = sent(
        |_, _| Ok(()),
        |mpc, x, ()| {
            let mode = TruncationMode::Early;
            squared(Finish::TruncateRelu { bits: 20, mode, keep: false }, mpc, x)
        },
    );
    assert_eq!(measured, named(include_str!("../docs/relu.md")));
}

#[test]
fn the_page_of_the_product_names_the_bits_of_each_link() {
    let measured = sent(
        |_, _| Ok(()),
        |mpc, x, ()| squared(Finish::Truncate { bits: 20, mode: TruncationMode::Default }, mpc, x),
    );
    assert_eq!(measured, named(include_str!("../docs/product.md")));
}

#[test]
fn the_page_of_the_conjunction_names_the_bits_of_each_link() {
    // 64 bits of 64 elements each: as many words of planes as there are elements.
    let measured = sent(
        |mpc, x| Ok(mpc.to_bits(&[(x, 64)])?.remove(0)),
        |mpc, _, bits| mpc.and(&[(&bits, &bits)]).map(drop),
    );
    let of_a_bit = measured.map(|to| to.map(|bits| bits / 64));
    assert_eq!(of_a_bit, named(include_str!("../docs/and.md")));
}

#[test]
fn the_page_of_the_shuffle_names_the_bits_of_each_link() {
    let measured = sent(|_, _| Ok(()), |mpc, x, ()| mpc.shuffle(&[x], &[]).map(drop));
    assert_eq!(measured, named(include_str!("../docs/shuffle.md")));
}

#[test]
fn the_page_of_the_sum_of_sines_names_the_bits_of_each_link() {
    let measured = sent(
        |_, _| Ok(()),
        |mpc, x, ()| {
            let terms = vec![TrigTerm { turn: 1, cosine: 1 << TrigSum::FACTOR, sine: 0 }].into();
            let (line, mode) = (Line::default(), TruncationMode::Early);
            let cosine = TrigSum { terms, line, total: 58, drop: 38, mode, ends: None };
            mpc.trig_sum(x, 64, &cosine).map(drop)
        },
    );
    assert_eq!(measured, named(include_str!("../docs/trig_sum.md")));
}

#[test]
fn the_page_of_the_selection_names_the_bits_of_each_link() {
    let measured = sent(
        |mpc, x| Ok(mpc.to_bits(&[(x, 1)])?.remove(0)),
        |mpc, x, bit| mpc.select(&[(&bit, &[x])]).map(drop),
    );
    assert_eq!(measured, named(include_str!("../docs/select.md")));
}
