//! Models whose weights every server has in the clear.

use super::{
    texts::{added, chooser},
    *,
};
use crate::{client::Talk, local};

#[test]
fn a_model_in_the_clear_answers_as_one_in_shares_with_fewer_bytes() {
    let world = World::new(&Limits::default());
    let mut client = world.client("alice");
    let [secret, clear] = [model(ONE), in_the_clear(model(ONE))];
    let mut bytes = Vec::new();
    for (name, model) in [("secret", &secret), ("clear", &clear)] {
        put(&mut client, name, model, false).unwrap();
        close(&infer(&mut client, name, [1.0, 2.0, 4.0]).unwrap(), [3.0, 0.0]);
        let public = client.model(name).unwrap();
        assert_eq!(public.about.public_weights, name == "clear");
        let answer = client.infer(name, public.version, &[input([1.0; 3])], true, &()).unwrap();
        let counted: Vec<_> = answer.costs.iter().map(|cost| (cost.bytes, cost.rounds)).collect();
        let predicted = client.predict(name, public.version, &[vec![1, 3]], 0).unwrap();
        let predicted = predicted.iter().map(|cost| (cost.bytes, cost.rounds));
        assert_eq!(predicted.collect::<Vec<_>>(), counted);
        bytes.push(counted.iter().map(|(bytes, _)| bytes).sum::<u64>());
        // A server keeps one component of each weight, or both of its shares.
        for server in &world.servers {
            let manifest = server.0.store.entry(name).usable(name).unwrap();
            let held = server.0.store.shares(name, &manifest).unwrap();
            let words = model.weights().unwrap();
            if name == "clear" {
                assert_eq!(held, words.into_iter().map(|words| vec![words]).collect::<Vec<_>>());
            } else {
                assert!(held.iter().all(|held| held.len() == 2 && !held.contains(&words[0])));
            }
        }
    }
    assert!(bytes[1] < bytes[0], "{bytes:?}");
}

#[test]
fn a_text_goes_on_by_weights_in_the_clear_as_by_shared_ones() {
    let (world, model) = (World::new(&Limits::default()), in_the_clear(chooser()));
    let mut client = world.client("alice");
    put(&mut client, "m", &model, false).unwrap();
    let prompt = [3, 1, 5, 0, 2, 4, 6, 6];
    let mut talk = Talk::new("m", client.model("m").unwrap()).unwrap();
    let (next, _) = talk.say(&mut client, &prompt, 6, &()).unwrap();
    assert_eq!(next, added(&model, &prompt, 6));
}

#[test]
fn what_a_request_says_of_its_weights_is_compared_with_its_plan() {
    let world = World::new(&Limits::default());
    let [secret, clear] = [model(ONE), in_the_clear(model(ONE))];
    let texts = [secret.about.to_bytes().unwrap(), secret.program.to_bytes().unwrap()];
    let request = Request::Put {
        job: Id::random().unwrap(),
        name: "m".to_owned(),
        about: texts[0].len() as u64,
        plan: texts[1].len() as u64,
        tokenizer: 0,
        words: 6,
        public_weights: true,
        readers: Readers::Everyone,
        ranges: Vec::new(),
        replace: false,
    };
    let [channel, ..] = &mut world.connect("mallory");
    say(&mut **channel, &request).unwrap();
    assert_eq!(hear::<Reply>(&mut **channel, LIMIT).unwrap(), Reply::Send);
    for text in texts {
        send_bytes(&mut **channel, text.into(), &mut |_| {}).unwrap();
    }
    let said = hear::<Reply>(&mut **channel, LIMIT).unwrap();
    assert!(
        matches!(&said, Reply::Failed { reason } if reason.contains("differ in whether")),
        "{said:?}"
    );
    // The description is of the other one.
    let mixed = Imported { about: secret.about, ..clear };
    let error = put(&mut world.client("mallory"), "m", &mixed, false).unwrap_err().to_string();
    assert!(error.contains("its description does not fit its plan"), "{error}");
    works(&world);
}

#[test]
fn every_protocol_runs_a_model_in_the_clear_but_that_of_tapes() {
    let model = in_the_clear(model(ONE));
    let weights = model.weights().unwrap();
    for name in ["rss", "additive", "dealt-2", "dealt-3", "rss-dealt"] {
        let (input, cpu) = (input([1.0, 2.0, 4.0]), gpu_kernels::EngineChoice::Cpu);
        let answer = local::infer(name.parse().unwrap(), &model.program, &weights, &input, cpu);
        if name == "rss-dealt" {
            let error = answer.unwrap_err().to_string();
            assert!(error.contains("put it with secret weights"), "{error}");
            continue;
        }
        let answer = model.about.decode(1, &answer.unwrap().outputs).unwrap();
        close(&answer[0][0], [3.0, 0.0]);
    }
}
