//! Valid inputs: files that the program itself writes, and those that are shipped.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use models::data::to_npy;
use mpc_core::{Finish, Product, Profile, Protocol, Security, TruncationMode};
use nn_layers::train::{Metric, Optimiser, Schedule, TrainOptions, TrainRequest};
use nn_layers::{Dim, Graph, HostTensor, Op};
use ring_arith::{Bilinear, CpuEngine, Generator, Shape, Tensor};
use rss_protocols::{Dealer, Options};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::json;
use trefoil::{
    About, ClusterId, Digest, Id, Input, Longer, OutputTensor, Preprocess, Text,
    analysis::{Analysis, AnalysisRequest, Call, Known, Leaves, Operand, Param, Step},
    cluster::CertificateEnd,
    model::{Column, Range},
    protocols::ProtocolChoice,
    server::queue::{Answer, Held, Turn},
    store::{Content, FileSum, Holder, Manifest, Readers, saved::SavedShare},
    tapes::TapeState,
    training::{
        Augment, Conditions, Course, DataSet, Decision, Halt, Join, Openings, Position, RowTensor,
        Run, RunSpec, Spent, Task, Used,
    },
    wire::{
        Cell, Cost, DataState, JobState, Link, ModelState, Reply, Request, RunState, Stage, Status,
        StepCost, header,
    },
};

/// Largest shipped file that serves as a seed.
const FILE: u64 = 40_000;

pub(crate) fn frames() -> Vec<Vec<u8>> {
    net::fuzzing::conversations()
}

pub(crate) fn handshake() -> Vec<Vec<u8>> {
    net::fuzzing::greetings()
}

pub(crate) fn requests() -> Vec<Vec<u8>> {
    let (job, name) = (Id::from([7; 16]), "digits".to_owned());
    let put = Request::Put {
        job,
        name: name.clone(),
        about: 300,
        plan: 4000,
        tokenizer: 500,
        words: 650,
        public_weights: false,
        readers: Readers::Named(vec!["bob".to_owned()]),
        ranges: vec![Some(Range { low: 0.0, high: 1.0 }), None],
        replace: true,
    };
    let infer = Request::Infer {
        job,
        model: name.clone(),
        version: Id::from([9; 16]),
        inputs: vec![vec![2, 1, 8, 8]],
        profile: true,
    };
    let predict = Request::Predict {
        model: name.clone(),
        version: Id::from([9; 16]),
        inputs: vec![vec![2, 1, 8, 8]],
        at: 0,
    };
    let extend = Request::Extend {
        job,
        model: name.clone(),
        version: Id::from([9; 16]),
        conversation: Id::from([3; 16]),
        at: 127,
        inputs: vec![vec![1, 1]],
        steps: 4,
        profile: false,
    };
    let fingerprint = Digest::of(&[b"run"]);
    let all = [
        Request::Ping,
        Request::Status,
        Request::Models { after: None },
        Request::Models { after: Some(name.clone()) },
        Request::Model { name: name.clone() },
        Request::Tokenizer { name: name.clone() },
        put,
        Request::Share { job, name: name.clone(), readers: Readers::Everyone },
        Request::Remove { job, name },
        infer,
        predict,
        extend,
        Request::Close { job, conversation: Id::from([3; 16]) },
        Request::DataSets { after: None },
        Request::Runs { after: Some("run".to_owned()) },
        Request::PutData {
            job,
            name: "rows".to_owned(),
            set: data_set(),
            readers: Readers::Everyone,
            replace: false,
        },
        Request::PutRun {
            job,
            name: "run".to_owned(),
            spec: Box::new(run_spec()),
            request: 9000,
            replace: true,
        },
        Request::Decide { job, name: "run".to_owned(), fingerprint, decision: Decision::Approve },
        Request::Train {
            job,
            name: "run".to_owned(),
            fingerprint,
            from: 22,
            steps: 44,
            keep: true,
        },
        Request::RunRequest { name: "run".to_owned() },
        Request::Halt { name: "run".to_owned(), halt: Halt::Withdraw },
        Request::Release { job, name: "run".to_owned(), fingerprint, step: 22 },
        Request::Publish {
            job,
            run: "run".to_owned(),
            fingerprint,
            step: 440,
            name: "learnt".to_owned(),
            readers: Readers::Everyone,
            replace: false,
        },
        Request::Jobs,
        Request::Cancel { job },
    ];
    all.iter().map(header).collect::<Result<_, _>>().expect("requests can be written")
}

