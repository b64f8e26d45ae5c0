//! Rows in a secret order.
//!
//! The order is that of three permutations one after the other: `L` of the dealer and left, `R` of the dealer and right,
//! `P` of both evaluators. Each party lacks one of them. It is the protocol of Araki et al., CCS 2021 (Secure Graph
//! Analysis at Scale), with sums in place of exclusive ors for words.
//!
//! | round | dealer | left | right |
//! |---|---|---|---|
//! | 1 | `R(L(a + z_left) + z_right)` to left | `L(b - z_left)` to right | |
//! | 2 | | `P(what it received) - y1` to right | `P(R(what it received - z_right)) - y0` to left |
//!
//! Components 0 and 1 are the streams `y0` and `y1`, component 2 is the sum of round 2's messages.
//! Cost: 256 bits for each word and 4 for each bit, 2 rounds. All rows have one dealer, since other dealers would make
//! another order. Security: semi-honest; the dealer receives nothing.

use std::sync::Arc;

use mpc_core::{Result, ShareBits, ShareTensor, ShuffledBy, provided::common_rows};
use ring_arith::{BitTensor, Engine, EngineTensor, Shape, View};

use crate::{
    BitShare, Rss, Share,
    kernels::{Difference, Sum, Xor},
    runtime::{
        launch::{flat, whole},
        prss::{Key, Sample},
        roles::Pair,
        rounds::{Port, Rounds},
    },
};

/// A tensor whose rows are moved.
struct Table<T> {
    shape: Shape,
    /// Planes of a tensor of bits; `None` of words.
    planes: Option<usize>,
    /// Words, or words of all planes, in one axis.
    components: Pair<T>,
}

/// The samples of a table: masks of the dealer's permutations, and components 1 and 0 of the result.
struct Masks {
    z: [Sample; 2],
    y: [Sample; 2],
}

impl<E: Engine> Rss<E> {
    pub(crate) fn shuffled(
        &mut self,
        words: &[&Share<E::Tensor>],
        bits: &[&BitShare<E::Tensor>],
    ) -> Result<ShuffledBy<Self>> {
        let rows = common_rows(words, bits)?;
        if rows < 2 {
            let words = words.iter().map(|&x| x.clone()).collect();
            return Ok((words, bits.iter().map(|&x| x.clone()).collect()));
        }
        let shapes = words.iter().map(|x| x.shape()).chain(bits.iter().map(|x| x.shape()));
        let chunk = self.whole(rows, shapes.map(Shape::len).sum());
        let engine = &self.engine;
        let mut tables = Vec::with_capacity(words.len() + bits.len());
        let p = self.port(&chunk);
        for x in words {
            let [mine, next] = self.flat_pair(x)?;
            let components = p.roles.pair(mine, next);
            tables.push(Table { shape: x.shape().clone(), planes: None, components });
        }
        for x in bits {
            let mine = flat(engine, x.mine().planes())?;
            let components = p.roles.pair(mine, flat(engine, x.next().planes())?);
            tables.push(Table { shape: x.shape().clone(), planes: Some(x.width()), components });
        }
        let roles = p.roles;
        let mut rounds = Rounds::new();
        rounds.add(p.role(), shuffle(p, rows, tables));
        let moved = rounds.run(&self.links)?.into_iter().flatten();
        let mut moved = moved.map(|pair| roles.mine_and_next(pair));
        let mut shares = Vec::with_capacity(words.len());
        for (x, [mine, next]) in words.iter().zip(moved.by_ref()) {
            let shaped = View::Reshape(x.shape().clone());
            shares.push(Share::new(engine.view(&mine, &shaped)?, engine.view(&next, &shaped)?)?);
        }
        let mut planes = Vec::with_capacity(bits.len());
        for (x, [mine, next]) in bits.iter().zip(moved) {
            let shaped = View::Reshape(x.mine().planes().shape().clone());
            let mine = BitTensor::new(x.shape().clone(), engine.view(&mine, &shaped)?)?;
            let next = BitTensor::new(x.shape().clone(), engine.view(&next, &shaped)?)?;
            planes.push(BitShare::new(mine, next)?);
        }
        Ok((shares, planes))
    }
}

