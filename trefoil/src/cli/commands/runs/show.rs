//! `trefoil run show`: what an owner of data should know of a run before consenting to it.

use nn_layers::{
    LayerInfo, Plan,
    train::{Adam, Classes, Loss, Optimiser, Second, TrainPlan},
};
use serde_json::{Value, json};

mod analysis;

use super::{progress, shown};
use crate::{
    base::{Result, format::table},
    cli::output::Output,
    client::agree_on_item,
    training::{
        Augment, Budget, DELTA, Flow, Join, Planned, Position, Run, Training, Used, tensors,
    },
    wire::{DataState, RunState},
};

/// Pairs of a join of which fewer are worth a warning.
const FEW: usize = 100;

/// Prints all that an owner of data should know before consenting to a run.
pub(super) fn show(
    state: &RunState,
    planned: &Planned,
    sets: &[Vec<DataState>],
    output: Output,
) -> Result<()> {
    match planned {
        Planned::Training(plan) => show_training(state, plan, sets, output),
        Planned::Analysis(analysis) => {
            analysis::show(state, analysis, output)?;
            ask(state, output)
        }
    }
}

/// Tells the owners of data how to consent, unless all have.
fn ask(state: &RunState, output: Output) -> Result<()> {
    if state.run.missing(&state.owner).is_empty() {
        return Ok(());
    }
    output.remark(format!(
        "owners of its data consent with `trefoil run approve {} {}`",
        state.name,
        shown(state.run.fingerprint)
    ))
}

/// Prints all that an owner of data should know before consenting to a training.
pub(in crate::cli::commands) fn show_training(
    state: &RunState,
    plan: &TrainPlan,
    sets: &[Vec<DataState>],
    output: Output,
) -> Result<()> {
    let run = &state.run;
    let training = Training::new(plan.clone(), &run.spec, run.rows)?;
    let network = layers(plan.inference(), plan.inference().fixed_batch().unwrap_or(1))?;
    let step = layers(plan.step_plan(), plan.batch())?;
    let flow = training.flow()?;
    let mut warnings = warnings(&training, &flow);
    warnings.extend(few_pairs(&run.spec.data));
    let told = told(&training, run, sets)?;
    let value = json!({
        "name": state.name, "owner": state.owner, "run": run, "options": plan.options(),
        "batch": plan.batch(), "steps": training.steps(), "weights": flow.weights,
        "leaves": { "flow": flow, "to": getting(state), "numbers_out": flow.numbers_out() },
        "warnings": warnings, "privacy": told.iter().map(Told::json).collect::<Vec<_>>(),
        "network": network.iter().map(Shown::json).collect::<Vec<_>>(),
        "step": step.iter().map(Shown::json).collect::<Vec<_>>(),
    });
    output.result(&value, || {
        let heading = ["layer", "what", "result", "weights"];
        let rows: Vec<_> = network.iter().map(Shown::row).collect();
        let mut text = described(state, &training, step.len());
        text += &leaving(state, &training, &flow);
        text += &protection(&training);
        for told in &told {
            text += &told.line();
        }
        for warning in &warnings {
            text += &format!("WARNING      {warning}\n");
        }
        let table = table(&heading, &rows);
        format!(
            "{text}state        {}\n\nThe network, applied to one row:\n{table}",
            progress(state)
        )
    })?;
    ask(state, output)
}

/// The network, the data and the course of a run.
fn described(state: &RunState, training: &Training, operations: usize) -> String {
    let (run, spec) = (&state.run, &state.run.spec);
    let plan = training.plan();
    let sets = sets(run);
    let row: Vec<_> = tensors(plan).iter().flatten().map(ToString::to_string).collect();
    let joins = joins(&spec.data);
    let pictures = pictures(training.course().augment);
    let options = plan.options();
    format!(
        "run          {}\n\
         fingerprint  {}\n\
         data         {sets}: {} rows in all, each seen {} times\n\
         {joins}a row        {}\n\
         {}{}training     {} steps of {} rows, rate up to {}, seed {}\n\
         {pictures}{:13}{}, {}\n\
         a step       {operations} operations on shares, derived on this machine: `--json` lists them all\n",
        state.name,
        shown(run.fingerprint),
        run.rows,
        training.course().epochs,
        row.join(", "),
        columns(run),
        standardised(training, run),
        training.steps(),
        plan.batch(),
        training.course().schedule.rate,
        training.course().seed,
        "",
        loss(&options.loss),
        optimiser(options.optimiser),
    )
}