pub(crate) fn replies() -> Vec<Vec<u8>> {
    let status = Status {
        party: 1,
        program: "0.1.0".to_owned(),
        up_seconds: 86_400,
        engine: "cpu".to_owned(),
        link: Link::Down { reason: "party 2 has not connected".to_owned() },
        stopping: true,
        waiting: 3,
        step: Some("layer1/conv".to_owned()),
        done: 12,
        failed: 1,
        models: 2,
        damaged: vec!["old".to_owned()],
        clients: 3,
        reserved: 1 << 20,
        certificates: vec![CertificateEnd { of: "party-1".to_owned(), end: 1_830_000_000 }],
        clock: 1_790_000_000,
        cell: Some(Cell { number: 1, of: 4 }),
        waiting_seconds: 0.25,
        profile: "auto".to_owned(),
        tapes: vec![TapeState {
            tape: "9f2c01ab77de".to_owned(),
            model: Some("digits".to_owned()),
            dealer: "maker".to_owned(),
            examples: 16,
            left: 3,
            answers: 4,
        }],
    };
    let model = ModelState {
        name: "digits".to_owned(),
        version: Id::from([9; 16]),
        owner: "alice".to_owned(),
        readers: Some(Readers::Named(vec!["bob".to_owned()])),
        put_at: 1_790_000_000,
        weights: 31_674,
        inputs: vec![vec![1, 8, 8]],
        outputs: vec![vec![10]],
        damage: None,
    };
    let job = JobState {
        job: Id::from([7; 16]),
        kind: "infer".to_owned(),
        model: "digits".to_owned(),
        stage: Stage::Waiting { before: Some(2) },
        seconds: 5,
    };
    let step = StepCost { name: "conv".to_owned(), seconds: 0.25, bytes: 4096, depth: 6 };
    let cost = Cost {
        seconds: 0.5,
        bytes: 8192,
        messages: 12,
        rounds: 20,
        first_depth: 3,
        tape: 4096,
        profile: Some(Profile::SlowLinks),
        steps: vec![step],
    };
    let all = [
        Reply::Pong { party: 2, program: "0.1.0".to_owned(), security: Security::Checked },
        Reply::Status(Box::new(status)),
        Reply::Models { models: vec![model], more: false },
        Reply::Model { bytes: 700 },
        Reply::Jobs(vec![job]),
        Reply::RunRequest { bytes: 9000 },
        Reply::Tokenizer { bytes: 500 },
        Reply::DataSets {
            sets: vec![DataState {
                name: "rows".to_owned(),
                version: Id::from([5; 16]),
                owner: "alice".to_owned(),
                readers: Some(Readers::Everyone),
                put_at: 1_790_000_000,
                set: data_set(),
                spent: Spent::default(),
                damage: None,
            }],
            more: false,
        },
        Reply::Runs {
            runs: vec![RunState {
                name: "run".to_owned(),
                owner: "bob".to_owned(),
                put_at: 1_790_000_000,
                run: run(),
                damage: Some("its rows have changed".to_owned()),
            }],
            more: true,
        },
        Reply::Predicted(vec![cost.clone(), cost.clone(), cost.clone()]),
        Reply::Send,
        Reply::Stopping { party: 1 },
        Reply::Waiting { before: Some(4) },
        Reply::Done,
        Reply::Result {
            outputs: vec![vec![2, 10]],
            next: vec![Digest::of(&[b"next"])],
            cost: Box::new(cost),
        },
        Reply::Failed { reason: "no room".to_owned() },
    ];
    all.iter().map(header).collect::<Result<_, _>>().expect("replies can be written")
}

