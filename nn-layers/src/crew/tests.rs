//! Crews in process: what they compute, and what they refuse.

use std::thread;

use mpc_core::{Operand, Plaintext, Protocol};
use ring_arith::{CpuEngine, Tensor};

use super::{Alone, Crew, InProcessCrew};
use crate::train::{Optimiser, Step, TrainOptions, TrainPlan};
use crate::{Dim, Error, Graph, HostTensor, Op, Result, Unary};

const BATCH: usize = 4;

type Machine = InProcessCrew<CpuEngine>;

/// Runs a program as every machine of a crew.
fn run<R: Send>(size: usize, program: impl Fn(&mut Machine) -> R + Sync) -> Vec<R> {
    let crew = InProcessCrew::new(size).unwrap();
    thread::scope(|scope| {
        let program = &program;
        let threads: Vec<_> = crew
            .into_iter()
            .map(|mut machine| scope.spawn(move || program(&mut machine)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn engine() -> CpuEngine {
    CpuEngine::new(1)
}

fn numbers(dims: &[usize]) -> HostTensor {
    let values = (0..dims.iter().product()).map(|i: usize| (i * 7 % 11) as f64 / 11.0 - 0.4);
    HostTensor::new(dims, values.collect()).unwrap()
}

/// Two layers by momentum, for a batch of [`BATCH`] rows.
fn plan(machines: usize) -> (TrainPlan, Vec<Tensor>) {
    let mut graph = Graph::new(BATCH);
    let mut x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(5)]).unwrap();
    for (name, dims) in [("first", [5, 3]), ("second", [3, 3])] {
        let weight = graph.weight(name, numbers(&dims));
        let product = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
        x = graph.add(name, product, &[x, weight]).unwrap();
        x = graph.add(name, Op::Unary(Unary::Relu), &[x]).unwrap();
    }
    graph.train(|_| true);
    let options = TrainOptions::default()
        .with_optimiser(Optimiser::Sgd { momentum: 0.5, nesterov: false, decay: 0.01 })
        .with_crew(machines);
    let (plan, start) = TrainPlan::new(&graph, x, &options).unwrap();
    let start = plan.encode_state(&start).unwrap();
    (plan, start)
}

/// The weights after two steps, of each machine.
fn trained(machines: usize) -> Vec<Vec<Vec<u64>>> {
    let (plan, start) = plan(machines);
    run(machines, |crew| {
        let mut mpc = Plaintext::new(engine());
        let share = |words: &Tensor| mpc.constant(words).unwrap();
        let mut state = plan.secret_state(start.iter().map(share).collect()).unwrap();
        let labels = HostTensor::integers([BATCH, 3], [1, 0, 0].repeat(BATCH)).unwrap();
        let words = self::plan(1).0.encode_batch(&[numbers(&[BATCH, 5]), labels]).unwrap();
        let batch: Vec<_> = words.iter().map(|words| mpc.constant(words).unwrap()).collect();
        let own = plan.batch_of_machine(&mpc, Crew::<CpuEngine>::rank(crew), &batch).unwrap();
        let own: Vec<Operand<_>> = plan.step_plan().secret_inputs(own);
        for number in 0..2 {
            let step = Step::new(number, 0.1);
            plan.step_in_crew(&mut mpc, crew, &mut state, &own, step, &mut ()).unwrap();
        }
        let shares: Vec<_> = plan.network_places().iter().map(|&at| state.shares()[at]).collect();
        let opened = mpc.open(&shares).unwrap();
        opened.iter().map(|words| words.words().to_vec()).collect()
    })
}

/// Two machines have the weights of one, which follow the batch.
pub(crate) fn machines_train_like_one() {
    let one = trained(1).remove(0);
    let start = plan(1).1;
    assert_ne!(one[0], start[0].words());
    for machines in [2, 4] {
        trained(machines).iter().for_each(|machine| assert_eq!(machine, &one));
    }
}

#[test]
fn several_machines_have_the_weights_of_one() {
    machines_train_like_one();
}

#[test]
fn collectives_add_and_move_words_of_every_machine() {
    for size in [1, 2, 3] {
        run(size, |crew| {
            let own = Crew::<CpuEngine>::rank(crew) as u64;
            let all = (0..size as u64).sum::<u64>();
            let words = |word: u64| Tensor::vector((0..6).map(|i| word + 10 * i).collect());
            let sum = crew.sum(&engine(), &words(own)).unwrap();
            let wanted: Vec<_> = (0..6).map(|i| all + 10 * i * size as u64).collect();
            assert_eq!(sum.words(), wanted);
            let scattered = crew.sum_scattered(&engine(), &words(own)).unwrap();
            let len = 6 / size;
            let start = own as usize * len;
            assert_eq!(scattered.words(), &wanted[start..start + len]);
            assert_eq!(crew.gather(&engine(), &scattered).unwrap().words(), wanted);
            let last = size - 1;
            let heard = crew.broadcast(&engine(), last, &words(own)).unwrap();
            assert_eq!(heard.words(), words(last as u64).words());
            // 2 (size - 1) / size of the sum, half of that for each half of it, and what one machine says to all.
            let others = (size - 1) as u64;
            let said = if own as usize == last { 6 * others } else { 0 };
            assert_eq!(crew.bytes_sent(), 8 * (4 * 6 * others / size as u64 + said));
        });
    }
}

fn refusal<T>(result: Result<T>) -> (usize, String) {
    match result {
        Err(Error::Crew { rank, reason }) => (rank, reason),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was not refused"),
    }
}

#[test]
fn a_missing_machine_is_named_and_the_crew_is_of_no_use_after_it() {
    let mut crew = InProcessCrew::<CpuEngine>::new(3).unwrap();
    drop(crew.remove(1));
    let words = Tensor::vector(vec![1; 3]);
    let (rank, reason) = refusal(crew[0].sum_scattered(&engine(), &words));
    assert_eq!((rank, &reason[..]), (1, "has left before `sum_scattered`, call 0"));
    let (rank, reason) = refusal(crew[0].gather(&engine(), &words));
    assert!(rank == 0 && reason.contains("is of no use after an error"), "{reason}");
    let slow = std::time::Duration::ZERO;
    let mut crew = InProcessCrew::<CpuEngine>::new(2).unwrap().into_iter();
    let (first, second) = (crew.next().unwrap(), crew.next().unwrap());
    let (rank, reason) = refusal(first.with_patience(slow).gather(&engine(), &words));
    assert!(rank == 1 && reason.contains("has not come to `gather`"), "{reason}");
    drop(second);
}

#[test]
fn machines_that_do_not_make_the_same_call_of_the_same_shape_are_named() {
    let words = |len| Tensor::vector(vec![1; len]);
    let shapes = run(2, |crew| {
        let len = 2 + 2 * Crew::<CpuEngine>::rank(crew);
        refusal(crew.sum_scattered(&engine(), &words(len)))
    });
    assert_eq!([shapes[0].0, shapes[1].0], [1, 0]);
    assert!(shapes[0].1.contains("[4]") && shapes[0].1.contains("[2]"), "{}", shapes[0].1);
    let calls = run(2, |crew| match Crew::<CpuEngine>::rank(crew) {
        0 => refusal(crew.gather(&engine(), &words(2))),
        _ => refusal(crew.sum_scattered(&engine(), &words(2))),
    });
    assert!(calls[0].1.contains("`sum_scattered`") && calls[0].1.contains("`gather`"));
    let mut alone = InProcessCrew::<CpuEngine>::new(1).unwrap().remove(0);
    assert_eq!(refusal(alone.broadcast(&engine(), 1, &words(1))).0, 1);
    assert!(InProcessCrew::<CpuEngine>::new(0).is_err());
    assert!(
        InProcessCrew::<CpuEngine>::new(2).unwrap()[0].sum_scattered(&engine(), &words(3)).is_err()
    );
}

#[test]
fn a_step_of_several_machines_is_refused_to_another_number_and_in_the_clear() {
    let (plan, start) = plan(2);
    let mut mpc = Plaintext::new(engine());
    let mut share = |words: &Tensor| mpc.constant(words).unwrap();
    let mut state = plan.secret_state(start.iter().map(&mut share).collect()).unwrap();
    let shapes = plan.batch_shapes().unwrap();
    let own = shapes.iter().map(|shape| share(&Tensor::zeros(shape.clone()))).collect();
    let own: Vec<Operand<_>> = plan.step_plan().secret_inputs(own);
    let step = Step::new(0, 0.1);
    let error = plan.step_in_crew(&mut mpc, &mut Alone, &mut state, &own, step, &mut ());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("a step of 2 machines of each party, and this crew has 1"), "{error}");
    let error = plan.step_guarded(&mut mpc, &mut state, &own, step, 1, &mut ()).unwrap_err();
    assert!(error.to_string().contains("take TrainPlan::step_in_crew"), "{error}");
    let mut numbers = plan.decode_state(&start).unwrap();
    let batch: Vec<_> =
        shapes.iter().map(|s| HostTensor::new(s.dims(), vec![0.0; s.len()]).unwrap()).collect();
    let error = plan.step_in_the_clear(&mut numbers, &batch, step).unwrap_err().to_string();
    assert!(error.contains("take the plan of one machine"), "{error}");
}
