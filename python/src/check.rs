//! The plaintext reference that runs beside the parties of a local session, and finds numbers that leave their range.

use std::collections::HashSet;

use mpc_core::Plaintext;
use pyo3::prelude::*;
use ring_arith::{CpuEngine, Tensor};
use trefoil::analysis::Call;

use crate::{
    domain,
    errors::{Failure, Kind, Result},
    party::{Command, Gather, Hand, Reply, TensorFormat, gathered},
    session::Session,
    state::{State, TICK},
};

/// The plaintext reference that runs beside the parties. It computes each call from the numbers that the parties had, so
/// that no difference in rounding adds up.
pub(crate) struct Checker {
    hand: Hand<Plaintext<CpuEngine>>,
    /// The secrets whose numbers it has.
    known: HashSet<u64>,
}

impl State {
    /// Makes a call that the parties have made on the plaintext reference too, if there is one. `replies` are the parties'.
    ///
    /// # Errors
    /// A [`Kind::Range`] if the numbers leave their range, or a function's domain. The call's results are forgotten then.
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
            self.undo();
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
        match command {
            // The parties' guard watches the step, and knows the training.
            Command::Train { guard: Some(_), .. } => return Ok(()),
            // The parties drew other numbers.
            Command::Call { call, .. } if call.is_random() => return Ok(()),
            _ => {}
        }
        for &id in operands {
            if !checker.known.contains(&id) {
                let (format, words) = self.numbers_of(py, session, id)?;
                checker.obey(py, Command::Import { id, format, held: vec![words] })?;
                checker.known.insert(id);
            }
        }
        if let Command::Call { call, .. } = command {
            checker.check_domain(py, call)?;
        }
        let mut command = command.clone();
        if let Command::Run { guard, .. } = &mut command {
            // The reference names the number, not only the layer.
            *guard = None;
        }
        let made = checker.obey(py, command)?.made.len() as u64;
        checker.forget((self.next..self.next + made).collect());
        Ok(())
    }

    /// The words of a secret that all parties of a local session give together.
    fn numbers_of(
        &mut self,
        py: Python<'_>,
        session: &Session,
        id: u64,
    ) -> PyResult<(TensorFormat, Tensor)> {
        let replies = self.ask(py, session, |_| Command::Addend { id })?;
        let format = replies.first().and_then(|reply| reply.made.first().cloned());
        let format = format.ok_or_else(|| Failure::new(Kind::Failed, "a share did not come"))?;
        let mut words = vec![0_u64; format.shape.len()];
        for addend in replies.iter().filter_map(|reply| reply.addend.as_ref()) {
            for (word, addend) in words.iter_mut().zip(addend.words()) {
                *word = word.wrapping_add(*addend);
            }
        }
        let words = Tensor::new(format.shape.clone(), words).map_err(Failure::from)?;
        Ok((format, words))
    }
}

impl Checker {
    pub(crate) fn new() -> Result<Self> {
        let hand = Hand::new("trefoil check", true)?;
        hand.start(Box::new(|| Ok(Plaintext::new(CpuEngine::new(1)))));
        Ok(Self { hand, known: HashSet::new() })
    }

    /// Forgets secrets.
    pub(crate) fn forget(&mut self, ids: Vec<u64>) {
        for id in &ids {
            self.known.remove(id);
        }
        let (nobody, _) = Gather::new(0);
        self.hand.send(Command::Forget(ids), &nobody);
    }

    /// Refuses operands outside of a function's domain.
    fn check_domain(&self, py: Python<'_>, call: &Call) -> PyResult<()> {
        let Some(id) = domain::watched(call) else { return Ok(()) };
        let shown = self.obey(py, Command::Reveal { ids: vec![id], to: None })?;
        let format = self.obey(py, Command::Addend { id })?.made.into_iter().next();
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
            // The parties took the same call: only the numbers can be the fault.
            kind: if failure.kind == Kind::Input { Kind::Range } else { failure.kind },
            ..failure
        })?;
        let reply = replies.into_iter().next();
        Ok(reply.ok_or_else(|| Failure::new(Kind::Failed, "the reference did not answer"))?)
    }
}
