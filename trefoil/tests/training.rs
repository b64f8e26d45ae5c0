//! Training on three processes: the data of two owners, their consent, and a server that is killed.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::common::{self, Cluster, DIGITS, all_digits, faults};
use serde_json::Value;

/// Every so many rows one is held out.
const HELD_OUT: usize = 5;

/// The digits under other names: the shipped network calls the eight a seven, so it must learn.
fn renamed(line: &str) -> String {
    let (pixels, digit) = line.rsplit_once(',').unwrap();
    let digit: usize = digit.trim().parse().unwrap();
    format!("{pixels},{}", (digit + 9) % 10)
}

/// Files with the rows of alice, of bob, the labels of the latter, and what is held out.
fn files(folder: &Path) -> [String; 4] {
    let lines: Vec<String> = all_digits().iter().map(|line| renamed(line)).collect();
    let (out, known): (Vec<_>, Vec<_>) =
        lines.into_iter().enumerate().partition(|(row, _)| row % HELD_OUT == 0);
    let text = |rows: &[(usize, String)]| {
        rows.iter().map(|(_, line)| line.as_str()).collect::<Vec<_>>().join("\n")
    };
    let half = known.len() / 2;
    let bob = text(&known[half..]);
    let [mut values, mut labels] = [String::new(), String::new()];
    for (pixels, digit) in bob.lines().map(|line| line.rsplit_once(',').unwrap()) {
        values += &format!("{pixels}\n");
        labels += &format!("{digit}\n");
    }
    let texts = [text(&known[..half]), values, labels, text(&out)];
    let names = ["alice.csv", "bob.csv", "labels.csv", "out.csv"];
    [0, 1, 2, 3].map(|at| {
        let path = folder.join(names[at]);
        fs::write(&path, &texts[at]).unwrap();
        path.to_str().unwrap().to_owned()
    })
}

