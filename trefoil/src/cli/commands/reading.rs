//! A model file, read for the inputs that it is made for: their ranges, and the fraction bits with which they keep the
//! range of numbers.

use std::{cell::OnceCell, path::Path};

use models::{
    data::Table,
    onnx::{Answers, ImportOptions},
};
use nn_layers::{Graph, HostTensor, Plan, PlanOptions};

use crate::{
    base::{Error, Result},
    cli::arguments::{self, Prepare, Reading},
    inputs::{self, Image, Scaling, Schema},
    model::{
        About, Column, Input, Preprocess, Range, dry_run,
        import::{self, Imported},
    },
};

/// Examples that are run at once where a model takes any number.
const BATCH: usize = 8;

/// The part of itself by which a weight may change by rounding without a warning.
const ROUNDED: f64 = 1e-3;

/// The formats that are tried for a recommendation.
pub(super) const FORMATS: std::ops::RangeInclusive<u32> = 8..=24;

/// The fraction bits that a model has unless it needs fewer, or its owner asks for others.
pub(super) const USUAL: u32 = 20;

/// A model file, with what its owner states of it.
pub(super) struct File<'a> {
    name: String,
    graph: Graph,
    reading: &'a Reading,
    labels: Vec<String>,
    /// The statements on the inputs, once a plan has named them. They are the same for all fraction bits.
    given: OnceCell<Given>,
}

/// The samples of each input for which there are some.
type Samples = Vec<Option<Vec<Image>>>;

/// The owner's statements on the inputs, in their order.
#[derive(Clone)]
struct Given {
    samples: Samples,
    /// Nothing at all if no range is known.
    ranges: Vec<Option<Range>>,
    /// The columns of tables, none where they have no names.
    columns: Vec<Vec<Column>>,
    /// The column with the truth.
    label: Option<Column>,
}

/// A model with its samples and ranges.
pub(super) struct Read {
    pub imported: Imported,
    pub samples: Samples,
    /// The range of each input; nothing at all if none is known.
    pub ranges: Vec<Option<Range>>,
    /// The weights that rounding changes by more than a little, and by what part of themselves.
    pub rounded: Vec<(String, f64)>,
    /// True if it was run in the clear.
    pub tried: bool,
    /// Why it has not the usual fraction bits, if it has others.
    pub unusual: Option<String>,
    /// The options of its plan.
    pub options: PlanOptions,
}

impl<'a> File<'a> {
    /// Reads the file. Its answers are called by `labels`.
    ///
    /// # Errors
    /// [`Error::Input`] if it is not acceptable.
    pub(super) fn open(file: &Path, reading: &'a Reading, labels: Vec<String>) -> Result<Self> {
        let graph = import::graph(file, &options(reading)?)?;
        if reading.answers.is_some() && !graph.grows() {
            let reason =
                "the model has no keys and values of earlier steps: it is no language model";
            return Err(Error::input("--answers", reason));
        }
        let name = file.display().to_string();
        Ok(Self { name, graph, reading, labels, given: OnceCell::new() })
    }

    /// The model with the fraction bits that its owner asks for. Else with 20. Where its samples or stated ranges would
    /// leave the numbers for which a layer is right, that layer has fewer, or else all have: the nearest number below or
    /// above with which they keep to them.
    ///
    /// # Errors
    /// [`Error::Format`] if it cannot be run; it names the fraction bits with which it could, if there are some.
    pub(super) fn read(&self) -> Result<Read> {
        let asked = self.reading.fraction_bits.unwrap_or(USUAL);
        let (what, reason) = match self.tried(asked) {
            Ok(read) => return Ok(read),
            Err(Error::Format { what, reason }) => (what, reason),
            Err(error) => return Err(error),
        };
        if self.reading.fraction_bits.is_none()
            && let Ok(Some(read)) = self.fitted(asked)
        {
            return Ok(Read { unusual: Some(reason), ..read });
        }
        let fewer = (*FORMATS.start()..asked).rev();
        let mut others = fewer.chain(asked + 1..=*FORMATS.end());
        match (others.find_map(|bits| self.tried(bits).ok()), self.reading.fraction_bits) {
            (Some(read), None) => Ok(Read { unusual: Some(reason), ..read }),
            (Some(read), Some(_)) => {
                let bits = read.imported.program.plan().frac();
                let advice = format!("{reason}; it runs with --fraction-bits {bits}");
                Err(Error::Format { what, reason: advice })
            }
            (None, _) => Err(Error::Format { what, reason }),
        }
    }

    /// The model with the given fraction bits, if it runs with them.
    fn tried(&self, bits: u32) -> Result<Read> {
        self.run(self.planned(bits)?)
    }