pub(crate) fn queue() -> Vec<Vec<u8>> {
    let id = |byte| Id::from([byte; 16]);
    let turn = Turn {
        ask: vec![(id(1), Digest::of(&[b"job"])), (id(2), Digest::of(&[b"other"]))],
        keep: vec![id(3)],
        drop: vec![(id(4), "its client has left".to_owned())],
        run: vec![id(5), id(6)],
    };
    let answer = Answer { held: vec![Held::Yes, Held::No, Held::Coming, Held::Differs] };
    vec![
        serde_json::to_vec(&turn).expect("a turn can be written"),
        serde_json::to_vec(&answer).expect("an answer can be written"),
    ]
}

/// The bodies of manifests, and of a copy's inventory: the line with their hash is added when they are read.
pub(crate) fn manifests() -> Vec<Vec<u8>> {
    let sum = |bytes| FileSum { bytes, blake3: "0f".repeat(32) };
    let manifest = |readers, content| Manifest {
        holder: Holder { cluster: ClusterId::of_key(b"key"), party: 1 },
        name: "digits".to_owned(),
        version: Id::from([3; 16]),
        content,
        owner: "alice".to_owned(),
        readers,
        put_at: 1_790_000_000,
        plan: sum(4000),
        shares: sum(10_400),
        tokenizer: Some(sum(900)),
    };
    let named = Readers::Named(vec!["bob".to_owned(), "carol".to_owned()]);
    let ranges = vec![Some(Range { low: -0.5, high: 1.25 })];
    let contents = [
        Content::Model { about: Box::new(about()), ranges: Vec::new() },
        Content::Model { about: Box::new(about()), ranges },
        Content::Data(data_set()),
        Content::Run(Box::new(run())),
    ];
    let readers = [Readers::Everyone, named.clone(), Readers::Everyone, named];
    let inventory = json!({
        "holder": Holder { cluster: ClusterId::of_key(b"key"), party: 1 },
        "made_at": 1_790_000_000,
        "names": { "digits": { "version": Id::from([3; 16]), "manifest": sum(1200) } },
        "counts": {
            "counts": { "opened": { "0f": { "weights": 3, "metrics": 8 } }, "privacy": {}, "revoked": 2 },
            "tapes": { "0123456789ab": 7 },
            "days": { "20000": { "0f": 90 } },
        },
    });
    readers
        .into_iter()
        .zip(contents)
        .map(|(readers, content)| manifest(readers, content))
        .map(|manifest| serde_json::to_vec(&manifest).expect("a manifest can be written"))
        .chain([inventory.to_string().into_bytes()])
        .collect()
}

fn columns() -> [Column; 2] {
    let age = Column { range: Some((0.0, 120.0)), missing: Some(40.0), ..Column::named("age") };
    let city = vec!["Bern".to_owned(), "Basel".to_owned()];
    [age, Column { categories: city, ..Column::named("city") }]
}

fn data_set() -> DataSet {
    let tensor = |name: &str, dims: &[usize], fraction_bits| RowTensor {
        name: name.to_owned(),
        dims: dims.to_vec(),
        fraction_bits,
        columns: columns().to_vec(),
    };
    DataSet {
        rows: 1437,
        tensors: vec![tensor("values", &[3], 20)],
        conditions: Conditions { most_numbers_out: Some(650), ..Conditions::default() },
        key: vec!["id".to_owned()],
    }
}

fn run_spec() -> RunSpec {
    let join = Join::Inner { rows: 1437 };
    RunSpec {
        data: vec![
            Used {
                name: "digits-a".to_owned(),
                version: Id::from([5; 16]),
                position: Position::After,
            },
            Used {
                name: "digits-b".to_owned(),
                version: Id::from([6; 16]),
                position: Position::Joined(join),
            },
        ],
        task: Task::Training {
            course: Course {
                epochs: 20,
                seed: 7,
                schedule: Schedule::cosine(0.5, 440).warm_up(10),
                augment: Augment::default(),
            },
            preprocess: Preprocess::default(),
            labels: vec!["zero".to_owned()],
        },
        openings: Openings::last(440, 22),
        recipients: vec!["bob".to_owned()],
    }
}

