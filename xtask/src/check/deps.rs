//! The direction of dependencies: crates depend only on crates below them, and none names a crate
//! that it must not use.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Result, bail};
use cargo_metadata::{DependencyKind, Metadata, Package};

use super::workspace::{for_each_source, metadata};

/// A crate, what it may use, and what its code must not name.
struct Layer {
    name: &'static str,
    /// Crates of this workspace that its library or program may depend on.
    uses: &'static [&'static str],
    /// Words that its code, tests and examples apart, must not contain.
    must_not_name: &'static [&'static str],
}

/// From the lowest up. A test or example may use any crate that is earlier in this table, independent of
/// `uses`.
const LAYERS: &[Layer] = &[
    Layer { name: "ptx-emu", uses: &[], must_not_name: &["std::net", "ring_arith"] },
    Layer {
        name: "ptx-emu-driver",
        uses: &["ptx-emu"],
        must_not_name: &["std::net", "ring_arith"],
    },
    Layer { name: "ring-arith", uses: &[], must_not_name: &["std::net", "Party", "Transport"] },
    Layer {
        name: "float-embed",
        uses: &["ring-arith"],
        must_not_name: &["std::net", "Party", "Transport"],
    },
    Layer {
        name: "gpu-kernels",
        uses: &["ring-arith", "float-embed"],
        must_not_name: &["std::net", "Party", "Transport", "Protocol"],
    },
    Layer { name: "net", uses: &[], must_not_name: &["Share", "Tensor"] },
    Layer {
        name: "mpc-core",
        uses: &["ring-arith", "net"],
        must_not_name: &["std::net", "rss_protocols"],
    },
    Layer {
        name: "dist-proofs",
        uses: &["ring-arith", "net"],
        must_not_name: &["std::net", "Share", "Protocol"],
    },
    Layer {
        name: "rss-protocols",
        uses: &["mpc-core", "dist-proofs", "ring-arith", "net"],
        must_not_name: &["std::net", "nn_layers"],
    },
    Layer {
        name: "additive-dealer",
        uses: &["mpc-core", "ring-arith", "net"],
        must_not_name: &["std::net", "nn_layers", "rss_protocols"],
    },
    Layer {
        name: "dealt-protocols",
        uses: &["mpc-core", "ring-arith", "net"],
        must_not_name: &["std::net", "nn_layers", "rss_protocols"],
    },
    Layer {
        name: "nn-layers",
        uses: &["mpc-core", "ring-arith"],
        must_not_name: &["std::net", "rss_protocols", "CpuEngine"],
    },
    Layer {
        name: "cluster-protocols",
        uses: &[
            "nn-layers",
            "rss-protocols",
            "additive-dealer",
            "dealt-protocols",
            "mpc-core",
            "gpu-kernels",
            "net",
        ],
        must_not_name: &["std::net", "std::arch"],
    },
    Layer {
        name: "models",
        uses: &["nn-layers", "mpc-core", "ring-arith"],
        must_not_name: &["std::net", "rss_protocols", "CpuEngine"],
    },
    Layer {
        name: "trefoil",
        uses: &[
            "models",
            "cluster-protocols",
            "nn-layers",
            "mpc-core",
            "net",
            "gpu-kernels",
            "ring-arith",
        ],
        must_not_name: &[
            "std::arch",
            "core::arch",
            "rss_protocols",
            "additive_dealer",
            "dealt_protocols",
        ],
    },
    Layer {
        name: "trefoil-python",
        uses: &[
            "trefoil",
            "models",
            "nn-layers",
            "mpc-core",
            "rss-protocols",
            "dealt-protocols",
            "net",
            "gpu-kernels",
            "ring-arith",
        ],
        must_not_name: &["std::arch", "core::arch"],
    },
    Layer {
        name: "fuzz",
        uses: &["trefoil", "models", "nn-layers", "mpc-core", "rss-protocols", "net", "ring-arith"],
        must_not_name: &[],
    },
    Layer {
        name: "xtask",
        uses: &[
            "trefoil",
            "models",
            "nn-layers",
            "additive-dealer",
            "dealt-protocols",
            "rss-protocols",
            "mpc-core",
            "dist-proofs",
            "net",
            "gpu-kernels",
            "float-embed",
            "ring-arith",
            "ptx-emu-driver",
        ],
        must_not_name: &[],
    },
];

/// Checks the workspace at `root` and returns a summary.
pub(super) fn check(root: &Path) -> Result<String> {
    let metadata = metadata(root)?;
    let edges = edges(&metadata);
    let mut faults = wrong_edges(&edges);
    for package in metadata.workspace_packages() {
        let name = crate_name(package);
        match layer(&name) {
            None => faults.push(format!("{name} is not in the table of crates")),
            Some(layer) => {
                let folder = package.manifest_path.with_file_name("src");
                for_each_source(folder.as_std_path(), &mut |path, text| {
                    let test = path.ends_with("tests.rs");
                    if test || path.iter().any(|part| part == "tests") {
                        return;
                    }
                    faults.extend(forbidden_words(layer, text).map(|(line, word)| {
                        format!("{}:{line}: {} must not know `{word}`", path.display(), layer.name)
                    }));
                })?;
            }
        }
    }
    faults.extend(unused(&metadata)?);
    faults.extend(unexplained(root, &metadata)?);
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    Ok(format!("{} crates, {} dependencies between them", LAYERS.len(), edges.len()))
}

