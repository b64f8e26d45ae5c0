//! Tables on three processes: columns with names, in models, data sets and trainings, and the files that people write
//! without thinking of any of that.

use std::{fs, path::Path};

use models::weights::read_safetensors;
use serde_json::Value;

use crate::{
    common::{Cluster, DIGITS},
    onnx::linear,
};

/// The columns of the iris flowers.
const NAMES: [&str; 4] = ["sepal length", "sepal width", "petal length", "petal width"];

/// A classifier of iris flowers from four numbers, and rows with the class that it gives them.
fn irises() -> (String, Vec<[f64; 4]>, Vec<usize>) {
    let file = Path::new(DIGITS).with_file_name("tables").join("logistic-texts");
    let tensors = read_safetensors(&file.with_extension("safetensors")).unwrap();
    let rows = tensors["in.0"].floats().chunks(4).map(|row| row.try_into().unwrap()).collect();
    let classes = tensors["out.0"].floats().iter().map(|&class| class as usize).collect();
    (file.with_extension("onnx").to_str().unwrap().to_owned(), rows, classes)
}

/// A file in the cluster's folder.
fn written(cluster: &Cluster, name: &str, text: &str) -> String {
    let path = cluster.folder.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A table whose columns are those of `order`, behind one another.
fn table(
    rows: &[[f64; 4]],
    order: [usize; 4],
    header: bool,
    last: &dyn Fn(usize) -> String,
) -> String {
    let mut text = String::new();
    if header {
        text += &format!("{},kind\n", order.map(|at| NAMES[at]).join(","));
    }
    for (at, row) in rows.iter().enumerate() {
        text += &format!("{},{}\n", order.map(|at| row[at].to_string()).join(","), last(at));
    }
    text
}

fn classes(report: &Value) -> Vec<u64> {
    let class = |answer: &Value| answer["top"][0]["class"].as_u64().unwrap();
    report["answers"].as_array().unwrap().iter().map(class).collect()
}

#[test]
fn columns_are_matched_by_name_and_those_that_do_not_fit_are_named() {
    let cluster = Cluster::start("tables", "alice");
    let (model, rows, truth) = irises();
    let kind = |at: usize| truth[at].to_string();
    let plain = table(&rows, [0, 1, 2, 3], true, &kind);
    let samples = written(&cluster, "samples.csv", &plain);
    let put = ["model", "put", "iris", &model, "--inputs", &samples, "--label", "kind"];
    let put = cluster.json("alice", &put);
    assert_eq!(put["about"]["inputs"][0]["columns"][2]["name"], NAMES[2]);
    assert_eq!(put["about"]["label"]["name"], "kind");
    let shown = cluster.run("alice", &["model", "show", "iris"]).out;
    assert!(NAMES.iter().all(|name| shown.contains(name)) && shown.contains("kind"), "{shown}");

    let infer = |path: &str, more: &[&str]| {
        cluster.run("alice", &[&["--json", "infer", "--model", "iris", path], more].concat())
    };
    let right = |text: &str, more: &[&str]| {
        let run = infer(&written(&cluster, "in.csv", text), more);
        assert_eq!(run.code, 0, "{}", run.err);
        let report: Value = serde_json::from_str(&run.out).unwrap();
        assert_eq!(report["accuracy"], 1.0, "{report}");
        classes(&report)
    };
    let expected: Vec<u64> = truth.iter().map(|&class| class as u64).collect();
    assert_eq!(right(&plain, &[]), expected);
    // Another order, another sign between cells, a mark of UTF-8, and commas in numbers.
    let turned = table(&rows, [3, 1, 0, 2], true, &kind);
    assert_eq!(right(&turned, &[]), expected);
    let german = format!("\u{feff}{}", turned.replace(',', ";").replace('.', ","));
    assert_eq!(right(&german, &["--separator", ";", "--decimal", ","]), expected);
    // What pandas writes with its index is right once the index is left out.
    let mut index = String::new();
    for (at, line) in turned.lines().enumerate() {
        index += &match at {
            0 => format!(",{line}\n"),
            at => format!("{},{line}\n", at - 1),
        };
    }
    assert_eq!(right(&index, &["--drop", "Unnamed: 0"]), expected);
    let (first, nameless) = plain.split_once('\n').unwrap();
    assert_eq!(right(nameless, &["--header", "no", "--label", "5"]), expected);

    let counted = format!("0,1,2,3,4\n{nameless}");
    let far = plain.replacen(&rows[0][2].to_string(), "4000", 1);
    let fewer =
        table(&rows, [0, 1, 2, 2], true, &kind).replacen(",petal length,kind", ",x,kind", 1);
    for (text, said) in [
        (index.as_str(), "index=False"),
        (nameless, "its columns have no names, and names are wanted: sepal length, sepal width"),
        (&counted, "row 1 counts 0, 1, 2 and so on"),
        (&plain.replacen("kind", "sort", 1), "column `sort` is not among those that are wanted"),
        (&fewer, "has no column `petal width`"),
        (&plain.replacen("sepal w", "Sepal w", 1), "`Sepal width`: did you mean that?"),
        (&far, "column `petal length`: 4000 is outside of its range"),
        (
            &plain.replacen(&rows[0][1].to_string(), "", 1),
            "row 2, column `sepal width`: is missing",
        ),
        (&german, "the model's"),
    ] {
        let run = infer(&written(&cluster, "in.csv", text), &[]);
        assert_eq!((run.code, run.err.trim().lines().count()), (3, 1), "{said}: {}", run.err);
        let same = run.err.contains(said) || said == "the model's";
        assert!(same, "{said}: {}", run.err);
    }
    assert!(first.starts_with("sepal"));

    // A model whose columns have no names takes any, and says so.
    cluster.json("alice", &["model", "put", "bare", &model]);
    let path = written(&cluster, "in.csv", &turned);
    let run = cluster.run("alice", &["infer", "--model", "bare", "--label", "kind", &path]);
    assert!(run.out.contains("columns have no names"), "{}", run.out);
    // One column more is not the truth, and the index not a value, because it would fit.
    let run = cluster.run("alice", &["infer", "--model", "bare", &path]);
    assert!(run.code == 3 && run.err.contains("has 5 columns of values"), "{}", run.err);
    let mut counted = String::new();
    for (at, line) in nameless.lines().enumerate() {
        counted += &format!("{at},{}\n", line.rsplit_once(',').unwrap().0);
    }
    let path = written(&cluster, "in.csv", &counted);
    let run = cluster.run("alice", &["infer", "--model", "bare", "--label", "5", &path]);
    assert!(run.code == 3 && run.err.contains("column 1 counts the rows"), "{}", run.err);
}

#[test]
fn owners_who_share_a_schema_train_a_model_that_knows_its_columns() {
    let cluster = Cluster::start("schema", "alice,bob,carol");
    let (_, rows, truth) = irises();
    let kinds = ["setosa", "versicolor", "virginica"];
    let kind = |at: usize| kinds[truth[at]].to_owned();
    let all = table(&rows, [0, 1, 2, 3], true, &kind);
    let all_path = written(&cluster, "all.csv", &all);
    let schema = cluster.folder.join("iris.toml").to_str().unwrap().to_owned();
    let make =
        ["data", "schema", &all_path, "--label", "kind", "--scale", "standard", "-o", &schema];
    let made = cluster.json("alice", &make);
    assert_eq!(made["label"]["categories"], serde_json::json!(kinds));
    let again = cluster.run("alice", &make);
    assert!(again.code == 3 && again.err.contains("is there already"), "{}", again.err);

    let put = |owner: &str, name: &str, text: &str, more: &[&str]| {
        let path = written(&cluster, "rows.csv", text);
        let put = ["--json", "data", "put", name, &path, "--readers", "carol"];
        cluster.run(owner, &[&put[..], more].concat())
    };
    let with_schema = ["--schema", schema.as_str()];
    let turned = table(&rows, [2, 3, 1, 0], true, &kind);
    for (owner, name, text) in [("alice", "a", &all), ("bob", "b", &turned)] {
        let run = put(owner, name, text, &with_schema);
        assert_eq!(run.code, 0, "{}", run.err);
    }
    let shown = cluster.run("bob", &["data", "show", "b"]).out;
    assert!(NAMES.iter().all(|name| shown.contains(name)) && shown.contains("setosa"), "{shown}");
    // What would poison a training is refused before it leaves the owner's machine.
    let numbered = |at: usize| truth[at].to_string();
    let nameless = table(&rows, [0, 1, 2, 3], false, &numbered);
    let indexed: String =
        nameless.lines().enumerate().map(|(at, line)| format!("{at},{line}\n")).collect();
    for (text, more, said) in [
        (&indexed, &["--classes", "3", "--label", "6"][..], "column 1 counts the rows"),
        (&nameless, &["--classes", "3"], "name its column (label) or a file of labels"),
        (
            &all,
            &["--classes", "3", "--label", "kind"],
            "`setosa` is no finite number; a schema says",
        ),
        (&all.replacen("setosa", "rosa", 1), &with_schema, "`rosa` is none of its categories"),
        (&all.replacen("sepal width", "width", 1), &with_schema, "has no column `sepal width`"),
    ] {
        let run = put("alice", "bad", text, more);
        assert_eq!((run.code, run.err.trim().lines().count()), (3, 1), "{said}: {}", run.err);
        assert!(run.err.contains(said), "{said}: {}", run.err);
    }

    let start = cluster.folder.join("start.onnx");
    fs::write(&start, linear(4, 3)).unwrap();
    let run_file = |name: &str, data: &str| {
        let text = format!(
            "name = \"{name}\"\nstart = \"start.onnx\"\ndata = {data}\nmodel = \"{name}-learnt\"\n\
             [train]\nepochs = 40\nbatch = 12\nrate = 0.5\nmomentum = 0.5\n"
        );
        written(&cluster, &format!("{name}.toml"), &text)
    };
    // Rows whose columns stand in another order are not joined.
    let other = table(&rows, [2, 3, 1, 0], true, &numbered);
    let run = put("bob", "other", &other, &["--classes", "3", "--label", "kind"]);
    assert_eq!(run.code, 0, "{}", run.err);
    // Without a schema the names of the columns are all that becomes public.
    let told: Value = serde_json::from_str(&run.out).unwrap();
    let names = [2, 3, 1, 0].map(|at| serde_json::json!({ "name": NAMES[at] }));
    assert_eq!(told["set"]["tensors"][0]["columns"], Value::from_iter(names));
    let run =
        cluster.run("carol", &["train", &run_file("mixed", "[\"a\", \"other\"]"), "--prepare"]);
    let said = "data set `other`: its rows are not those of data set `a`: column 1 is `sepal length` in one and `petal \
                length` in the other";
    assert!(run.code != 0 && run.err.contains(said), "{}", run.err);

    let file = run_file("iris", "[\"a\", \"b\"]");
    let shown = cluster.run("carol", &["train", &file, "--prepare"]).out;
    assert!(shown.contains("columns      sepal length, sepal width,"), "{shown}");
    let line = shown.lines().find(|line| line.starts_with("fingerprint")).unwrap();
    let letters = line.split_ascii_whitespace().nth(1).unwrap();
    for owner in ["alice", "bob"] {
        cluster.json(owner, &["run", "approve", "iris", letters]);
    }
    cluster.json("carol", &["train", &file]);
    // The model prepares the raw numbers as the schema says, whatever their order, and names the classes.
    let mixed = table(&rows, [1, 3, 0, 2], true, &kind);
    let path = written(&cluster, "in.csv", &mixed);
    let report = cluster.json("carol", &["infer", "--model", "iris-learnt", &path]);
    assert!(report["accuracy"].as_f64().unwrap() > 0.9, "{report}");
    let label = report["answers"][0]["top"][0]["label"].as_str().unwrap();
    assert!(kinds.contains(&label), "{label}");
    let run = cluster.run("carol", &["infer", "--model", "iris-learnt", "--scale", "2", &path]);
    assert!(run.code == 3 && run.err.contains("--scale"), "{}", run.err);
}

#[test]
fn a_price_is_trained_in_its_schemas_units_and_answered_in_its_own() {
    let cluster = Cluster::start("prices", "alice");
    // A price of 100,000 to 700,000 by area and garden.
    let (mut text, mut raw) = ("price,garden,area\n".to_owned(), Vec::new());
    for at in 0..48u32 {
        let (area, garden) = (40.0 + 3.0 * f64::from(at), if at % 3 == 0 { "yes" } else { "no" });
        let price = 4000.0 * area + if garden == "yes" { 50_000.0 } else { 0.0 };
        text += &format!("{price},{garden},{area}\n");
        raw.push(price);
    }
    let path = written(&cluster, "homes.csv", &text);
    let schema = written(
        &cluster,
        "homes.toml",
        "[[column]]\nname = \"area\"\nrange = [0, 300]\ncenter = 110\nspread = 42\n\
         [[column]]\nname = \"garden\"\ncategories = [\"no\", \"yes\"]\n\
         [label]\nname = \"price\"\ncenter = 450000\nspread = 170000\n",
    );
    let put = ["data", "put", "homes", &path, "--schema", &schema, "--metric-rows", "1"];
    let put = cluster.json("alice", &put);
    assert_eq!(put["set"]["tensors"][0]["dims"], serde_json::json!([3]));
    fs::write(cluster.folder.join("start.onnx"), linear(3, 1)).unwrap();
    let file = written(
        &cluster,
        "homes-run.toml",
        "name = \"homes-run\"\nstart = \"start.onnx\"\ndata = [\"homes\"]\nmodel = \"price\"\n[train]\n\
         epochs = 60\nbatch = 12\nrate = 0.2\nloss = \"mean-square\"\n",
    );
    cluster.json("alice", &["train", &file]);
    let report = cluster.json("alice", &["infer", "--model", "price", &path]);
    let error = report["mean_error"].as_f64().unwrap();
    assert!(error < 2000.0, "{error}");
    let first = report["answers"][0]["outputs"][0]["values"][0].as_f64().unwrap();
    assert!((first - raw[0]).abs() < 5000.0, "{first}");
}
