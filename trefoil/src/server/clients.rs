//! What a server does for one client.

use std::{
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use ring_arith::{EngineTensor, Shape};

use super::{Coming, Core, Job, Outcome, Output, Queue, Reserved, Server, Work};
use crate::{
    About, Error, Id, Result, Shares,
    config::check_name,
    program::Program,
    store::Holding,
    wire::{
        Channel, Link, ModelState, Reply, Request, check_shapes, hear, receive_bytes, receive_part,
        say, send_bytes,
    },
};

/// A connection on which nothing is asked for so long is closed.
const IDLE: Duration = Duration::from_secs(600);

/// A client that has begun to send goes on within this time.
const UPLOAD: Duration = Duration::from_secs(30);

/// How often a waiting client hears that it is not forgotten.
const WORD: Duration = Duration::from_secs(1);

/// Longest plan in bytes.
const PLAN: u64 = 64 << 20;

impl Server {
    /// Answers one client until it leaves. `client` is the name in its certificate.
    pub fn serve_client(&self, channel: &mut dyn Channel, client: &str) {
        let core = &self.0;
        let others = core.clients.fetch_add(1, Ordering::AcqRel);
        let outcome = if others < core.limits.clients {
            serve(core, channel, client)
        } else {
            let reason = format!("{others} clients are connected already; try again later");
            say(channel, &Reply::Failed { reason })
        };
        core.clients.fetch_sub(1, Ordering::AcqRel);
        if let Err(error) = outcome {
            tracing::debug!(client, %error, "connection ended");
        }
    }
}

fn serve(core: &Arc<Core>, channel: &mut dyn Channel, client: &str) -> Result<()> {
    loop {
        let mut busy = false;
        let answered = hear(channel, IDLE)
            .and_then(|request| answer(core, channel, client, request, &mut busy));
        let error = match answered {
            Ok(()) => continue,
            Err(error @ Error::Unreachable { .. }) => return Err(error),
            Err(error) => error,
        };
        tracing::info!(client, %error, "request refused");
        say(channel, &Reply::Failed { reason: error.to_string() })?;
        if busy {
            // What the client still sends belongs to the refused request.
            return Ok(());
        }
    }
}

/// Answers one request. Sets `busy` once the client has been told to send data.
fn answer(
    core: &Arc<Core>,
    channel: &mut dyn Channel,
    client: &str,
    request: Request,
    busy: &mut bool,
) -> Result<()> {
    match &request {
        Request::Ping => {
            let program = env!("CARGO_PKG_VERSION").to_owned();
            say(channel, &Reply::Pong { party: core.me, program })
        }
        Request::Status => {
            let status = Server(core.clone()).status()?;
            say(channel, &Reply::Status(Box::new(status)))
        }
        Request::Models => say(channel, &Reply::Models(models(core)?)),
        Request::Put { job, name, about, plan, weights, replace } => {
            check_put(core, name, about, *replace)?;
            let shapes = check_shapes(weights, core.limits.upload_bytes())?;
            if *plan > PLAN {
                return Err(Error::refused(
                    "model",
                    format!("its plan has more than {PLAN} bytes"),
                ));
            }
            let reserved = core.reserve(2 * bytes_of(&shapes) + plan)?;
            let coming = core.announce(*job);
            *busy = true;
            say(channel, &Reply::Send)?;
            let plan = receive_bytes(channel, *plan as usize, UPLOAD)?;
            Program::parse(&plan)?.check_model(about, &shapes)?;
            let shares = receive_shares(core, channel, &shapes)?;
            *busy = false;
            let (name, about) = (name.clone(), about.clone());
            let work = Work::Put { name, about, plan, shares };
            run(core, channel, client, *job, &request, None, work, reserved, Some(coming))
        }
        Request::Remove { job, name } => {
            check_name("model", name).map_err(|reason| Error::refused("request", reason))?;
            let reserved = core.reserve(0)?;
            let work = Work::Remove { name: name.clone() };
            run(core, channel, client, *job, &request, None, work, reserved, None)
        }
        Request::Infer { job, model, inputs, profile } => {
            let (version, program) = core.cache.program(&core.store, model)?;
            let shapes = check_shapes(inputs, core.limits.upload_bytes())?;
            program.check_inputs(&shapes, core.limits.activation_words())?;
            let reserved = core.reserve(2 * bytes_of(&shapes))?;
            let coming = core.announce(*job);
            *busy = true;
            say(channel, &Reply::Send)?;
            let inputs = receive_shares(core, channel, &shapes)?;
            *busy = false;
            let work = Work::Infer { model: model.clone(), inputs, profile: *profile };
            run(core, channel, client, *job, &request, Some(version), work, reserved, Some(coming))
        }
    }
}

fn receive_shares(core: &Core, channel: &mut dyn Channel, shapes: &[Shape]) -> Result<Shares> {
    receive_part(channel, core.me, shapes, UPLOAD)?.expand(core.me, shapes)
}

fn bytes_of(shapes: &[Shape]) -> u64 {
    shapes.iter().map(|shape| shape.len() as u64 * 8).sum()
}

/// Checks what can be checked before a model is sent.
fn check_put(core: &Core, name: &str, about: &About, replace: bool) -> Result<()> {
    check_name("model", name).map_err(|reason| Error::refused("request", reason))?;
    about.check()?;
    let holdings = core.store.inventory()?;
    let taken =
        |held: &Holding| held.name == name && (held.visible.is_some() || held.damage.is_some());
    if !replace && holdings.iter().any(taken) {
        let reason = "is there already; use --replace, or another name";
        return Err(Error::refused(format_args!("model `{name}`"), reason));
    }
    Ok(())
}

fn models(core: &Core) -> Result<Vec<ModelState>> {
    let state = |holding: Holding| {
        let manifest = core.store.manifest(&holding.name).ok();
        let about = manifest.as_ref().map(|manifest| manifest.about.clone());
        ModelState {
            name: holding.name,
            version: holding.visible,
            about,
            owner: manifest.as_ref().map(|manifest| manifest.owner.clone()),
            put_at: manifest.as_ref().map(|manifest| manifest.put_at),
            damage: holding.damage,
        }
    };
    let held = core.store.inventory()?.into_iter();
    Ok(held.filter(|held| held.visible.is_some() || held.damage.is_some()).map(state).collect())
}

/// Queues a job and keeps its client informed until it has ended.
#[allow(clippy::too_many_arguments)] // all of a job, once
fn run(
    core: &Arc<Core>,
    channel: &mut dyn Channel,
    client: &str,
    id: Id,
    request: &Request,
    version: Option<Id>,
    work: Work,
    reserved: Reserved,
    coming: Option<Coming>,
) -> Result<()> {
    let (outcome, outcomes) = mpsc::channel();
    let job = Job { client: client.to_owned(), work, outcome, _reserved: reserved };
    core.submit(id, request.digest(client, version), job)?;
    drop(coming);
    let waited = wait(core, channel, id, &outcomes);
    if waited.is_err() {
        core.cancel(id);
    }
    match waited? {
        Ok(Output::Nothing) => say(channel, &Reply::Done),
        Ok(Output::Components(components, cost)) => {
            let dims = |tensor: &ring_arith::Tensor| tensor.shape().dims().to_vec();
            let outputs = components.iter().map(dims).collect();
            say(channel, &Reply::Result { outputs, cost })?;
            let ignore = &mut |_| {};
            components.iter().try_for_each(|words| send_bytes(channel, words.to_bytes(), ignore))
        }
        Err(reason) => say(channel, &Reply::Failed { reason }),
    }
}

fn wait(
    core: &Core,
    channel: &mut dyn Channel,
    id: Id,
    outcomes: &mpsc::Receiver<Outcome>,
) -> Result<Outcome> {
    let began = Instant::now();
    loop {
        match outcomes.recv_timeout(WORD) {
            Ok(outcome) => return Ok(outcome),
            Err(RecvTimeoutError::Disconnected) => {
                return Ok(Err("the job was lost; send it again".to_owned()));
            }
            Err(RecvTimeoutError::Timeout) => say(channel, &core.word(id))?,
        }
        if let Some(reason) = core.cut_off(began) {
            core.cancel(id);
            return Ok(Err(reason));
        }
    }
}

impl Core {
    /// What a waiting client is told.
    fn word(&self, id: Id) -> Reply {
        let state = self.state();
        match (&state.running, &state.queue) {
            (Some((running, watched)), _) if *running == id => Reply::Working(watched.place()),
            (_, Queue::Leader(leader)) => Reply::Waiting { before: leader.position(id) },
            (_, Queue::Follower(_)) => Reply::Waiting { before: None },
        }
    }

    /// Why a job that has waited since `began` cannot run, if the servers have not been linked for as
    /// long as parts may take.
    fn cut_off(&self, began: Instant) -> Option<String> {
        let state = self.state();
        let limit = self.limits.parts_limit();
        match &state.link {
            Link::Down { reason } if began.elapsed() >= limit && state.since.elapsed() >= limit => {
                Some(format!(
                    "the servers are not linked ({reason}); start or mend the one that is missing, \
                     then try again"
                ))
            }
            _ => None,
        }
    }

    fn cancel(&self, id: Id) {
        let mut state = self.state();
        let gone = match &mut state.queue {
            Queue::Leader(leader) => leader.cancel(id),
            // The leader may count on it; then it stays until it runs or is dropped.
            Queue::Follower(follower) => follower.cancel(id),
        };
        if gone {
            state.jobs.remove(&id);
        }
    }
}
