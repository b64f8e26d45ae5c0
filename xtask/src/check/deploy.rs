//! The files that operators install: the systemd unit, the manifests and the dashboard, each checked with the
//! tool that reads it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::built;
use crate::python::{environment, interpreter};

/// The program's path in the unit.
const INSTALLED: &str = "/usr/local/bin/trefoil";

/// The most that `systemd-analyze security` may find, in tenths: 10 is for a service without any protection.
const EXPOSURE: &str = "20";

/// The files of a party that an operator's overlay includes.
const FILES: [&str; 5] = ["party.toml", "authority.pem", "party.pem", "party.key", "revoked.pem"];

/// The overlays that operators copy: of one server, and of several cells.
const OVERLAYS: [&str; 2] = ["example", "cells"];

/// Checks all files for which a tool is installed, and names those without one.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let programs = built::executables(root)?.into_iter();
    let program = programs.filter(|p| !p.is_example).find(|p| p.name == "trefoil");
    let program = program.context("cargo built no program `trefoil`")?.path;
    let folder = root.join("target/deploy");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Ok(vec![dashboard(root)?, unit(root, &program, &folder)?, manifests(root, &program, &folder)?])
}

/// Checks that the metrics of the dashboard and of the alerts exist.
fn dashboard(root: &Path) -> Result<String> {
    let text = fs::read_to_string(root.join("deploy/grafana/trefoil.json"))?;
    let board: serde_json::Value = serde_json::from_str(&text).context("the dashboard")?;
    let panels = board["panels"].as_array().context("the dashboard has no panels")?;
    let told = fs::read_to_string(root.join("trefoil/src/server/observe/metrics.rs"))?;
    let mut asked = BTreeSet::new();
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array()).flatten() {
        let expression = target["expr"].as_str().context("a target without an expression")?;
        asked.extend(metrics(expression));
    }
    let alerts = root.join("deploy/prometheus/alerts.yaml");
    let alerts = fs::read_to_string(&alerts).with_context(|| alerts.display().to_string())?;
    let rules: Vec<_> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    ensure!(!rules.is_empty(), "there are no rules for alerts");
    asked.extend(rules.iter().flat_map(|rule| metrics(rule)));
    for name in &asked {
        ensure!(told.contains(&format!("\"{name}\"")), "no server exports the metric `{name}`");
    }
    let (panels, alerts) = (panels.len(), rules.len());
    Ok(format!(
        "dashboard and alerts: {panels} panels and {alerts} rules over {} metrics",
        asked.len()
    ))
}

/// The names of our metrics in a query, those of a histogram's parts without their endings.
fn metrics(query: &str) -> Vec<String> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| word.starts_with("trefoil_") || word.starts_with("process_"));
    let stem = |word: &str| {
        let part = ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end));
        part.unwrap_or(word).to_owned()
    };
    ours.map(stem).collect()
}

/// The unit is understood by systemd, and leaves the service little that it does not need.
fn unit(root: &Path, program: &Path, folder: &Path) -> Result<String> {
    let source = root.join("deploy/systemd/trefoil-party.service");
    let text = fs::read_to_string(&source)?;
    ensure!(text.contains(INSTALLED), "{} does not start {INSTALLED}", source.display());
    let file = folder.join("trefoil-party.service");
    fs::write(&file, text.replace(INSTALLED, &program.to_string_lossy()))?;
    let analyze = |arguments: &[&str]| {
        Command::new("systemd-analyze").args(arguments).arg(&file).stdin(Stdio::null()).output()
    };
    let Ok(verified) = analyze(&["verify", "--man=no"]) else {
        return Ok("systemd: not checked, there is no systemd-analyze".to_owned());
    };
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    ensure!(verified.status.success() && said.is_empty(), "systemd-analyze verify:\n{said}");
    let threshold = format!("--threshold={EXPOSURE}");
    let secure = analyze(&["security", "--offline=yes", "--no-pager", &threshold])?;
    let said = String::from_utf8_lossy(&secure.stdout);
    let overall = said.lines().last().unwrap_or_default().trim_start_matches(['→', ' ']);
    ensure!(secure.status.success(), "systemd-analyze security: {overall}");
    Ok(format!("systemd: {overall}"))
}

/// The overlays, filled with a party's files, make manifests that Kubernetes takes.
fn manifests(root: &Path, program: &Path, folder: &Path) -> Result<String> {
    let cluster = folder.join("cluster");
    let made = Command::new(program)
        .args(["cluster", "init"])
        .arg(&cluster)
        .stdin(Stdio::null())
        .output()
        .context("cannot start trefoil")?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let ours = folder.join("kubernetes");
    copy(&root.join("deploy/kubernetes"), &ours)?;
    let mut manifests = Vec::new();
    for name in OVERLAYS {
        let overlay = ours.join("overlays").join(name);
        for file in FILES {
            fs::copy(cluster.join("party-0").join(file), overlay.join(file))?;
        }
        let kubectl = Command::new("kubectl").arg("kustomize").arg(&overlay).output();
        let Ok(built) = kubectl else {
            return Ok("Kubernetes: not checked, there is no kubectl".to_owned());
        };
        ensure!(built.status.success(), "{name}: {}", String::from_utf8_lossy(&built.stderr));
        let built = String::from_utf8(built.stdout).context("manifests")?;
        ensure!(built.contains("party.key:"), "the overlay {name} leaves out the party's key");
        manifests.push(built);
    }
    let manifests = manifests.join("---\n");
    let Some(python) = interpreter() else {
        return Ok("Kubernetes: built and not validated, there is no Python".to_owned());
    };
    let wanted = root.join("deploy/requirements.txt");
    let place = root.join("target/deploy-environment");
    let python = match environment(root, &python, &place, &wanted)? {
        Ok(python) => python,
        Err(reason) => {
            return Ok(format!("Kubernetes: built and not validated ({reason})"));
        }
    };
    let sound = validate(&python, &folder.join("manifests.yaml"), &manifests)?;
    ensure!(sound.is_empty(), "Kubernetes refuses the manifests:\n{sound}");
    // A tool that accepts everything proves nothing.
    let broken = manifests.replace("replicas: 1", "replicaz: 1");
    let refused = validate(&python, &folder.join("broken.yaml"), &broken)?;
    ensure!(refused.contains("replicaz"), "a broken manifest is accepted");
    let kinds = manifests.lines().filter(|line| line.starts_with("kind: ")).count();
    Ok(format!("Kubernetes: {kinds} manifests"))
}

/// The faults in manifests; empty if they are valid.
fn validate(python: &Path, file: &Path, manifests: &str) -> Result<String> {
    fs::write(file, manifests)?;
    let output = Command::new(python.with_file_name("kubernetes-validate"))
        .arg("--strict")
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .context("cannot start kubernetes-validate")?;
    if output.status.success() {
        return Ok(String::new());
    }
    let said = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&said).into_owned())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let Some(name) = path.file_name() else { bail!("a file without a name") };
        let target: PathBuf = to.join(name);
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_its_metrics() {
        let query = "histogram_quantile(0.5, sum by (le) (rate(trefoil_job_seconds_bucket[5m]))) \
                     + trefoil_link_up{instance=~\"$instance\"}";
        assert_eq!(metrics(query), ["trefoil_job_seconds", "trefoil_link_up"]);
    }
}