fn run() -> Run {
    Run {
        spec: run_spec(),
        rows: 1437,
        steps: 440,
        owners: vec!["alice".to_owned()],
        columns: vec![columns().to_vec()],
        request: Digest::of(&[b"request"]),
        plan: Digest::of(&[b"plan"]),
        fingerprint: Digest::of(&[b"run"]),
        approved: vec!["alice".to_owned()],
        stopped: false,
        diverged: false,
        step: 22,
        sums_from: Some(20),
    }
}

/// An analysis of a few steps.
pub(crate) fn analyses() -> Vec<Vec<u8>> {
    let call = |function: &str, operands: Vec<Operand>, params: &[(&str, Param)]| {
        let params = params.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        Step::Call(Call { function: function.to_owned(), operands, params: params.collect() })
    };
    let of = |place| vec![Operand::Secret(place)];
    let known = Known::new(vec![2], vec![3, 5], 0).expect("two words");
    let axes = ("axes", Param::Ints(vec![0]));
    let request = AnalysisRequest {
        inputs: vec![RowTensor {
            name: "values".to_owned(),
            dims: vec![2],
            fraction_bits: 20,
            columns: Vec::new(),
        }],
        rows: 4,
        steps: vec![
            Step::Bound { of: 0, bound: 4.0 },
            call("mul", vec![Operand::Secret(1), Operand::Known(known)], &[]),
            call("quantile", of(2), &[("q", Param::Floats(vec![0.5])), ("axis", Param::Int(0))]),
            call("sum", of(2), &[axes]),
        ],
        results: vec![
            Leaves { name: "medians".to_owned(), place: 3 },
            Leaves { name: "sums".to_owned(), place: 4 },
        ],
    };
    Analysis::new(request.clone(), 1 << 20).expect("the seed is sound");
    vec![serde_json::to_vec(&request).expect("an analysis can be written")]
}

/// Training requests for small networks.
pub(crate) fn train_requests() -> Vec<Vec<u8>> {
    let plan = |optimiser| {
        let mut graph = Graph::new(4);
        let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(3)])?;
        let w = graph.weight("w", HostTensor::new([3, 2], vec![0.25; 6])?);
        let product = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
        let y = graph.add("y", product, &[x, w])?;
        graph.train(|_| true);
        let options = TrainOptions::default()
            .with_optimiser(optimiser)
            .with_metrics([Metric::Loss, Metric::Right]);
        Ok::<_, nn_layers::Error>(TrainRequest::new(&graph, y, &options)?.0)
    };
    [Optimiser::sgd(0.0), Optimiser::sgd(0.9)]
        .into_iter()
        .map(|optimiser| plan(optimiser).expect("a small network can be trained"))
        .map(|plan| serde_json::to_vec(&plan).expect("a plan can be written"))
        .collect()
}

/// The plans of the shipped networks.
pub(crate) fn plans() -> Vec<Vec<u8>> {
    let plan = |bytes: &Vec<u8>| {
        let imported = trefoil::model::import::from_bytes(
            "seed",
            bytes,
            20,
            Preprocess::default(),
            Vec::new(),
        );
        imported.and_then(|imported| imported.program.to_bytes()).ok()
    };
    onnx().iter().filter_map(plan).filter(|plan| plan.len() as u64 <= FILE).collect()
}

pub(crate) fn configs() -> Vec<Vec<u8>> {
    let party = "party = 1\nlisten = \"0.0.0.0:7101\"\nservers = [\"a.example:7100\", \
                 \"b.example:7101\", \"[::1]:7102\"]\nauthority = \"authority.pem\"\ncertificate = \
                 \"party-1.pem\"\nkey = \"party-1.key\"\ndata = \"data\"\nthreads = 2\n\n[limits]\n\
                 upload_mib = 4096\nqueue = 1024\njob_seconds = 3600\n";
    let client = "name = \"alice\"\nservers = [\"a.example:7100\", \"b.example:7101\", \
                  \"c.example:7102\"]\nauthority = \"authority.pem\"\ncertificate = \
                  \"alice.pem\"\nkey = \"alice.key\"\nconnect_seconds = 5\n";
    vec![party.as_bytes().to_vec(), client.as_bytes().to_vec()]
}