/// The data sets of a run and their owners.
fn sets(run: &Run) -> String {
    let sets = run.spec.data.iter().zip(&run.owners).enumerate();
    let sets = sets.map(|(at, (used, owner))| {
        let between = match (at, used.position) {
            (0, _) => "",
            (_, Position::Beside) => " beside ",
            (_, Position::Joined(_)) => " joined by key with ",
            (_, Position::After) => ", ",
        };
        format!("{between}{} of {owner}", used.name)
    });
    sets.collect()
}

/// The joins of data sets, and what they tell.
fn joins(data: &[Used]) -> String {
    let mut text = String::new();
    for both in data.windows(2) {
        let [left, Used { name: right, position: Position::Joined(how), .. }] = both else {
            continue;
        };
        let left = &left.name;
        text += &match how {
            Join::Inner { rows } => format!(
                "join         {rows} pairs of rows of {left} and {right} with one key: the servers and the run's owner \
                 learn whether there are as many and whether a key is there twice, and nothing else of the keys\n"
            ),
            Join::Left => format!(
                "join         all rows of {left}, with the row of {right} of the same key, or zeros: the servers and the \
                 run's owner learn whether a key is there twice, and nothing else of the keys\n"
            ),
        };
    }
    text
}

/// The loss, in words.
fn loss(loss: &Loss) -> String {
    let classes = |name: &str, classes: &Classes| {
        let Classes { smoothing, weights, ignore, soft, .. } = classes;
        let mut text = name.to_owned();
        if *smoothing > 0.0 {
            text += &format!(", {smoothing} of each label shared among all classes");
        }
        for (holds, what) in [
            (!weights.is_empty(), ", classes weighted"),
            (*ignore, ", rows without a class left out"),
            (*soft, ", labels are probabilities"),
        ] {
            text += if holds { what } else { "" };
        }
        text
    };
    match loss {
        Loss::CrossEntropy(of) => classes("cross-entropy", of),
        Loss::LogLikelihood(of) => classes("negative log-likelihood", of),
        Loss::BinaryCrossEntropy { .. } => "binary cross-entropy".to_owned(),
        Loss::ProbabilityCrossEntropy => "binary cross-entropy of probabilities".to_owned(),
        Loss::MeanSquare => "mean square error".to_owned(),
        Loss::Absolute => "mean absolute error".to_owned(),
        Loss::Huber(size) => format!("Huber loss, linear beyond {size}"),
        Loss::SmoothAbsolute(size) => format!("smooth absolute error, linear beyond {size}"),
        other => format!("{other:?}"),
    }
}

/// The optimiser, in words.
fn optimiser(optimiser: Optimiser) -> String {
    match optimiser {
        Optimiser::Sgd { momentum, nesterov, decay } => {
            let mut text = "SGD".to_owned();
            if momentum > 0.0 {
                text += &format!(", momentum {momentum}");
            }
            if nesterov {
                text += ", Nesterov";
            }
            if decay > 0.0 {
                text += &format!(", weight decay {decay}");
            }
            text
        }
        Optimiser::Adam(Adam { betas, epsilon, decay, decoupled, amsgrad, second, .. }) => {
            let name = match (amsgrad, decoupled) {
                (true, _) => "AMSGrad",
                (false, true) => "AdamW",
                (false, false) => "Adam",
            };
            let rows = if second == Second::Row { ", one second moment for each row" } else { "" };
            let [first, other] = betas;
            let decay = if decay > 0.0 { format!(", weight decay {decay}") } else { String::new() };
            format!("{name}, betas {first} and {other}, epsilon {epsilon}{decay}{rows}")
        }
        other => format!("{other:?}"),
    }
}

/// The names of the rows' columns, if they have some, the label last.
fn columns(run: &Run) -> String {
    let names: Vec<_> = run.columns.iter().flatten().map(|column| column.name.as_str()).collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!("columns      {}\n", names.join(", ")),
    }
}

/// The preparation of the columns on shares, if the run has one.
fn standardised(training: &Training, run: &Run) -> String {
    if !training.plan().options().standardize {
        return String::new();
    }
    let categories = match run.categories().concat().contains(&true) {
        true => "; columns of categories stay as they are",
        false => "",
    };
    format!(
        "prepared     each column less its mean, over its deviation, both of all rows and made on shares: they leave \
         with the weights alone{categories}\n"
    )
}

