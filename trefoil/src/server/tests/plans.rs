//! Jobs that are not the same at all servers, and shares that do not fit together.

use net::{Meter, Metered};

use super::*;
use crate::wire::receive_tensor;

/// Random pairs that are tried.
const PAIRS: u64 = 500;

/// Threads that try them.
const CLIENTS: u64 = 8;

/// Steps in which servers talk about jobs; all others are of the protocol.
const AROUND: [&str; 7] = [
    "start",
    "compare models",
    "compare profiles",
    "agree on a key",
    "next job",
    "prepare job",
    "finish job",
];

/// The messages of one client to the three servers.
pub(super) struct Sent {
    requests: [Request; 3],
    /// The texts that follow a request in the clear, for a model.
    clear: [Vec<Vec<u8>>; 3],
    pub(super) parts: Vec<Parcel>,
}

impl Sent {
    /// An inference that is the same everywhere.
    pub(super) fn infer(request: Request) -> Self {
        let parts = Replicated.deal(vec![input([1.0, 2.0, 3.0])]).unwrap();
        Self { requests: [(); 3].map(|()| request.clone()), clear: Default::default(), parts }
    }

    /// A model with another plan for each server, and parts of the weights of the first.
    fn put(name: &str, models: [&Imported; 3]) -> Self {
        // Of one length, so that what is announced tells nothing. Spaces behind a plan are part of no step.
        let plans = models.map(|model| model.program.to_bytes().unwrap());
        let longest = plans.iter().map(Vec::len).max().unwrap();
        let clear = [0, 1, 2].map(|party: usize| {
            let mut plan = plans[party].clone();
            plan.resize(longest, b' ');
            vec![models[party].about.to_bytes().unwrap(), plan]
        });
        let weights = models[0].weights().unwrap();
        let words = weights.iter().map(|weight| weight.len() as u64).sum();
        let job = Id::random().unwrap();
        let requests = [0, 1, 2].map(|party: usize| Request::Put {
            job,
            name: name.to_owned(),
            about: clear[party][0].len() as u64,
            plan: clear[party][1].len() as u64,
            tokenizer: 0,
            words,
            public_weights: models[0].about.public_weights,
            readers: Readers::Everyone,
            ranges: Vec::new(),
            replace: true,
        });
        let sharing = models[0].program.weight_sharing(&Replicated).unwrap();
        Self { requests, clear, parts: sharing.deal(weights).unwrap() }
    }

    /// Sends all of it, last to party 0, which asks the others. Returns what each server answers in the
    /// end.
    pub(super) fn send(self, world: &World, client: &str) -> [Reply; 3] {
        let mut channels = world.connect(client);
        for (party, channel) in channels.iter_mut().enumerate().rev() {
            let channel = &mut **channel;
            say(channel, &self.requests[party]).unwrap();
            assert_eq!(hear::<Reply>(channel, LIMIT).unwrap(), Reply::Send);
            for bytes in &self.clear[party] {
                send_bytes(channel, bytes.clone().into(), &mut |_| {}).unwrap();
            }
            send_parcel(channel, &self.parts[party], &mut |_| {}).unwrap();
        }
        channels.map(|mut channel| {
            loop {
                match hear(&mut *channel, LIMIT).unwrap() {
                    Reply::Waiting { .. } | Reply::Working(_) => {}
                    end => return end,
                }
            }
        })
    }
}

/// `max(0, x)` for 128 numbers, as one step or as several of equal size, the first of which rounds to
/// `bits` fraction bits.
fn relu(steps: usize, bits: u32) -> Imported {
    let mut graph = Graph::new(1);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(128)]).unwrap();
    let part = |graph: &mut Graph, at: usize| {
        let len = 128 / steps;
        let range =
            Op::Slice { axis: 1, start: at * len, end: Dim::Fixed((at + 1) * len), step: 1 };
        let part = graph.add(&format!("part{at}"), range, &[x]).unwrap();
        graph.add(&format!("relu{at}"), Op::Unary(Unary::Relu), &[part]).unwrap()
    };
    let parts: Vec<_> = (0..steps).map(|at| part(&mut graph, at)).collect();
    let y = graph.add("y", Op::Concat(1), &parts).unwrap();
    graph.output("y", y);
    plan(
        "test",
        &graph,
        &PlanOptions::default().with_frac(bits),
        crate::model::Preprocess::default(),
        Vec::new(),
    )
    .unwrap()
}

/// The words of a part's component 2 with one bit changed; or its first key, if it lacks words.
pub(super) fn spoil(part: &mut Parcel, at: usize) {
    let Some(words) = part.words.first_mut() else {
        // Of a key AES-128 takes the first half.
        part.keys[0].0[at % 16] ^= 1;
        return;
    };
    let mut changed = words.words().to_vec();
    let place = at % changed.len();
    changed[place] ^= 1 << (at % 64);
    *words = Tensor::new(words.shape().clone(), changed).unwrap();
}

