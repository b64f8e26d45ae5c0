//! A client's connection to a cluster's three servers.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{RecvTimeoutError, bounded};
use models::data::{Table, TableFormat};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;
use ring_arith::{EngineTensor, FixedPoint, FracBits, Shape, Tensor};
use trefoil::{
    About, Id, Preprocess, check_name,
    client::{self, Client, NewModel, Talk, Watch, agree_on_line},
    config::ClientConfig,
    inputs::{self, Reading, Schema, TableOptions, Tokenizer, text_of},
    model::{Column, Range},
    store::Readers,
    training::{
        Augment, Budget, Conditions, Course, Group, Join, KeySecret, RowTensor, Rows, keys_of_table,
    },
};

use crate::{
    arrays::Public,
    chat::Chat,
    errors::{Failure, Kind, Result},
    learn::{self, Analysed, DataInfo, DataSetRows, Followed, News, RunInfo, Wanted},
    model::{Flat, Model, flat, whole},
    session::{Handle, Session},
    state::TICK,
    train::Training,
};

/// One connection. Calls of one connection come one after the other; after a failure, or if a call was
/// interrupted, the next one connects again.
#[pyclass(frozen, module = "trefoil._trefoil")]
pub(crate) struct Connection {
    config: ClientConfig,
    kept: Arc<Mutex<Option<Kept>>>,
}

/// A connection that has not failed, and when it was used last.
struct Kept {
    client: Client,
    used: Instant,
}

/// A connection that was not used for this long is tried before anything is sent over it: a server may have been
/// restarted meanwhile.
const IDLE: Duration = Duration::from_millis(20);

impl Kept {
    /// The connection, if servers answer over it.
    fn usable(mut self) -> Option<Client> {
        let answers = self.used.elapsed() < IDLE || self.client.ping().is_ok();
        answers.then_some(self.client)
    }
}

/// The file of a tokenizer, the text around what a person writes, and the tokens behind which an answer ends.
type Texts = (String, String, Vec<String>);

/// A model in the servers' list: name, owner, weights, input and output dimensions, state.
type Listed = (String, String, u64, Vec<Vec<usize>>, Vec<Vec<usize>>, String);