pub(crate) fn onnx() -> Vec<Vec<u8>> {
    shipped("onnx", "onnx")
}

pub(crate) fn weights() -> Vec<Vec<u8>> {
    shipped("onnx", "safetensors")
}

/// Small pictures in the formats that are read.
pub(crate) fn pictures() -> Vec<Vec<u8>> {
    let pixel = |x: u32, y: u32| image::Rgb([(x * 8) as u8, (y * 8) as u8, (x * y) as u8]);
    let picture = image::DynamicImage::ImageRgb8(image::RgbImage::from_fn(24, 16, pixel));
    let written = |format| {
        let mut bytes = Cursor::new(Vec::new());
        picture.write_to(&mut bytes, format).expect("a picture can be written");
        bytes.into_inner()
    };
    vec![written(image::ImageFormat::Png), written(image::ImageFormat::Jpeg)]
}

pub(crate) fn tables() -> Vec<Vec<u8>> {
    vec![
        b"1,2.5,-3e4\n0.125,7,8\n".to_vec(),
        b"age,income\n31,20000\n45,61000.5\n".to_vec(),
        b"\"1\",2\r\n3,4\r\n".to_vec(),
    ]
}

pub(crate) fn arrays() -> Vec<Vec<u8>> {
    let real = HostTensor::new([2, 3], vec![0.5, -1.0, 2.0, 1e9, 0.0, 3.25]);
    let whole = HostTensor::integers([4], vec![1, -2, 3, i64::MAX]);
    [real, whole].into_iter().map(|tensor| to_npy(&tensor.expect("it fills its shape"))).collect()
}

/// Files for `trefoil train`.
pub(crate) fn run_files() -> Vec<Vec<u8>> {
    let plain = "name = \"digits\"\nstart = \"lenet.onnx\"\ndata = [\"a\", [\"b\", \"labels\"]]\nmodel = \"learnt\"\n\
                 readers = [\"bob\"]\nrecipients = [\"carol\"]\nlabels = \"labels.txt\"\n[train]\nepochs = 20\nbatch = 64\n\
                 rate = 0.05\nwarm-up = 5\ndecay = \"cosine\"\nloss = \"cross-entropy\"\nmomentum = 0.9\nnesterov = true\n\
                 weight-decay = 1e-4\nonly = [\"fc\"]\nseed = 3\nflip = true\ncrop = 4\nkeep-seconds = 60\n\
                 metrics-every = 10\nweights-after = [100, 200]\n";
    let private = "name = \"p\"\nstart = \"a.onnx\"\ndata = [\"a\"]\nmodel = \"m\"\n[train]\nepochs = 1\nbatch = 8\n\
                   rate = 0.1\nloss = \"mean-square\"\noptimiser = \"adam-by-row\"\nclip = 1.0\nnoise = 1.1\ndelta = 1e-5\n\
                   microbatch = 4\n";
    [plain, private].map(|text| text.as_bytes().to_vec()).to_vec()
}

/// A server's file of two shares.
pub(crate) fn shares() -> Vec<Vec<u8>> {
    let words: Vec<u8> = (0..48).collect();
    let view = |dims: &[usize]| {
        let bytes = 8 * dims.iter().product::<usize>();
        TensorView::new(Dtype::U64, dims.to_vec(), &words[..bytes]).expect("words fill it")
    };
    let held = [("000000", vec![2, 3]), ("000001", vec![4])];
    let views = held.iter().flat_map(|(at, dims)| {
        ["mine", "next"].map(|component| (format!("{at}.{component}"), view(dims)))
    });
    let alone = [("000000.mine", view(&[1]))];
    let file = safetensors::serialize(views, None).expect("views can be written");
    vec![file, safetensors::serialize(alone, None).expect("a view can be written")]
}

