//! Models that keep values from step to step, and the conversations of several clients with them.

use models::architectures::{RandomWeights, Transformer, gpt2_step};
use nn_layers::Caches;

use super::{sessions::wait_until, *};

/// The positions that a step adds, and their numbers.
pub(super) const STEP: [usize; 3] = [1, 2, 16];

/// A language model of one block.
pub(super) fn speaker() -> Imported {
    let [_, time, width] = STEP;
    let size = Transformer { layers: 1, width, heads: 2, inner: 32, time };
    let graph = gpt2_step(&size, 8, &mut RandomWeights::new(3)).unwrap();
    plan("test", &graph, &PlanOptions::default(), crate::model::Preprocess::default(), Vec::new())
        .unwrap()
}

/// Step number `step` of a text.
fn said(text: u64, step: u64) -> HostTensor {
    let mut random = mpc_core::SplitMix64::new(100 * text + step);
    let values = (0..STEP.iter().product::<usize>()).map(|_| random.real(-1.0, 1.0));
    HostTensor::new(STEP, values.collect()).unwrap()
}

/// A client's conversation.
struct Talk {
    client: Client,
    id: Id,
    at: u64,
    text: u64,
}

impl Talk {
    fn new(world: &World, client: &str, text: u64) -> Self {
        Self { client: world.client(client), id: Id::random().unwrap(), at: 0, text }
    }

    /// The scores that the servers give for the next step.
    fn step(&mut self) -> Result<Vec<f64>> {
        let step = self.at / STEP[1] as u64;
        let values = said(self.text, step);
        let words = FixedPoint(FracBits::new(20).unwrap()).encode(&values.floats()).unwrap();
        let input = Tensor::new(Shape::new(STEP).unwrap(), words).unwrap();
        let version = self.client.model("m")?.version;
        let answer =
            self.client.extend(("m", version), (self.id, self.at), (&[input], 1), false, &())?;
        self.at += STEP[1] as u64;
        // The guard's words come last.
        let scores = answer.outputs[0].words().iter();
        Ok(scores.map(|&word| word as i64 as f64 / f64::from(1 << 20)).collect())
    }
}

/// The scores of a text's steps in the clear.
fn in_the_clear(model: &Imported, text: u64, steps: u64) -> Vec<Vec<f64>> {
    let mut caches = Caches::new();
    let plan = model.program.plan();
    let step = |step| {
        let scores = plan.evaluate_step(&model.values, &mut caches, &[said(text, step)]).unwrap();
        scores[0].floats().to_vec()
    };
    (0..steps).map(step).collect()
}

fn near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-3, "{found} {expected}");
    }
}

fn with_speaker(limits: &Limits) -> (World, Imported) {
    let (world, model) = (World::new(limits), speaker());
    put(&mut world.client("owner"), "m", &model, false).unwrap();
    (world, model)
}

#[test]
fn each_of_several_clients_gets_what_it_would_get_alone() {
    let (world, model) = with_speaker(&Limits::default());
    thread::scope(|scope| {
        for text in 0..8 {
            let (world, model) = (&world, &model);
            scope.spawn(move || {
                let mut talk = Talk::new(world, &format!("client-{}", text % 4), text);
                for expected in in_the_clear(model, text, 4) {
                    near(&talk.step().unwrap(), &expected);
                }
            });
        }
    });
}

#[test]
fn a_conversation_goes_back_and_on_and_is_its_clients_alone() {
    let (world, model) = with_speaker(&Limits::default());
    let expected = in_the_clear(&model, 1, 4);
    let mut talk = Talk::new(&world, "alice", 1);
    for scores in &expected {
        near(&talk.step().unwrap(), scores);
    }
    // The last two steps again.
    talk.at -= 2 * STEP[1] as u64;
    for scores in &expected[2..] {
        near(&talk.step().unwrap(), scores);
    }
    // Another client that knows the number has another conversation.
    let mut other = Talk { id: talk.id, at: talk.at, ..Talk::new(&world, "mallory", 1) };
    let text = other.step().unwrap_err().to_string();
    assert!(text.contains("send its text again from the first position"), "{text}");
    // One position too many was never sent.
    talk.at += 1;
    let text = talk.step().unwrap_err().to_string();
    assert!(text.contains("has 8 positions here, and is to go on behind 9"), "{text}");
    talk.at -= 1;
    talk.client.close(talk.id, &()).unwrap();
    let text = talk.step().unwrap_err().to_string();
    assert!(text.contains("is not here any more"), "{text}");
    // The guard found nothing, and the servers work on.
    talk.at = 0;
    near(&talk.step().unwrap(), &expected[0]);
}

