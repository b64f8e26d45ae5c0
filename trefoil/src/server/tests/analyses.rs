//! Analyses of data sets, with the consent of their owners.

use super::{
    joins::{People, people, prepared},
    learning::{said, spec as spec_of},
    *,
};
use crate::{
    analysis::{AnalysisRequest, Call, Leaves, Operand, Param, Step},
    client::NewRun,
    training::{Join, Openings, Planned, Position, RowTensor, RunSpec, Task},
};

const STEPS: u32 = 4;

fn row(name: &str, dims: &[usize], fraction_bits: u32) -> RowTensor {
    RowTensor { name: name.to_owned(), dims: dims.to_vec(), fraction_bits, ..RowTensor::default() }
}

fn call(function: &str, of: u64, axes: Option<i64>) -> Step {
    let axes = axes.map(|axis| ("axes".to_owned(), Param::Ints(vec![axis])));
    Step::Call(Call {
        function: function.to_owned(),
        operands: vec![Operand::Secret(of)],
        params: axes.into_iter().collect(),
    })
}

/// The mean and the sum of the squares of each of three columns, and the number of rows of each class.
fn request(rows: usize) -> AnalysisRequest {
    let leaves = |name: &str, place| Leaves { name: name.to_owned(), place };
    AnalysisRequest {
        inputs: vec![row("values", &[3], 20), row("labels", &[2], 0)],
        rows,
        steps: vec![
            call("mean", 0, Some(0)),
            call("square", 0, None),
            call("sum", 3, Some(0)),
            call("sum", 1, Some(0)),
        ],
        results: vec![leaves("means", 2), leaves("squares", 4), leaves("classes", 5)],
    }
}

/// An analysis of the hospital's rows joined with the bank's.
fn joined(client: &mut Client, rows: usize) -> RunSpec {
    let mut spec = spec_of(client, &["hospital", "bank"]);
    spec.data[1].position = Position::Joined(Join::Inner { rows });
    RunSpec { task: Task::Analysis, openings: Openings::last(STEPS, STEPS), ..spec }
}

fn put_run(
    client: &mut Client,
    name: &str,
    spec: &RunSpec,
    request: &AnalysisRequest,
) -> Result<Digest> {
    let request = serde_json::to_vec(request).unwrap();
    client.put_run(&NewRun { name, spec, request: &request, state: &[], replace: true }, &())?;
    Ok(client.run(name)?.run.fingerprint)
}

/// The results in the clear.
fn wanted(people: &People, rows: usize) -> [Vec<f64>; 3] {
    let [values, labels] = people.in_the_clear(Join::Inner { rows });
    let of = |all: &HostTensor, each: fn(f64) -> f64| {
        let wide = all.dims()[1];
        let mut sums = vec![0.0; wide];
        let floats = all.floats();
        floats.iter().enumerate().for_each(|(at, &x)| sums[at % wide] += each(x));
        sums
    };
    let means = of(&values, |x| x).into_iter().map(|sum| sum / rows as f64).collect();
    [means, of(&values, |x| x * x), of(&labels, |x| x)]
}

#[test]
fn an_analysis_of_joined_rows_leaves_its_results_to_those_who_were_named() {
    let world = World::new(&Limits::default());
    let people = people();
    let [mut alice, mut bob, mut carol] = prepared(&world, &people);
    let mut dave = world.client("dave");
    let mut spec = joined(&mut carol, 8);
    spec.recipients = vec!["dave".to_owned()];
    let mark = put_run(&mut carol, "study", &spec, &request(8)).unwrap();
    let text = said(carol.train("study", mark, 0, 1, false, &()));
    assert!(text.contains("waits for the consent of alice, bob"), "{text}");
    alice.approve("study", mark, &()).unwrap();
    bob.approve("study", mark, &()).unwrap();
    // Two steps are kept on the disk. The third is made twice: what is in memory then is that of another step.
    carol = world.client("carol");
    carol.train("study", mark, 0, 2, true, &()).unwrap();
    carol.train("study", mark, 2, 1, false, &()).unwrap();
    let answer = carol.train("study", mark, 2, 2, false, &()).unwrap();
    assert!(answer.outputs.is_empty(), "nothing leaves with a slice");
    let state = carol.run("study").unwrap();
    assert_eq!((state.run.step, state.run.steps), (STEPS, STEPS));
    let Planned::Analysis(analysis) = carol.run_plan(&state).unwrap() else { panic!("a training") };
    for client in [&mut carol, &mut dave] {
        let words = client.release("study", mark, STEPS, &()).unwrap();
        let found = analysis.decode(&words).unwrap();
        for ((_, found), wanted) in found.iter().zip(wanted(&people, 8)) {
            for (found, wanted) in found.floats().iter().zip(wanted) {
                assert!((found - wanted).abs() < 1e-4, "{found} {wanted}");
            }
        }
    }
    let text = said(alice.release("study", mark, STEPS, &()));
    assert!(text.contains("it belongs to client carol"), "{text}");
    let publish = carol.publish(("study", mark, STEPS), "m", &Readers::Everyone, false, &());
    let text = said(publish);
    assert!(text.contains("an analysis, of which no model can be made"), "{text}");
    let text = said(world.client("carol").train("study", mark, 2, 2, false, &()));
    assert!(text.contains("not after step 2"), "{text}");
}

#[test]
fn an_analysis_that_its_data_do_not_allow_is_not_kept() {
    let world = World::new(&Limits::default());
    let people = people();
    let [_, _, mut carol] = prepared(&world, &people);
    let spec = joined(&mut carol, 8);
    let put = |spec: &RunSpec, request: &AnalysisRequest| {
        said(put_run(&mut world.client("carol"), "study", spec, request))
    };
    let text = put(&spec, &request(9));
    assert!(text.contains("have 8 rows, and it is made for 9"), "{text}");
    let mut other = request(8);
    other.inputs[0].dims = vec![2];
    let text = put(&spec, &other);
    assert!(text.contains("a row of it has values [3]"), "{text}");
    let early = RunSpec { openings: Openings { weights: vec![1, 4], metrics: 4 }, ..spec.clone() };
    let text = put(&early, &request(8));
    assert!(text.contains("results leave after the last step"), "{text}");
    let mut wrong = request(8);
    wrong.steps[1] = call("sqare", 0, None);
    let text = put(&spec, &wrong);
    assert!(text.contains("step 1, `sqare`"), "{text}");
    let training = spec_of(&mut carol, &["hospital"]);
    let text = put(&training, &request(8));
    assert!(text.contains("training request is not sound"), "{text}");
    assert!(carol.runs().unwrap()[0].is_empty());
}
