//! A chunk's messages and streams as one role has them, read again to state what their senders owe.

use std::{collections::HashMap, ops::Range};

use dist_proofs::{Known, LeftOperand, RightOperand, Side, Statements};
use mpc_core::Result;
use net::Party;
use ring_arith::{Engine, EngineTensor, Tensor};

use super::{
    ledger::{Link, Record, Track, side},
    value::{Bits, Holders, Integers, Part, Ring, Spoken, Value, Words},
};
use crate::{
    product::stated::{OwedBy, StatedMap},
    runtime::{
        launch::invalid,
        prss::{Key, Sample},
        roles::{Pair, Role, Roles},
    },
    share::combined::Side as Factor,
};

/// Reads a chunk again, message by message in the order in which they were sent, and states relations.
///
/// All three roles read the same messages and state the same relations; a role has the words of those messages and
/// streams that it knows.
pub(crate) struct Transcript<'a, E: Engine> {
    engine: &'a E,
    roles: Roles,
    record: Record<E>,
    /// The name of the chunk at all parties.
    name: String,
    track: Track,
    /// Messages read so far from each link.
    next: HashMap<(Track, Link), usize>,
    /// Messages read so far.
    read: Vec<Read>,
    /// By prover, as this party has them.
    statements: &'a mut [Statements; 3],
    /// Factors that were declared, by their address and prover. They are kept so that no other has their address.
    operands: HashMap<(usize, usize), (Part, Operand)>,
    /// The number of a relation that is left out, counted from here.
    #[cfg(test)]
    omitted: Option<&'a std::cell::Cell<Option<usize>>>,
}

/// A message that was read.
struct Read {
    name: String,
    sender: Role,
    /// The words of which a relation of the sender speaks.
    spoken: Vec<bool>,
}

#[derive(Clone, Copy)]
enum Operand {
    Left(LeftOperand),
    Right(RightOperand),
}

/// Adds products, terms and the messages that are spoken of to a relation of any kind.
macro_rules! complete {
    ($relation:expr, $side:ident, $products:ident, $terms:ident, $spoken:ident) => {
        let mut relation = $relation;
        for (left, right) in $products {
            relation = relation.product(left, right);
        }
        for (verifier, part) in &$terms {
            let known = known($side, *verifier, part);
            relation = match verifier {
                Side::Left => relation.left(known),
                _ => relation.right(known),
            };
        }
        for (name, words) in $spoken {
            relation = relation.about(&name, words);
        }
    };
}

impl<'a, E: Engine> Transcript<'a, E> {
    pub fn new(
        engine: &'a E,
        chunk: usize,
        record: Record<E>,
        statements: &'a mut [Statements; 3],
    ) -> Self {
        Self {
            engine,
            roles: record.roles,
            record,
            name: format!("chunk {chunk}"),
            track: 0,
            next: HashMap::new(),
            read: Vec::new(),
            statements,
            operands: HashMap::new(),
            #[cfg(test)]
            omitted: None,
        }
    }

    /// Leaves out the relation of a number.
    #[cfg(test)]
    pub fn omitting(self, number: &'a std::cell::Cell<Option<usize>>) -> Self {
        Self { omitted: Some(number), ..self }
    }

    /// True if the next relation is left out.
    #[cfg(test)]
    fn omits(&self) -> bool {
        let Some(omitted) = self.omitted else { return false };
        let number = omitted.get();
        omitted.set(number.and_then(|number| number.checked_sub(1)));
        number == Some(0)
    }

    /// States the relations of the chunk.
    ///
    /// # Errors
    /// If there are none, or if they leave out words that this party sent or received.
    pub fn state(mut self) -> Result<()> {
        match self.record.relations.take() {
            Some(relations) => relations(&mut self)?,
            None if self.record.messages.is_empty() => return Ok(()),
            None => return Err(self.incomplete("its messages have no relations")),
        }
        for message in &self.record.messages {
            let place = (message.track, message.link);
            let sent =
                self.record.messages.iter().filter(|other| (other.track, other.link) == place);
            if sent.count() != self.next.get(&place).copied().unwrap_or(0) {
                return Err(self.incomplete("messages are left out"));
            }
        }
        match self.read.iter().find(|read| read.spoken.iter().any(|spoken| !spoken)) {
            Some(read) => {
                Err(self.incomplete(&format!("no relation speaks of all of {}", read.name)))
            }
            None => Ok(()),
        }
    }

    fn incomplete(&self, reason: &str) -> mpc_core::Error {
        invalid("statement", format!("{}: {reason}", self.name))
    }