#[test]
fn a_conversation_that_a_lost_session_ended_begins_again_with_its_text() {
    let (world, model) = with_speaker(&Limits::default());
    let expected = in_the_clear(&model, 1, 3);
    let mut talk = Talk::new(&world, "alice", 1);
    near(&talk.step().unwrap(), &expected[0]);
    world.servers[1].0.state().session.as_ref().unwrap().cancel("a test");
    let up = || world.servers.iter().all(|server| server.0.state().link == Link::Up);
    wait_until(|| !up());
    wait_until(up);
    let text = talk.step().unwrap_err().to_string();
    assert!(text.contains("send its text again"), "{text}");
    talk.at = 0;
    for scores in &expected {
        near(&talk.step().unwrap(), scores);
    }
}

#[test]
fn memory_for_conversations_is_bounded_and_who_takes_most_loses_the_oldest() {
    let (world, _) = with_speaker(&Limits { conversations_mib: 1, ..Limits::default() });
    let mut first = Talk::new(&world, "bob", 1);
    first.step().unwrap();
    let mut greedy = Talk::new(&world, "greedy", 0);
    let mut began = Vec::new();
    // Each takes 4 KiB at least.
    for _ in 0..300 {
        (greedy.id, greedy.at) = (Id::random().unwrap(), 0);
        greedy.step().unwrap();
        began.push(greedy.id);
    }
    greedy.step().unwrap();
    (greedy.id, greedy.at) = (began[0], STEP[1] as u64);
    let text = greedy.step().unwrap_err().to_string();
    assert!(text.contains("is not here any more"), "{text}");
    first.step().unwrap();
}

#[test]
fn a_model_that_keeps_nothing_has_no_conversations_and_one_that_does_has_no_single_answers() {
    let (world, model) = with_speaker(&Limits::default());
    let mut client = world.client("alice");
    let version = client.model("m").unwrap().version;
    let input = Tensor::zeros(Shape::new(STEP).unwrap());
    let text = client
        .infer("m", version, std::slice::from_ref(&input), false, &())
        .unwrap_err()
        .to_string();
    assert!(text.contains("runs in conversations alone"), "{text}");
    put(&mut client, "plain", &super::model(ONE), false).unwrap();
    let version = client.model("plain").unwrap().version;
    let place = (Id::random().unwrap(), 0);
    let text = client.extend(("plain", version), place, (&[input], 1), false, &()).unwrap_err();
    assert!(text.to_string().contains("keeps nothing from step to step"), "{text}");
    // Another shape, another number of inputs, and more positions than any memory holds.
    let version = client.model("m").unwrap().version;
    let wrong = Tensor::zeros(Shape::new([1, 3, 16]).unwrap());
    let mut refused = |inputs: &[Tensor], at| {
        let place = (Id::random().unwrap(), at);
        client.extend(("m", version), place, (inputs, 1), false, &()).unwrap_err().to_string()
    };
    let right = Tensor::zeros(Shape::new(STEP).unwrap());
    assert!(refused(&[wrong], 0).contains("has shape"));
    assert!(refused(&[right.clone(), right.clone()], 0).contains("a step takes 1"));
    assert!(refused(std::slice::from_ref(&right), 1 << 20).contains("conversation"));
    assert!(!refused(&[right], u64::MAX).is_empty());
    let about = &model.about;
    assert_eq!((about.inputs.len(), about.outputs.len(), about.batch), (1, 1, Some(1)));
    works(&world);
}
