//! Running one operation on all its parts, round by round.

use mpc_core::Result;
use net::Party;
use ring_arith::{Engine, Source};

use crate::{
    runtime::links::{Links, Reader},
    runtime::roles::{Role, Roles},
};

/// What a step of a part needs of its party.
pub(crate) struct Cx<'a, E: Engine> {
    pub engine: &'a E,
    pub links: &'a mut Links,
    /// 64 words of 0.
    pub zeros: &'a E::Tensor,
    /// What pivots sent, by unit.
    slots: Vec<Reader>,
}

/// One part of an operation, at one party.
pub(crate) trait Unit<E: Engine> {
    /// Who plays which role.
    fn roles(&self) -> &Roles;

    /// Words that the pivot sends to the second and to the third.
    fn bundle(&self) -> [usize; 2];

    /// The pivot's whole program.
    fn lead(&mut self, cx: &mut Cx<'_, E>) -> Result<()>;

    /// What the second and the third send before they receive anything.
    fn announce(&mut self, _cx: &mut Cx<'_, E>) -> Result<()> {
        Ok(())
    }

    /// The second and the third get the pivot's words.
    fn start(&mut self, cx: &mut Cx<'_, E>, bundle: Reader) -> Result<()>;

    /// One exchange of the second and the third; whether it was the last.
    fn advance(&mut self, cx: &mut Cx<'_, E>) -> Result<bool>;
}

impl<'a, E: Engine> Cx<'a, E> {
    pub fn new(engine: &'a E, links: &'a mut Links, zeros: &'a E::Tensor) -> Self {
        Self { engine, links, zeros, slots: Vec::new() }
    }

    /// Queues a tensor.
    pub fn put(&mut self, to: Party, tensor: &E::Tensor) -> Result<()> {
        self.links.put(self.engine, to, tensor)
    }

    /// Receives words of an exchange.
    pub fn receive(&mut self, from: Party, words: usize) -> Result<Reader> {
        self.links.receive(from, words, &mut self.slots)
    }

    /// A row of zeros for each row of a launch.
    pub fn zero(&self) -> Source<'a, E::Tensor> {
        Source::PerRow { tensor: self.zeros, offset: 0 }
    }
}

/// Runs all parts of an operation: pivots send all they have, then the others exchange in step.
pub(crate) fn run<E: Engine, U: Unit<E>>(cx: &mut Cx<'_, E>, units: &mut [U]) -> Result<()> {
    cx.slots = units.iter().map(|_| Reader::default()).collect();
    for (slot, unit) in units.iter().enumerate() {
        let (roles, [second, third]) = (unit.roles(), unit.bundle());
        let words = match roles.role {
            Role::Dealer => 0,
            Role::Left => second,
            Role::Right => third,
        };
        if words > 0 {
            cx.links.expect(roles.dealer(), slot, words);
        }
    }
    for unit in units.iter_mut().filter(|unit| unit.roles().role == Role::Dealer) {
        unit.lead(cx)?;
    }
    let mut others: Vec<(usize, &mut U)> = units
        .iter_mut()
        .enumerate()
        .filter(|(_, unit)| unit.roles().role != Role::Dealer)
        .collect();
    for (_, unit) in &mut others {
        unit.announce(cx)?;
    }
    for (slot, unit) in &mut others {
        cx.links.fill(unit.roles().dealer(), *slot, &mut cx.slots)?;
        let bundle = std::mem::take(&mut cx.slots[*slot]);
        unit.start(cx, bundle)?;
    }
    while !others.is_empty() {
        let mut left = Vec::with_capacity(others.len());
        for (slot, unit) in others {
            if !unit.advance(cx)? {
                left.push((slot, unit));
            }
        }
        others = left;
    }
    cx.links.flush_all()
}
