//! Texts that a client and a language model write in turn.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use trefoil::{Text, client::Talk, inputs::Tokenizer};

use crate::errors::Failure;

/// A text under way, and how its tokens are words.
#[pyclass(frozen, module = "trefoil._trefoil")]
pub(crate) struct Chat {
    talk: Arc<Mutex<Talk>>,
    tokenizer: Option<Tokenizer>,
    text: Option<Text>,
}

impl Chat {
    pub(crate) fn new(talk: Talk, tokenizer: Option<Tokenizer>, text: Option<Text>) -> Self {
        Self { talk: Arc::new(Mutex::new(talk)), tokenizer, text }
    }

    pub(crate) fn talk(&self) -> Arc<Mutex<Talk>> {
        self.talk.clone()
    }

    fn locked(&self) -> MutexGuard<'_, Talk> {
        self.talk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tokenizer(&self) -> Result<&Tokenizer, Failure> {
        let missing =
            "the model has no tokenizer; its owner puts it with tokenizer=, or give tokens";
        self.tokenizer.as_ref().ok_or_else(|| Failure::input(missing))
    }
}

#[pymethods]
impl Chat {
    /// All tokens so far.
    #[getter]
    fn said(&self) -> Vec<u64> {
        self.locked().said().to_vec()
    }

    /// The tokens behind which an answer ends.
    #[getter]
    fn stop(&self) -> Vec<u64> {
        self.text.as_ref().map_or_else(Vec::new, |text| text.stop.clone())
    }

    /// Forgets the tokens from number `to` on.
    fn cut(&self, to: usize) {
        self.locked().cut(to);
    }

    /// The tokens of what a person writes next, in the form that the model's owner gave.
    fn encode(&self, words: &str) -> PyResult<Vec<u64>> {
        let form = self.text.as_ref().map_or("{}", |text| text.form.as_str());
        let first = self.locked().said().is_empty();
        let tokens = self.tokenizer()?.encode(&form.replacen("{}", words, 1), first);
        Ok(tokens.map_err(Failure::from)?)
    }

    /// The words of tokens.
    fn decode(&self, tokens: Vec<u64>) -> PyResult<String> {
        Ok(self.tokenizer()?.decode(&tokens).map_err(Failure::from)?)
    }
}
