//! `cargo xtask gpu` on the emulator: that the command itself works, and says so when something does not.

use std::{
    collections::BTreeSet,
    fs,
    process::{Command, Output},
};

fn gpu(args: &[&str], settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu"));
    command.arg("--emulated").args(args).envs(settings.iter().copied());
    command.env_remove("TREFOIL_GPU");
    command.output().expect("the program starts")
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn every_part_leaves_its_line_of_json() {
    let folder = std::env::temp_dir().join(format!("trefoil-gpu-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for the test");
    let json = folder.join("gpu.json");
    let hopper = [("PTX_EMU_CAPABILITY", "90")];
    let output = gpu(&["--json", json.to_str().expect("plain letters")], &hopper);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("every part passed"));
    let lines = fs::read_to_string(&json).expect("the file was written");
    let records: Vec<serde_json::Value> =
        lines.lines().map(|l| serde_json::from_str(l).expect("a line is JSON")).collect();
    let name = |r: &serde_json::Value| r["case"].as_str().expect("a name").to_owned();
    let cases: BTreeSet<String> = records.iter().map(name).collect();
    for case in [
        "check/mma-limbs",
        "check/convolutions",
        "copy",
        "prg/registers",
        "words/masked-product",
        "products/masked",
        "planes/to",
        "gemm/64/integer",
        "gemm/64/limbs8",
        "gemm/64/wgmma",
        "gemm/64/f64limbs16",
        "gemm/64/f64limbs22",
        "gemm-shared/64",
        "conv/512x512x3-11x11",
        "relu/32e6",
    ] {
        assert!(cases.contains(case), "{case} is missing among {cases:?}");
    }
    for record in &records {
        assert!(record["seconds_median"].as_f64().is_some_and(|s| s > 0.0), "{record}");
        assert!(record["engine"].as_str().is_some_and(|e| e.starts_with("cuda/")), "{record}");
    }
    fs::remove_dir_all(&folder).expect("the folder is ours");
}

#[test]
fn a_part_that_fails_is_named_and_the_rest_still_runs() {
    // Too little memory for the operands of a part, enough for others.
    let only = ["--only", "planes"];
    let output = gpu(&only, &[("PTX_EMU_MEMORY", "50000")]);
    let text = text(&output);
    assert!(!output.status.success(), "{text}");
    assert!(
        text.contains("FAILED planes/to") && text.contains("bytes of memory asked for"),
        "{text}"
    );
    assert!(text.contains("2 parts failed: planes/to, planes/from"), "{text}");
}

#[test]
fn time_that_is_over_ends_the_run_with_the_name_of_its_part() {
    let output = gpu(&["--only", "check", "--limit", "0"], &[]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("out of time"), "{}", text(&output));
}
