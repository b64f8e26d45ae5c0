//! Three parties read handwritten digits that none of them sees, with a network that none of them
//! knows: each party is a thread of this program.

use std::path::Path;

use models::data::digits;
use models::onnx;
use mpc_core::{Operand, Protocol, SecretTensor, TestWorld};
use net::Party;
use nn_layers::{Compiled, PlanOptions};
use ring_arith::CpuEngine;
use rss_protocols::Rss;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let graph = onnx::import_file(&folder.join("digits.onnx"), &Default::default())?;
    let Compiled { plan, weights } = Compiled::new(&graph, &PlanOptions::default())?;
    let some = digits(&folder.join("digits.csv.gz"))?.range(1787, 1797)?;

    // Who owns the model, and who owns the images, encode them. Party 0 plays both here.
    let weight_words = plan.encode_weights(&weights)?;
    let weight_shapes: Vec<_> = plan.weights().into_iter().map(|weight| weight.shape).collect();
    let image_words = [plan.encode_input(0, some.len(), &some.images)?];
    let image_shapes = plan.input_shapes(some.len())?;

    let servers_plan = plan.clone();
    let opened = TestWorld::new(3).run(
        |session| Rss::new(session, CpuEngine::new(1)),
        move |mpc| {
            let owner = mpc.me() == Party(0);
            let weights =
                mpc.input(Party(0), &weight_shapes, owner.then_some(&weight_words[..]))?;
            let images = mpc.input(Party(0), &image_shapes, owner.then_some(&image_words[..]))?;
            let weights: Vec<Operand<Rss<CpuEngine>>> = servers_plan.secret_weights(weights);
            let images = servers_plan.secret_inputs(images);
            let logits = servers_plan
                .run(mpc, &weights, &images, &mut ())
                .expect("a plan that was compiled runs on shares of its weights");
            let logits: Vec<_> = logits.iter().map(SecretTensor::share).collect();
            Ok(mpc.open(&logits)?[0].clone())
        },
    );

    let logits = plan.decode_output(0, &opened[0])?;
    for (row, label) in logits.floats().chunks(10).zip(&some.labels) {
        let read = (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0);
        println!("a {label}, read as {read}");
    }
    Ok(())
}
