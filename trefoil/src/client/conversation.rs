//! A text that a language model and its client write in turn.

use std::iter;

use ring_arith::{Shape, Tensor};

use super::{Client, Total, Watch};
use crate::{
    base::{Error, Id, Result},
    model::{About, Range},
    wire::{GONE, MOST_TENSORS, PublicModel},
};

/// The cost of a step beside that of its tokens, in those of one more token.
const STEP: usize = 16;

/// The largest number of a token.
const MOST_TOKEN: u64 = 1 << 32;

/// A text under way: the tokens so far, and what of them the servers have.
#[derive(Debug)]
pub struct Talk {
    model: String,
    version: Id,
    about: About,
    /// The positions of a step, in the lengths that the model takes.
    lengths: Vec<usize>,
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
        let longer = about.longer.iter().map(|step| step.positions as usize);
        let lengths = longer.chain([1]).collect();
        let (model, conversation, said) = (model.to_owned(), Id::random()?, Vec::new());
        Ok(Self { model, version, about, lengths, range, conversation, said, kept: 0, held: false })
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
    /// client. Servers that have lost the text get it again, and those of another cell if this one is lost.
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
            Err(error) if client.move_on(&error)? => {
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
        let requests = match self.held {
            true => vec![(self.kept, Vec::new())],
            false => requests(self.kept, self.said.len(), &self.lengths),
        };
        let mut next = Vec::new();
        for (number, (at, given)) in requests.iter().enumerate() {
            let ahead = if number + 1 < requests.len() { 1 } else { ahead };
            next = self.step(client, *at, given, ahead, &mut cost, watch)?;
        }
        self.said.extend_from_slice(&next);
        (self.kept, self.held) = (self.said.len() - 1, true);
        Ok((next, cost.ok_or_else(|| Error::Internal("no step was run".to_owned()))?))
    }

    /// Takes `ahead` tokens behind those from number `at` on, which go in by steps of these lengths; behind the last step's
    /// token, if there are no lengths.
    fn step(
        &self,
        client: &mut Client,
        at: usize,
        lengths: &[usize],
        ahead: u32,
        cost: &mut Option<Total>,
        watch: &dyn Watch,
    ) -> Result<Vec<u64>> {
        let mut start = at;
        let input = |&length: &usize| {
            let tokens = self.said[start..start + length].to_vec();
            start += length;
            Ok(Tensor::new(Shape::new(self.dims(length))?, tokens)?)
        };
        let inputs = lengths.iter().map(input).collect::<Result<Vec<_>>>()?;
        let steps = inputs.len() as u32 + ahead - u32::from(!inputs.is_empty());
        let place = (self.conversation, at as u64);
        let model = (self.model.as_str(), self.version);
        let answer = client.extend(model, place, (&inputs, steps), false, watch)?;
        let total = Total::of(&answer.costs);
        match cost {
            Some(sum) => sum.add(&total),
            None => *cost = Some(total),
        }
        let mut outputs = answer.outputs;
        if !self.about.guard.is_empty() {
            let left = outputs.pop();
            let steps = lengths.iter().copied().chain(iter::repeat(1)).take(steps as usize);
            self.about.check_guards(steps, left.as_ref().map_or(&[][..], Tensor::words))?;
        }
        let tokens = outputs.first().map_or(&[][..], Tensor::words).to_vec();
        if tokens.len() != ahead as usize || tokens.iter().any(|&token| token > MOST_TOKEN) {
            return Err(Error::refused("servers", "they returned what are no tokens"));
        }
        Ok(tokens)
    }

    /// The shape of a step of this many tokens: all of the usual one's dimensions are 1.
    fn dims(&self, length: usize) -> Vec<usize> {
        let mut dims = self.about.inputs[0].dims.clone();
        if let Some(last) = dims.last_mut() {
            *last = length;
        }
        dims
    }

    /// Makes the servers forget the text.
    ///
    /// # Errors
    /// Those of [`Client::close`].
    pub fn close(&self, client: &mut Client) -> Result<()> {
        client.close(self.conversation, &())
    }
}

/// The requests that take a text's tokens up to `end`, of which servers have the first `kept`: for each the number of its
/// first token, and the lengths of its steps. A longer step may begin before `kept`, and then takes some tokens once more.
fn requests(kept: usize, end: usize, lengths: &[usize]) -> Vec<(usize, Vec<usize>)> {
    let mut requests: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut at = kept;
    while at < end {
        let steps = |length: usize| (end - at).div_ceil(length);
        let fits = lengths.iter().copied().filter(|&length| length <= end);
        // A step has the rounds of one token, and with each more sends and computes more.
        let cheapest = fits.min_by_key(|&length| steps(length) * (STEP + length));
        let length = cheapest.unwrap_or(1);
        let (start, count) = match end.checked_sub(steps(length) * length) {
            Some(start) => (start, steps(length)),
            None => (at, 1),
        };
        for first in (start..).step_by(length).take(count) {
            match requests.last_mut() {
                Some((_, given)) if first == at && given.len() < MOST_TENSORS => given.push(length),
                _ => requests.push((first, vec![length])),
            }
            at = first + length;
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_goes_in_by_few_steps() {
        let lengths = [16, 4, 1];
        for (kept, end, wanted) in [
            (0, 1, vec![(0, vec![1])]),
            (0, 3, vec![(0, vec![1, 1, 1])]),
            (0, 4, vec![(0, vec![4])]),
            (0, 5, vec![(0, vec![4, 1])]),
            // One again.
            (0, 7, vec![(0, vec![4]), (3, vec![4])]),
            (0, 30, vec![(0, vec![16]), (14, vec![16])]),
            (0, 32, vec![(0, vec![16, 16])]),
            (20, 31, vec![(15, vec![16])]),
            (20, 21, vec![(20, vec![1])]),
            (20, 22, vec![(18, vec![4])]),
        ] {
            assert_eq!(requests(kept, end, &lengths), wanted, "{kept} to {end}");
        }
        // One request has only so many inputs.
        let all = requests(0, 16 * (MOST_TENSORS + 2), &lengths);
        assert_eq!(all.iter().map(|(_, given)| given.len()).collect::<Vec<_>>(), [MOST_TENSORS, 2]);
        assert_eq!(all[1].0, 16 * MOST_TENSORS);
        // All of any text goes in, in order, and ends where it ends.
        for (kept, end) in (0..70).flat_map(|kept| (kept + 1..71).map(move |end| (kept, end))) {
            let mut at = kept;
            for (start, given) in requests(kept, end, &lengths) {
                assert!(start <= at && !given.is_empty());
                at = start + given.iter().sum::<usize>();
            }
            assert_eq!(at, end);
            assert_eq!(
                requests(kept, end, &[1]).iter().map(|(_, given)| given.len()).sum::<usize>(),
                end - kept
            );
        }
    }
}
