//! The plaintext reference that runs beside the parties, for tests on data that is not secret.

use std::collections::HashSet;

use mpc_core::Plaintext;
use pyo3::prelude::*;
use ring_arith::CpuEngine;

use crate::{
    call::Call,
    domain,
    errors::{Failure, Kind, Result},
    party::{Command, Gather, Hand, Reply, gathered},
    session::Session,
    state::{State, TICK},
};

/// The plaintext reference that runs beside the parties.
pub(crate) struct Checker {
    pub(crate) hand: Hand<Plaintext<CpuEngine>>,
    pub(crate) known: HashSet<u64>,
}

impl State {
    /// Runs a command on the plaintext reference first, if that is wanted.
    pub(crate) fn check(
        &mut self,
        py: Python<'_>,
        session: &Session,
        command: &Command,
        operands: &[u64],
    ) -> PyResult<()> {
        let Some(mut checker) = self.checker.take() else { return Ok(()) };
        let outcome = self.check_with(py, session, &mut checker, command, operands);
        if outcome.is_err() {
            // It ended after the error; its numbers are taken again when they are needed.
            checker = Checker::new()?;
        }
        self.checker = Some(checker);
        outcome
    }

    fn check_with(
        &mut self,
        py: Python<'_>,
        session: &Session,
        checker: &mut Checker,
        command: &Command,
        operands: &[u64],
    ) -> PyResult<()> {
        for &id in operands {
            if !checker.known.insert(id) {
                continue;
            }
            let replies = self.all(py, session, "check", |_| Command::Release { id })?;
            let format = replies.first().and_then(|reply| reply.made.first().cloned());
            let format =
                format.ok_or_else(|| Failure::new(Kind::Failed, "a share did not come"))?;
            let released: Vec<_> = replies.into_iter().filter_map(|reply| reply.released).collect();
            let words = self.protocol().sharing().reveal(&released).map_err(Failure::from)?;
            checker.obey(py, Command::Import { id, format, held: vec![words] })?;
        }
        if let Command::Call { call, .. } = command {
            if call.is_random() {
                // The parties' random numbers are taken when they are needed.
                return Ok(());
            }
            checker.check_domain(py, call)?;
        }
        let made = checker.obey(py, command.clone())?.made.len() as u64;
        checker.known.extend(self.next..self.next + made);
        Ok(())
    }
}

impl Checker {
    pub(crate) fn new() -> Result<Self> {
        let hand = Hand::new("trefoil check", true)?;
        hand.start(Box::new(|| Ok(Plaintext::new(CpuEngine::new(1)))));
        Ok(Self { hand, known: HashSet::new() })
    }

    /// Refuses operands outside of a function's domain.
    fn check_domain(&self, py: Python<'_>, call: &Call) -> PyResult<()> {
        let Some(id) = domain::watched(call) else { return Ok(()) };
        let shown = self.obey(py, Command::Reveal { ids: vec![id], to: None })?;
        let format = self.obey(py, Command::Release { id })?.made.into_iter().next();
        for (shown, format) in shown.opened.into_iter().flatten().zip(format) {
            domain::refuse(call, &shown.reals(), format.numbers.frac)?;
        }
        Ok(())
    }

    fn obey(&self, py: Python<'_>, command: Command) -> PyResult<Reply> {
        let (gather, wait) = Gather::new(1);
        self.hand.send(command, &gather);
        while !py.detach(|| gathered(&wait, TICK)) {
            py.check_signals()?;
        }
        let replies = gather.take().map_err(|failure| Failure {
            kind: if failure.kind == Kind::Input { Kind::Range } else { failure.kind },
            ..failure
        })?;
        let reply = replies.into_iter().next();
        Ok(reply.ok_or_else(|| Failure::new(Kind::Failed, "the reference did not answer"))?)
    }
}
