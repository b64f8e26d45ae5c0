//! Transformers: BERT, GPT-2 and those of images.

use nn_layers::layers::{Conv2d, Layer, LayerNorm, Linear, MultiHeadAttention, Weight};
use nn_layers::{Binary, Dim, Graph, HostTensor, Op, Unary, ValueId};

use super::{Role, Weights};
use crate::Result;

/// Added to the score of a position that comes later: its exponential is 0 in fixed point.
const HIDDEN: f64 = -1000.0;

/// The sizes of a transformer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transformer {
    /// The number of blocks, applied one after the other.
    pub layers: usize,
    /// Numbers of a position between blocks.
    pub width: usize,
    /// Heads of attention, a divisor of the width.
    pub heads: usize,
    /// Numbers of a position within the second half of a block.
    pub inner: usize,
    /// Positions.
    pub time: usize,
}

impl Transformer {
    /// BERT-base (Devlin et al., NAACL 2019) and GPT-2's smallest (Radford et al., 2019), with `time` positions.
    pub fn base(time: usize) -> Self {
        Self { layers: 12, width: 768, heads: 12, inner: 3072, time }
    }
}

/// Rows of GPT-2's table of tokens.
pub const GPT2_TOKENS: usize = 50_257;

/// BERT's encoder, from the sums of a text's embeddings `[N, T, W]`, which its owner looks up, to the last block's
/// result of the same shape. GELU is that of the error function.
///
/// # Errors
/// Those of the weights.
pub fn bert(size: &Transformer, weights: &mut dyn Weights) -> Result<Graph> {
    let (mut b, mut x) = Blocks::new(*size, weights)?;
    x = b.norm(x, "embeddings.LayerNorm", 1e-12)?;
    for layer in 0..size.layers {
        let name = |part: &str| format!("encoder.layer.{layer}.{part}");
        let y = b.attention(x, &name("attention"), false)?;
        x = b.sum(x, y)?;
        x = b.norm(x, &name("attention.output.LayerNorm"), 1e-12)?;
        let y = b.dense(x, &name("intermediate.dense"), size.inner)?;
        let y = b.gelu(y)?;
        let y = b.dense(y, &name("output.dense"), size.width)?;
        x = b.sum(x, y)?;
        x = b.norm(x, &name("output.LayerNorm"), 1e-12)?;
    }
    Ok(b.finish("last_hidden_state", x))
}

/// GPT-2, from the sums of a text's embeddings `[N, T, W]`, which its owner looks up, to the scores `[N, 1, tokens]` of
/// the token after the last position. GELU is that of the error function.
///
/// # Errors
/// Those of the weights.
pub fn gpt2(size: &Transformer, tokens: usize, weights: &mut dyn Weights) -> Result<Graph> {
    let (b, x) = Blocks::new(*size, weights)?;
    decoder(b, x, tokens)
}

/// A step of [`gpt2`]: `size.time` positions of one text behind those that are cached. Keys and values are states of
/// the plan, which [`nn_layers::Plan::step`] extends; their names are those of the blocks.
///
/// # Errors
/// Those of the weights.
pub fn gpt2_step(size: &Transformer, tokens: usize, weights: &mut dyn Weights) -> Result<Graph> {
    let mut graph = Graph::new(1).with_past(1);
    let dims = [1, size.time, size.width].map(Dim::Fixed);
    let x = graph.input("embedded", &dims)?;
    graph.fix_batch();
    decoder(Blocks { graph, size: *size, weights, cached: true }, x, tokens)
}

