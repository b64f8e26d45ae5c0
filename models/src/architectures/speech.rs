//! Wav2Letter.

use nn_layers::layers::{Conv1d, Layer};
use nn_layers::{Dim, Graph, Unary, ValueId};

use super::{Role, Weights};
use crate::Result;

/// Channels of the hidden layers, and of the last two.
const CHANNELS: usize = 250;

/// See [`CHANNELS`].
const WIDE: usize = 2000;

/// Wav2Letter (Collobert et al., 2016) on sounds, with torchaudio's layout: 13 convolutions from `samples` at 16 kHz,
/// `[N, 1, samples]`, to the scores of 29 letters at each of about 50 places a second, `[N, 29, places]`.
///
/// # Errors
/// Those of the weights, and if there are too few samples for a place.
pub fn wav2letter(samples: usize, weights: &mut dyn Weights) -> Result<Graph> {
    let mut graph = Graph::new(1);
    let mut x = graph.input("sound", &[Dim::Batch(1), Dim::Fixed(1), Dim::Fixed(samples)])?;
    // Channels, taps, step and border.
    let hidden = [(CHANNELS, 250, 160, 45), (CHANNELS, 48, 2, 23)]
        .into_iter()
        .chain([(CHANNELS, 7, 1, 3); 7])
        .chain([(WIDE, 32, 1, 16), (WIDE, 1, 1, 0)]);
    for (at, layer) in hidden.enumerate() {
        x = convolution(&mut graph, x, at, layer, weights)?;
        x = Unary::Relu.forward(&mut graph, "relu", x)?;
    }
    x = convolution(&mut graph, x, 11, (29, 1, 1, 0), weights)?;
    graph.output("scores", x);
    Ok(graph)
}

fn convolution(
    graph: &mut Graph,
    x: ValueId,
    at: usize,
    (channels, taps, stride, border): (usize, usize, usize, usize),
    weights: &mut dyn Weights,
) -> Result<ValueId> {
    let name = format!("conv{at}");
    let inputs = graph.shape(x).dims()[1];
    let role = Role::Kernel(inputs * taps);
    let weight = weights.tensor(&format!("{name}.weight"), &[channels, inputs, taps], role)?;
    let bias = weights.tensor(&format!("{name}.bias"), &[channels], Role::Shift)?;
    let layer = Conv1d { stride, padding: [border; 2], ..Conv1d::new(weight, Some(bias.into())) };
    Ok(layer.forward(graph, &name, x)?)
}
