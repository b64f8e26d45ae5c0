//! A text that a language model and its client write in turn.

use ring_arith::{Shape, Tensor};

use super::{Client, Watch};
use crate::{
    About, Error, Id, Result,
    profile::Total,
    server::GONE,
    store::Range,
    wire::{MOST_TENSORS, PublicModel},
};

/// The largest number of a token.
const MOST_TOKEN: u64 = 1 << 32;

/// A text under way: the tokens so far, and what of them the servers have.
#[derive(Debug)]
pub struct Talk {
    model: String,
    version: Id,
    about: About,
    /// The tokens that the model has, where that is known.
    range: Option<Range>,
    conversation: Id,
    /// The tokens of the client and of the model.
    said: Vec<u64>,
    /// The first tokens, of which servers keep what the model needs.
    kept: usize,
    /// True if servers hold the next token, the last that was said, as the result of their last step.
    held: bool,
}

impl Talk {
    /// Begins a text with a model. Nothing is sent.
    ///
    /// # Errors
    /// [`Error::Input`] if its steps do not take a token each and return the next.
    pub fn new(model: &str, public: PublicModel) -> Result<Self> {
        let PublicModel { version, about, ranges, .. } = public;
        let range = ranges.first().copied().flatten();
        let takes_a_token = match about.inputs.as_slice() {
            [input] => input.integer && input.len() == 1 && about.positions == 1,
            _ => false,
        };
        if !takes_a_token || !about.goes_on() {
            let reason = "its steps do not take one token and return the next; put a language model with keys and \
                          values of earlier steps, exported for one token at a time, and with --answers token";
            return Err(Error::input(format_args!("model `{model}`"), reason));
        }
        let (model, conversation, said) = (model.to_owned(), Id::random()?, Vec::new());
        Ok(Self { model, version, about, range, conversation, said, kept: 0, held: false })
    }

    /// The tokens so far.
    #[must_use]
    pub fn said(&self) -> &[u64] {
        &self.said
    }

    /// Forgets the tokens from number `to` on. Nothing is sent.
    pub fn cut(&mut self, to: usize) {
        if to < self.said.len() {
            self.said.truncate(to);
            (self.kept, self.held) = (self.kept.min(to), false);
        }
    }

    /// Says these tokens, and returns the next `ahead` ones of the model. It chooses each from those before without the
    /// client. Servers that have lost the text get it again.
    ///
    /// # Errors
    /// [`Error::Input`] if nothing has been said so far, nothing is asked for, or the model has no such token; else those of [`Client::extend`]. The
    /// text is then what it was.
    pub fn say(
        &mut self,
        client: &mut Client,
        tokens: &[u64],
        ahead: u32,
        watch: &dyn Watch,
    ) -> Result<(Vec<u64>, Total)> {
        if self.said.is_empty() && tokens.is_empty() || ahead == 0 {
            return Err(Error::input("text", "there is nothing to go on from"));
        }
        for &token in tokens {
            if let Some(range) = self.range.filter(|range| range.outside(&[token as f64]).is_some())
            {
                let reason = format!("the model takes {range}, as its owner says");
                return Err(Error::input(format_args!("token {token}"), reason));
            }
        }
        let before = self.said.len();
        self.said.extend_from_slice(tokens);
        self.held &= tokens.is_empty();
        let outcome = match self.send(client, ahead, watch) {
            Err(Error::Refused { reason, .. }) if reason.contains(GONE) => {
                (self.kept, self.held) = (0, false);
                self.send(client, ahead, watch)
            }
            outcome => outcome,
        };
        if outcome.is_err() {
            self.cut(before);
            self.held = false;
        }
        outcome
    }

    /// Sends what the servers do not have, and takes the next tokens.
    fn send(
        &mut self,
        client: &mut Client,
        ahead: u32,
        watch: &dyn Watch,
    ) -> Result<(Vec<u64>, Total)> {
        let mut cost: Option<Total> = None;
        // As many at once as a request has inputs.
        while self.said.len() - self.kept > MOST_TENSORS {
            let end = self.kept + MOST_TENSORS;
            self.step(client, end, MOST_TENSORS as u32, &mut cost, watch)?;
            self.kept = end;
        }
        let steps = match self.held {
            true => ahead,
            false => (self.said.len() - self.kept) as u32 + ahead - 1,
        };
        let next = self.step(client, self.said.len(), steps, &mut cost, watch)?;
        self.said.extend_from_slice(&next);
        (self.kept, self.held) = (self.said.len() - 1, true);
        Ok((next, cost.ok_or_else(|| Error::Internal("no step was run".to_owned()))?))
    }

    /// Runs steps, of which the first take the tokens up to `end` that the servers do not hold.
    fn step(
        &self,
        client: &mut Client,
        end: usize,
        steps: u32,
        cost: &mut Option<Total>,
        watch: &dyn Watch,
    ) -> Result<Vec<u64>> {
        let inputs = match self.held {
            true => Vec::new(),
            false => {
                let dims = self.about.inputs[0].dims.as_slice();
                let input = |&token: &u64| Ok(Tensor::new(Shape::new(dims)?, vec![token])?);
                self.said[self.kept..end].iter().map(input).collect::<Result<Vec<_>>>()?
            }
        };
        let place = (self.conversation, self.kept as u64);
        let model = (self.model.as_str(), self.version);
        let answer = client.extend(model, place, (&inputs, steps), false, watch)?;
        let total = Total::of(&answer.costs);
        match cost {
            Some(sum) => sum.add(&total),
            None => *cost = Some(total),
        }
        let layers = self.about.guard.len();
        let mut outputs = answer.outputs;
        if layers > 0 {
            let left = outputs.pop();
            let left = left.as_ref().map_or(&[][..], Tensor::words);
            if left.len() != steps as usize * layers {
                return Err(Error::refused("servers", "they did not return what the guard says"));
            }
            left.chunks(layers).try_for_each(|left| self.about.check_guard(left))?;
        }
        let tokens = outputs.first().map_or(&[][..], Tensor::words).to_vec();
        let answers = steps as usize - inputs.len().saturating_sub(1);
        if tokens.len() != answers || tokens.iter().any(|&token| token > MOST_TOKEN) {
            return Err(Error::refused("servers", "they returned what are no tokens"));
        }
        Ok(tokens)
    }

    /// Makes the servers forget the text.
    ///
    /// # Errors
    /// Those of [`Client::close`].
    pub fn close(&self, client: &mut Client) -> Result<()> {
        client.close(self.conversation, &())
    }
}