/// The vision transformer ViT (Dosovitskiy et al., ICLR 2021) from square colour images `[N, 3, side, side]` to the scores
/// `[N, classes]`; ViT-B/16 is `vit(&Transformer::base(197), 16, 1000, ..)`. A position is a square of `patch` x `patch`
/// pixels, and the first one stands for the whole image, so `size.time - 1` is a square number. Its learned row is the sum of
/// the two that other implementations have for it.
///
/// # Errors
/// [`crate::Error::Network`] if it is not, and those of the weights.
pub fn vit(
    size: &Transformer,
    patch: usize,
    classes: usize,
    weights: &mut dyn Weights,
) -> Result<Graph> {
    let Transformer { time, width, .. } = *size;
    let rows = time.saturating_sub(1).isqrt();
    if rows == 0 || rows * rows + 1 != time {
        let reason = format!("{time} positions are not one more than those of a square");
        return Err(nn_layers::Error::invalid("vit", reason).into());
    }
    let mut graph = Graph::new(1);
    let dims = [3, patch * rows, patch * rows].map(Dim::Fixed);
    let image = graph.input("image", &[&[Dim::Batch(1)], &dims[..]].concat())?;
    let mut b = Blocks { graph, size: *size, weights, cached: false };
    let kernel = b.weights.tensor(
        "patch_embed.proj.weight",
        &[width, 3, patch, patch],
        Role::Kernel(3 * patch * patch),
    )?;
    let bias = b.weights.tensor("patch_embed.proj.bias", &[width], Role::Shift)?;
    let cut = Conv2d { stride: [patch; 2], ..Conv2d::new(kernel, Some(bias.into())) };
    let x = cut.forward(&mut b.graph, "patch_embed", image)?;
    let flat = vec![Dim::Rest, Dim::Fixed(width), Dim::Fixed(time - 1)];
    let x = b.graph.add("flat", Op::Reshape(flat), &[x])?;
    let x = b.graph.add("positions", Op::Permute(vec![0, 2, 1]), &[x])?;
    // Zeros before the squares' positions, so that the first one is a learned row alone.
    let whole = Op::Pad { before: vec![0, 1, 0], after: vec![0; 3], value: 0.0 };
    let x = b.graph.add("whole", whole, &[x])?;
    let learned = b.weights.tensor("pos_embed", &[time, width], Role::Shift)?;
    let learned = b.graph.weight("pos_embed", learned);
    let mut x = b.sum(x, learned)?;
    for layer in 0..size.layers {
        let name = |part: &str| format!("blocks.{layer}.{part}");
        let parts = ["norm1", "attn", "norm2", "mlp.fc1", "mlp.fc2"].map(name);
        x = b.normed_first(x, &parts, 1e-6, false)?;
    }
    let first = Op::Slice { axis: 1, start: 0, end: Dim::Fixed(1), step: 1 };
    x = b.graph.add("first", first, &[x])?;
    x = b.norm(x, "norm", 1e-6)?;
    x = b.graph.add("first", Op::Reshape(vec![Dim::Rest, Dim::Fixed(width)]), &[x])?;
    x = b.dense(x, "head", classes)?;
    Ok(b.finish("logits", x))
}

fn decoder(mut b: Blocks<'_>, mut x: ValueId, tokens: usize) -> Result<Graph> {
    let size = b.size;
    for layer in 0..size.layers {
        let name = |part: &str| format!("h.{layer}.{part}");
        let parts = ["ln_1", "attn", "ln_2", "mlp.c_fc", "mlp.c_proj"].map(name);
        x = b.normed_first(x, &parts, 1e-5, true)?;
    }
    let last = Op::Slice { axis: 1, start: size.time - 1, end: Dim::Fixed(size.time), step: 1 };
    x = b.graph.add("last", last, &[x])?;
    x = b.norm(x, "ln_f", 1e-5)?;
    let table = b.kernel("lm_head", tokens, size.width)?;
    x = Linear { weight: table, bias: None }.forward(&mut b.graph, "lm_head", x)?;
    Ok(b.finish("scores", x))
}

/// A graph being built, with the source of its weights.
struct Blocks<'a> {
    graph: Graph,
    size: Transformer,
    weights: &'a mut dyn Weights,
    /// True for a step behind cached positions.
    cached: bool,
}

impl<'a> Blocks<'a> {
    fn new(size: Transformer, weights: &'a mut dyn Weights) -> Result<(Self, ValueId)> {
        let mut graph = Graph::new(1);
        let dims = [Dim::Batch(1), Dim::Fixed(size.time), Dim::Fixed(size.width)];
        let x = graph.input("embedded", &dims)?;
        Ok((Self { graph, size, weights, cached: false }, x))
    }

    fn finish(mut self, name: &str, x: ValueId) -> Graph {
        self.graph.output(name, x);
        self.graph
    }

    fn kernel(&mut self, name: &str, outputs: usize, inputs: usize) -> Result<Weight> {
        let name = format!("{name}.weight");
        Ok(self.weights.tensor(&name, &[outputs, inputs], Role::Kernel(inputs))?.into())
    }

