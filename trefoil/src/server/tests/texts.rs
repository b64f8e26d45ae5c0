//! Language models that return tokens, and the texts that clients write with them in turn.

use models::architectures::RandomWeights;
use nn_layers::{Caches, Reduce};

use super::{
    conversations::{STEP, speaker},
    sessions::wait_until,
    *,
};
use crate::{
    client::Talk,
    model::{Program, Text, import::with_longer_steps},
};

/// A language model that returns the next token: that of which a sum over all tokens so far makes the largest score. It also
/// takes steps of 3 and of 5 tokens.
pub(super) fn chooser() -> Imported {
    chooser_of(&table())
}

fn table() -> HostTensor {
    RandomWeights::new(5).around(&[TOKENS, 4], 0.0, 1.0).unwrap()
}

/// The number of its tokens.
const TOKENS: usize = 7;

/// Such a model with this table of tokens.
fn chooser_of(table: &HostTensor) -> Imported {
    let model = steps_of(1, table);
    let longer = [5, 3].map(|new| steps_of(new, table).program).to_vec();
    let program = model.program.clone().with_longer(longer).unwrap();
    model.with_program(program).unwrap()
}

/// Such a model whose steps have this number of tokens.
fn steps_of(new: usize, table: &HostTensor) -> Imported {
    let graph = graph_of(new, table, Reduce::Sum);
    plan("test", &graph, &PlanOptions::default(), crate::model::Preprocess::default(), Vec::new())
        .unwrap()
}

/// Its graph, with sums or another reduction over the tokens so far.
fn graph_of(new: usize, table: &HostTensor, kind: Reduce) -> Graph {
    let mut random = RandomWeights::new(6);
    let mut graph = Graph::new(1).with_past(3);
    graph.fix_batch();
    let token = graph.integer_input("input_ids", &[1, new].map(Dim::Fixed)).unwrap();
    let sums = graph.state("past", &[1, 1, 4].map(Dim::Fixed), 1).unwrap();
    let table = graph.weight("table", table.clone());
    let row = graph.add("row", Op::Lookup, &[table, token]).unwrap();
    let whole = graph.extend("present", sums, row).unwrap();
    let sum = Op::Reduce { kind, axes: vec![1], keep: true };
    let sum = graph.add("sum", sum, &[whole]).unwrap();
    let read = graph.weight("read", random.around(&[4, TOKENS], 0.0, 1.0).unwrap());
    let read_by = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
    let scores = graph.add("scores", read_by, &[sum, read]).unwrap();
    let choice = Op::ArgMax { axis: 2, keep: false, min: false };
    let next = graph.add("token", choice, &[scores]).unwrap();
    graph.output("token", next);
    graph
}

/// The tokens that such a model adds to others, in the clear.
pub(super) fn added(model: &Imported, tokens: &[u64], new: usize) -> Vec<u64> {
    let mut caches = Caches::new();
    let mut said = tokens.to_vec();
    for at in 0..tokens.len() + new - 1 {
        let token = HostTensor::integers([1, 1], vec![said[at] as i64]).unwrap();
        let plan = model.program.plan();
        let next = plan.evaluate_step(&model.values, &mut caches, &[token]).unwrap();
        if at + 1 == said.len() {
            said.push(next[0].as_ints().unwrap()[0] as u64);
        }
    }
    said.split_off(tokens.len())
}

fn with_chooser() -> (World, Imported, Client) {
    let (world, model) = (World::new(&Limits::default()), chooser());
    let mut client = world.client("alice");
    put(&mut client, "m", &model, false).unwrap();
    (world, model, client)
}

#[test]
fn tokens_go_on_from_tokens_that_no_server_opens_as_in_the_clear() {
    let (world, model, mut client) = with_chooser();
    let prompt = [3, 1, 5, 0, 2];
    let expected = added(&model, &prompt, 12);
    let mut talk = Talk::new("m", client.model("m").unwrap()).unwrap();
    let mut found = Vec::new();
    // With others' tokens, alone, and several at once.
    for (given, ahead) in [(&prompt[..], 1), (&[], 1), (&[], 4), (&[], 6)] {
        let (next, cost) = talk.say(&mut client, given, ahead, &()).unwrap();
        assert!(cost.rounds > 0 && next.len() == ahead as usize);
        found.extend(next);
    }
    assert_eq!(found, expected);
    // An answer that ended earlier, and other words behind it.
    talk.cut(prompt.len() + 3);
    let said: Vec<_> = talk.said().iter().copied().chain([6, 6]).collect();
    assert_eq!(talk.say(&mut client, &[6, 6], 3, &()).unwrap().0, added(&model, &said, 3));
    // Servers that have lost it get all of it again, also more than one request holds.
    let long: Vec<u64> = (0..150).map(|at| at * at % 7).collect();
    let mut talk = Talk::new("m", client.model("m").unwrap()).unwrap();
    let first = talk.say(&mut client, &long, 2, &()).unwrap().0;
    let mut expected = added(&model, &long, 5);
    assert_eq!(first, expected[..2]);
    world.servers[2].0.state().session.as_ref().unwrap().cancel("a test");
    let up = || world.servers.iter().all(|server| server.0.state().link == Link::Up);
    wait_until(|| !up());
    wait_until(up);
    assert_eq!(talk.say(&mut client, &[], 3, &()).unwrap().0, expected.split_off(2));
    talk.close(&mut client).unwrap();
}