    /// The roles of the parties.
    pub fn roles(&self) -> Roles {
        self.roles
    }

    // -- what is known ---------------------------------------------------------------------------

    fn role(&self) -> Role {
        self.roles.role
    }

    /// A tensor of two roles.
    pub fn held<R: Ring>(
        &self,
        holders: Holders,
        len: usize,
        tensor: Option<&E::Tensor>,
    ) -> Result<Value<R>> {
        let words = tensor.map(|tensor| self.engine.download(tensor)).transpose()?;
        Ok(Value::of(Part::of_tensor(holders, len, words, Vec::new())))
    }

    /// The components of a value, given this role's two.
    pub fn components<R: Ring>(
        &self,
        Pair(first, second): &Pair<E::Tensor>,
    ) -> Result<[Value<R>; 3]> {
        let mine = match self.role() {
            Role::Dealer => [Some(first), Some(second), None],
            Role::Left => [None, Some(first), Some(second)],
            Role::Right => [Some(second), None, Some(first)],
        };
        let [x0, x1, x2] = mine;
        Ok([
            self.held(Holders::both(Role::Dealer, Role::Right), first.len(), x0)?,
            self.held(Holders::both(Role::Dealer, Role::Left), first.len(), x1)?,
            self.held(Holders::both(Role::Left, Role::Right), first.len(), x2)?,
        ])
    }

    /// The components of a value, given this party's own and the next.
    pub fn components_of<R: Ring>(
        &self,
        mine: &E::Tensor,
        next: &E::Tensor,
    ) -> Result<[Value<R>; 3]> {
        self.components(&self.roles.pair(mine.clone(), next.clone()))
    }

    /// What both evaluators know, given what this role knows instead of it.
    pub fn joint<R: Ring>(&self, known: &E::Tensor) -> Result<Value<R>> {
        let tensor = (self.role() != Role::Dealer).then_some(known);
        self.held(Holders::both(Role::Left, Role::Right), known.len(), tensor)
    }

    /// A sample's words again. They were used once, with one meaning; a statement gives them no other.
    pub fn sample<R: Ring>(&self, sample: Sample) -> Value<R> {
        let holders = match sample.key {
            Key::Left => Holders::both(Role::Dealer, Role::Left),
            Key::Right => Holders::both(Role::Dealer, Role::Right),
            Key::Peers => Holders::both(Role::Left, Role::Right),
            Key::Own => panic!("nobody can check the dealer's own words"),
        };
        let words = self.record.streams[sample.key as usize].as_ref().map(|stream| {
            let mut words = vec![0; sample.len()];
            stream.fill(sample.first, &mut words);
            words
        });
        Value::of(Part::new(holders, sample.len(), words, Vec::new()))
    }

    /// Samples that the dealer shares with each evaluator.
    pub fn samples<R: Ring>(&self, samples: [Sample; 2]) -> [Value<R>; 2] {
        samples.map(|sample| self.sample(sample))
    }

    /// The next message of a link: `planes` planes of `cols` words each.
    fn message<R: Ring>(&mut self, link: Link, planes: usize, cols: usize) -> Result<Value<R>> {
        let len = planes * cols;
        if len == 0 {
            return Ok(Value::constant(0, 0));
        }
        let place = (link.track(self.track), link);
        let next = self.next.get(&place).copied().unwrap_or(0);
        let [sender, receiver] = link.ends();
        let mut sent =
            self.record.messages.iter().filter(|other| (other.track, other.link) == place);
        let tensor = sent.nth(next).map(|recorded| &recorded.tensor);
        let here = [sender, receiver].contains(&self.roles.role);
        let name = format!("{}, {link:?} {}.{next}", self.name, place.0);
        self.next.insert(place, next + 1);
        if here != tensor.is_some() || tensor.is_some_and(|tensor| tensor.len() != len) {
            return Err(self.incomplete(&format!("{name} is not one of {len} words")));
        }
        let words = tensor.map(|tensor| self.engine.download(tensor)).transpose()?;
        let spoken = Spoken {
            message: self.read.len(),
            planes: Some((cols, (0..planes).map(Some).collect())),
        };
        self.read.push(Read { name, sender, spoken: vec![false; len] });
        let holders = Holders::both(sender, receiver);
        Ok(Value::of(Part::of_tensor(holders, len, words, vec![spoken])))
    }

    /// The dealer's next message to left.
    pub fn dealt_left<R: Ring>(&mut self, planes: usize, cols: usize) -> Result<Value<R>> {
        self.message(Link::DealerToLeft, planes, cols)
    }

