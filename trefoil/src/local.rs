//! Three parties in one process, as the demo and tests run them.

use net::in_process::sessions_from_seed;
use ring_arith::{CpuEngine, Engine, EngineTensor, Shape, Tensor};

use crate::{
    Digest, Error, Result,
    answer::{Component, Refresh, reveal},
    client::Answer,
    config::PARTIES,
    id::fill_random,
    program::{self, Program},
    share::Dealt,
    watch::Watched,
    wire::Cost,
};

/// Secret-shares weights and input among three threads, runs the plan, and adds up what they return:
/// what clients and servers do, without the network between them.
///
/// # Errors
/// The first party's failure.
pub fn infer(program: &Program, weights: &[Tensor], input: &Tensor) -> Result<Answer> {
    let mut seed = [0; 8];
    fill_random(&mut seed)?;
    let mut common = [0; 32];
    fill_random(&mut common)?;
    let refresh = Refresh::new(&common, &Digest::default());
    let (weights, input) = (Shared::new(weights)?, Shared::new(std::slice::from_ref(input))?);
    let sessions = sessions_from_seed(PARTIES, u64::from_le_bytes(seed));
    let outcomes = net::launch::run_all(sessions, |session| {
        let me = session.transport.me().0;
        let watched = Watched::new(session.transport);
        let transport = Box::new(watched.hand());
        let engine = CpuEngine::new(program::threads_each());
        let prg = engine.generators().first().map(|generator| generator.name().to_owned());
        let session = net::Session { transport, prg, ..session };
        let mut mpc = program::protocol(session, engine)?;
        let shares = |secret: &Shared| {
            let parts = secret.dealt.part(me).expand(me, &secret.shapes)?;
            parts.into_iter().map(program::share).collect::<Result<Vec<_>>>()
        };
        let (weights, input) = (shares(&weights)?, shares(&input)?);
        watched.begin();
        let outputs = program.run(&mut mpc, &weights, input, &mut ())?;
        let cost = watched.cost();
        let outputs = outputs.iter().enumerate();
        let fresh = outputs.map(|(at, output)| refresh.component(me, output, at));
        Ok((fresh.collect::<Result<Vec<_>>>()?, cost))
    });
    add_up(outcomes)
}

fn add_up(outcomes: Vec<Result<(Vec<Component>, Cost)>>) -> Result<Answer> {
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>>>()?;
    let outcomes: [_; PARTIES] = outcomes
        .try_into()
        .map_err(|_| Error::Internal("three parties return three answers".to_owned()))?;
    let [(zero, a), (one, b), (two, c)] = outcomes;
    let parts = zero.into_iter().zip(one).zip(two);
    let outputs = parts.map(|((x, y), z)| reveal(&[x, y, z])).collect::<Result<_>>()?;
    Ok(Answer { outputs, costs: [a, b, c] })
}

struct Shared {
    dealt: Dealt,
    shapes: Vec<Shape>,
}

impl Shared {
    fn new(secrets: &[Tensor]) -> Result<Self> {
        let shapes = secrets.iter().map(|secret| secret.shape().clone()).collect();
        Ok(Self { dealt: Dealt::new(secrets)?, shapes })
    }
}