/// A share as Python saves it.
pub(crate) fn saved() -> Vec<Vec<u8>> {
    let held = [1, 2].map(|word| Tensor::from_fn(shape(&[2, 2]), |_| word));
    let share = SavedShare {
        party: 1,
        protocol: ProtocolChoice::Rss,
        label: "0123456789abcdef".to_owned(),
        dtype: "float64".to_owned(),
        frac: 20,
        width: 43,
        held: held.into(),
    };
    vec![share.to_bytes().expect("a share can be written")]
}

/// Both tapes of a pair of three products.
pub(crate) fn tapes() -> Vec<Vec<u8>> {
    let files = [Cursor::new(Vec::new()), Cursor::new(Vec::new())];
    let (engine, generator) = (CpuEngine::new(1), Generator::Aes128Ctr);
    let dealer = Dealer::new(engine, Options::default(), generator, &[1; 32], [2; 32], files);
    let mut dealer = dealer.expect("a dealer with these options");
    for _ in 0..3 {
        let dealt = dealer.deal(|mpc| {
            let shapes = [shape(&[4]), shape(&[4])];
            let factors = mpc.input_sums(&shapes, None)?;
            let finish = Finish::Truncate { bits: 20, mode: TruncationMode::Early };
            mpc.product(Product::new(Bilinear::Mul, &factors[0], &factors[1], finish)).map(drop)
        });
        dealt.expect("a product can be dealt");
    }
    dealer.finish().expect("there are places").map(Cursor::into_inner).to_vec()
}

/// Lists of zero and of two revoked certificates, signed by an authority that no longer exists.
pub(crate) fn revoked() -> Vec<Vec<u8>> {
    [&include_bytes!("../seeds/revoked-none.pem")[..], include_bytes!("../seeds/revoked-two.pem")]
        .map(<[u8]>::to_vec)
        .to_vec()
}

/// Requests of browsers, Prometheus and probes.
pub(crate) fn http() -> Vec<Vec<u8>> {
    [
        "GET /metrics?a=b HTTP/1.1\r\nHost: 10.0.0.1:9100\r\nUser-Agent: Prometheus/3.0\r\nAccept: text/plain\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: localhost\r\nConnection: keep-alive\r\nCookie: a=1; b=2\r\n\r\n",
        "POST /healthz HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 2\r\n\r\nok",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// Two pictures of 3 x 2 in MNIST's format, their labels, and one picture in CIFAR-10's.
pub(crate) fn idx() -> Vec<Vec<u8>> {
    let mut pictures = vec![0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 2];
    pictures.extend(0..12);
    let cifar = std::iter::once(3).chain((0..3072u32).map(|place| place as u8)).collect();
    vec![pictures, vec![0, 0, 8, 1, 0, 0, 0, 2, 7, 1], cifar]
}

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).expect("few dimensions, few elements")
}

fn about() -> About {
    About {
        inputs: vec![Input {
            name: "image".to_owned(),
            dims: vec![3],
            columns: columns().to_vec(),
            ..Input::default()
        }],
        label: Some(Column::named("died")),
        outputs: vec![OutputTensor {
            name: "scores".to_owned(),
            dims: vec![10],
            fraction_bits: 20,
        }],
        batch: None,
        whole: false,
        positions: 1,
        weights: 650,
        public_weights: false,
        fraction_bits: 20,
        text: Some(Text {
            tokenizer: Digest::of(&[b"tokenizer"]),
            form: "Question: {}\n".to_owned(),
            stop: vec![2, 50256],
        }),
        guard: vec!["conv1".to_owned()],
        longer: vec![Longer { positions: 4, guard: vec!["conv1".to_owned()] }],
        numbers: false,
        preprocess: Preprocess::default(),
        labels: vec!["zero".to_owned(), "one".to_owned()],
    }
}

/// The small files of a kind among the models' data.
fn shipped(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/data").join(folder);
    let entries = fs::read_dir(folder).expect("the models' data are beside this crate");
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let small = |path: &std::path::PathBuf| {
        path.extension().is_some_and(|found| found == ending)
            && fs::metadata(path).is_ok_and(|file| file.len() <= FILE)
    };
    paths.iter().filter(|path| small(path)).filter_map(|path| fs::read(path).ok()).collect()
}