/// The answer of an inference: for each output its name, numbers and dimensions; bytes, rounds, seconds; names of the
/// classes.
type Answered<'py> =
    (Vec<(String, Bound<'py, PyArray1<f64>>, Vec<usize>)>, (u64, u32, f64), Vec<String>);

/// The inputs of an inference.
#[derive(FromPyObject)]
enum Inputs<'py> {
    /// The text of a table, and the columns that are left out.
    #[pyo3(transparent)]
    Table((Vec<u8>, Vec<String>)),
    /// An array for each input.
    #[pyo3(transparent)]
    Arrays(Vec<PyReadonlyArrayDyn<'py, f64>>),
}

/// A table, or the dimensions and numbers of each input.
enum Given {
    Table(Table, TableOptions),
    Arrays(Vec<(Vec<usize>, Vec<f64>)>),
}

/// The table of a frame: its text, the column with the label, those that are left out, the number of classes, the file
/// of a schema, whether labels alone or values alone are kept, and the key.
type Frame = (
    Vec<u8>,
    Option<String>,
    Vec<String>,
    Option<u32>,
    Option<String>,
    Option<String>,
    Option<Key>,
);

/// The columns of a key, and the file of the secret under which it is hashed.
type Key = (Vec<String>, String);

/// Data sets that a run puts together: their names, and the kind and rows of a join if they are joined.
type Sets = (Vec<String>, Option<(String, Option<usize>)>);

fn group_of((names, join): Sets) -> Result<Group> {
    let Some((kind, rows)) = join else { return Ok(Group::Beside(names)) };
    let join = Join::asked(&kind, rows).map_err(Failure::input)?;
    let names: [String; 2] = names.try_into().map_err(|names: Vec<String>| {
        Failure::input(format!("a join brings two data sets together, not {}", names.len()))
    })?;
    Ok(Group::Joined(names, join))
}

/// The rows of a data set.
#[derive(FromPyObject)]
enum DataRows<'py> {
    /// Those of a table.
    #[pyo3(transparent)]
    Table(Frame),
    /// The name and numbers of each tensor, the labels last.
    #[pyo3(transparent)]
    Tensors(Vec<(String, PyRef<'py, Public>)>),
}

/// A tensor of all rows, whose columns have no names.
fn row_tensor(name: String, array: &Public) -> Result<(RowTensor, Tensor)> {
    let words = array.known.words.clone();
    let Some((_, dims)) = words.shape().dims().split_first() else {
        return Err(Failure::input(format!("`{name}` is one number, not a row for each example")));
    };
    let (dims, fraction_bits) = (dims.to_vec(), array.known.frac);
    Ok((RowTensor { name, dims, fraction_bits, ..RowTensor::default() }, words))
}

/// The place that errors name where a table came from no file.
const FRAME: &str = "table";

/// The table in a text that names its columns.
fn table(text: &[u8], label: Option<String>, drop: Vec<String>) -> Result<(Table, TableOptions)> {
    let format = TableFormat { header: Some(true), ..TableFormat::default() };
    let table = Table::parse(text, format).map_err(Failure::input)?;
    Ok((table, TableOptions { label, drop, format }))
}

/// An owner's conditions: the least batch, the rows of metrics, the most numbers that leave, and epsilon and delta.
type Terms = (usize, u64, Option<u64>, Option<(f64, f64)>);

fn conditions_of((least_batch, metric_rows, most_numbers_out, budget): Terms) -> Conditions {
    let privacy = budget.map(|(epsilon, delta)| Budget { epsilon, delta });
    Conditions { least_batch, metric_rows, most_numbers_out, privacy }
}

/// The rows of a table, with their keys.
fn rows_of((text, label, mut drop, classes, schema, only, key): Frame) -> Result<DataSetRows> {
    // A key is not a value.
    drop.extend(key.iter().flat_map(|(columns, _)| columns.clone()));
    let (table, options) = table(&text, label, drop)?;
    let schema = schema.map(|path| Schema::read(Path::new(&path))).transpose()?.unwrap_or_default();
    let tensors = tensors_of(&table, &options, schema, classes, only)?;
    let keys = key.map(|(columns, secret)| -> Result<_> {
        let secret = KeySecret::read(Path::new(&secret))?;
        let keys = keys_of_table(Path::new(FRAME), &table, &columns, &secret)?;
        Ok((columns, keys))
    });
    Ok(DataSetRows { tensors, keys: keys.transpose()? })
}

/// The tensors of a table's rows.
fn tensors_of(
    table: &Table,
    options: &TableOptions,
    schema: Schema,
    classes: Option<u32>,
    only: Option<String>,
) -> Result<Vec<(RowTensor, Tensor)>> {
    let place = Path::new(FRAME);
    if only.as_deref() == Some("labels") {
        let rows = Rows::truths_of_table(place, table, schema.label.as_ref(), options)?;
        return Ok(vec![rows.labels(classes)?]);
    }
    let rows = Rows::of_table(place, table, schema, &[], (options, 1.0))?;
    let labels = only.is_none().then(|| rows.labels(classes)).transpose()?;
    Ok([rows.values()?].into_iter().chain(labels).collect())
}

/// The dimensions and numbers of each input in the rows of a table.
fn of_table(
    about: &About,
    table: &Table,
    options: &TableOptions,
) -> Result<Vec<(Vec<usize>, Vec<f64>)>> {
    let how = Reading {
        preprocess: &about.preprocess,
        scale: 1.0,
        table: options,
        label: about.label.as_ref(),
    };
    let inputs = inputs::of_all_inputs(Path::new(FRAME), table, about, &how)?;
    let each = inputs.into_iter().zip(&about.inputs).map(|(rows, input)| {
        let dims = about.shape_of(rows.len(), &input.dims);
        (dims, rows.into_iter().flat_map(|row| row.values).collect())
    });
    Ok(each.collect())
}

/// Arrays whose numbers are those of columns, as the model takes them.
fn by_columns(
    about: &About,
    mut arrays: Vec<(Vec<usize>, Vec<f64>)>,
) -> Result<Vec<(Vec<usize>, Vec<f64>)>> {
    for ((_, values), input) in arrays.iter_mut().zip(&about.inputs) {
        if input.columns.is_empty() || !values.len().is_multiple_of(input.len()) {
            continue;
        }
        let bad = |reason| Failure::input(format!("input `{}`: {reason}", input.name));
        for row in values.chunks_mut(input.len()) {
            let coded = inputs::by_columns(row, &input.columns).map_err(bad)?;
            row.copy_from_slice(&coded);
        }
    }
    Ok(arrays)
}

#[pymethods]
impl Connection {
    /// Reads a client's file. The first call connects to the servers.
    #[new]
    fn new(path: &str) -> PyResult<Self> {
        let config = ClientConfig::read(Path::new(path)).map_err(Failure::from)?;
        Ok(Self { config, kept: Arc::default() })
    }

    /// The client's name.
    #[getter]
    fn name(&self) -> String {
        self.config.name.clone()
    }

    /// Checks that the servers answer. Returns round trips in seconds.
    fn ping(&self, py: Python<'_>) -> PyResult<Vec<f64>> {
        let told = self.with(py, |client| Ok(client.ping()?))?;
        Ok(told.iter().map(|pong| pong.round_trip.as_secs_f64()).collect())
    }

    /// Secret-shares a model among the servers.
    #[pyo3(signature = (name, model, readers, ranges, labels, schema, replace, progress=None, text=None, prompt_steps=None, public_weights=false))]
    // The keyword arguments of Python's call.
    #[allow(clippy::too_many_arguments)]
    fn put(
        &self,
        py: Python<'_>,
        name: String,
        model: Py<Model>,
        readers: Option<Vec<String>>,
        ranges: Vec<Option<(f64, f64)>>,
        labels: Vec<String>,
        schema: Option<String>,
        replace: bool,
        progress: Option<Bound<'_, PyAny>>,
        text: Option<Texts>,
        prompt_steps: Option<Vec<usize>>,
        public_weights: bool,
    ) -> PyResult<()> {
        check_name("model", &name).map_err(Failure::input)?;
        let readers = named(readers)?;
        let model = model.get();
        let compiled = model.compiled().clone();
        let program = py.detach(|| model.program(prompt_steps.as_deref()))?;
        let sent = Arc::new(Sent::default());
        let watched = sent.clone();
        self.watched(
            py,
            || sent.tell(progress.as_ref()),
            move |client| {
                let program = program.with_public_weights(public_weights)?;
                let mut about = program.about(Preprocess::default(), labels)?;
                let mut tokenizer = Vec::new();
                if let Some((path, form, stops)) = text {
                    let path = Path::new(&path);
                    let (text, bytes) = text_of(path, (form, &stops), &program)?;
                    (about.text, tokenizer) = (Some(text), bytes);
                }
                let mut ranges: Vec<_> = ranges
                    .into_iter()
                    .map(|range| range.map(|(low, high)| Range { low, high }))
                    .collect();
                if let Some(path) = schema {
                    let schema = Schema::read(Path::new(&path))?;
                    let divided = schema.divided(&about);
                    let (columns, label) =
                        divided.map_err(|reason| Failure::input(format!("{path}: {reason}")))?;
                    about.describe(columns, label);
                    ranges.resize(about.inputs.len(), None);
                    for (range, input) in ranges.iter_mut().zip(&about.inputs) {
                        *range = range.or(Column::hull(&input.columns));
                    }
                }
                about.check()?;
                let weights = compiled.plan.encode_weights(&compiled.weights)?;
                let ranges = program.within_tables(ranges);
                let plan = program.to_bytes()?;
                let new = NewModel {
                    name: &name,
                    about: &about,
                    plan: &plan,
                    weights,
                    tokenizer: &tokenizer,
                    readers: &readers,
                    ranges: &ranges,
                    replace,
                };
                Ok(client.put(new, &*watched)?)
            },
        )
    }

    /// Runs a model on inputs, which are secret-shared here: arrays, or a table whose columns are matched by name. With a
    /// conversation's number, and the positions before these, it runs a step of that.
    #[pyo3(signature = (name, inputs, progress=None, conversation=None))]
    fn infer<'py>(
        &self,
        py: Python<'py>,
        name: String,
        inputs: Inputs<'py>,
        progress: Option<Bound<'_, PyAny>>,
        conversation: Option<(String, u64)>,
    ) -> PyResult<Answered<'py>> {
        let place = match conversation {
            Some((id, at)) => Some((id.parse::<Id>().map_err(Failure::input)?, at)),
            None => None,
        };
        let given = match inputs {
            Inputs::Table((text, drop)) => {
                let (table, options) = table(&text, None, drop)?;
                Given::Table(table, options)
            }
            Inputs::Arrays(arrays) => {
                let mut values = Vec::with_capacity(arrays.len());
                for array in &arrays {
                    let slice =
                        array.as_slice().map_err(|_| Failure::input("the array has gaps"))?;
                    values.push((array.shape().to_vec(), slice.to_vec()));
                }
                Given::Arrays(values)
            }
        };
        let sent = Arc::new(Sent::default());
        let watched = sent.clone();
        let (about, answer, examples) = self.watched(py, || sent.tell(progress.as_ref()), move |client| {
            let public = client.model(&name)?;
            let about = public.about;
            let values = match given {
                Given::Table(table, options) => of_table(&about, &table, &options)?,
                Given::Arrays(values) => by_columns(&about, values)?,
            };
            if values.len() != about.inputs.len() {
                let takes: Vec<_> = about.inputs.iter().map(ToString::to_string).collect();
                let (given, takes) = (values.len(), takes.join(", "));
                let text = format!("{given} inputs are given; model `{name}` takes {takes}");
                return Err(Failure::input(text));
            }
            let mut words = Vec::with_capacity(values.len());
            for (index, ((dims, values), input)) in values.iter().zip(&about.inputs).enumerate() {
                if *dims != about.shape_of(about.examples(dims), &input.dims) {
                    let batch = (!about.whole).then(|| "batch".to_owned());
                    let sizes = batch.into_iter().chain(input.dims.iter().map(ToString::to_string));
                    let sizes = sizes.collect::<Vec<_>>().join(", ");
                    let text = format!("input `{}` has shape {dims:?}; model `{name}` takes [{sizes}]", input.name);
                    return Err(Failure::input(text));
                }
                if let Some(Some(range)) = public.ranges.get(index)
                    && let Some(at) = range.outside(values)
                {
                    let text = format!(
                        "input `{}`: element {at} lies outside of {range}, for which its owner made the model",
                        input.name
                    );
                    return Err(Failure::new(Kind::Range, text));
                }
                let encoded = if input.integer {
                    whole(&input.name, values)?.into_iter().map(|value| value as u64).collect()
                } else {
                    FixedPoint(FracBits::new(about.input_bits(input))?).encode(values)?
                };
                words.push(Tensor::new(Shape::new(dims.clone())?, encoded)?);
            }
            let examples = values.first().map_or(0, |(dims, _)| about.examples(dims));
            let version = public.version;
            let answer = match place {
                Some(place) => client.extend((&name, version), place, (&words, 1), false, &*watched)?,
                None => client.infer(&name, version, &words, false, &*watched)?,
            };
            Ok((about, answer, examples))
        })?;
        let decoded = about.decode(examples, &answer.outputs).map_err(Failure::from)?;
        let outputs = about.outputs.iter().zip(decoded).map(|(output, examples_of)| {
            let flat: Vec<f64> = examples_of.concat();
            let dims = about.shape_of(examples, &output.dims);
            (output.name.clone(), flat.into_pyarray(py), dims)
        });
        let costs = &answer.costs;
        let bytes = costs.iter().map(|cost| cost.bytes).sum();
        let rounds = costs.iter().map(|cost| cost.rounds).max().unwrap_or(0);
        let seconds = costs.iter().map(|cost| cost.seconds).fold(0.0, f64::max);
        Ok((outputs.collect(), (bytes, rounds, seconds), about.labels.clone()))
    }

    /// The positions that a step of a conversation with a model adds; 0 for a model that keeps nothing.
    fn positions(&self, py: Python<'_>, name: String) -> PyResult<u32> {
        self.with(py, move |client| Ok(client.model(&name)?.about.positions))
    }

    /// Begins a text with a language model that returns tokens, and fetches its tokenizer if it has one.
    fn chat(&self, py: Python<'_>, name: String) -> PyResult<Chat> {
        self.with(py, move |client| {
            let public = client.model(&name)?;
            let text = public.about.text.clone();
            let talk = Talk::new(&name, public)?;
            let tokenizer = match &text {
                Some(text) => {
                    let bytes = client.tokenizer(&name, text.tokenizer)?;
                    Some(Tokenizer::parse(&bytes).map_err(Failure::input)?)
                }
                None => None,
            };
            Ok(Chat::new(talk, tokenizer, text))
        })
    }

    /// Says tokens in a text, and returns the next `ahead` tokens, with the servers' bytes, rounds and seconds.
    fn say(
        &self,
        py: Python<'_>,
        chat: PyRef<'_, Chat>,
        tokens: Vec<u64>,
        ahead: u32,
    ) -> PyResult<(Vec<u64>, (u64, u32, f64))> {
        let talk = chat.talk();
        let (next, cost) = self.with(py, move |client| {
            let mut talk = talk.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(talk.say(client, &tokens, ahead, &())?)
        })?;
        Ok((next, (cost.bytes, cost.rounds, cost.seconds)))
    }

    /// Makes the servers forget a text.
    fn end(&self, py: Python<'_>, chat: PyRef<'_, Chat>) -> PyResult<()> {
        let talk = chat.talk();
        self.with(py, move |client| {
            let talk = talk.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(talk.close(client)?)
        })
    }

    /// Makes the servers forget a conversation.
    fn close(&self, py: Python<'_>, conversation: String) -> PyResult<()> {
        let id = conversation.parse::<Id>().map_err(Failure::input)?;
        self.with(py, move |client| Ok(client.close(id, &())?))
    }

    /// The models that this client may use.
    fn models(&self, py: Python<'_>) -> PyResult<Vec<Listed>> {
        let models = self.with(py, |client| Ok(client.models()?))?;
        let mut names: Vec<String> =
            models.iter().flatten().map(|model| model.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let listed = names.into_iter().filter_map(|name| {
            let found = models.iter().flatten().find(|model| model.name == name)?;
            let state = agree_on_line(&name, &models)
                .map_or_else(|error| error.to_string(), |_| "ready".to_owned());
            let (inputs, outputs) = (found.inputs.clone(), found.outputs.clone());
            Some((name, found.owner.clone(), found.weights, inputs, outputs, state))
        });
        Ok(listed.collect())
    }

    /// Removes a model of this client's.
    fn remove(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.with(py, move |client| Ok(client.remove(&name, &())?))
    }

    /// Sets the readers of a model or data set of this client's: these clients, or everyone.
    fn share(&self, py: Python<'_>, name: String, readers: Option<Vec<String>>) -> PyResult<()> {
        let readers = named(readers)?;
        self.with(py, move |client| Ok(client.share(&name, &readers, &())?))
    }

    /// Secret-shares rows of data among the servers: those of a table, or the tensors of all rows.
    // The keyword arguments of Python's call.
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (name, rows, conditions, readers, replace, progress=None))]
    fn put_data(
        &self,
        py: Python<'_>,
        name: String,
        rows: DataRows<'_>,
        conditions: Terms,
        readers: Option<Vec<String>>,
        replace: bool,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        check_name("data set", &name).map_err(Failure::input)?;
        let readers = named(readers)?;
        let conditions = conditions_of(conditions);
        let rows = match rows {
            DataRows::Table(frame) => py.detach(|| rows_of(frame))?,
            DataRows::Tensors(arrays) => {
                let tensors = arrays.into_iter().map(|(name, array)| row_tensor(name, &array));
                DataSetRows { tensors: tensors.collect::<Result<_>>()?, keys: None }
            }
        };
        let sent = Arc::new(Sent::default());
        let watched = sent.clone();
        self.watched(
            py,
            || sent.tell(progress.as_ref()),
            move |client| {
                learn::put_data(client, &name, rows, conditions, &readers, replace, &*watched)
            },
        )
    }

    /// The data sets that this client may use.
    fn data_sets(&self, py: Python<'_>) -> PyResult<Vec<DataInfo>> {
        self.with(py, learn::data_sets)
    }

    /// This client's runs, and those that use its data.
    fn runs(&self, py: Python<'_>) -> PyResult<Vec<RunInfo>> {
        self.with(py, learn::runs)
    }

    /// Begins a training on data at the servers, or finds the one that is this one.
    #[pyo3(signature = (name, training, data, epochs, seed, labels, recipients, openings, replace, progress=None))]
    // The keyword arguments of Python's call.
    #[allow(clippy::too_many_arguments)]
    fn begin(
        &self,
        py: Python<'_>,
        name: String,
        training: PyRef<'_, Training>,
        data: Vec<Sets>,
        epochs: u32,
        seed: u64,
        labels: Vec<String>,
        recipients: Vec<String>,
        openings: (Option<u32>, Vec<u32>),
        replace: bool,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<RunInfo> {
        check_name("run", &name).map_err(Failure::input)?;
        for recipient in &recipients {
            check_name("client", recipient).map_err(Failure::input)?;
        }
        let plan = training.plan();
        let start = training.start_values();
        let state = py.detach(|| plan.encode_state(start)).map_err(Failure::from)?;
        let augment = Augment::default();
        let course = Course { epochs, seed, schedule: training.schedule(), augment };
        let (metrics_every, weights_after) = openings;
        let data = data.into_iter().map(group_of).collect::<Result<_>>()?;
        let run = Wanted {
            name,
            data,
            request: training.request(),
            state,
            course,
            labels,
            recipients,
            metrics_every,
            weights_after,
            replace,
        };
        let sent = Arc::new(Sent::default());
        let watched = sent.clone();
        self.watched(
            py,
            || sent.tell(progress.as_ref()),
            move |client| learn::begin(client, &run, &*watched),
        )
    }

    /// Runs a training once all have consented. `told` is called regularly with the run's news: slices, the reason why
    /// one has failed, and the clients that have not consented. It returns whether to continue. Returns the step
    /// after which the run stands.
    fn drive(&self, py: Python<'_>, name: String, told: Bound<'_, PyAny>) -> PyResult<u32> {
        let config = self.config.clone();
        let followed = Arc::new(Followed::default());
        let driven = followed.clone();
        let tell = || {
            let News { slices, failed, missing } = followed.news();
            let going = told.call1((slices, failed, missing)).and_then(|going| going.is_truthy());
            // Also if the call has failed: no caller follows the run then.
            if !going.as_ref().is_ok_and(|going| *going) {
                followed.stop();
            }
            going.map(drop)
        };
        // By a separate connection: other calls do not wait for the run.
        apart(py, tell, move || learn::drive(client::connect(&config)?, &config, name, &driven))
    }

    /// The rows that an analysis of these data sets gets: their number, and the name, the dimensions, the fraction bits and the
    /// columns of each tensor.
    fn rows_of(&self, py: Python<'_>, data: Vec<Sets>) -> PyResult<(usize, Vec<RowsOf>)> {
        let data = data.into_iter().map(group_of).collect::<Result<Vec<_>>>()?;
        let found = self.with(py, move |client| learn::rows_of(client, &data))?;
        let column = |column: Column| {
            let width = column.width();
            (column.name, width)
        };
        let each = found.tensors.into_iter().map(|tensor| {
            let columns = tensor.columns.into_iter().map(column).collect();
            (tensor.name, tensor.dims, tensor.fraction_bits, columns)
        });
        Ok((found.rows, each.collect()))
    }

    /// Begins an analysis that a session has recorded, or finds the one that is this one. Its results have names.
    #[pyo3(signature = (name, session, results, data, recipients, replace))]
    // The keyword arguments of Python's call.
    #[allow(clippy::too_many_arguments)]
    fn analyse(
        &self,
        py: Python<'_>,
        name: String,
        session: PyRef<'_, Session>,
        results: Vec<(String, PyRef<'_, Handle>)>,
        data: Vec<Sets>,
        recipients: Vec<String>,
        replace: bool,
    ) -> PyResult<RunInfo> {
        check_name("run", &name).map_err(Failure::input)?;
        for recipient in &recipients {
            check_name("client", recipient).map_err(Failure::input)?;
        }
        let data = data.into_iter().map(group_of).collect::<Result<_>>()?;
        let (steps, results) = session.recorded(py, &results)?;
        let wanted = Analysed { name, data, steps, results, recipients, replace };
        self.with(py, move |client| learn::analyse(client, wanted, &()))
    }

    /// Consents to a run on this client's data whose fingerprint begins with these letters.
    fn approve(&self, py: Python<'_>, name: String, fingerprint: String) -> PyResult<()> {
        self.with(py, move |client| learn::approve(client, &name, &fingerprint))
    }

    /// Takes the consent to a run on this client's data back.
    fn withdraw(&self, py: Python<'_>, name: String) -> PyResult<()> {
        let config = self.config.clone();
        Ok(py.detach(move || learn::withdraw(&config, &name))?)
    }

    /// The weights of a run that this client may have, after which step, by name and as a model; or the results of an
    /// analysis, with whether they are integers.
    fn get<'py>(&self, py: Python<'py>, name: String) -> PyResult<Got<'py>> {
        let learnt = self.with(py, move |client| learn::get(client, &name))?;
        let weights = learnt.weights.iter();
        let weights = weights.map(|(name, value, whole)| (name.clone(), flat(py, value), *whole));
        Ok((learnt.step, weights.collect(), learnt.model))
    }

    /// Makes a model of the state of a run of this client's.
    fn publish(
        &self,
        py: Python<'_>,
        run: String,
        name: String,
        readers: Option<Vec<String>>,
        replace: bool,
    ) -> PyResult<()> {
        check_name("model", &name).map_err(Failure::input)?;
        let readers = named(readers)?;
        self.with(py, move |client| learn::publish(client, &run, &name, &readers, replace))
    }
}

