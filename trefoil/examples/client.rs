//! A client in a few lines: `cargo run -p trefoil --example client CLIENT.toml MODEL`.
//!
//! It asks three running servers for a model, sends inputs of zeros in shares, and adds up the
//! answer.

use std::{env, path::Path};

use ring_arith::{Shape, Tensor};
use trefoil::{
    Result,
    client::{self, Total},
    config::ClientConfig,
};

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [config, model] = arguments.as_slice() else {
        println!("pass a client.toml and the name of a model that its servers hold");
        return Ok(());
    };
    let mut client = client::connect(&ClientConfig::read(Path::new(config))?)?;
    let public = client.model(model)?;
    let about = &public.about;
    let examples = about.batch.unwrap_or(1);
    let mut inputs = Vec::new();
    for input in &about.inputs {
        let shape = Shape::new(about.shape_of(examples, &input.dims))?;
        inputs.push(Tensor::new(shape.clone(), vec![0; shape.len()])?);
    }
    let answer = client.infer(model, public.version, &inputs, false, &())?;
    for (output, values) in about.outputs.iter().zip(about.decode(examples, &answer.outputs)?) {
        println!("{} of {:?}: {values:.4?}", output.name, output.dims);
    }
    println!("{}", Total::of(&answer.costs).line());
    Ok(())
}
