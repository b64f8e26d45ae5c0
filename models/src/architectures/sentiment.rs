//! The text classifier of CrypTen (Knott et al., NeurIPS 2021, section 5.1).

use nn_layers::layers::{Layer, Linear};
use nn_layers::{Dim, Graph};

use super::{Role, Weights};
use crate::Result;

/// Words that [`sentiment`] knows.
pub const SENTIMENT_WORDS: usize = 519_820;

/// Numbers of a word's embedding.
const WIDTH: usize = 32;

/// Says whether a review is positive: from how often each word is in it, `[N, words]`, to the sum of the words' embeddings and a
/// linear layer's two scores, `[N, 2]`. Counts stay secret, so every row of the table is multiplied.
///
/// # Errors
/// Those of the weights.
pub fn sentiment(words: usize, weights: &mut dyn Weights) -> Result<Graph> {
    let mut graph = Graph::new(1);
    let counts = graph.input("counts", &[Dim::Batch(1), Dim::Fixed(words)])?;
    let table = weights.tensor("embedding.weight", &[WIDTH, words], Role::Kernel(words))?;
    let embedded = Linear { weight: table.into(), bias: None };
    let x = embedded.forward(&mut graph, "embedding", counts)?;
    let weight = weights.tensor("linear.weight", &[2, WIDTH], Role::Kernel(WIDTH))?;
    let bias = weights.tensor("linear.bias", &[2], Role::Shift)?;
    let x = Linear::new(weight, bias).forward(&mut graph, "linear", x)?;
    graph.output("scores", x);
    Ok(graph)
}