    /// The dealer's next message to right.
    pub fn dealt_right<R: Ring>(&mut self, planes: usize, cols: usize) -> Result<Value<R>> {
        self.message(Link::DealerToRight, planes, cols)
    }

    /// The lowest bits of a word that the dealer shares: left's share is a sample, right's its next message, as planes.
    pub fn bits_of(&mut self, left: Sample, bits: u32) -> Result<[Bits; 2]> {
        let cols = left.len().div_ceil(64);
        let left = self.sample::<Integers>(left).planes(0, bits);
        Ok([left, self.dealt_right(bits as usize, cols)?])
    }

    /// The evaluators' next messages to each other: left's, and right's.
    pub fn exchanged<R: Ring>(&mut self, planes: usize, cols: usize) -> Result<[Value<R>; 2]> {
        let left = self.message(Link::LeftToRight, planes, cols)?;
        Ok([left, self.message(Link::RightToLeft, planes, cols)?])
    }

    /// Reads the messages of the first or the second of two parts that ran side by side.
    pub fn beside<T>(
        &mut self,
        second: bool,
        read: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let outer = self.track;
        self.track = side(outer, second);
        let result = read(self);
        self.track = outer;
        result
    }

    // -- what is owed ----------------------------------------------------------------------------

    /// A role owes that words are 0 modulo `2^modulus_bits`.
    pub fn words(&mut self, prover: Role, modulus_bits: u32, value: &Words) -> Result<()> {
        #[cfg(test)]
        if self.omits() {
            return Ok(());
        }
        let n = value.parts.iter().map(Part::len).max().unwrap_or(0);
        let (party, products, terms) = self.sides(prover, value, n);
        let spoken = self.spoken(prover, value);
        let statements = &mut self.statements[party.0];
        let side = statements.side();
        complete!(statements.words(modulus_bits, n), side, products, terms, spoken);
        Ok(())
    }

    /// A role owes that planes of `n` bits are 0.
    pub fn bits(&mut self, prover: Role, planes: usize, n: usize, value: &Bits) -> Result<()> {
        #[cfg(test)]
        if self.omits() {
            return Ok(());
        }
        let len = planes * n.div_ceil(64);
        let (party, products, mut terms) = self.sides(prover, value, len);
        terms.iter_mut().for_each(|(_, part)| *part = part.repeated(len));
        let spoken = self.spoken(prover, value);
        let statements = &mut self.statements[party.0];
        let side = statements.side();
        complete!(statements.bits(planes, n), side, products, terms, spoken);
        Ok(())
    }

    /// The relations that a role owes in some words of a map, besides its addend: it joins what other chunks owe.
    pub fn owe_of_map(
        &mut self,
        prover: Role,
        map: &StatedMap<E::Tensor>,
        words: Range<usize>,
        value: &Words,
    ) -> Result<()> {
        let (party, _, terms) = self.sides(prover, value, words.len());
        let spoken = self.spoken(prover, value);
        let mut owed = map.owed.lock().map_err(|_| self.incomplete("another chunk failed"))?;
        let OwedBy { terms: sums, spoken: all } = &mut owed.by[party.0];
        for (verifier, part) in terms {
            let Known::Here(part) = known(self.statements[party.0].side(), verifier, &part) else {
                continue;
            };
            let sum = &mut sums[usize::from(verifier == Side::Right)];
            let sum = sum.get_or_insert_with(|| vec![0; map.len]);
            let sums = sum[words.clone()].iter_mut().zip(part.words());
            sums.for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
        }
        all.extend(spoken);
        Ok(())
    }