    /// The model with fewer fraction bits at the layers whose numbers are large for its sample, or for its stated ranges;
    /// none if neither is known.
    fn fitted(&self, bits: u32) -> Result<Option<Read>> {
        // The coarsest format takes most weights; the structure is the same for all.
        let Read { imported, samples, ranges, .. } = self.planned(*FORMATS.start())?;
        let plan = imported.program.plan();
        if plan.multiplications(plan.fixed_batch().unwrap_or(1))? > dry_run::QUICK {
            return Ok(None);
        }
        let sample = sample(&samples, &imported.about)?;
        let known = dry_run::known(plan, &ranges, sample.as_deref())?;
        if known.is_empty() {
            return Ok(None);
        }
        let options = PlanOptions::default().with_frac(bits).with_samples(known);
        self.run(self.planned_with(&options)?).map(Some)
    }

    /// Runs the model in the clear, if that is quick.
    fn run(&self, read: Read) -> Result<Read> {
        let Read { imported, samples, ranges, .. } = &read;
        let sample = sample(samples, &imported.about)?;
        let plan = imported.program.plan();
        let tried = dry_run::run(&self.name, plan, &imported.values, ranges, sample.as_deref())?;
        Ok(Read { tried, ..read })
    }

    /// The operations of the file.
    pub(super) fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The model with the given fraction bits, which is not run.
    pub(super) fn planned(&self, bits: u32) -> Result<Read> {
        self.planned_with(&PlanOptions::default().with_frac(bits))
    }

    fn planned_with(&self, options: &PlanOptions) -> Result<Read> {
        let plan = |options: &PlanOptions| {
            let preprocess = preprocess(self.reading);
            import::plan(&self.name, &self.graph, options, preprocess, self.labels.clone())
        };
        let mut options = options.clone();
        let mut imported = plan(&options)?;
        let Given { samples, ranges, columns, label } = self.given(&imported.about)?.clone();
        let ends = |range: &Option<Range>| range.map(|range| (range.low, range.high));
        if !ranges.is_empty() {
            options = options.with_ranges(ranges.iter().map(ends).collect());
            imported = plan(&options)?;
        }
        // Also refuses weights without an encoding.
        let rounded = rounded(imported.program.plan(), &imported.values)
            .map_err(|cause| Error::format(&self.name, cause))?;
        let ranges = imported.program.within_tables(ranges);
        imported.about.describe(columns, label);
        imported.about.check().map_err(|cause| Error::format(&self.name, cause))?;
        Ok(Read { imported, samples, ranges, rounded, tried: false, unusual: None, options })
    }

    /// Reads samples, ranges and columns at the first call.
    fn given(&self, about: &About) -> Result<&Given> {
        if let Some(given) = self.given.get() {
            return Ok(given);
        }
        if about.preprocess == Preprocess::Imagenet && about.inputs.len() == 1 {
            inputs::as_imagenet(&about.inputs[0])
                .map_err(|reason| Error::input("--preprocess", reason))?;
        }
        let files = sample_files(self.reading, about)?;
        let (columns, label) = columns_of(self.reading, about, &files)?;
        let mut described = about.clone();
        described.describe(columns.clone(), label.clone());
        let samples = samples_of(self.reading, &described, &files)?;
        let ranges = ranges_of(self.reading, &described, &samples)?;
        Ok(self.given.get_or_init(|| Given { samples, ranges, columns, label }))
    }
}

/// The options of an import.
///
/// # Errors
/// [`Error::Input`] for a temperature without draws.
pub(super) fn options(reading: &Reading) -> Result<ImportOptions> {
    if reading.temperature.is_some() && reading.answers != Some(arguments::Answer::Sample) {
        let reason = "only `--answers sample` draws tokens; leave the temperature out, or add it";
        return Err(Error::input("--temperature", reason));
    }
    let temperature = reading.temperature.unwrap_or(1.0);
    let answers = match reading.answers {
        Some(arguments::Answer::Logits) => Answers::Logits,
        Some(arguments::Answer::Sample) => Answers::Sample { temperature },
        Some(arguments::Answer::Token) | None => Answers::Token,
    };
    Ok(import::options(&reading.dims, answers))
}

/// A file of samples of an input, which is read once if it is a table.
struct SampleFile<'a> {
    input: usize,
    path: &'a Path,
    table: Option<Table>,
}

/// The files of samples, in their order.
fn sample_files<'a>(reading: &'a Reading, about: &About) -> Result<Vec<SampleFile<'a>>> {
    let options = reading.tables.options();
    let file = |text: &'a String| {
        let (input, path) = input_of("--inputs", text, about)?;
        let path = Path::new(path);
        let table =
            inputs::is_table(path).then(|| inputs::read_table(path, &options)).transpose()?;
        Ok(SampleFile { input, path, table })
    };
    reading.inputs.iter().map(file).collect()
}

