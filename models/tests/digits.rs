//! The shipped digits, network and logits.

use crate::common::{data, distance, plaintext, run};
use models::data::{TEST_DIGITS, digits, read_npy};
use models::onnx;
use nn_layers::{Compiled, HostTensor, PlanOptions};

fn compiled() -> Compiled {
    let graph = onnx::import_file(&data("digits.onnx"), &Default::default()).unwrap();
    Compiled::new(&graph, &PlanOptions::default()).unwrap()
}

fn argmax(logits: &HostTensor) -> Vec<usize> {
    let best = |row: &[f64]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
    logits.floats().chunks(10).map(best).collect()
}

#[test]
fn all_test_digits_in_fixed_point_agree_with_pytorch() {
    let all = digits(&data("digits.csv.gz")).unwrap();
    assert_eq!(all.len(), 1797);
    let test = all.range(all.len() - TEST_DIGITS, all.len()).unwrap();
    let expected = read_npy(&data("digits-logits.npy")).unwrap();
    let compiled = compiled();
    assert_eq!(compiled.plan.fixed_batch(), None);
    let logits = run(&mut plaintext(), &compiled, std::slice::from_ref(&test.images)).unwrap();
    let error = distance(&logits[0], &expected);
    println!("largest error of a logit: {error:e}");
    assert!(error < 1.0 / 512.0, "a logit is off by {error}");
    let floats = compiled.plan.evaluate(&compiled.weights, &[test.images]).unwrap();
    assert_eq!(argmax(&logits[0]), argmax(&floats[0]));
    let right = argmax(&logits[0]).iter().zip(&test.labels).filter(|(a, b)| a == b).count();
    assert_eq!(right, 356);
}
