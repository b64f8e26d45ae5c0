//! A cluster of three processes, used as its users would.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::symlink, net::UnixDatagram},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    common::{Cluster, DIGITS, digits, folder, logits, trefoil, trefoil_with},
    onnx::{bytes, matmul, node, number, onnx},
};
use models::weights::read_safetensors;
use nn_layers::HostTensor;
use serde_json::Value;

/// The largest error of a logit: 2^-9.
const ERROR: f64 = 1.0 / 512.0;

#[test]
fn a_model_is_put_run_listed_and_removed_and_survives_restarts() {
    let mut cluster = Cluster::start("life", "alice,bob");
    let put = cluster.json("alice", &["model", "put", "digits", DIGITS]);
    assert_eq!(put["about"]["weights"], 31674);
    assert_eq!(cluster.json("bob", &["model", "list"]), Value::Array(vec![]));
    cluster.json("alice", &["model", "share", "digits", "--with", "bob"]);
    let list = cluster.json("bob", &["model", "list"]);
    assert_eq!((&list[0]["name"], &list[0]["state"]), (&"digits".into(), &"ready".into()));
    assert_eq!(list[0]["owner"], "alice");

    infer(&cluster, 70);
    let ping = cluster.json("bob", &["ping", "--count", "3"]);
    assert_eq!(ping.as_array().unwrap().len(), 3);

    // Each server in turn is killed, missed and started again.
    for party in 0..3 {
        cluster.kill(party);
        let missed = cluster.run("bob", &["model", "list"]);
        assert_eq!(missed.code, 5, "{}", missed.err);
        assert!(missed.err.contains(&format!("party {party}")), "{}", missed.err);
        cluster.start_party(party);
        cluster.wait_until_up("bob");
        infer(&cluster, 3);
    }

    let again = cluster.run("alice", &["model", "put", "digits", DIGITS]);
    assert_eq!(again.code, 6);
    assert!(again.err.contains("--replace"), "{}", again.err);
    // What is shared stays so.
    cluster.json("alice", &["model", "put", "digits", DIGITS, "--replace"]);
    infer(&cluster, 3);
    for arguments in [
        &["model", "put", "digits", DIGITS, "--replace"][..],
        &["model", "remove", "digits"],
        &["model", "share", "digits", "--with-everyone"],
    ] {
        let foreign = cluster.run("bob", arguments);
        assert_eq!(foreign.code, 6, "{arguments:?}");
        assert!(foreign.err.contains("belongs to client alice"), "{}", foreign.err);
    }

    cluster.json("alice", &["model", "remove", "digits"]);
    assert_eq!(cluster.json("bob", &["model", "list"]), Value::Array(vec![]));
    let gone =
        cluster.run("bob", &["infer", "--model", "digits", "--label", "65", &image(&cluster, 1)]);
    assert_eq!(gone.code, 6);
    assert!(gone.err.contains("no such model"), "{}", gone.err);
    for party in 0..3 {
        let models = cluster.folder.join(format!("party-{party}/data/models"));
        assert_eq!(fs::read_dir(models).unwrap().count(), 0, "shares of a removed model remain");
    }
}

#[test]
fn servers_on_a_cpu_and_on_a_device_work_together() {
    let mut cluster = Cluster::make("engines", "alice,bob");
    // The stand-in driver under the name by which the engine looks for the real one.
    let driver = cluster.folder.join("driver");
    fs::create_dir(&driver).unwrap();
    symlink(ptx_emu_driver::library(), driver.join("libcuda.so")).unwrap();
    let engines = [("cpu", "cpu/"), ("cuda:0", "cuda/"), ("cpu", "cpu/")];
    for (party, (engine, _)) in engines.iter().enumerate() {
        cluster.set(party, "engine", engine);
        cluster.start_party_with(party, &[("LD_LIBRARY_PATH", driver.to_str().unwrap())]);
    }
    cluster.wait_until_up("alice");
    let status = cluster.json("alice", &["status"]);
    for (server, (_, kind)) in status.as_array().unwrap().iter().zip(engines) {
        assert!(server["engine"].as_str().unwrap().starts_with(kind), "{status}");
    }
    cluster.json("alice", &["model", "put", "digits", DIGITS, "--readers", "everyone"]);
    // Twice: the weights stay on the device.
    infer(&cluster, 2);
    infer(&cluster, 1);

    let config = cluster.folder.join("party-0/party.toml");
    cluster.kill(0);
    cluster.set(0, "engine", "cuda:7");
    let refused = trefoil(&["party", "--config", config.to_str().unwrap()]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("`engine = \"cuda:7\"` of party 0"), "{}", refused.err);
}

