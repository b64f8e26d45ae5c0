//! Analyses are planned by their shapes, go on after any step, and are refused with a reason.

use std::collections::BTreeMap;

use mpc_core::Plaintext;
use ring_arith::CpuEngine;

use super::*;

fn row(name: &str, dims: &[usize], fraction_bits: u32) -> RowTensor {
    RowTensor { name: name.to_owned(), dims: dims.to_vec(), fraction_bits, ..RowTensor::default() }
}

fn call<const N: usize>(function: &str, operands: [u64; N], params: &[(&str, Param)]) -> Step {
    Step::Call(Call {
        function: function.to_owned(),
        operands: operands.map(Operand::Secret).into(),
        params: params.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
    })
}

fn sum(of: u64) -> Step {
    call("sum", [of], &[("axes", Param::Ints(vec![0]))])
}

/// The sum of squares of each of two columns over four rows, and the sum of the labels.
pub(crate) fn request() -> AnalysisRequest {
    AnalysisRequest {
        inputs: vec![row("values", &[2], 20), row("labels", &[], 0)],
        rows: 4,
        steps: vec![
            Step::Bound { of: 0, bound: 8.0 },
            call("square", [2], &[]),
            sum(3),
            sum(1),
            call("sin", [0], &[]),
        ],
        results: vec![
            Leaves { name: "squares".to_owned(), place: 4 },
            Leaves { name: "ones".to_owned(), place: 5 },
        ],
    }
}

fn reason(request: AnalysisRequest) -> String {
    Analysis::new(request, 1000).unwrap_err().to_string()
}

#[test]
fn an_analysis_is_planned_by_its_shapes() {
    let analysis = Analysis::new(request(), 1000).unwrap();
    let results: Vec<_> = analysis.results().collect();
    assert_eq!(results[0].0, "squares");
    assert_eq!((results[0].1.shape.dims(), results[0].1.format.frac), (&[1, 2][..], 20));
    assert_eq!((results[1].1.shape.dims(), results[1].1.format.frac), (&[1][..], 0));
    // The bounded rows are eight words, and there while their squares are made. The squares go once they are added up.
    assert_eq!(analysis.peak_words(), 16);
    assert_eq!(analysis.live(2).collect::<Vec<_>>(), [3]);
    assert_eq!(analysis.live(5).collect::<Vec<_>>(), [4, 5]);
    let flow = analysis.flow();
    assert_eq!((flow.rows, flow.numbers_in, flow.numbers_out()), (4, 12, 3));
    let traffic = analysis.traffic();
    assert!(traffic.bytes > 0 && traffic.rounds > 1, "{traffic:?}");
    let mut other = request();
    other.steps[0] = Step::Bound { of: 0, bound: 9.0 };
    let other = Analysis::new(other, 1000).unwrap();
    assert_ne!(other.digest().unwrap(), analysis.digest().unwrap());
}

#[test]
fn an_analysis_goes_on_from_what_was_kept_after_any_step() {
    let analysis = Analysis::new(request(), 1000).unwrap();
    let unit = 1_u64 << 20;
    let values: Vec<u64> = [1, 2, 3, 4, 5, 6, 7, 8].iter().map(|x| x * unit).collect();
    let values = Tensor::new(Shape::new(vec![4, 2]).unwrap(), values).unwrap();
    let labels = Tensor::new(Shape::new(vec![4]).unwrap(), vec![1, 0, 1, 1]).unwrap();
    let mut mpc = Plaintext::new(CpuEngine::new(1));
    let rows = [mpc.constant(&values).unwrap(), mpc.constant(&labels).unwrap()];
    for stop in 0..=analysis.steps() {
        let mut first = Values::restore(&analysis, 0, Vec::new()).unwrap();
        first.run(&analysis, &mut mpc, &rows, 0..stop).unwrap();
        let kept = first.state(&analysis).unwrap().into_iter().cloned().collect();
        let mut then = Values::restore(&analysis, stop, kept).unwrap();
        then.run(&analysis, &mut mpc, &rows, stop..analysis.steps()).unwrap();
        let words: Vec<_> = then.results(&analysis).unwrap();
        let words = mpc.open(&words).unwrap();
        let found = analysis.decode(&words).unwrap();
        assert_eq!(found[0].1.floats().iter().copied().collect::<Vec<_>>(), [84.0, 120.0]);
        assert_eq!(found[1].1.floats().iter().copied().collect::<Vec<_>>(), [3.0]);
        assert!(analysis.decode(&words[..1]).is_err());
    }
    assert!(Values::<Plaintext<CpuEngine>>::restore(&analysis, 2, Vec::new()).is_err());
}

#[test]
fn an_analysis_that_is_not_sound_is_refused_with_its_step() {
    let with = |change: fn(&mut AnalysisRequest)| {
        let mut request = request();
        change(&mut request);
        reason(request)
    };
    for (found, wanted) in [
        (with(|r| r.steps.clear()), "0 steps"),
        (with(|r| r.results.clear()), "0 results"),
        (with(|r| r.results[0].place = 0), "`squares` is the rows themselves"),
        (with(|r| r.results[0].place = 99), "`squares` has no numbers"),
        (with(|r| r.results[1].name = "squares".to_owned()), "two results have the name"),
        (with(|r| r.results[1].name = "a\nb".to_owned()), "no control characters"),
        (with(|r| r.steps[1] = call("square", [77], &[])), "step 1, `square`: "),
        (with(|r| r.steps[1] = call("sqare", [2], &[])), "no function `sqare`"),
        (with(|r| r.steps[1] = call("join", [2, 3], &[])), "`join` opens bits"),
        (with(|r| r.steps[1] = call("matmul", [2, 2], &[])), "step 1, `matmul`: "),
        (with(|r| r.steps[0] = Step::Bound { of: 9, bound: 1.0 }), "step 0, `bound`: "),
        (
            with(|r| {
                let shape = Param::Ints(vec![1 << 20, 4, 2]);
                r.steps[1] = call("broadcast", [2], &[("shape", shape)]);
            }),
            "step 1, `broadcast`: 8388608 numbers",
        ),
        (with(|r| r.rows = 1 << 40), "the rows: "),
    ] {
        assert!(found.contains(wanted), "{wanted}: {found}");
    }
}

#[test]
fn an_analysis_is_read_as_it_was_written() {
    let mut request = request();
    let known = Known::new(vec![2], vec![1, (-5_i64) as u64], 0).unwrap();
    assert_eq!(known.width, 4);
    request.steps.push(Step::Call(Call {
        function: "add".to_owned(),
        operands: vec![Operand::Secret(0), Operand::Known(known)],
        params: BTreeMap::from([("c".to_owned(), Param::Floats(vec![0.1, -2.0]))]),
    }));
    let written = serde_json::to_string(&request).unwrap();
    assert_eq!(serde_json::from_str::<AnalysisRequest>(&written).unwrap(), request);
    // The width of public numbers is that of the numbers, and no claim of a client.
    let claimed = written.replace("\"words\":[1,-5]", "\"words\":[1,-5],\"width\":2");
    assert!(serde_json::from_str::<AnalysisRequest>(&claimed).is_err());
}