    fn linear(&mut self, name: &str, outputs: usize, inputs: usize) -> Result<Linear> {
        let weight = self.kernel(name, outputs, inputs)?;
        let bias = self.weights.tensor(&format!("{name}.bias"), &[outputs], Role::Shift)?;
        Ok(Linear::new(weight, bias))
    }

    fn dense(&mut self, x: ValueId, name: &str, outputs: usize) -> Result<ValueId> {
        let inputs = *self.graph.shape(x).dims().last().unwrap_or(&0);
        let layer = self.linear(name, outputs, inputs)?;
        Ok(layer.forward(&mut self.graph, name, x)?)
    }

    fn norm(&mut self, x: ValueId, name: &str, epsilon: f64) -> Result<ValueId> {
        let width = [self.size.width];
        let scale = self.weights.tensor(&format!("{name}.weight"), &width, Role::Scale(1.0))?;
        let shift = self.weights.tensor(&format!("{name}.bias"), &width, Role::Shift)?;
        let layer = LayerNorm { scale: scale.into(), shift: shift.into(), epsilon };
        Ok(layer.forward(&mut self.graph, name, x)?)
    }

    /// Of earlier positions alone where later ones are to be hidden.
    fn attention(&mut self, x: ValueId, name: &str, hide_later: bool) -> Result<ValueId> {
        let Transformer { width, heads, time, .. } = self.size;
        let mut part = |what: &str| self.linear(&format!("{name}.{what}"), width, width);
        let (query, key, value) = (part("query")?, part("key")?, part("value")?);
        let output = part("output.dense")?;
        let hidden = |at: usize| if at % time > at / time { HIDDEN } else { 0.0 };
        let mask = || HostTensor::new([time, time], (0..time * time).map(hidden).collect());
        let mask = (hide_later && time > 1).then(mask).transpose()?;
        let layer = MultiHeadAttention { query, key, value, output, heads, mask };
        if self.cached {
            return Ok(layer.step(&mut self.graph, name, x)?);
        }
        Ok(layer.forward(&mut self.graph, name, x)?)
    }

    /// A block whose halves begin with a norm: attention, and two layers with GELU between them. `parts` are the names of
    /// norm, attention, norm and the two layers.
    fn normed_first(
        &mut self,
        x: ValueId,
        [norm1, attention, norm2, first, second]: &[String; 5],
        epsilon: f64,
        hide_later: bool,
    ) -> Result<ValueId> {
        let y = self.norm(x, norm1, epsilon)?;
        let y = self.attention(y, attention, hide_later)?;
        let x = self.sum(x, y)?;
        let y = self.norm(x, norm2, epsilon)?;
        let y = self.dense(y, first, self.size.inner)?;
        let y = self.gelu(y)?;
        let y = self.dense(y, second, self.size.width)?;
        self.sum(x, y)
    }

    fn gelu(&mut self, x: ValueId) -> Result<ValueId> {
        Ok(self.graph.add("gelu", Op::Unary(Unary::Gelu), &[x])?)
    }

    fn sum(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        Ok(self.graph.add("add", Op::Binary(Binary::Add), &[x, y])?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architectures::RandomWeights;

    #[test]
    fn what_comes_later_is_hidden_and_nothing_else() {
        let size = Transformer { layers: 1, width: 8, heads: 2, inner: 8, time: 3 };
        let mut random = RandomWeights::new(1);
        let (mut b, x) = Blocks::new(size, &mut random).unwrap();
        let y = b.attention(x, "attn", true).unwrap();
        let graph = b.finish("y", y);
        let x = random.around(&[1, 3, 8], 0.0, 1.0).unwrap();
        let of = |x: &HostTensor| graph.evaluate(std::slice::from_ref(x)).unwrap().remove(0);
        let before = of(&x);
        for changed in 0..3 {
            let add = |(i, v): (usize, &f64)| if i / 8 == changed { v + 1.0 } else { *v };
            let values = x.floats().iter().enumerate().map(add).collect();
            let after = of(&HostTensor::new([1, 3, 8], values).unwrap());
            let pairs = before.floats().to_vec().into_iter().zip(after.floats().to_vec());
            let moved: Vec<_> = pairs.map(|(a, b)| (a - b).abs() > 1e-9).collect();
            for at in 0..3 {
                let some = moved[8 * at..8 * at + 8].iter().any(|&moved| moved);
                assert_eq!(some, at >= changed, "position {at}, changed {changed}");
            }
        }
    }
}