/// The name of a package's crate, as folders and `use` have it. Packages have names of one family.
fn crate_name(package: &Package) -> String {
    let library = package.targets.iter().find(|target| target.is_lib() || target.is_cdylib());
    match library.map(|target| target.name.replace('_', "-")) {
        Some(name) if layer(&name).is_some() => name,
        _ => package.name.to_string(),
    }
}

/// A dependency between two crates of the workspace.
struct Edge {
    from: String,
    to: String,
    kind: DependencyKind,
}

fn edges(metadata: &Metadata) -> Vec<Edge> {
    let mut edges = Vec::new();
    for package in metadata.workspace_packages() {
        for dependency in package.dependencies.iter().filter(|d| d.path.is_some()) {
            edges.push(Edge {
                from: crate_name(package),
                to: dependency.rename.as_ref().unwrap_or(&dependency.name).clone(),
                kind: dependency.kind,
            });
        }
    }
    edges
}

fn wrong_edges(edges: &[Edge]) -> Vec<String> {
    edges
        .iter()
        .filter(|edge| !allowed(edge))
        .map(|edge| format!("{} must not depend on {} ({:?})", edge.from, edge.to, edge.kind))
        .collect()
}

fn allowed(edge: &Edge) -> bool {
    let place = |name: &str| LAYERS.iter().position(|layer| layer.name == name);
    match (place(&edge.from), place(&edge.to)) {
        (Some(from), Some(to)) if edge.kind == DependencyKind::Development => to <= from,
        (Some(from), Some(_)) => LAYERS[from].uses.contains(&edge.to.as_str()),
        _ => false,
    }
}

/// Dependencies that no source file of their crate names.
fn unused(metadata: &Metadata) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for package in metadata.workspace_packages() {
        let mut code = String::new();
        for folder in ["src", "tests", "examples"] {
            let folder = package.manifest_path.with_file_name(folder);
            for_each_source(folder.as_std_path(), &mut |_, text| code += text)?;
        }
        if let Ok(readme) = fs::read_to_string(package.manifest_path.with_file_name("README.md")) {
            code += &readme;
        }
        for dependency in &package.dependencies {
            let name = dependency.rename.as_ref().unwrap_or(&dependency.name).replace('-', "_");
            if !names(&code, &name) {
                faults.push(format!("{} does not use its dependency {name}", package.name));
            }
        }
    }
    Ok(faults)
}

/// Dependencies without a reason in ARCHITECTURE.md, reasons without a dependency, and crates it
/// does not describe.
fn unexplained(root: &Path, metadata: &Metadata) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join("ARCHITECTURE.md"))?;
    let packages = metadata.workspace_packages();
    let external = packages.iter().flat_map(|package| &package.dependencies);
    let external: BTreeSet<&str> =
        external.filter(|d| d.path.is_none()).map(|d| d.name.as_str()).collect();
    let table = text.split_once("| dependency | why |").map_or("", |(_, table)| table);
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let explained: BTreeSet<&str> = rows.collect();
    let missing = external.difference(&explained);
    let missing = missing.map(|name| format!("ARCHITECTURE.md does not say why we need {name}"));
    let stale = explained.difference(&external);
    let stale = stale.map(|name| format!("ARCHITECTURE.md explains {name}, which nothing uses"));
    let names = packages.iter().map(|package| crate_name(package));
    let undescribed = names.filter(|name| !text.contains(&format!("**{name}.**")));
    let undescribed = undescribed.map(|name| format!("ARCHITECTURE.md does not describe {name}"));
    Ok(missing.chain(stale).chain(undescribed).collect())
}

fn layer(name: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| layer.name == name)
}

/// Lines and words that break the layer's rule, in code: not in comments, not in tests.
fn forbidden_words<'a>(
    layer: &'a Layer,
    text: &'a str,
) -> impl Iterator<Item = (usize, &'static str)> + 'a {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .flat_map(|(number, line)| {
            let named = layer.must_not_name.iter().filter(move |word| names(line, word));
            named.map(move |word| (number + 1, *word))
        })
}

/// True if `line` contains `word` as a whole word.
fn names(line: &str, word: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(inside) && !line[at + word.len()..].starts_with(inside)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: &str, to: &str, kind: DependencyKind) -> Edge {
        Edge { from: from.to_owned(), to: to.to_owned(), kind }
    }

    #[test]
    fn every_allowed_arrow_points_down() {
        for (place, layer) in LAYERS.iter().enumerate() {
            for used in layer.uses {
                let below = LAYERS.iter().position(|other| other.name == *used);
                assert!(below.is_some_and(|below| below < place), "{} -> {used}", layer.name);
            }
        }
    }

    #[test]
    fn an_arrow_that_points_up_or_at_a_hidden_crate_is_refused() {
        assert!(allowed(&edge("models", "nn-layers", DependencyKind::Normal)));
        assert!(!allowed(&edge("nn-layers", "models", DependencyKind::Normal)));
        assert!(!allowed(&edge("nn-layers", "rss-protocols", DependencyKind::Normal)));
        assert!(allowed(&edge("nn-layers", "rss-protocols", DependencyKind::Development)));
        assert!(!allowed(&edge("ring-arith", "net", DependencyKind::Development)));
    }

    #[test]
    fn a_forbidden_word_counts_in_code_and_not_in_comments_or_tests() {
        let layer = layer("net").unwrap();
        let text =
            "// a Tensor\nfn f(x: &Tensor) {}\nstruct TensorLike;\n#[cfg(test)]\nuse Share;\n";
        assert_eq!(forbidden_words(layer, text).collect::<Vec<_>>(), [(2, "Tensor")]);
    }
}