/// Servers of this profile, a picture's file, and what `model put` and `infer --profile` say of it.
fn answered_with(name: &str, profile: &str) -> (Cluster, String, [Value; 2]) {
    let mut cluster = Cluster::make(name, "alice");
    for party in 0..3 {
        cluster.set(party, "profile", profile);
        cluster.start_party(party);
    }
    cluster.wait_until_up("alice");
    let put = cluster.json("alice", &["model", "put", "digits", DIGITS]);
    let path = image(&cluster, 1);
    let arguments =
        ["infer", "--model", "digits", "--profile", "--scale", "0.0625", "--label", "65", &path];
    let report = cluster.json("alice", &arguments);
    (cluster, path, [put, report])
}

#[test]
fn servers_spare_rounds_where_all_three_operators_say_so() {
    let (mut cluster, path, [put, report]) = answered_with("profile", "slow-links");
    let dry =
        ["infer", "--model", "digits", "--dry-run", "--scale", "0.0625", "--label", "65", &path];
    let foretold = cluster.json("alice", &dry);
    for what in ["bytes", "rounds"] {
        assert_eq!(report["predicted"][what], report["cost"][what]);
        assert_eq!(foretold["predicted"][what], report["cost"][what]);
        assert_eq!(put["predicted"][what], report["cost"][what]);
    }
    assert_eq!(report["cost"]["rounds"], 28);
    let answer = report["answers"][0]["outputs"][0]["values"].as_array().unwrap();
    for (found, expected) in answer.iter().zip(&logits()[0]) {
        assert!((found.as_f64().unwrap() - f64::from(*expected)).abs() < ERROR);
    }

    cluster.kill(1);
    cluster.set(1, "profile", "bytes");
    cluster.start_party(1);
    cluster.wait_until_up("alice");
    let refused = cluster
        .run("alice", &["infer", "--model", "digits", "--scale", "0.0625", "--label", "65", &path]);
    assert_eq!(refused.code, 6, "{}", refused.err);
    assert!(refused.err.contains("differ in the protocol's options"), "{}", refused.err);
    assert!(refused.err.contains("SlowLinks"), "{}", refused.err);
}