/// A run's file.
fn run_file(folder: &Path, name: &str, epochs: u32, rate: f64) -> String {
    let text = format!(
        "name = \"{name}\"\nstart = \"{DIGITS}\"\ndata = [\"a\", [\"b\", \"l\"]]\nmodel = \"{name}-learnt\"\n\
         [train]\nepochs = {epochs}\nbatch = 64\nrate = {rate}\nwarm-up = 5\ndecay = \"cosine\"\nmomentum = 0.5\n\
         seed = 3\nkeep-seconds = 0\n"
    );
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Two owners' data on the servers, for carol to train on; bob's labels are a set of their own. Returns the file of
/// what was held out.
fn prepare(cluster: &Cluster) -> String {
    let [alice, bob, labels, out] = files(&cluster.folder);
    for (owner, name, file, how, dims) in [
        ("alice", "a", alice, "--dims 1,8,8 --scale 0.0625 --label 65 --classes 10", [8, 10]),
        ("bob", "b", bob, "--dims 1,8,8 --scale 0.0625 --only values", [8, 0]),
        ("bob", "l", labels, "--classes 10 --only labels", [0, 10]),
    ] {
        let mut arguments = vec!["data", "put", name, file.as_str(), "--readers", "carol"];
        arguments.extend(how.split(' '));
        let told = cluster.json(owner, &arguments);
        let last = |at: usize| told["set"]["tensors"][at]["dims"].as_array()?.last()?.as_u64();
        let found = dims.iter().filter(|&&size| size > 0).enumerate().map(|(at, _)| last(at));
        let wanted: Vec<_> = dims.into_iter().filter(|&size| size > 0).map(Some).collect();
        assert_eq!(found.collect::<Vec<_>>(), wanted, "{told}");
    }
    out
}

/// Makes a run, and has both owners consent to it.
fn consent(cluster: &Cluster, file: &str, name: &str) {
    let shown = cluster.json("carol", &["train", file, "--prepare"]);
    assert_eq!(shown["run"]["rows"], 1437);
    for owner in ["alice", "bob"] {
        let text = cluster.run(owner, &["run", "show", name]).out;
        let line = text.lines().find(|line| line.starts_with("fingerprint")).unwrap();
        let letters = line.split_ascii_whitespace().nth(1).unwrap();
        let wrong = format!("{}0", &letters[..31]);
        if wrong != letters {
            assert_eq!(cluster.run(owner, &["run", "approve", name, &wrong]).code, 3);
        }
        cluster.json(owner, &["run", "approve", name, letters]);
    }
}

/// How many of the held-out digits a model reads as they are called now.
fn accuracy(cluster: &Cluster, model: &str, out: &str) -> f64 {
    let report =
        cluster.json("carol", &["infer", "--model", model, "--scale=0.0625", "--label=65", out]);
    report["accuracy"].as_f64().unwrap()
}

/// A rate at which the rounding of one run and that of another do not lead to different networks.
const RATE: f64 = 0.05;

/// What a run has learnt, by the names of the weights.
fn weights(cluster: &Cluster, run: &str) -> Vec<f64> {
    let file = cluster.folder.join(format!("{run}.safetensors"));
    cluster.json("carol", &["run", "get", run, file.to_str().unwrap()]);
    let tensors = models::weights::read_safetensors(&file).unwrap();
    let mut names: Vec<_> = tensors.keys().collect();
    names.sort();
    names.into_iter().flat_map(|name| tensors[name].floats().into_owned()).collect()
}

fn last(report: &Value) -> &Value {
    report["curve"].as_array().unwrap().last().unwrap()
}

#[test]
fn a_network_learns_from_two_owners_who_consent_and_is_served_at_once() {
    let cluster = Cluster::start("training", "alice,bob,carol");
    let out = prepare(&cluster);
    for (wrong, reason) in [
        ("--dims 1,8,8 --classes 10 --only values", "leaves to another data set"),
        ("--only values", "say the dimensions"),
        ("--only labels", "labels are classes"),
    ] {
        let mut arguments = vec!["data", "put", "wrong", DIGITS];
        arguments.extend(wrong.split(' '));
        let run = cluster.run("bob", &arguments);
        assert!(run.code == 3 && run.err.contains(reason), "{}", run.err);
    }
    let sets = cluster.json("carol", &["data", "list"]);
    assert_eq!(sets.as_array().unwrap().len(), 3, "{sets}");
    let file = run_file(&cluster.folder, "digits", 4, 0.1);
    consent(&cluster, &file, "digits");
    let report = cluster.json("carol", &["train", &file]);
    let curve = report["curve"].as_array().unwrap();
    assert_eq!(
        (curve.len(), report["steps"].as_u64(), report["from"].as_u64()),
        (4, Some(88), Some(0))
    );
    assert!(last(&report)["loss"].as_f64().unwrap() < 0.3 * curve[0]["loss"].as_f64().unwrap());
    assert!(last(&report)["right"].as_f64().unwrap() > 0.9, "{report}");
    assert!(accuracy(&cluster, "digits-learnt", &out) > 0.9);
    // Who asks for it again is told that it is done, and another run for that model does not begin.
    let again = cluster.json("carol", &["train", &file]);
    assert_eq!((&again["steps"], &again["model"]), (&88.into(), &"digits-learnt".into()));
    let text = fs::read_to_string(&file).unwrap().replace("\"digits\"", "\"second\"");
    let second = cluster.folder.join("second.toml");
    fs::write(&second, text).unwrap();
    let run = cluster.run("carol", &["train", second.to_str().unwrap()]);
    assert!(run.code != 0 && run.err.contains("write another name into"), "{}", run.err);
    assert_eq!(cluster.json("carol", &["run", "list"]).as_array().unwrap().len(), 1);
    let file = cluster.folder.join("learnt.safetensors");
    let path = file.to_str().unwrap();
    let told = cluster.json("carol", &["run", "get", "digits", path]);
    assert_eq!(told["step"], 88);
    let weights = models::weights::read_safetensors(&file).unwrap();
    assert_eq!(weights["features.0.weight"].dims()[1..], [1, 3, 3]);
    assert_eq!(cluster.run("carol", &["run", "get", "digits", path]).code, 3);
    // The file that the run began with, with other weights, says the same as the model on the servers.
    let onnx = cluster.folder.join("learnt.onnx");
    let path = onnx.to_str().unwrap();
    cluster.json("carol", &["run", "get", "digits", "--into", DIGITS, path]);
    cluster.json("carol", &["model", "put", "again", path]);
    let answers = |model: &str| {
        let report = cluster
            .json("carol", &["infer", "--model", model, "--scale=0.0625", "--label=65", &out]);
        report["answers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["top"][0]["class"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(answers("again"), answers("digits-learnt"));
    // Who consents is told how pictures are changed; what is too small for it is refused.
    for (crop, told) in [
        (8, "a crop by up to 8 pixels leaves nothing of a picture [1, 8, 8]"),
        (2, "pictures half of them mirrored and moved by up to 2 pixels in each step"),
    ] {
        let file = run_file(&cluster.folder, "moved", 1, 0.1);
        let text = fs::read_to_string(&file).unwrap() + &format!("flip = true\ncrop = {crop}\n");
        fs::write(&file, text).unwrap();
        let run = cluster.run("carol", &["train", &file, "--prepare"]);
        assert_eq!(run.code == 0, crop == 2, "{}", run.err);
        let shown = cluster.run("alice", &["run", "show", "moved"]).out;
        assert!((run.err + &shown).contains(told), "{shown}");
    }
    cluster.json("carol", &["run", "remove", "moved"]);
    // A run whose data has gone ends with that reason, after a few looks.
    let late = run_file(&cluster.folder, "late", 1, 0.1);
    consent(&cluster, &late, "late");
    cluster.json("bob", &["data", "remove", "b"]);
    let run = cluster.run("carol", &["train", &late]);
    assert_eq!(run.code, 6, "{}", run.err);
    assert!(run.err.contains("`b`"), "{}", run.err);
    cluster.json("bob", &["data", "remove", "l"]);
    cluster.json("carol", &["run", "remove", "late"]);
    // Whoever asks again is told that it is done, and nothing is trained twice.
    let runs = cluster.json("alice", &["run", "list"]);
    assert_eq!(runs[0]["state"], "finished after step 88", "{runs}");
    cluster.json("carol", &["run", "remove", "digits"]);
    cluster.json("alice", &["data", "remove", "a"]);
    assert_eq!(cluster.json("bob", &["run", "list"]).as_array().unwrap().len(), 0);
}

/// Noise under `[train]`: what it is worth is shown before anybody consents, counted, and bounded by the budget.
#[test]
fn owners_see_what_noise_is_worth_and_their_budget_ends_runs() {
    let cluster = Cluster::start("private", "alice,carol");
    let [rows, ..] = files(&cluster.folder);
    let mut arguments = vec!["data", "put", "a", rows.as_str(), "--readers", "carol"];
    arguments.extend(
        "--dims 1,8,8 --scale 0.0625 --label 65 --classes 10 --privacy-budget 3".split(' '),
    );
    cluster.json("alice", &arguments);
    let file = |name: &str, how: &str| {
        let text = format!(
            "name = \"{name}\"\nstart = \"{DIGITS}\"\ndata = [\"a\"]\nmodel = \"{name}-learnt\"\n[train]\n\
             epochs = 2\nbatch = 64\nrate = 0.05\nkeep-seconds = 0\n{how}"
        );
        let path = cluster.folder.join(format!("{name}.toml"));
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    for (how, reason) in [
        ("noise = 2.0\n", "`noise` needs `clip`"),
        ("delta = 1e-6\n", "belong to `noise`"),
        ("clip = 1.0\nnoise = 2.0\nmetrics-every = 5\n", "no metrics leave"),
        ("clip = 1.0\nnoise = 0.5\n", "its owner allows 3"),
        ("", "this run has no noise"),
    ] {
        let run = cluster.run("carol", &["train", &file("wrong", how), "--prepare"]);
        assert!(run.code != 0 && run.err.contains(reason), "{how}: {}", run.err);
    }
    let noisy = file("noisy", "clip = 1.0\nnoise = 2.0\n");
    cluster.json("carol", &["train", &noisy, "--prepare"]);
    let text = cluster.run("alice", &["run", "show", "noisy"]).out;
    for line in [
        "clipped to 1, noise 2 times as much: epsilon 2.943 at delta 0.00001 for a row, which 2 steps use",
        "of a epsilon is 0.000 at delta 0.00001 so far, and 2.943 at delta 0.00001 with this run, of 3",
        "no metrics: 0 numbers",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let letters = |name: &str| {
        let text = cluster.run("alice", &["run", "show", name]).out;
        let line = text.lines().find(|line| line.starts_with("fingerprint")).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().to_owned()
    };
    cluster.json("alice", &["run", "approve", "noisy", &letters("noisy")]);
    let again = file("again", "clip = 1.0\nnoise = 2.0\n");
    cluster.json("carol", &["train", &again, "--prepare"]);
    cluster.json("alice", &["run", "approve", "again", &letters("again")]);
    let report = cluster.json("carol", &["train", &noisy]);
    assert!((report["privacy"]["epsilon"].as_f64().unwrap() - 2.943).abs() < 1e-3, "{report}");
    assert!(report["curve"][0]["loss"].is_null(), "{report}");
    let sets = cluster.run("alice", &["data", "list"]).out;
    assert!(sets.contains("epsilon 2.943 at delta 0.00001, of 3"), "{sets}");
    let run = cluster.run("carol", &["train", &again]);
    assert!(run.code != 0 && run.err.contains("have spent 2.943"), "{}", run.err);
}

#[test]
fn a_run_goes_on_by_itself_after_a_server_was_killed() {
    let mut cluster = Cluster::start("training-killed", "alice,bob,carol");
    let out = prepare(&cluster);
    let kills = 3 * faults();
    let epochs = 1 + 2 * faults() as u32;
    let calm = run_file(&cluster.folder, "calm", epochs, RATE);
    consent(&cluster, &calm, "calm");
    cluster.json("carol", &["train", &calm]);
    let calm = weights(&cluster, "calm");
    cluster.json("carol", &["run", "remove", "calm"]);
    let file = run_file(&cluster.folder, "digits", epochs, RATE);
    consent(&cluster, &file, "digits");
    let done = AtomicBool::new(false);
    let config = cluster.client_config("carol");
    let report = thread::scope(|scope| {
        let trains = scope.spawn(|| {
            let config = config.to_str().unwrap();
            let run = common::trefoil(&["--config", config, "--json", "train", &file]);
            done.store(true, Ordering::Release);
            run
        });
        let mut killed = 0;
        let mut seen = 0;
        while !done.load(Ordering::Acquire) && killed < kills {
            let runs = cluster.run("alice", &["--json", "run", "list"]);
            let runs: Value = serde_json::from_str(&runs.out).unwrap_or_default();
            let step = runs[0]["run"]["step"].as_u64().unwrap_or(0);
            if step > seen {
                seen = step;
                cluster.kill(killed % 3);
                cluster.start_party(killed % 3);
                cluster.wait_until_up("alice");
                killed += 1;
            }
            thread::sleep(Duration::from_millis(20));
        }
        assert!(killed > 0, "the run ended before a server could be killed");
        eprintln!("{killed} kills");
        trains.join().unwrap()
    });
    assert_eq!(report.code, 0, "{}\n{}", report.err, cluster.logs());
    let report: Value = serde_json::from_str(&report.out).unwrap();
    assert!(last(&report)["right"].as_f64().unwrap() > 0.6, "{report}");
    let epochs: Vec<_> =
        report["curve"].as_array().unwrap().iter().map(|at| &at["epoch"]).collect();
    assert!(epochs.is_sorted_by(|a, b| a.as_u64() < b.as_u64()), "{report}");
    let disturbed = weights(&cluster, "digits");
    let difference = disturbed.iter().zip(&calm).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    let whole = calm.iter().map(|b| b.powi(2)).sum::<f64>();
    assert!(difference < 1e-4 * whole, "{difference} of {whole}");
    assert!(accuracy(&cluster, "digits-learnt", &out) > 0.6);
}

/// One server loses its disk in the middle of a run. The three operators rebuild it, and the run goes on.
#[test]
fn a_lost_server_is_rebuilt_and_its_run_goes_on() {
    let mut cluster = Cluster::start("training-lost", "alice,bob,carol");
    let out = prepare(&cluster);
    cluster.json("carol", &["model", "put", "shipped", DIGITS]);
    let file = run_file(&cluster.folder, "digits", 3, 0.1);
    consent(&cluster, &file, "digits");
    let config = cluster.client_config("carol");
    let folder = cluster.folder.clone();
    let rebuild = |party: usize, wait: &str| {
        let config = folder.join(format!("party-{party}/party.toml"));
        let config = config.to_str().unwrap();
        let command = ["store", "rebuild", "party-1", "--wait", wait];
        common::trefoil(&[&["--json", "--config", config][..], &command].concat())
    };
    let report = thread::scope(|scope| {
        let trains = scope.spawn(|| {
            common::trefoil(&["--config", config.to_str().unwrap(), "--json", "train", &file])
        });
        let step = |cluster: &Cluster| {
            let runs = cluster.json("alice", &["run", "list"]);
            runs[0]["run"]["step"].as_u64().unwrap()
        };
        while step(&cluster) == 0 {
            thread::sleep(Duration::from_millis(20));
        }
        (0..3).for_each(|party| cluster.kill(party));
        fs::remove_dir_all(folder.join("party-1/data")).unwrap();
        let rebuild = &rebuild;
        // Two of three operators are not enough.
        let runs = [0, 1].map(|party| scope.spawn(move || rebuild(party, "1")));
        for run in runs.map(|run| run.join().unwrap()) {
            assert!(run.code != 0 && run.err.contains("party 2"), "{}", run.err);
        }
        let runs = [0, 1, 2].map(|party| scope.spawn(move || rebuild(party, "60")));
        for run in runs.map(|run| run.join().unwrap()) {
            assert_eq!(run.code, 0, "{}", run.err);
            let report: Value = serde_json::from_str(&run.out).unwrap();
            assert_eq!(report["rebuilt"], serde_json::json!(["a", "b", "digits", "l", "shipped"]));
        }
        (0..3).for_each(|party| cluster.start_party(party));
        cluster.wait_until_up("alice");
        trains.join().unwrap()
    });
    assert_eq!(report.code, 0, "{}\n{}", report.err, cluster.logs());
    let report: Value = serde_json::from_str(&report.out).unwrap();
    assert_eq!(report["steps"].as_u64(), Some(66));
    assert!(accuracy(&cluster, "digits-learnt", &out) > 0.9);
    cluster.json("carol", &["infer", "--model", "shipped", "--scale=0.0625", "--label=65", &out]);
}

#[test]
fn a_word_that_is_neither_a_command_nor_a_script_is_refused() {
    let run = common::trefoil(&["run", "nothing.py"]);
    assert_eq!(run.code, 3, "{}", run.err);
    assert!(
        run.err.contains("neither a command of `trefoil run` nor a Python script"),
        "{}",
        run.err
    );
}