    /// A prover's relation about a map, to which all chunks have added.
    ///
    /// A party's next component is the left verifier's own, and its own the right one's next.
    pub fn map(
        &mut self,
        prover: usize,
        map: &StatedMap<E::Tensor>,
        OwedBy { terms, spoken }: OwedBy,
    ) -> Result<()> {
        #[cfg(test)]
        if self.omits() {
            return Ok(());
        }
        let statements = &mut self.statements[prover];
        let side = statements.side();
        let knows = |verifier: Side| side == Side::Prover || side == verifier;
        let mut factors = Vec::with_capacity(map.terms.len());
        let mut shapes = [None, None];
        for (term, shares) in map.terms.iter().enumerate() {
            let mut of_term = Vec::with_capacity(2);
            for (factor, share) in [Factor::Left, Factor::Right].into_iter().zip(shares) {
                let mut operand = |own: bool, component: &E::Tensor| {
                    let operand = map.operand(self.engine, term, factor, own, component)?;
                    shapes[factor as usize] = Some(operand.shape().clone());
                    Ok::<_, mpc_core::Error>(self.engine.download(&operand)?)
                };
                let next = if side == Side::Prover { share.next() } else { share.mine() };
                let next = knows(Side::Left).then(|| operand(false, next)).transpose()?;
                let own = if side == Side::Prover { share.mine() } else { share.next() };
                let own = knows(Side::Right).then(|| operand(true, own)).transpose()?;
                of_term.push((
                    statements.right_operand(Known::from(own.as_ref())),
                    statements.left_operand(Known::from(next.as_ref())),
                ));
            }
            factors.push(of_term);
        }
        let [Some(lhs), Some(rhs)] = shapes else {
            unreachable!("each side knows a component of each factor")
        };
        let mut relation = statements.map(&map.op, &lhs, &rhs)?;
        for of_term in factors {
            let [x, y] = [of_term[0], of_term[1]];
            for &own in map.products() {
                relation = match own {
                    [true, true] => relation.product(x.0, y.0),
                    [true, false] => relation.product(x.0, y.1),
                    [false, true] => relation.product(x.1, y.0),
                    [false, false] => relation.product(x.1, y.1),
                };
            }
        }
        let [left, right] = terms.map(|terms| terms.map(Tensor::vector));
        relation = relation.left(Known::from(left.as_ref())).right(Known::from(right.as_ref()));
        for (name, words) in spoken {
            relation = relation.about(&name, words);
        }
        Ok(())
    }

    /// A value's products and terms by the verifier that knows them. Shorter factors serve every plane of `len` words.
    fn sides<R: Ring>(&mut self, prover: Role, value: &Value<R>, len: usize) -> Sides {
        let party = self.roles.party(prover);
        let left = self.roles.role_of(party.after(1, 3));
        let of = |part: &Part| {
            assert!(part.holders().contains(prover), "a prover knows what it proves");
            if part.holders().contains(left) { Side::Left } else { Side::Right }
        };
        let mut products = Vec::with_capacity(value.products.len());
        for [x, y] in &value.products {
            let [first, second] = if of(x) == Side::Left { [x, y] } else { [y, x] };
            let operands =
                [self.operand(party, Side::Left, first), self.operand(party, Side::Right, second)];
            let [Operand::Left(mut left), Operand::Right(mut right)] = operands else {
                unreachable!("a factor keeps its verifier")
            };
            if first.len() < len {
                left = left.in_every_plane();
            }
            if second.len() < len {
                right = right.in_every_plane();
            }
            products.push((left, right));
        }
        let terms = value.parts.iter().map(|part| (of(part), part.clone())).collect();
        (party, products, terms)
    }

    /// Declares a factor, once.
    fn operand(&mut self, prover: Party, verifier: Side, part: &Part) -> Operand {
        let statements = &mut self.statements[prover.0];
        let known = known(statements.side(), verifier, part);
        let declared = self.operands.entry((part.address(), prover.0));
        let (_, operand) = declared.or_insert_with(|| {
            let operand = if verifier == Side::Left {
                Operand::Left(statements.left_operand(known))
            } else {
                Operand::Right(statements.right_operand(known))
            };
            (part.clone(), operand)
        });
        *operand
    }

    /// The prover's words of which a value speaks, by the messages' names.
    fn spoken<R>(&mut self, prover: Role, value: &Value<R>) -> Vec<(String, Range<usize>)> {
        let mut all = Vec::new();
        for part in value.products.iter().flatten().chain(&value.parts) {
            for Spoken { message, planes } in part.spoken() {
                let read = &mut self.read[*message];
                if read.sender != prover {
                    continue;
                }
                let whole = 0..read.spoken.len();
                let ranges = match planes {
                    None => vec![whole],
                    Some((cols, planes)) => {
                        planes.iter().flatten().map(|at| at * cols..(at + 1) * cols).collect()
                    }
                };
                for range in ranges {
                    read.spoken[range.clone()].fill(true);
                    if !all.contains(&(*message, range.clone())) {
                        all.push((*message, range));
                    }
                }
            }
        }
        all.into_iter().map(|(message, range)| (self.read[message].name.clone(), range)).collect()
    }
}

/// The prover's party, its products, and its terms with the verifier that knows each.
type Sides = (Party, Vec<(LeftOperand, RightOperand)>, Vec<(Side, Part)>);

/// A part as a side of a statement has it.
fn known(side: Side, verifier: Side, part: &Part) -> Known<'_, Tensor> {
    let knows = side == Side::Prover || side == verifier;
    Known::from(part.words().filter(|_| knows))
}