#[test]
fn a_prompt_goes_in_by_longer_steps() {
    let (world, model, mut client) = with_chooser();
    put(&mut world.client("owner"), "single", &steps_of(1, &table()), false).unwrap();
    let prompt: Vec<u64> = (0..30).map(|at| at * at % 7).collect();
    let expected = added(&model, &prompt, 4);
    let mut rounds = ["m", "single"].map(|name| {
        let mut talk = Talk::new(name, client.model(name).unwrap()).unwrap();
        let (next, cost) = talk.say(&mut client, &prompt, 2, &()).unwrap();
        assert_eq!(next, expected[..2], "{name}");
        // Two more tokens of which one is of the model, behind all but one of the servers' last step.
        let (next, _) = talk.say(&mut client, &[], 2, &()).unwrap();
        assert_eq!(next, expected[2..], "{name}");
        cost.rounds
    });
    rounds.sort_unstable();
    // 6 steps of 5 tokens and one of the model's first, beside 31.
    assert!(rounds[0] * 4 < rounds[1], "{rounds:?}");
    works(&world);
}

#[test]
fn longer_steps_that_give_other_tokens_are_refused() {
    let single = steps_of(1, &table());
    let longer = |kind| {
        let read = move |new| Ok(graph_of(new, &table(), kind));
        let program = single.program.clone();
        with_longer_steps(program, &single.values, &[1, 4], &PlanOptions::default(), read)
    };
    assert_ne!(longer(Reduce::Sum).unwrap().digest(), single.program.digest());
    // The same weights and shapes, but other numbers.
    let error = longer(Reduce::Max).unwrap_err().to_string();
    assert!(error.contains("steps of 4 positions do not give what single ones do"), "{error}");
    let error = with_longer_steps(
        single.program.clone(),
        &single.values,
        &[4],
        &PlanOptions::default(),
        |new| Ok(graph_of(new, &table().map(|v| -v), Reduce::Sum)),
    );
    assert!(error.unwrap_err().to_string().contains("weights differ"));
}

#[test]
fn longer_steps_of_another_network_are_refused() {
    let model = steps_of(1, &table());
    let refused =
        |longer: Vec<Program>| model.program.clone().with_longer(longer).unwrap_err().to_string();
    let own = |new| steps_of(new, &table()).program;
    assert!(refused(vec![own(3), own(3)]).contains("more and more positions"));
    assert!(refused(vec![own(1)]).contains("more and more positions"));
    assert!(refused((2..8).map(own).collect()).contains("lengths of steps"));
    let wider = RandomWeights::new(5).around(&[TOKENS + 1, 4], 0.0, 1.0).unwrap();
    assert!(refused(vec![steps_of(3, &wider).program]).contains("have other weights"));
    let silent = own(3).with_guard(false).unwrap();
    assert!(refused(vec![silent]).contains("return other results"));
    assert!(refused(vec![speaker().program]).contains("have other weights"));
    // What a client sends is checked in the same way, and what it says of it as well.
    let plans: Vec<serde_json::Value> = [1, 3, 3]
        .map(|new| serde_json::from_slice(&own(new).to_bytes().unwrap()).unwrap())
        .to_vec();
    let (sound, unsound) = (serde_json::to_vec(&plans[..2]), serde_json::to_vec(&plans));
    let program = Program::parse(&sound.unwrap()).unwrap();
    assert_eq!(
        program.check_about(&model.about).unwrap_err().to_string().matches("does not fit").count(),
        1
    );
    assert!(Program::parse(&unsound.unwrap()).is_err());
    assert!(Program::parse(b"[]").unwrap_err().to_string().contains("no plan"));
}