/// The rows of all tables in one order.
async fn shuffle<E: Engine>(
    mut p: Port<'_, E>,
    rows: usize,
    tables: Vec<Table<E::Tensor>>,
) -> Result<Vec<Pair<E::Tensor>>> {
    let [of_left, of_right, of_peers] =
        [Key::Left, Key::Right, Key::Peers].map(|key| p.order_key(key));
    let masks = tables.iter().map(|table| {
        let z = p.sample_both(table.len());
        Masks { z, y: p.sample_both(table.len()) }
    });
    let masks: Vec<_> = masks.collect();
    let all = || tables.iter().zip(&masks);

    if p.deals() {
        let left = p.order(of_left, rows)?;
        let right = p.order(of_right, rows)?;
        let mut results = Vec::with_capacity(tables.len());
        for (table, Masks { z: [z_left, z_right], y: [y1, y0] }) in all() {
            let Pair(first, second) = &table.components;
            let masked = table.plus(&p, &table.sum(&p, first, second)?, *z_left)?;
            let masked = table.plus(&p, &table.rows(&p, &masked, &left)?, *z_right)?;
            p.to_left(&table.rows(&p, &masked, &right)?)?;
            results.push(Pair(p.tensor_of(*y0)?, p.tensor_of(*y1)?));
        }
        return Ok(results);
    }

    // The evaluators' parts of the rows in the dealer's two orders.
    let mut parts = Vec::with_capacity(tables.len());
    if p.is_left() {
        let order = p.order(of_left, rows)?;
        for (table, Masks { z: [z_left, _], .. }) in all() {
            let masked = table.minus(&p, p.joint(&table.components), *z_left)?;
            p.to_right(&table.rows(&p, &masked, &order)?)?;
        }
        let dealt = p.dealt().await;
        for table in &tables {
            parts.push(dealt.words(table.len())?);
        }
    } else {
        let order = p.order(of_right, rows)?;
        let received = p.received().await;
        for (table, Masks { z: [_, z_right], .. }) in all() {
            let part = table.minus(&p, &received.words(table.len())?, *z_right)?;
            parts.push(table.rows(&p, &part, &order)?);
        }
    }

    let order = p.order(of_peers, rows)?;
    let mut addends = Vec::with_capacity(tables.len());
    for ((table, masks), part) in all().zip(&parts) {
        let addend = table.minus(&p, &table.rows(&p, part, &order)?, p.own(masks.y))?;
        p.to_peer(&addend)?;
        addends.push(addend);
    }
    let received = p.received().await;
    let mut results = Vec::with_capacity(tables.len());
    for ((table, masks), addend) in all().zip(&addends) {
        let joint = table.sum(&p, addend, &received.words(table.len())?)?;
        results.push(p.pair(p.tensor_of(p.own(masks.y))?, joint));
    }
    Ok(results)
}

impl<T: EngineTensor> Table<T> {
    /// Words of a component.
    fn len(&self) -> usize {
        self.components.0.len()
    }

    /// The rows of a component in an order.
    fn rows<E: Engine<Tensor = T>>(
        &self,
        p: &Port<'_, E>,
        x: &T,
        order: &Arc<[usize]>,
    ) -> Result<T> {
        let engine = p.engine;
        let Some(planes) = self.planes else {
            let x = engine.view(x, &View::Reshape(self.shape.clone()))?;
            let rows = engine.view(&x, &View::Gather { axis: 0, indices: order.clone() })?;
            return Ok(flat(engine, &rows)?);
        };
        let shape = Shape::new([planes, self.shape.len().div_ceil(64)])?;
        let bits = BitTensor::new(self.shape.clone(), engine.view(x, &View::Reshape(shape))?)?;
        Ok(flat(engine, bits.rows(engine, order)?.planes())?)
    }

    /// The sum in the group of the table.
    fn sum<E: Engine<Tensor = T>>(&self, p: &Port<'_, E>, x: &T, y: &T) -> Result<T> {
        match self.planes {
            None => p.map(&Sum, [x, y], &[]),
            Some(_) => p.map(&Xor, [x, y], &[]),
        }
    }

    /// The sum with a sample.
    fn plus<E: Engine<Tensor = T>>(&self, p: &Port<'_, E>, x: &T, mask: Sample) -> Result<T> {
        let sources = [whole(x), p.words_of(mask)];
        let [sum] = match self.planes {
            None => p.words(&Sum, x.len(), sources, &[])?,
            Some(_) => p.words(&Xor, x.len(), sources, &[])?,
        };
        Ok(sum)
    }

    /// The difference from a sample.
    fn minus<E: Engine<Tensor = T>>(&self, p: &Port<'_, E>, x: &T, mask: Sample) -> Result<T> {
        let sources = [whole(x), p.words_of(mask)];
        let [difference] = match self.planes {
            None => p.words(&Difference, x.len(), sources, &[])?,
            Some(_) => p.words(&Xor, x.len(), sources, &[])?,
        };
        Ok(difference)
    }
}