#[test]
fn servers_choose_a_profile_by_their_links_where_all_three_operators_say_so() {
    let (mut cluster, _, [put, report]) = answered_with("auto", "auto");
    for what in ["bytes", "rounds", "profile"] {
        assert_eq!(report["predicted"][what], put["predicted"][what]);
        assert_eq!(report["cost"][what], put["predicted"][what]);
    }
    // On one machine bytes and rounds cost next to nothing, but a form for slow links costs 30 times the bytes.
    let chosen = report["cost"]["profile"].as_str().unwrap();
    assert!(["balanced", "bytes"].contains(&chosen), "{chosen}");
    let status = cluster.run("alice", &["status"]);
    assert!(status.out.contains("profile auto, by a round trip of "), "{}", status.out);

    cluster.kill(1);
    cluster.set(1, "profile", "bytes");
    cluster.start_party(1);
    let began = Instant::now();
    loop {
        let status = cluster.run("alice", &["status"]);
        if status.err.contains("has `profile = \"auto\"`") {
            assert_eq!(status.code, 6, "{}", status.err);
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{}", status.err);
    }
}

#[test]
fn servers_round_as_their_operators_say_and_all_three_alike() {
    let mut cluster = Cluster::make("truncation", "alice");
    for party in 0..3 {
        cluster.set(party, "truncation", "exact");
        cluster.start_party(party);
    }
    cluster.wait_until_up("alice");
    let put = cluster.json("alice", &["model", "put", "digits", DIGITS]);
    let path = image(&cluster, 1);
    let arguments =
        ["infer", "--model", "digits", "--profile", "--scale", "0.0625", "--label", "65", &path];
    let first = cluster.json("alice", &arguments);
    // Rounded down always, so that the same comes every time, for more rounds than else.
    assert_eq!(first["answers"], cluster.json("alice", &arguments)["answers"]);
    for what in ["bytes", "rounds"] {
        assert_eq!(first["predicted"][what], first["cost"][what]);
        assert_eq!(put["predicted"][what], first["cost"][what]);
    }
    assert!(first["cost"]["rounds"].as_u64().unwrap() > 45, "{first}");

    cluster.kill(1);
    cluster.set(1, "truncation", "dither");
    cluster.start_party(1);
    cluster.wait_until_up("alice");
    let refused = cluster.run("alice", &arguments);
    assert_eq!(refused.code, 6, "{}", refused.err);
    assert!(refused.err.contains("they predict different costs"), "{}", refused.err);
    let refused = cluster
        .run("alice", &["infer", "--model", "digits", "--scale", "0.0625", "--label", "65", &path]);
    assert!(refused.err.contains("differ in the protocol's options"), "{}", refused.err);
}

/// Runs the first `count` test images and checks every logit.
#[test]
fn a_service_manager_hears_when_a_server_serves_and_when_it_ends() {
    let mut cluster = Cluster::make("systemd", "alice");
    let path = cluster.folder.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let told = || {
        let mut bytes = [0; 64];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned()
    };
    // It serves although the others are not there yet.
    cluster.start_party_with(1, &[("NOTIFY_SOCKET", path.to_str().unwrap())]);
    assert_eq!(told(), "READY=1");
    cluster.signal(1, "TERM");
    assert_eq!(told(), "STOPPING=1");
    assert!(cluster.wait(1).success());
}

#[test]
fn a_running_server_logs_as_much_as_its_file_says_now_and_for_machines_if_asked() {
    let cluster = Cluster::make("log", "alice");
    let file = cluster.folder.join("party-2/party.toml");
    let text = fs::read_to_string(&file).unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_trefoil"))
        .args(["party", "--json", "--config"])
        .arg(&file)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let mut next = |wanted: &str| {
        loop {
            let line = lines.next().expect("the server has ended").unwrap();
            let line: Value = serde_json::from_str(&line).expect("a JSON object a line");
            if line["fields"]["message"].as_str().is_some_and(|said| said.contains(wanted)) {
                return line;
            }
        }
    };
    assert_eq!(next("ready")["fields"]["party"], 2);
    fs::write(&file, format!("log = \"debug\"\n{text}")).unwrap();
    assert_eq!(next("level has changed")["fields"]["level"], "debug");
    assert_eq!(cluster.run("alice", &["status"]).code, 5);
    assert_eq!(next("connection ended")["level"], "DEBUG");
    server.kill().unwrap();
    server.wait().unwrap();
    fs::write(&file, format!("log = \"net=loud\"\n{text}")).unwrap();
    let refused = trefoil(&["party", "--config", file.to_str().unwrap()]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("`log`") && refused.err.contains("net=debug"), "{}", refused.err);
}

fn infer(cluster: &Cluster, count: usize) {
    let path = image(cluster, count);
    let scale = (1.0f64 / 16.0).to_string();
    let arguments =
        ["infer", "--model", "digits", "--profile", "--scale", &scale, "--label", "65", &path];
    let report = cluster.json("bob", &arguments);
    let answers = report["answers"].as_array().unwrap();
    assert_eq!(answers.len(), count);
    for (answer, expected) in answers.iter().zip(logits()) {
        let found = answer["outputs"][0]["values"].as_array().unwrap();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            let error = (found.as_f64().unwrap() - f64::from(expected)).abs();
            assert!(error < ERROR, "{}: error {error}", answer["example"]);
        }
    }
    assert!(report["accuracy"].as_f64().unwrap() > 0.9);
    assert!(report["cost"]["bytes"].as_u64().unwrap() > 0);
    let layers = report["cost"]["layers"].as_array().unwrap();
    let rounds: u64 = layers.iter().map(|layer| layer["rounds"].as_u64().unwrap()).sum();
    assert_eq!(rounds, report["cost"]["rounds"].as_u64().unwrap());
    // Answers of several jobs are printed as they come, and are the same lines.
    let told = |options: &[&str]| {
        let asked = ["infer", "--model", "digits", "--scale", &scale, "--label", "65", &path];
        let told = cluster.run("bob", &[&["--quiet"], &asked[..], options].concat());
        assert_eq!(told.code, 0, "{}", told.err);
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        told.out.lines().map(words).collect::<Vec<_>>()
    };
    let (whole, pieces) = (told(&[]), told(&["--batch", &count.div_ceil(2).to_string()]));
    assert_eq!(whole.len(), count + 2, "{whole:?}");
    for (one, other) in whole.iter().zip(&pieces) {
        // Scores differ in their last places.
        assert_eq!((one.len(), &one[..2]), (other.len(), &other[..2]));
    }
    assert_eq!((whole.len(), whole.last()), (pieces.len(), pieces.last()));
    let arguments =
        ["infer", "--model", "digits", "--dry-run", "--scale", &scale, "--label", "65", &path];
    let foretold = cluster.json("bob", &arguments);
    assert_eq!(foretold["predicted"], report["predicted"]);
    for what in ["bytes", "rounds"] {
        assert_eq!(foretold["predicted"][what], report["cost"][what]);
    }
    for (layer, foretold) in layers.iter().zip(foretold["predicted"]["layers"].as_array().unwrap())
    {
        let sent = layer["bytes"].as_array().unwrap().iter().map(|bytes| bytes.as_u64().unwrap());
        assert_eq!(foretold["bytes"].as_u64().unwrap(), sent.sum::<u64>(), "{}", layer["name"]);
        assert_eq!(foretold["rounds"], layer["rounds"], "{}", layer["name"]);
    }
}

