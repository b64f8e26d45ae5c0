//! Runs that standardise the rows of several owners on shares.

use nn_layers::train::{Metric, TrainOptions};

use super::{
    learning::{BATCH, Learner, Rows, put_run_of, rows, spec},
    *,
};
use crate::{
    model::{Codes, Column},
    training::{DataSet, Training, tensors},
};

/// A product with a matrix, behind a standardisation if `standardize`.
fn network(standardize: bool) -> Learner {
    let mut graph = Graph::new(BATCH);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(3)]).unwrap();
    let w = HostTensor::new([3, 2], vec![0.1, -0.2, 0.3, 0.2, -0.1, 0.4]).unwrap();
    let w = graph.weight("w", w);
    let y = graph.add("y", matmul(), &[x, w]).unwrap();
    graph.train(|_| true);
    let metrics = [Metric::Loss, Metric::Right];
    let options = TrainOptions::default().with_metrics(metrics).with_standardize(standardize);
    Learner::new(&graph, y, &options)
}

/// Rows of a number near 500, a small number, and one of two cities; the second owner's people are older.
fn people(count: usize, owner: u64) -> Rows {
    let Rows { values, labels } = rows(count, owner);
    let cell = |(at, x): (usize, &f64)| match at % 3 {
        0 => 500.0 + 40.0 * owner as f64 + 100.0 * x,
        1 => 0.05 * x - 0.02,
        _ => f64::from(*x > 0.0),
    };
    let cells = values.floats().iter().enumerate().map(cell).collect();
    Rows { values: HostTensor::new([count, 3], cells).unwrap(), labels }
}

fn put_people(client: &mut Client, name: &str, rows: &Rows) {
    let plan = network(false).plan;
    let mut tensors = tensors(&plan).unwrap();
    let cities = ["Bern", "Chur"].map(str::to_owned).to_vec();
    let city = Column { categories: cities, codes: Codes::Ordinal, ..Column::named("city") };
    tensors[0].columns = vec![Column::named("age"), Column::named("ratio"), city];
    let set = DataSet { rows: rows.values.dims()[0], tensors, ..DataSet::default() };
    let words = [&rows.values, &rows.labels];
    let words = [0, 1].map(|at| plan.encode_rows(at, words[at]).unwrap());
    client.put_data(name, &set, words.into(), &Readers::Everyone, false, &()).unwrap();
}

#[test]
fn rows_of_two_owners_are_standardised_together_and_later_inputs_alike() {
    let world = World::new(&Limits::default());
    let [mut alice, mut bob, mut carol] = ["alice", "bob", "carol"].map(|name| world.client(name));
    let parts = [people(9, 1), people(6, 2)];
    put_people(&mut alice, "a", &parts[0]);
    put_people(&mut bob, "b", &parts[1]);
    let spec = spec(&mut carol, &["a", "b"]);
    put_run_of(&mut carol, "run", &spec, &network(false), false).unwrap();
    let without = carol.run("run").unwrap().run.fingerprint;
    put_run_of(&mut carol, "run", &spec, &network(true), true).unwrap();
    let mark = carol.run("run").unwrap().run.fingerprint;
    assert_ne!(mark, without, "owners consent to the standardisation as well");
    alice.approve("run", mark, &()).unwrap();
    bob.approve("run", mark, &()).unwrap();

    let all = parts.each_ref().map(|rows| rows.values.floats());
    let values = HostTensor::new([15, 3], all.concat()).unwrap();
    let labels = parts.each_ref().map(|rows| rows.labels.as_ints().unwrap()).concat();
    let labels = HostTensor::integers([15, 2], labels).unwrap();
    let moments = |column: usize| {
        let numbers: Vec<_> = values.floats().iter().skip(column).step_by(3).copied().collect();
        let mean = numbers.iter().sum::<f64>() / 15.0;
        let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 15.0;
        [mean, 1.0 / variance.sqrt()]
    };
    let [[age, by_age], [ratio, by_ratio]] = [0, 1].map(moments);
    let learner = network(true);
    let training = Training::new(learner.plan.clone(), &spec, 15).unwrap();
    assert_eq!(training.flow().unwrap().weights, 12, "means and factors leave with the weights");
    let place = |name: &str| training.plan().state().iter().position(|s| s.name == name).unwrap();
    let mut floats = learner.start;
    floats[place("x.mean")] = HostTensor::new([3], vec![age, ratio, 0.0]).unwrap();
    floats[place("x.factor")] = HostTensor::new([3], vec![by_age, by_ratio, 1.0]).unwrap();

    // The first step is done twice: the state after it is not kept.
    carol.train("run", mark, 0, 1, false, &()).unwrap();
    for from in [0, 3, 6] {
        let answer = carol.train("run", mark, from, 3, true, &()).unwrap();
        let found = training.decode_metrics(&answer.outputs, from + 3).unwrap().unwrap();
        let all = [values.clone(), labels.clone()];
        let sums = training.run_in_the_clear(&mut floats, &all, from..from + 3).unwrap();
        for (found, sum) in found.iter().zip(sums) {
            let wanted = sum / training.rows_of(3) as f64;
            assert!((found - wanted).abs() < 5e-3, "{found} {wanted}");
        }
    }
    let words = carol.release("run", mark, 9, &()).unwrap();
    let found = training.plan().decode_network(&words).unwrap();
    for (name, tolerance) in [("x.mean", 1e-2), ("x.factor", 0.1), ("w", 5e-3)] {
        let [found, wanted] = [&found, &floats].map(|all| all[place(name)].floats().into_owned());
        for (found, wanted) in found.iter().zip(&wanted) {
            assert!((found - wanted).abs() < tolerance, "{name}: {found} {wanted}");
        }
    }

    carol.publish(("run", mark, 9), "learnt", &Readers::Everyone, false, &()).unwrap();
    let found = infer(&mut bob, "learnt", [640.0, -0.03, 1.0]).unwrap();
    let row = [(640.0 - age) * by_age, (-0.03 - ratio) * by_ratio, 1.0];
    let w = floats[place("w")].floats();
    for class in [0, 1] {
        let wanted: f64 = (0..3).map(|at| row[at] * w[2 * at + class]).sum();
        assert!((found[class] - wanted).abs() < 1e-2, "{} {wanted}", found[class]);
    }
}