/// The result of a run: its last step, the weights or results by name, and the model if it is a training.
type Got<'py> = (u32, Vec<(String, Flat<'py>, bool)>, Option<Model>);

/// A tensor of rows: name, dimensions of a row, fraction bits, and its columns with the numbers that each becomes.
type RowsOf = (String, Vec<usize>, u32, Vec<(String, usize)>);

/// The readers of a model or data set: these clients, or everyone.
fn named(readers: Option<Vec<String>>) -> Result<Readers> {
    let readers = readers.map_or(Readers::Everyone, Readers::Named);
    readers.check()?;
    Ok(readers)
}

impl Connection {
    fn with<T: Send + 'static>(
        &self,
        py: Python<'_>,
        talk: impl FnOnce(&mut Client) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        self.watched(py, || Ok(()), talk)
    }

    /// Runs a call over the open connection, or a new one. `show` is called regularly, and at the end.
    fn watched<T: Send + 'static>(
        &self,
        py: Python<'_>,
        show: impl Fn() -> PyResult<()>,
        talk: impl FnOnce(&mut Client) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let config = self.config.clone();
        let kept = self.kept.clone();
        apart(py, show, move || {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let mut client = match kept.take().and_then(Kept::usable) {
                Some(client) => client,
                None => client::connect(&config)?,
            };
            let value = talk(&mut client)?;
            // Only a connection that has not failed is used again.
            *kept = Some(Kept { client, used: Instant::now() });
            Ok(value)
        })
    }
}