fn image(cluster: &Cluster, count: usize) -> String {
    let path = cluster.folder.join("images.csv");
    fs::write(&path, digits()[..count].join("\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn unusable_files_get_one_clear_error_and_leave_the_servers_untouched() {
    let mut cluster = Cluster::start("bad-files", "alice");
    cluster.json("alice", &["model", "put", "digits", DIGITS]);
    let before = models(&cluster);
    let model = fs::read(DIGITS).unwrap();
    let dir = folder("files");
    fs::create_dir_all(&dir).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        fs::write(dir.join(name), bytes).unwrap();
        dir.join(name).to_str().unwrap().to_owned()
    };
    let mut nan = model.clone();
    let weights = weight_bytes(&model);
    nan[weights..weights + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    for (what, path) in [
        ("truncated", write("truncated.onnx", &model[..model.len() / 2])),
        ("no ONNX", write("text.onnx", b"hello, this is not a model")),
        ("empty", write("empty.onnx", b"")),
        ("NaN weight", write("nan.onnx", &nan)),
        ("huge weight", write("huge.onnx", &matmul(&[1 << 40, 1 << 20], 64))),
        ("weight without end", write("endless.onnx", &matmul(&[u64::MAX, 2], 64))),
        ("missing numbers", write("short.onnx", &matmul(&[64, 10], 64))),
        ("wrong shape", write("shape.onnx", &matmul(&[63, 1], 63))),
        ("missing", dir.join("missing.onnx").to_str().unwrap().to_owned()),
    ] {
        let run = cluster.run("alice", &["model", "put", "bad", &path]);
        assert_eq!(run.code, 3, "{what}: {}", run.err);
        assert_eq!(run.err.trim().lines().count(), 1, "{what}: {}", run.err);
    }
    // The same file is a model if its weight is as it says.
    let sound = write("sound.onnx", &matmul(&[64, 1], 64));
    cluster.json("alice", &["model", "put", "sound", &sound]);
    cluster.json("alice", &["model", "remove", "sound"]);
    let mut picture = digits()[0].clone();
    let short = write("short.csv", b"1,2,3\n");
    picture.replace_range(0..1, "nan");
    for (what, path) in [
        ("wrong shape", short),
        ("NaN", write("nan.csv", picture.as_bytes())),
        ("too large", write("large.csv", ["1e300"; 65].join(",").as_bytes())),
        ("no picture", write("text.png", b"hello")),
        ("unknown kind", write("image.bmp", b"BM")),
        (
            "a class of another model",
            write(
                "class.csv",
                ["1"; 65].join(",").replace("1,", "0,").replace("0,1", "0,77").as_bytes(),
            ),
        ),
    ] {
        let run = cluster.run("alice", &["infer", "--model", "digits", "--label", "65", &path]);
        assert_eq!(run.code, 3, "{what}: {}", run.err);
        assert_eq!(run.err.trim().lines().count(), 1, "{what}: {}", run.err);
    }
    assert_eq!(models(&cluster), before);
    assert!((0..3).all(|party| cluster.runs(party)));
    infer_as(&cluster, "alice");
}

/// What `model list` prints.
fn models(cluster: &Cluster) -> Value {
    cluster.json("alice", &["model", "list"])
}

fn infer_as(cluster: &Cluster, client: &str) {
    let path = image(cluster, 2);
    let report = cluster
        .json(client, &["infer", "--model", "digits", "--scale", "0.0625", "--label", "65", &path]);
    assert_eq!(report["answers"].as_array().unwrap().len(), 2);
}

/// Where the largest tensor of an ONNX file has its raw numbers: its longest field of bytes.
fn weight_bytes(model: &[u8]) -> usize {
    // Field 9 of a tensor, raw_data, has the key 0x4a; the longest one that fits the file is it.
    let mut best = (0, 0);
    for at in 0..model.len() - 4 {
        if model[at] != 0x4a {
            continue;
        }
        let (mut length, mut shift, mut place) = (0usize, 0, at + 1);
        while place < model.len() && shift < 28 {
            length |= usize::from(model[place] & 0x7f) << shift;
            shift += 7;
            place += 1;
            if model[place - 1] & 0x80 == 0 {
                break;
            }
        }
        if place + length <= model.len() && length > best.0 && length % 4 == 0 {
            best = (length, place);
        }
    }
    assert!(best.0 > 1000, "the model's weights were not found");
    best.1
}

#[test]
fn models_of_several_inputs_and_of_integers_are_served() {
    let cluster = Cluster::start("inputs", "alice");
    for (model, file, inputs, outputs) in [
        ("bert", "bert-opset20", &["x0", "x1"][..], 2),
        ("rows", "embedding-opset17", &["tokens"], 1),
    ] {
        let file = Path::new(DIGITS).with_file_name("onnx").join(file);
        let onnx = file.with_extension("onnx");
        cluster.json("alice", &["model", "put", model, onnx.to_str().unwrap()]);
        let tensors = read_safetensors(&file.with_extension("safetensors")).unwrap();
        let mut arguments = vec!["infer".to_owned(), "--model".into(), model.into()];
        for (i, name) in inputs.iter().enumerate() {
            let path = cluster.folder.join(format!("{model}-{name}.csv"));
            fs::write(&path, rows(&tensors[&format!("in.{i}")])).unwrap();
            arguments.extend(["--input".into(), format!("{name}={}", path.display())]);
        }
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let report = cluster.json("alice", &arguments);
        let answers = report["answers"].as_array().unwrap();
        for output in 0..outputs {
            let expected = tensors[&format!("out.{output}")].floats();
            let of_output = |a: &Value| a["outputs"][output]["values"].as_array().unwrap().clone();
            let found: Vec<_> = answers.iter().flat_map(of_output).collect();
            assert_eq!(found.len(), expected.len(), "{model}");
            for (found, expected) in found.iter().zip(expected.iter()) {
                let error = (found.as_f64().unwrap() - expected).abs();
                assert!(error < ERROR, "{model}: error {error}");
            }
        }
    }
    let tokens = cluster.folder.join("rows-tokens.csv");
    let tokens = tokens.to_str().unwrap();
    // One input needs no name.
    cluster.json("alice", &["infer", "--model", "rows", tokens]);
    let half = cluster.folder.join("half.csv");
    fs::write(&half, "1,2,3,4.5,6\n").unwrap();
    let outside = cluster.folder.join("outside.csv");
    fs::write(&outside, "1,2,3,-4,6\n").unwrap();
    let other = cluster.folder.join("other.csv");
    fs::write(&other, "1;2;3;4;6\n1;2;3;4;6\n").unwrap();
    let few = cluster.folder.join("few.txt");
    fs::write(&few, "zero\none\n").unwrap();
    let run =
        cluster.run("alice", &["model", "put", "few", DIGITS, "--labels", few.to_str().unwrap()]);
    assert!(run.code == 3 && run.err.contains("2 names, and the model 10 classes"), "{}", run.err);
    let only = format!("x0={}", cluster.folder.join("bert-x0.csv").display());
    for (arguments, said) in [
        (&["--model", "bert", tokens][..], "x0 [6, 16], x1 [6]; pass each as --input"),
        (&["--model", "bert", "--input", &only], "--input x1: 0 examples"),
        (&["--model", "bert", "--input", "y=y.csv"], "--input y"),
        (&["--model", "rows", half.to_str().unwrap()], "takes an integer"),
        (&["--model", "rows", other.to_str().unwrap()], "numbers, and this has a semicolon"),
        (&["--model", "rows", outside.to_str().unwrap()], "takes 0 to"),
    ] {
        let run = cluster.run("alice", &[&["infer"], arguments].concat());
        assert_eq!(run.code, 3, "{}", run.err);
        assert!(run.err.contains(said) && run.err.trim().lines().count() == 1, "{}", run.err);
    }
}

#[test]
fn inputs_and_outputs_of_any_shape_are_one_example() {
    let cluster = Cluster::start("whole", "alice");
    // z = c x y, and the sum of its numbers: neither begins as its factors do, and two are single numbers.
    let keep = [bytes(1, b"keepdims"), number(3, 0), number(20, 2)].concat();
    let nodes = [
        node("MatMul", &["x", "y"], "p", &[]),
        node("Mul", &["p", "c"], "z", &[]),
        node("ReduceSum", &["z"], "s", &bytes(5, &keep)),
    ];
    let inputs: [(&str, &[u64]); 3] = [("x", &[3, 4]), ("y", &[4, 2]), ("c", &[])];
    let file = onnx(&nodes, &[], [&inputs, &[("z", &[3, 2]), ("s", &[])]]);
    let at = |name: &str| cluster.folder.join(name).to_str().unwrap().to_owned();
    fs::write(at("whole.onnx"), file).unwrap();
    cluster.json("alice", &["model", "put", "whole", &at("whole.onnx")]);
    let saved = |name: &str, tensor: HostTensor| {
        fs::write(at(name), models::data::to_npy(&tensor)).unwrap();
        at(name)
    };
    let count = |dims: &[usize], from: f64| {
        let values = (0..dims.iter().product::<usize>()).map(|i| from + i as f64);
        HostTensor::new(dims, values.collect()).unwrap()
    };
    // A table in the shape of an input is one example.
    fs::write(at("x.csv"), "0,1,2,3\n4,5,6,7\n8,9,10,11\n").unwrap();
    let y = saved("y.npy", count(&[4, 2], -3.0));
    let c = saved("c.npy", HostTensor::new([], vec![0.5]).unwrap());
    let (z, s) = (at("z.npy"), at("s.npy"));
    let written = [format!("--output={z}"), format!("--output=s={s}")];
    // Its first row could be names.
    let infer = ["infer", "--model", "whole", "--header", "no", &written[0], &written[1]];
    // In their order, and by name.
    let named = [at("x.csv"), format!("y={y}"), format!("c={c}")];
    for inputs in [[&at("x.csv"), &y, &c], [&named[1], &named[2], &named[0]]] {
        let inputs: Vec<_> = inputs.iter().flat_map(|file| ["--input", file.as_str()]).collect();
        let report = cluster.json("alice", &[&infer[..], &inputs].concat());
        assert_eq!(report["answers"].as_array().unwrap().len(), 1);
        let [z, s] = [&z, &s].map(|path| models::data::read_npy(Path::new(path)).unwrap());
        assert_eq!((z.dims(), s.dims()), (&[3, 2][..], &[][..]));
        let expected = [5.0, 8.0, 5.0, 16.0, 5.0, 24.0];
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < ERROR;
        assert!(z.floats().iter().zip(&expected).all(near), "{:?}", z.floats());
        assert!((s.floats()[0] - 63.0).abs() < ERROR, "{:?}", s.floats());
    }
    let files = [&at("x.csv"), &y, &c, &y];
    let files: Vec<_> = files.iter().flat_map(|file| ["--input", file.as_str()]).collect();
    for (inputs, said) in [
        (
            &["--input", &y, "--input", &y, "--input", &c][..],
            "has shape [4, 2]; the model takes [3, 4]",
        ),
        (&files[..], "it is of no input: the model takes x [3, 4], y [4, 2], c []"),
        (&["--header", "no", "--input", &at("x.csv")], "--input y: 0 examples"),
        (&["--input", &at("x.csv"), "--input", &y, "--input", &c], "counts 0, 1, 2 and so on"),
    ] {
        let run = cluster.run("alice", &[&["infer", "--model", "whole"], inputs].concat());
        assert_eq!(run.code, 3, "{}", run.err);
        assert!(run.err.contains(said), "{}", run.err);
    }
}

/// A line of text for each example.
fn rows(examples: &HostTensor) -> String {
    let line = |row: &[f64]| row.iter().map(f64::to_string).collect::<Vec<_>>().join(",");
    let each = examples.len() / examples.dims()[0];
    examples.floats().chunks(each).map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn answers_whose_values_left_their_range_are_errors_and_others_are_written_as_numbers() {
    let cluster = Cluster::start("guard", "alice");
    let path = image(&cluster, 4);
    cluster.json("alice", &["model", "put", "digits", DIGITS]);
    let infer = |more: &[&str]| {
        cluster.run(
            "alice",
            &[&["infer", "--model", "digits", "--label", "65", &path][..], more].concat(),
        )
    };
    let loud = infer(&["--scale", "3e7"]);
    assert_eq!(loud.code, 6, "{}", loud.err);
    assert!(loud.err.contains("at layer `node_conv2d`"), "{}", loud.err);
    let file = cluster.folder.join("scores.npy");
    let good = infer(&["--scale", "0.0625", "--output", file.to_str().unwrap()]);
    assert_eq!(good.code, 0, "{}", good.err);
    assert_eq!(models::data::read_npy(&file).unwrap().dims(), [4, 10]);
    // Whoever wants no guard gets an answer that means nothing.
    cluster.json("alice", &["model", "put", "bare", DIGITS, "--no-guard"]);
    let bare = cluster
        .run("alice", &["infer", "--model", "bare", "--scale", "3e7", "--label", "65", &path]);
    assert_eq!(bare.code, 0, "{}", bare.err);
    // One column too many is not taken for the truth unless --label names it.
    cluster.json("alice", &["model", "put", "numbers", DIGITS, "--numbers"]);
    let run = |path: &str| {
        cluster.run("alice", &["infer", "--model", "numbers", "--scale", "0.0625", path])
    };
    let judged = run(&path);
    assert_eq!(judged.code, 3, "{}", judged.err);
    assert!(
        judged.err.contains("has 65 columns of values, and the model takes 64"),
        "{}",
        judged.err
    );
    let plain = cluster.folder.join("plain.csv");
    fs::write(&plain, vec!["8"; 64].join(",") + "\n").unwrap();
    let numbers = run(plain.to_str().unwrap());
    assert!(numbers.out.contains("[10]") && !numbers.out.contains("class"), "{}", numbers.out);
}

#[test]
fn models_are_checked_without_a_server() {
    let scaled = ["--scale", "0.0625"];
    let table = std::env::temp_dir().join(format!("trefoil-check-{}.csv", std::process::id()));
    let line = vec!["8"; 64].join(",");
    fs::write(&table, line + "\n").unwrap();
    let samples = ["--inputs", table.to_str().unwrap()];
    let check =
        |more: &[&str]| trefoil(&[&["--json", "model", "check", DIGITS][..], more].concat());
    let run = check(&[&samples[..], &scaled].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    let report: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((&report["recommended"], &report["examples"]), (&20.into(), &1.into()));
    let layers = report["layers"].as_array().unwrap();
    let bytes: u64 = layers.iter().map(|layer| layer["bytes"].as_u64().unwrap()).sum();
    assert_eq!(report["predicted"]["bytes"], bytes);
    assert!(layers[0]["room_bits"].as_f64().unwrap() > 16.0, "{}", run.out);
    // Far too large inputs are refused in the clear, and fewer fraction bits recommended.
    let run = check(&[&samples[..], &["--scale", "30000"]].concat());
    let report: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(report["refused"]["layer"], "node_linear", "{}", run.out);
    assert!(report["recommended"].as_u64().unwrap() < 20, "{}", run.out);
    assert_eq!(report["could_leave"][0]["layer"], "node_linear", "{}", run.out);
    fs::remove_file(table).unwrap();
}

#[test]
fn inputs_outside_of_a_models_range_are_refused_with_their_place() {
    let cluster = Cluster::start("range", "alice");
    let path = image(&cluster, 4);
    for (name, arguments) in [
        ("stated", &["--range", "0,1"][..]),
        ("named", &["--range", "image=-0.5,1"]),
        ("measured", &["--inputs", &path, "--label", "65", "--scale", "0.0625"]),
    ] {
        cluster.json("alice", &[&["model", "put", name, DIGITS], arguments].concat());
        let run = |scale: &str| {
            cluster
                .run("alice", &["infer", "--model", name, "--scale", scale, "--label", "65", &path])
        };
        let good = run("0.0625");
        assert_eq!(good.code, 0, "{name}: {}", good.err);
        let bad = run("62500");
        assert_eq!(bad.code, 3, "{name}: {}", bad.err);
        assert!(bad.err.contains("images.csv#1: number "), "{}", bad.err);
        assert!(bad.err.contains("takes") && bad.err.trim().lines().count() == 1, "{}", bad.err);
    }
    for (arguments, said) in [
        (&["--range", "1,0"][..], "LOW,HIGH"),
        (&["--range", "nonsense"], "LOW,HIGH"),
        (&["--inputs", "nowhere.csv"], "cannot be read"),
    ] {
        let run = cluster.run("alice", &[&["model", "put", "x", DIGITS], arguments].concat());
        assert_eq!(run.code, 3, "{}", run.err);
        assert!(run.err.contains(said), "{}", run.err);
    }
}

#[test]
fn who_has_no_place_in_the_cluster_gets_nothing() {
    let mut cluster = Cluster::start("roles", "alice,bob");
    let other = Cluster::make("other", "alice");
    // A client of another authority.
    let copy = |name: &str| {
        let from = other.folder.join("client-alice").join(name);
        fs::copy(from, cluster.folder.join("client-alice").join(name)).unwrap();
    };
    ["authority.pem", "client.pem", "client.key"].into_iter().for_each(copy);
    let stranger = cluster.run("alice", &["status"]);
    assert_eq!(stranger.code, 4, "{}", stranger.err);
    assert!(stranger.err.contains("not signed by the cluster's authority"), "{}", stranger.err);
    copy("revoked.pem");
    let stranger = cluster.run("alice", &["status"]);
    assert_eq!(stranger.code, 5, "{}", stranger.err);
    assert!(stranger.err.contains("of another authority"), "{}", stranger.err);
    // A client under another client's name, and one whose key others may read.
    let config = cluster.client_config("bob");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("name = \"bob\"", "name = \"carol\"")).unwrap();
    let disguised = cluster.run("bob", &["status"]);
    assert_eq!(disguised.code, 4, "{}", disguised.err);
    assert!(disguised.err.contains("certificate of client bob"), "{}", disguised.err);
    fs::write(&config, text).unwrap();
    // Servers' addresses exchanged: the certificate found there is of another role.
    let text = fs::read_to_string(&config).unwrap();
    let parsed: toml::Table = text.parse().unwrap();
    let [zero, one, _] = parsed["servers"].as_array().unwrap().as_slice() else {
        panic!("{text}");
    };
    let (zero, one) = (zero.to_string(), one.to_string());
    let swapped = text.replace(&zero, "\0").replace(&one, &zero).replace('\0', &one);
    fs::write(&config, swapped).unwrap();
    let exchanged = cluster.run("bob", &["ping"]);
    assert_eq!(exchanged.code, 5, "{}", exchanged.err);
    assert!(exchanged.err.contains("and not of party-"), "{}", exchanged.err);
    fs::write(&config, &text).unwrap();
    assert_eq!(cluster.run("bob", &["status"]).code, 0);
    // A server that claims another role than its certificate's does not start.
    cluster.kill(2);
    let path = cluster.folder.join("party-2/party.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("party = 2", "party = 1")).unwrap();
    let run = trefoil(&["party", "--config", path.to_str().unwrap()]);
    assert_eq!(run.code, 4, "{}", run.err);
    assert!(run.err.contains("certificate of party-2"), "{}", run.err);
    fs::write(&path, text).unwrap();
    cluster.start_party(2);
    cluster.wait_until_up("bob");
}

#[test]
fn the_command_line_explains_itself() {
    let help = trefoil(&["--help"]);
    assert_eq!(help.code, 0);
    for word in ["trefoil demo", "cluster init", "Exit codes", "infer", "TREFOIL_CONFIG"] {
        assert!(help.out.contains(word), "--help lacks {word}");
    }
    for command in [
        "demo",
        "cluster",
        "party",
        "model",
        "infer",
        "job",
        "status",
        "ping",
        "run",
        "completions",
    ] {
        assert_eq!(trefoil(&["help", command]).code, 0, "{command}");
    }
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(trefoil(&["completions", shell]).out.contains("trefoil"), "{shell}");
    }
    assert_eq!(trefoil(&["dance"]).code, 2);
    assert_eq!(trefoil(&["infer", "--model", "x"]).code, 2);
    let lost = trefoil(&["--config", "nowhere.toml", "status"]);
    assert_eq!(lost.code, 4);
    assert!(lost.err.contains("cluster init"), "{}", lost.err);
    let json = trefoil(&["--json", "--config", "nowhere.toml", "status"]);
    let error: Value = serde_json::from_str(&json.err).unwrap();
    assert_eq!(error["error"]["exit_code"], 4);
    assert_eq!(trefoil(&["party"]).code, 4);
    let log = trefoil_with(&[("TREFOIL_LOG", "net=loud")], &["completions", "bash"]);
    assert_eq!(log.code, 4);
    assert!(log.err.contains("TREFOIL_LOG") && log.err.contains("net=debug"), "{}", log.err);
    let log = trefoil_with(&[("TREFOIL_LOG", "net=debug,info")], &["completions", "bash"]);
    assert_eq!(log.code, 0, "{}", log.err);
}

#[test]
fn the_load_that_servers_bear_is_measured() {
    let cluster = Cluster::start("load", "alice");
    cluster.json("alice", &["model", "put", "digits", DIGITS]);
    for rate in [&[][..], &["--rate", "50"]] {
        let arguments = ["load", "digits", "--clients", "4", "--seconds", "1"];
        let report = cluster.json("alice", &[&arguments, rate].concat());
        let answers = report["answers"].as_u64().unwrap();
        assert!(answers > 0 && (rate.is_empty() || answers <= 50), "{report}");
        assert!(report["latency"]["p99"].as_f64() >= report["latency"]["median"].as_f64());
        assert_eq!(report["failures"], serde_json::json!({}));
    }
    let refused = cluster.run("alice", &["load", "nothing"]);
    assert_eq!(refused.code, 6, "{}", refused.err);
}

/// A list of revoked certificates from a backup would let a revoked client in again.
#[test]
fn an_older_list_of_revoked_certificates_is_refused() {
    let mut cluster = Cluster::start("revoked", "alice,bob");
    let list = cluster.folder.join("party-0/revoked.pem");
    let old = fs::read(&list).unwrap();
    // The number of a list is the second in which it was made.
    thread::sleep(Duration::from_millis(1100));
    let revoked = trefoil(&["cluster", "revoke", cluster.folder.to_str().unwrap(), "bob"]);
    assert_eq!(revoked.code, 0, "{}", revoked.err);
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < Duration::from_secs(20), "{what}\n{}", cluster.logs());
            thread::sleep(Duration::from_millis(50));
        }
    };
    until("bob is out", &|| cluster.run("bob", &["--quiet", "status"]).code != 0);
    fs::write(&list, &old).unwrap();
    let log = cluster.folder.join("party-0/log");
    until("the older list is refused", &|| {
        fs::read_to_string(&log).unwrap().contains("an older list lets revoked clients in")
    });
    assert_ne!(cluster.run("bob", &["--quiet", "status"]).code, 0);
    assert_eq!(cluster.run("alice", &["--quiet", "status"]).code, 0);
    // Nor is it taken by a server that starts, and no list at all is not either.
    cluster.kill(0);
    cluster.start_party(0);
    assert_eq!(cluster.wait(0).code(), Some(4), "{}", cluster.logs());
    let file = cluster.folder.join("party-0/party.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("revoked = \"revoked.pem\"\n", "")).unwrap();
    cluster.start_party(0);
    assert_eq!(cluster.wait(0).code(), Some(4), "{}", cluster.logs());
}
