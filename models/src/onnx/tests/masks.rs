//! Masks of attention hide their places from a softmax.

use super::{Built, FLOAT, INT64, model, near};

#[test]
fn very_negative_numbers_mask_before_a_softmax_alone() {
    let hide = [0.0, -3.4e38, 0.0, f32::NEG_INFINITY];
    let masked = model(&[1, 4])
        .floats("hide", &[4], &hide)
        .node("Add", &["x", "hide"], "scores", &[])
        .node("Softmax", &["scores"], "y", &[])
        .run(&[1.0, 5.0, 1.0, 3.0]);
    near(&masked, &[0.5, 0.0, 0.5, 0.0]);
    // Anywhere else they are numbers, and ones that have no encoding; for several users too.
    let both = model(&[1, 4])
        .floats("hide", &[4], &hide[..2].repeat(2))
        .node("Add", &["x", "hide"], "scores", &[])
        .node("Softmax", &["scores"], "weights", &[])
        .node("ReduceMin", &["scores"], "least", &[])
        .node("Add", &["weights", "least"], "y", &[]);
    let refused = both.compile().unwrap_err().to_string();
    assert!(refused.contains("hide"), "{refused}");
    let added = model(&[1, 4]).floats("hide", &[4], &[0.0, -3.4e38, 0.0, 0.0]);
    let refused = added.node("Add", &["x", "hide"], "y", &[]).compile().unwrap_err().to_string();
    assert!(refused.contains("hide"), "{refused}");
}

#[test]
fn masked_places_take_no_part_whatever_their_scores() {
    let y = model(&[1, 4])
        .floats("hide", &[4], &[f32::MIN, 0.0, 0.0, f32::NEG_INFINITY])
        .node("Add", &["x", "hide"], "scores", &[])
        .node("Softmax", &["scores"], "y", &[])
        .run(&[5_000.0, -1_000.0, -1_001.0, 400_000.0]);
    near(&y, &[0.0, 0.731, 0.269, 0.0]);
}

#[test]
fn rows_that_a_known_mask_hides_wholly_are_uniform() {
    // As in onnxruntime and PyTorch: the least number swallows the scores.
    let rows = |operator: &str, operands: &[&str], hide: f32, bias: f32| {
        model(&[2, 4])
            .floats("hide", &[2, 4], &[hide, hide, hide, hide, 0.0, hide, bias, 0.0])
            .node(operator, operands, "scores", &[])
            .node("Softmax", &["scores"], "y", &[])
            .run(&[7.0, -2.0, 3.0, 0.0, 1.0, 2e6, 0.5, 0.0])
    };
    let wanted = [0.25, 0.25, 0.25, 0.25, 0.4223, 0.0, 0.4223, 0.1554];
    near(&rows("Add", &["x", "hide"], f32::MIN, 0.5), &wanted);
    near(&rows("Add", &["hide", "x"], f32::NEG_INFINITY, 0.5), &wanted);
    near(&rows("Sub", &["x", "hide"], 1e30, -0.5), &wanted);
}

#[test]
fn what_is_taken_away_hides_where_it_is_large() {
    // As XLNet masks: `scores - 1e30 * mask`.
    let hiding = |operands: &[&str]| {
        model(&[1, 4])
            .floats("large", &[], &[1e30])
            .floats("values", &[1, 4], &[0.5, 1.0, 2.0, 0.5])
            .node("Mul", &["x", "large"], "hide", &[])
            .node("Sub", operands, "scores", &[])
            .node("Softmax", &["scores"], "y", &[])
    };
    let y = hiding(&["values", "hide"]).run(&[0.0, 1.0, 1.0, 0.0]);
    near(&y, &[0.5, 0.0, 0.0, 0.5]);
    // Added, it is a number that has no encoding.
    assert!(hiding(&["hide", "values"]).compile().is_err());
}