fn reason(reply: &Reply) -> &str {
    match reply {
        Reply::Failed { reason } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_model_whose_plan_differs_between_servers_is_refused() {
    let world = World::new(&Limits::default());
    works(&world);
    let (one, two) = (relu(1, 20), relu(2, 20));
    for odd in 0..3 {
        let mut models = [&two; 3];
        models[odd] = &one;
        for reply in Sent::put("m", models).send(&world, "mallory") {
            assert!(reason(&reply).contains("was asked for something else"), "{reply:?}");
        }
        works(&world);
    }
    assert!(world.client("mallory").model("m").is_err());
    // If nothing differs, such a plan is as good as another.
    let replies = Sent::put("m", [&one; 3]).send(&world, "mallory");
    assert!(replies.iter().all(|reply| *reply == Reply::Done), "{replies:?}");
}

#[test]
fn parts_that_do_not_fit_together_are_refused_before_any_work() {
    let world = World::new(&Limits::default());
    works(&world);
    for party in 0..3 {
        let mut sent = Sent::infer(request(&world, false));
        spoil(&mut sent.parts[party], 7);
        let mut shared = Sent::put("bad", [&model(ONE); 3]);
        spoil(&mut shared.parts[party], 11);
        let mut clear = Sent::put("bad", [&in_the_clear(model(ONE)); 3]);
        spoil(&mut clear.parts[party], 2);
        let replies = [sent, shared, clear].map(|sent| sent.send(&world, "half"));
        for reply in replies.iter().flatten() {
            assert!(reason(reply).contains("parts of the client do not fit together"), "{reply:?}");
        }
    }
    works(&world);
    assert!(world.client("half").model("bad").is_err());
    assert!(world.servers.iter().all(|server| server.status().unwrap().link == Link::Up));
}

#[test]
fn a_store_that_was_changed_with_its_checksums_is_an_error_that_names_it() {
    let [model, clear] = [model(ONE), in_the_clear(model(ONE))];
    let held = held(&model.weights().unwrap());
    let words: Shares = clear.weights().unwrap().into_iter().map(|words| vec![words]).collect();
    // Of `one` a single component differs at party 1, of `both` both; `clear` has one.
    let versions = ["one", "both", "clear"].map(|name| (name, Id::random().unwrap()));
    let world = World::with_stores(&Limits::default(), |party, store| {
        for (name, version) in versions {
            let model = if name == "clear" { &clear } else { &model };
            let plan = model.program.to_bytes().unwrap();
            let mut shares = if name == "clear" { words.clone() } else { held[party].clone() };
            if party == 1 {
                let other = |tensor: &Tensor| {
                    let words = tensor.words().iter().map(|word| word ^ 1).collect();
                    Tensor::new(tensor.shape().clone(), words).unwrap()
                };
                shares[0][0] = other(&shares[0][0]);
                if name == "both" {
                    shares[0][1] = other(&shares[0][1]);
                }
            }
            let content =
                Content::Model { about: Box::new(model.about.clone()), ranges: Vec::new() };
            store
                .stage(&new_item((name, version), &content, &plan, &StoredShares::of(&shares)))
                .unwrap();
            store.commit(name, version).unwrap();
        }
    });
    let ask = |name| infer(&mut world.client("alice"), name, [1.0; 3]).unwrap_err().to_string();
    let text = ask("one");
    assert!(text.contains("the store of party 0 or party 1 was changed"), "{text}");
    for name in ["both", "clear"] {
        let text = ask(name);
        assert!(text.contains("the store of party 1 was changed"), "{text}");
    }
    works(&world);
}

#[test]
fn an_answer_of_the_same_request_never_comes_in_the_same_components() {
    let world = World::new(&Limits::default());
    works(&world);
    let request = request(&world, false);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..3 {
        let sent = Sent::infer(request.clone());
        let mut channels = world.connect("half");
        for (party, channel) in channels.iter_mut().enumerate() {
            say(&mut **channel, &request).unwrap();
            assert_eq!(hear::<Reply>(&mut **channel, LIMIT).unwrap(), Reply::Send);
            send_parcel(&mut **channel, &sent.parts[party], &mut |_| {}).unwrap();
        }
        for channel in &mut channels {
            let dims = loop {
                match hear(&mut **channel, LIMIT).unwrap() {
                    Reply::Result { outputs, .. } => break outputs.concat(),
                    Reply::Waiting { .. } | Reply::Working(_) => {}
                    other => panic!("{other:?}"),
                }
            };
            let shape = Shape::new(dims).unwrap();
            let pace = &mut crate::wire::Pace::frames(LIMIT);
            let words = receive_tensor(&mut **channel, &shape, pace).unwrap();
            // The same job id, three times: the shares of zero are others each time.
            assert!(words.words().iter().all(|&word| seen.insert(word)));
        }
    }
}

/// Something that differs at one server, chosen by `draw`, and what the refusal says.
fn misfit(world: &World, draw: u64) -> (Sent, &'static str) {
    let odd = (draw >> 8) as usize % 3;
    let place = (draw >> 16) as usize;
    let mut sent = match draw % 4 {
        0 => {
            let choices = [relu(1, 20), relu(2, 20), relu(4, 20), relu(1, 18), relu(8, 20)];
            let first = place % choices.len();
            let other = (first + 1 + place / 8 % (choices.len() - 1)) % choices.len();
            let mut models = [&choices[first]; 3];
            models[odd] = &choices[other];
            return (Sent::put("m", models), "was asked for something else");
        }
        1 => Sent::put("m", [&model(ONE); 3]),
        _ => Sent::infer(request(world, false)),
    };
    if draw % 4 < 3 {
        spoil(&mut sent.parts[odd], place);
        return (sent, "do not fit together");
    }
    if let Request::Infer { profile, .. } = &mut sent.requests[odd] {
        *profile = true;
    }
    (sent, "was asked for something else")
}

#[test]
fn random_pairs_of_plans_headers_and_parts_that_differ_are_all_refused() {
    let meters: Arc<Mutex<[Vec<Meter>; 3]>> = Arc::default();
    let kept = meters.clone();
    let between = move |party: usize, links| -> Box<dyn Transport> {
        let metered = Metered::new(links);
        kept.lock().unwrap()[party].push(metered.meter());
        Box::new(metered)
    };
    let world = World::over(&Limits::default(), Arc::new(between));
    works(&world);
    let before = [0, 1, 2].map(|party: usize| world.servers[party].status().unwrap());
    let counts = || Counts::of(&meters.lock().unwrap());
    let counted = counts();
    let (sent, received) = counted.in_all();
    assert!(sent > 0 && sent == received, "the messages of `works`");
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let world = &world;
            scope.spawn(move || {
                let mut draw = mpc_core::SplitMix64::new(client);
                for _ in (client..PAIRS).step_by(CLIENTS as usize) {
                    let draw = draw.next_u64();
                    let (sent, said) = misfit(world, draw);
                    let replies = sent.send(world, &format!("mallory{client}"));
                    let reasons = replies.each_ref().map(reason);
                    assert!(reasons.iter().all(|reason| reason.contains(said)), "{reasons:?}");
                }
            });
        }
    });
    for (server, before) in world.servers.iter().zip(&before) {
        let after = server.status().unwrap();
        assert_eq!((after.done, after.failed), (before.done, before.failed + PAIRS));
        assert_eq!(after.link, Link::Up);
    }
    let refused = counts();
    assert_eq!(refused.sessions, [1; 3]);
    assert_eq!(refused.protocol, counted.protocol, "a message of the protocol was sent");
    let [votes, ..] = refused.votes;
    assert_eq!(refused.votes, [votes; 3]);
    assert!(votes > counted.votes[0], "some are refused by comparing hashes of parts");
    // The servers compare what they count: of operations, and of messages and bytes on each link.
    works(&world);
    assert_eq!(counts().in_all(), (2 * sent, 2 * received));
}

/// The numbers of messages that three servers have sent and received.
struct Counts {
    sessions: [usize; 3],
    /// Messages of the protocol sent and received, by party.
    protocol: [(u64, u64); 3],
    /// Messages sent to decide whether a job runs.
    votes: [u64; 3],
}

impl Counts {
    fn of(meters: &[Vec<Meter>; 3]) -> Self {
        let stats = meters.each_ref().map(|all| all[0].stats());
        let protocol = stats.each_ref().map(|stats| {
            let steps = stats.steps.iter().filter(|step| !AROUND.contains(&step.name.as_str()));
            steps.fold((0, 0), |(sent, received), step| {
                (sent + step.sent.messages, received + step.received.messages)
            })
        });
        let votes = stats.each_ref().map(|stats| {
            let vote = stats.steps.iter().find(|step| step.name == "prepare job");
            vote.map_or(0, |step| step.sent.messages)
        });
        Self { sessions: meters.each_ref().map(Vec::len), protocol, votes }
    }

    /// Messages of the protocol sent and received by all three.
    fn in_all(&self) -> (u64, u64) {
        let add =
            |(sent, received): (u64, u64), more: &(u64, u64)| (sent + more.0, received + more.1);
        self.protocol.iter().fold((0, 0), add)
    }
}