#[test]
fn steps_without_inputs_follow_a_result_that_is_the_next_input_and_nothing_else() {
    let (world, _, mut client) = with_chooser();
    let version = client.model("m").unwrap().version;
    let id = Id::random().unwrap();
    let token = Tensor::new(Shape::new([1, 1]).unwrap(), vec![3]).unwrap();
    let mut run = |at, inputs: &[Tensor], steps| {
        client.extend(("m", version), (id, at), (inputs, steps), false, &())
    };
    let mut refused =
        |at, inputs: &[Tensor], steps| run(at, inputs, steps).unwrap_err().to_string();
    let one = std::slice::from_ref(&token);
    assert!(refused(0, &[], 1).contains("the first step of a conversation has inputs"));
    assert!(refused(0, one, 0).contains("0 steps; 1 to 1024"));
    assert!(refused(0, one, 1025).contains("1025 steps; 1 to 1024"));
    assert!(refused(0, &[token.clone(), token.clone()], 1).contains("2 inputs for 1 steps"));
    let shapes = |outputs: Vec<Tensor>| outputs.iter().map(|x| x.len()).collect::<Vec<_>>();
    let [single, four] = [1, 4].map(|steps| shapes(run(0, one, steps).unwrap().outputs));
    assert_eq!((single[0], four), (1, single.iter().map(|len| 4 * len).collect()));
    let mut refused =
        |at, inputs: &[Tensor], steps| run(at, inputs, steps).unwrap_err().to_string();
    assert!(refused(2, &[], 1).contains("has 4 positions here; a step behind 2 has inputs"));
    assert!(refused(5, &[], 1).contains("has 4 positions here, and is to go on behind 5"));
    // Behind a step that was taken back there is nothing to go on from, and with inputs there is.
    run(3, one, 1).unwrap();
    assert_eq!(run(4, &[], 2).unwrap().outputs[0].len(), 2);
    // Several inputs have one answer, and a word of the guard for each step.
    let three = [one[0].clone(), one[0].clone(), one[0].clone()];
    assert_eq!(shapes(run(0, &three, 3).unwrap().outputs), [1, 3 * single[1]]);
    // What a step of another model returns is not what it takes.
    put(&mut world.client("owner"), "speaker", &speaker(), false).unwrap();
    let mut client = world.client("bob");
    let version = client.model("speaker").unwrap().version;
    let text = |steps| (Tensor::zeros(Shape::new(STEP).unwrap()), steps);
    let (input, steps) = text(2);
    let error = client.extend(("speaker", version), (id, 0), (&[input], steps), false, &());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("is not what the next one takes"), "{error}");
    let error = Talk::new("speaker", client.model("speaker").unwrap()).unwrap_err().to_string();
    assert!(error.contains("--answers token"), "{error}");
}

#[test]
fn a_tokenizer_is_kept_with_its_model_and_is_the_one_that_the_description_names() {
    let (world, model) = (World::new(&Limits::default()), chooser());
    let file = b"{\"any\": \"bytes\"}".as_slice();
    let text = Text { tokenizer: Digest::of(&[file]), form: "Q {}".to_owned(), stop: vec![2] };
    let about = About { text: Some(text.clone()), ..model.about.clone() };
    let plan = model.program.to_bytes().unwrap();
    let put = |about: &About, tokenizer: &[u8]| {
        let weights = model.weights().unwrap();
        let (name, plan, readers, ranges, replace) =
            ("m", &plan[..], &Readers::Everyone, &[], true);
        let new = NewModel { name, about, plan, weights, tokenizer, readers, ranges, replace };
        world.client("alice").put(new, &())
    };
    put(&about, file).unwrap();
    let mut bob = world.client("bob");
    let public = bob.model("m").unwrap();
    assert_eq!(public.about.text, Some(text.clone()));
    assert_eq!(bob.tokenizer("m", text.tokenizer).unwrap(), file);
    let error = bob.tokenizer("m", Digest::of(&[b"another"])).unwrap_err().to_string();
    assert!(error.contains("not the one of the model's description"), "{error}");
    // Others than those that the description names, none, and one that it does not name.
    for (about, tokenizer) in [(&about, &b"{}"[..]), (&about, b""), (&model.about, file)] {
        let error = put(about, tokenizer).unwrap_err().to_string();
        assert!(error.contains("not the one that its description names"), "{error}");
    }
    let without = About { text: Some(Text { form: "none".to_owned(), ..text }), ..about.clone() };
    assert!(put(&without, file).unwrap_err().to_string().contains("where a person's words go"));
    super::put(&mut world.client("alice"), "plain", &super::model(ONE), false).unwrap();
    let error = world.client("alice").tokenizer("plain", Digest::default()).unwrap_err();
    assert!(error.to_string().contains("no tokenizer"), "{error}");
    works(&world);
}

#[test]
fn numbers_that_leave_their_range_within_a_prompt_are_an_error() {
    let world = World::new(&Limits::default());
    // The scores behind token 5 are far out of range, and those behind 6 after it are not.
    let rows = (0..TOKENS * 4).map(|at| match at / 4 {
        5 => 3e8,
        6 => -3e8,
        _ => (at % 5) as f64,
    });
    let table = HostTensor::new([TOKENS, 4], rows.collect()).unwrap();
    let mut client = world.client("alice");
    let mut say = |name: &str, model: &Imported, tokens: &[u64]| {
        put(&mut client, name, model, true).unwrap();
        let mut talk = Talk::new(name, client.model(name).unwrap()).unwrap();
        talk.say(&mut client, tokens, 2, &())
    };
    let (single, longer) = (steps_of(1, &table), chooser_of(&table));
    for model in [&single, &longer] {
        for right in [&[1, 2][..], &[1, 2, 3, 4, 0]] {
            assert_eq!(say("m", model, right).unwrap().0, added(&single, right, 2));
        }
    }
    let prompts = [&[1, 5, 6, 2][..], &[5, 6], &[5], &[1, 5]].map(|prompt| (&single, prompt));
    // In the last of longer steps, and in one before it.
    let longer = [&[2, 1, 5][..], &[1, 5, 1, 6, 2, 2]].map(|prompt| (&longer, prompt));
    for (model, prompt) in prompts.into_iter().chain(longer) {
        let error = say("m", model, prompt).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { .. }), "{prompt:?}: {error}");
    }
}