#[test]
fn a_mask_that_is_written_into_another_hides() {
    // As Llama masks: hidden places of the input within those that are known.
    let y = model(&[1, 4])
        .floats("one", &[], &[1.0])
        .floats("least", &[], &[f32::MIN])
        .floats("values", &[1, 4], &[0.5, 1.0, 2.0, 0.5])
        .floats("known", &[1, 4], &[0.0, 0.0, 0.0, f32::MIN])
        .node("Sub", &["one", "x"], "hidden", &[])
        .node("Mul", &["hidden", "least"], "hide", &[])
        .ints("starts", &[0])
        .ints("ends", &[3])
        .ints("axes", &[1])
        .node("Slice", &["hide", "starts", "ends", "axes"], "part", &[])
        .ints("flat", &[0, 0, 0, 1, 0, 2])
        .ints("shape", &[1, 3, 2])
        .node("Reshape", &["flat", "shape"], "places", &[])
        .node("ScatterND", &["known", "places", "part"], "mask", &[])
        .node("Add", &["values", "mask"], "scores", &[])
        .node("Softmax", &["scores"], "y", &[])
        .run(&[1.0, 1.0, 0.0, 1.0]);
    near(&y, &[0.3775, 0.6225, 0.0, 0.0]);
}

#[test]
fn a_mask_that_is_multiplied_by_the_least_number_hides() {
    let y = model(&[1, 4])
        .floats("one", &[], &[1.0])
        .floats("least", &[], &[f32::MIN])
        .floats("values", &[1, 4], &[0.5, 1.0, 2.0, 0.5])
        .node("Sub", &["one", "x"], "hidden", &[])
        .node("Mul", &["hidden", "least"], "hide", &[])
        .node("Add", &["values", "hide"], "scores", &[])
        .node("Softmax", &["scores"], "y", &[])
        .run(&[1.0, 0.0, 0.0, 1.0]);
    near(&y, &[0.5, 0.0, 0.0, 0.5]);
}

/// Softmax of three rows of scores of any size, with a mask that depends on the input.
fn masked_by_the_input(kind: i32, masked: impl Fn(Built) -> Built) -> Vec<f64> {
    let rows = [0.5, 1.0, 2.0, 0.5, 3e6, 1.0, 2.0, -3e5, 0.5, 1.0, 2.0, 0.5].map(|v| v as f32);
    let built = model(&[3, 4])
        .floats("one", &[], &[1.0])
        .floats("zero", &[], &[0.0])
        .floats("least", &[], &[f32::MIN])
        .floats("values", &[3, 4], &rows);
    let built = Built { kind, ..masked(built) };
    built.node("Softmax", &["scores"], "y", &[]).run(&[
        1.0, 0.0, 0.0, 1.0, // large scores are hidden
        0.0, 0.0, 0.0, 1.0, // all are hidden
        0.0, 0.0, 0.0, 0.0,
    ])
}

#[test]
fn places_that_the_input_hides_take_no_part_whatever_their_scores() {
    let wanted = [0.5, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 1.0, 0.25, 0.25, 0.25, 0.25];
    let added = |built: Built| built.node("Add", &["values", "hide"], "scores", &[]);
    // As BERT does, with numbers and with integers that become numbers.
    for kind in [FLOAT, INT64] {
        near(
            &masked_by_the_input(kind, |built| {
                let built = built
                    .node("Cast", &["x"], "real", &[("to", 1)])
                    .node("Sub", &["one", "real"], "hidden", &[])
                    .node("Mul", &["hidden", "least"], "hide", &[]);
                added(built)
            }),
            &wanted,
        );
    }
    // As a choice of numbers, moved before it is added.
    near(
        &masked_by_the_input(FLOAT, |built| {
            let built = built
                .ints("axes", &[0])
                .node("Cast", &["x"], "counts", &[("to", 9)])
                .node("Where", &["counts", "zero", "least"], "chosen", &[])
                .node("Unsqueeze", &["chosen", "axes"], "wider", &[])
                .node("Squeeze", &["wider", "axes"], "hide", &[]);
            added(built)
        }),
        &wanted,
    );
    // As T5 does: beside a bias, and both are added to scores.
    near(
        &masked_by_the_input(FLOAT, |built| {
            let built = built
                .floats("bias", &[3, 4], &[0.0; 12])
                .floats("known", &[4], &[0.0, f32::MIN, 0.0, 0.0])
                .node("Sub", &["one", "x"], "hidden", &[])
                .node("Mul", &["hidden", "least"], "padding", &[])
                .node("Add", &["padding", "known"], "both", &[])
                .node("Add", &["both", "bias"], "hide", &[]);
            added(built)
        }),
        &wanted,
    );
}