/// Works in a separate thread, so that Ctrl-C ends the wait. `show` is called regularly, and at the end.
fn apart<T: Send + 'static>(
    py: Python<'_>,
    show: impl Fn() -> PyResult<()>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let (say, hear) = bounded(1);
    // The caller no longer waits for a call that was interrupted.
    let run = move || drop(say.send(work()));
    thread::Builder::new()
        .name("trefoil client".to_owned())
        .spawn(run)
        .map_err(|cause| Failure::new(Kind::Failed, format!("a thread: {cause}")))?;
    loop {
        match py.detach(|| hear.recv_timeout(TICK)) {
            Ok(outcome) => {
                let value = outcome?;
                return show().map(|()| value);
            }
            Err(RecvTimeoutError::Timeout) => py.check_signals().and_then(|()| show())?,
            Err(RecvTimeoutError::Disconnected) => {
                let text = "the conversation with the servers was lost";
                return Err(Failure::new(Kind::Failed, text).into());
            }
        }
    }
}

/// Counts the bytes that leave, for a progress bar.
#[derive(Default)]
struct Sent {
    bytes: AtomicU64,
    of: AtomicU64,
}

impl Sent {
    /// Updates a progress bar.
    fn tell(&self, progress: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(progress) = progress else { return Ok(()) };
        let so_far = (self.bytes.load(Ordering::Relaxed), self.of.load(Ordering::Relaxed));
        progress.call1(so_far).map(drop)
    }
}

impl Watch for Sent {
    fn sent(&self, bytes: u64, of: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.of.store(of, Ordering::Relaxed);
    }
}