/// The numbers that leave the servers, how often and to whom, and the numbers that went in.
fn leaving(state: &RunState, training: &Training, flow: &Flow) -> String {
    let openings = training.openings();
    let (steps, all) = (&openings.weights, training.steps());
    let times = match steps.as_slice() {
        [one] => format!("once, after step {one} of {all}"),
        many => format!("{} times, after steps {many:?} of {all}", many.len()),
    };
    let metrics = &training.plan().options().metrics;
    let names: Vec<_> = metrics.iter().map(|metric| metric.name()).collect();
    let window = openings.window(0, all).len() as u32;
    format!(
        "leaves       {} numbers of the trained network, {times}, to {}\n\
         {:13}{}: {} numbers in all, each summed over {} rows or more, to {}\n\
         {:13}{} numbers that say which layers kept within their range, to {}\n\
         went in      {} numbers of {} rows\n",
        flow.weights,
        getting(state).join(", "),
        "",
        if names.is_empty() { "no metrics".to_owned() } else { names.join(" and ") },
        flow.metrics,
        training.rows_of(window),
        state.owner,
        "",
        flow.checks,
        state.owner,
        flow.numbers_in,
        flow.rows,
    )
}

/// The protection of a row by noise.
fn protection(training: &Training) -> String {
    let Some(privacy) = &training.plan().options().privacy else {
        return "privacy      no noise: the weights may tell of single rows, and no epsilon holds\n".to_owned();
    };
    let unit = match privacy.rows {
        1 => "each row".to_owned(),
        rows => format!("each {rows} rows"),
    };
    format!(
        "privacy      the gradient of {unit} clipped to {}, noise {} times as much: epsilon {} at delta {} for a row, \
         which {} steps use. Everybody may know in which\n",
        privacy.clip,
        privacy.noise,
        epsilon(training, privacy.delta),
        privacy.delta,
        training.course().epochs,
    )
}

/// Epsilon of a run, in words.
pub(super) fn epsilon(training: &Training, delta: f64) -> String {
    let epsilon = training.privacy().and_then(|cost| match cost {
        Some(cost) => Ok(format!("{:.3}", cost.epsilon(delta)?)),
        None => Ok("unlimited".to_owned()),
    });
    epsilon.unwrap_or_else(|error| error.to_string())
}

/// The epsilon of all runs on a data set for a row, before this run and after it.
struct Told {
    set: String,
    budget: Option<Budget>,
    delta: f64,
    before: String,
    after: String,
}

impl Told {
    fn json(&self) -> Value {
        let Self { set, budget, delta, before, after } = self;
        json!({ "set": set, "budget": budget, "delta": delta, "before": before, "after": after })
    }

    fn line(&self) -> String {
        let budget = self.budget.map_or(String::new(), |budget| format!(", of {}", budget.epsilon));
        let Self { set, before, after, .. } = self;
        format!("{:13}of {set} epsilon is {before} so far, and {after} with this run{budget}\n", "")
    }
}

/// The epsilons of each data set that this client may see.
fn told(training: &Training, run: &Run, sets: &[Vec<DataState>]) -> Result<Vec<Told>> {
    let cost = training.privacy()?;
    let mut all = Vec::new();
    for used in &run.spec.data {
        let Ok(state) = agree_on_item::<DataState>(&used.name, sets) else { continue };
        let budget = state.set.conditions.privacy;
        let privacy = training.plan().options().privacy;
        let delta = budget.map(|budget| budget.delta).or(privacy.map(|privacy| privacy.delta));
        let delta = delta.unwrap_or(DELTA);
        let mut after = state.spent.clone();
        after.add(cost.as_ref());
        all.push(Told {
            set: used.name.clone(),
            budget,
            delta,
            before: state.spent.told(delta)?,
            after: after.told(delta)?,
        });
    }
    Ok(all)
}