/// The columns of each input, and that of the truth: those of the schema, else of samples whose columns have names.
fn columns_of(
    reading: &Reading,
    about: &About,
    files: &[SampleFile<'_>],
) -> Result<(Vec<Vec<Column>>, Option<Column>)> {
    let options = reading.tables.options();
    if let Some(path) = &reading.schema {
        if reading.scale != Scaling::default() {
            let reason = "the schema says how numbers are scaled; leave it out";
            return Err(Error::input("--scale", reason));
        }
        let schema = Schema::read(path)?;
        return schema.divided(about).map_err(|reason| Error::input(path.display(), reason));
    }
    let mut all = vec![Vec::new(); about.inputs.len()];
    let mut truth = None;
    for (at, input) in about.inputs.iter().enumerate() {
        let own = files.iter().filter(|file| file.input == at);
        let (paths, tables): (Vec<_>, Vec<_>) =
            own.filter_map(|file| Some((file.path, file.table.as_ref()?))).unzip();
        let (Some(path), Some(table)) = (paths.first(), tables.first()) else { continue };
        if table.names().is_none() {
            continue;
        }
        let schema = Schema::of(&tables, &options, reading.scale, input.integer)
            .map_err(|reason| Error::input(path.display(), reason))?;
        all[at] = schema.columns;
        truth = truth.or(schema.label);
    }
    if all.iter().all(Vec::is_empty) && !matches!(reading.scale, Scaling::Factor(_)) {
        let reason = "columns are scaled one by one where samples are a .csv whose first row names them; give a \
                      number here";
        return Err(Error::input("--scale", reason));
    }
    Ok((all, truth))
}

/// The first samples that fill a batch, if there are some of every input.
fn sample(samples: &[Option<Vec<Image>>], about: &About) -> Result<Option<Vec<HostTensor>>> {
    let batch = about.batch.unwrap_or(1);
    let enough = |of: &Option<Vec<Image>>| of.as_ref().is_some_and(|of| of.len() >= batch);
    if !samples.iter().all(enough) {
        return Ok(None);
    }
    Ok(whole(samples, about, batch)?.into_iter().next())
}

/// The way in which clients prepare images for the model.
fn preprocess(arguments: &Reading) -> Preprocess {
    match arguments.preprocess {
        Prepare::Scale => Preprocess::Scale { white: arguments.white },
        Prepare::Imagenet => Preprocess::Imagenet,
    }
}

/// The samples of each input for which there are some.
fn samples_of(arguments: &Reading, about: &About, files: &[SampleFile<'_>]) -> Result<Samples> {
    let options = arguments.tables.options();
    let mut samples: Samples = vec![None; about.inputs.len()];
    for SampleFile { input: at, path, table } in files {
        let input = &about.inputs[*at];
        let scale = match arguments.scale {
            Scaling::Factor(factor) if input.columns.is_empty() => factor,
            _ => 1.0,
        };
        let how = inputs::Reading {
            preprocess: &about.preprocess,
            scale,
            table: &options,
            label: about.label.as_ref(),
        };
        let read = match table {
            Some(table) => inputs::from_table(path, table, input, &how)?,
            None => inputs::read(path, input, &how)?,
        };
        samples[*at].get_or_insert_default().extend(read);
    }
    Ok(samples)
}

/// The range of each input's values by the command line; empty if it states none.
fn ranges_of(
    arguments: &Reading,
    about: &About,
    samples: &[Option<Vec<Image>>],
) -> Result<Vec<Option<Range>>> {
    let mut ranges = vec![None; about.inputs.len()];
    for text in &arguments.ranges {
        let (at, text) = input_of("--range", text, about)?;
        let range = Range::parse(text).map_err(|reason| Error::input("--range", reason))?;
        ranges[at] = Some(range);
    }
    for ((range, samples), input) in ranges.iter_mut().zip(samples).zip(&about.inputs) {
        if range.is_some() {
            continue;
        }
        *range = Column::hull(&input.columns);
        if let (None, Some(samples)) = (&range, samples) {
            let values = samples.iter().flat_map(|sample| sample.values.iter().copied());
            *range = Range::of_samples(values, input.integer);
        }
    }
    if ranges.iter().all(Option::is_none) {
        ranges.clear();
    }
    Ok(ranges)
}

/// The input that `NAME=VALUE` names, and the value; the name may be left out if there is one input.
fn input_of<'a>(flag: &str, text: &'a str, about: &About) -> Result<(usize, &'a str)> {
    let position = |name: &str| about.inputs.iter().position(|input| input.name == name);
    if let Some((name, value)) = text.split_once('=')
        && let Some(at) = position(name)
    {
        return Ok((at, value));
    }
    if about.inputs.len() == 1 {
        return Ok((0, text));
    }
    let each: Vec<_> = about.inputs.iter().map(Input::to_string).collect();
    let reason = format!("write NAME=VALUE; the model takes {}", each.join(", "));
    Err(Error::input(flag, reason))
}

/// The weights that rounding changes by more than a thousandth of themselves, and by how much.
pub(super) fn rounded(plan: &Plan, values: &[HostTensor]) -> Result<Vec<(String, f64)>> {
    let changes = plan.rounding(values)?;
    let named = plan.weights().into_iter().map(|weight| weight.name).zip(changes);
    Ok(named.filter(|(_, change)| *change > ROUNDED).collect())
}

/// The change of weights by rounding, in a sentence.
pub(super) fn rounding(rounded: &[(String, f64)]) -> Option<String> {
    let (name, change) = rounded.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let others = match rounded.len() - 1 {
        0 => String::new(),
        others => format!("; {others} more change by more than 0.1 %"),
    };
    Some(format!(
        "rounding to fixed point changes a part of weight `{name}` by {:.1} % of itself{others}; where small \
         weights meet large inputs, normalise the inputs before they are shared",
        100.0 * change
    ))
}

/// As many examples of each input, in the batches that the model takes; incomplete ones are left out.
pub(super) fn whole(
    samples: &[Option<Vec<Image>>],
    about: &About,
    most: usize,
) -> Result<Vec<Vec<HostTensor>>> {
    let given = samples.iter().flatten().map(Vec::len).min().unwrap_or(0);
    if samples.iter().any(Option::is_none) {
        return match given {
            0 => Ok(Vec::new()),
            _ => Err(Error::input("--inputs", "give samples of every input, or of none")),
        };
    }
    let batch = about.batch.unwrap_or_else(|| given.clamp(1, BATCH));
    let starts = (0..given.min(most.max(batch))).step_by(batch).filter(|at| at + batch <= given);
    let tensors = |start| {
        let pairs = samples.iter().flatten().zip(&about.inputs);
        pairs
            .map(|(images, input)| {
                let values = images[start..start + batch].iter().flat_map(|image| &image.values);
                let dims = about.shape_of(batch, &input.dims);
                Ok(if input.integer {
                    HostTensor::integers(dims, values.map(|&v| v as i64).collect())?
                } else {
                    HostTensor::new(dims, values.copied().collect())?
                })
            })
            .collect()
    };
    let batches: Vec<_> = starts.map(tensors).collect::<Result<_>>()?;
    if batches.is_empty() && given > 0 {
        let reason = format!("{given} examples; the model takes {batch} at once");
        return Err(Error::input("--inputs", reason));
    }
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::arguments::Tables;

    fn reading(range: &str, fraction_bits: Option<u32>) -> Reading {
        Reading {
            dims: Vec::new(),
            answers: None,
            temperature: None,
            preprocess: Prepare::Scale,
            white: 1.0,
            fraction_bits,
            inputs: Vec::new(),
            ranges: vec![range.to_owned()],
            schema: None,
            scale: Scaling::default(),
            tables: Tables::default(),
        }
    }

    #[test]
    fn fraction_bits_are_as_many_as_the_stated_range_leaves_room_for() {
        let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/data/digits.onnx");
        let read = |range, bits| {
            let reading = reading(range, bits);
            File::open(&digits, &reading, Vec::new()).unwrap().read()
        };
        let usual = read("0,1", None).unwrap();
        assert_eq!((usual.imported.program.plan().frac(), usual.unusual), (USUAL, None));
        assert!(usual.tried);
        // Layers with large numbers have fewer, and inputs too.
        let wide = read("0,1e7", None).unwrap();
        let plan = wide.imported.program.plan();
        assert_eq!(plan.frac(), USUAL);
        let fewest = plan.operations().map(|layer| layer.frac).min().unwrap();
        let input = wide.imported.about.inputs[0].fraction_bits.unwrap();
        assert!(fewest < USUAL && input < USUAL, "{fewest} {input}");
        assert!(wide.unusual.unwrap().contains("range of numbers at layer `"));
        // With those asked for, the error says how many would do at all layers.
        let error = read("0,1e7", Some(USUAL)).err().unwrap().to_string();
        let bits = (8..USUAL).rev().find(|&bits| read("0,1e7", Some(bits)).is_ok()).unwrap();
        assert!(error.contains(&format!("it runs with --fraction-bits {bits}")), "{error}");
        assert_eq!(read("0,1e7", Some(bits)).unwrap().unusual, None);
        let error = read("0,1e30", None).err().unwrap().to_string();
        assert!(!error.contains("it runs with"), "{error}");
    }
}