/// The points that an owner of data should think about before consenting.
fn warnings(training: &Training, flow: &Flow) -> Vec<String> {
    let mut warnings = Vec::new();
    if flow.leaves_much() {
        warnings.push(format!(
            "{} numbers may leave and {} went in: a network can be made whose weights are rows of the data. Consent \
             only if you trust the run's owner with them, or ask for a smaller network or fewer openings",
            flow.numbers_out(),
            flow.numbers_in
        ));
    }
    let row = flow.numbers_in / flow.rows.max(1);
    let batch = training.plan().batch() as u64 * row;
    let wide: Vec<_> = training.learnt().filter(|spec| spec.shape.len() as u64 >= batch).collect();
    if !wide.is_empty() && flow.leaves_much() {
        let names: Vec<_> = wide.iter().map(|spec| format!("`{}`", spec.name)).collect();
        warnings.push(format!(
            "weights {} have as many numbers as a batch ({batch}) or more: each row can have weights of its own",
            names.join(", ")
        ));
    }
    let inference = training.plan().inference();
    if inference.fixed_batch().is_some() || !inference.keeps_examples_apart() {
        warnings.push(
            "the network treats the rows of a batch differently by their place: a weight can see a row alone"
                .to_owned(),
        );
    }
    warnings
}

/// Joins of so few rows that the bit which they open tells of single people.
fn few_pairs(data: &[Used]) -> Vec<String> {
    let few = data.iter().filter_map(|used| match used.position {
        Position::Joined(Join::Inner { rows }) if rows < FEW => Some((&used.name, rows)),
        _ => None,
    });
    few.map(|(name, rows)| {
        format!(
            "the join with {name} asks for {rows} pairs: whoever puts a set of a few people's keys learns whether they \
             are in the other set"
        )
    })
    .collect()
}

/// The changes of pictures, if any.
fn pictures(augment: Augment) -> String {
    let mut changes = Vec::new();
    if augment.flip {
        changes.push("half of them mirrored".to_owned());
    }
    if augment.crop > 0 {
        changes.push(format!("moved by up to {} pixels", augment.crop));
    }
    if changes.is_empty() {
        return String::new();
    }
    format!("{:13}pictures {} in each step, by coins of the seed\n", "", changes.join(" and "))
}

/// The clients that get the trained weights.
fn getting(state: &RunState) -> Vec<&str> {
    let recipients = state.run.spec.recipients.iter().map(String::as_str);
    std::iter::once(state.owner.as_str()).chain(recipients).collect()
}

/// A layer as it is shown.
struct Shown {
    name: String,
    kind: &'static str,
    shape: Vec<usize>,
    /// Names and shapes.
    weights: Vec<(String, Vec<usize>)>,
}

/// The layers of a plan.
fn layers(plan: &Plan, batch: usize) -> Result<Vec<Shown>> {
    let weights = plan.weights();
    let shown = |layer: LayerInfo<'_>| {
        let of = |name: &&str| {
            let spec = weights.iter().find(|spec| spec.name == **name);
            ((*name).to_owned(), spec.map(|spec| spec.shape.dims().to_vec()).unwrap_or_default())
        };
        Shown {
            name: layer.name.to_owned(),
            kind: layer.kind,
            shape: layer.shape.dims().to_vec(),
            weights: layer.weights.iter().map(of).collect(),
        }
    };
    Ok(plan.layers(batch)?.into_iter().map(shown).collect())
}

impl Shown {
    fn row(&self) -> Vec<String> {
        let weights: Vec<_> =
            self.weights.iter().map(|(name, dims)| format!("{name} {dims:?}")).collect();
        let kind = self.kind.to_owned();
        vec![self.name.clone(), kind, format!("{:?}", self.shape), weights.join(", ")]
    }

    fn json(&self) -> Value {
        let weights: Vec<_> = self.weights.iter().map(|(name, _)| name).collect();
        json!({ "name": self.name, "kind": self.kind, "shape": self.shape, "weights": weights })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Id;

    #[test]
    fn a_join_of_few_pairs_is_shown_with_a_warning() {
        let set = |name: &str, position| Used {
            name: name.to_owned(),
            version: Id::from([1; 16]),
            position,
        };
        let data = |join| [set("hospital", Position::After), set("bank", Position::Joined(join))];
        let few = data(Join::Inner { rows: 99 });
        let warnings = few_pairs(&few);
        assert!(warnings[0].contains("the join with bank asks for 99 pairs"), "{warnings:?}");
        assert!(joins(&few).contains("99 pairs of rows of hospital and bank"));
        let left = data(Join::Left);
        assert!(joins(&left).contains("all rows of hospital, with the row of bank"));
        for enough in [data(Join::Inner { rows: 100 }), left] {
            assert!(few_pairs(&enough).is_empty());
        }
    }
}
