//! `trefoil party`, `trefoil status` and `trefoil ping`.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    base::{
        Error, Result,
        format::{seconds, table},
    },
    cli::{
        arguments::{Global, Party, Ping},
        output::Output,
    },
    client, cluster,
    config::{ClientConfig, PartyConfig},
    server,
    tapes::TapeState,
    wire::{Link, Status},
};

/// Runs a server, or checks what it would start with.
pub(super) fn party(arguments: &Party, global: &Global, output: Output) -> Result<()> {
    let Some(path) = &global.config else {
        let reason = "name this server's file: trefoil party --config party-0/party.toml";
        return Err(Error::config("--config", reason));
    };
    let config = PartyConfig::read_cell(path, arguments.cell)?;
    #[cfg(target_os = "linux")]
    if arguments.ends_with_parent {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
            .map_err(|cause| Error::Internal(format!("the parent cannot be watched: {cause}")))?;
    }
    if !arguments.check {
        return server::serve(&config);
    }
    let store = server::open_store(&config, &server::party_identity(&config)?)?;
    super::store::verify(&store, output)
}

/// A server that is up has answered by then.
const PROMPT: Duration = Duration::from_millis(900);

/// A clock that is off by more is worth a warning, in seconds.
const SKEW: u64 = 60;

/// Every server is asked on its own, since this is the command for when something is wrong.
pub(super) fn status(global: &Global, output: Output) -> Result<()> {
    let config = super::client_config(global)?;
    let states = ask_all(&config)?;
    let place = |at: usize| (at / config.servers.len(), at % config.servers.len());
    let cell_of = |at: usize| config.cells.map(|_| place(at).0);
    let values: Vec<_> = states
        .iter()
        .enumerate()
        .map(|(at, state)| value(cell_of(at), place(at).1, state))
        .collect();
    output.result(&values, || {
        let heading =
            ["party", "link", "models", "waiting", "done", "failed", "up", "certificate", "engine"];
        let row = |(at, state)| row(cell_of(at), place(at).1, state);
        let rows: Vec<_> = states.iter().enumerate().map(row).collect();
        table(&heading, &rows)
    })?;
    for warning in states.iter().flatten().flat_map(warnings) {
        output.remark(format!("warning: {warning}"))?;
    }
    let mut up = states.iter().flatten();
    if let Some(state) = up.find(|state| state.profile.starts_with("auto")) {
        output.remark(format!("profile {}", state.profile))?;
    }
    for state in states.iter().flatten() {
        state.tapes.iter().try_for_each(|tape| output.remark(tape_line(state.party, tape)))?;
    }
    // There may be fewer cells than the file allows for: one that is linked will do.
    let mut states = states.into_iter();
    let mut outcome = Ok(());
    loop {
        let cell: Vec<_> = states.by_ref().take(config.servers.len()).collect();
        if cell.is_empty() {
            return outcome;
        }
        outcome = are_linked(cell);
        if outcome.is_ok() {
            return Ok(());
        }
    }
}

/// Checks that servers answer and are linked with each other.
fn are_linked(states: Vec<Result<Status>>) -> Result<()> {
    for state in states {
        let state = state?;
        if let Link::Down { reason } = state.link {
            let advice = "start the server that is missing; the others find it by themselves";
            return Err(Error::refused(
                format_args!("party {}", state.party),
                format_args!("not linked with the other servers: {reason}; {advice}"),
            ));
        }
    }
    Ok(())
}

/// Asks all servers at once, those of one cell after those of another. It waits only a short time for the others after the
/// first answer.
pub(super) fn ask_all(config: &ClientConfig) -> Result<Vec<Result<Status>>> {
    let first = client::Dialler::new(config)?;
    let (answers, incoming) = mpsc::channel();
    let silence = config.silence_limit();
    let mut places: Vec<(usize, String)> = Vec::new();
    for cell in config.each_cell() {
        let addresses = config.addresses(cell);
        let dialler = Arc::new(first.of(addresses.clone()));
        for (party, address) in addresses.into_iter().enumerate() {
            let (dialler, answers, at) = (dialler.clone(), answers.clone(), places.len());
            places.push((party, address));
            thread::spawn(move || {
                let channel = dialler.dial_once(party);
                let status = channel.and_then(|mut channel| client::status(&mut *channel, silence));
                // The caller may have left.
                let _ = answers.send((at, status));
            });
        }
    }
    let began = Instant::now();
    let mut limit = config.connect_limit();
    let mut states: Vec<_> = places.iter().map(|_| None).collect();
    while states.iter().any(Option::is_none) {
        let Ok((at, state)) = incoming.recv_timeout(limit.saturating_sub(began.elapsed())) else {
            break;
        };
        if state.is_ok() {
            // If the first answer takes long, the others may too.
            limit = limit.min(PROMPT.max(3 * began.elapsed()));
        }
        states[at] = Some(state);
    }
    let waited = began.elapsed().as_secs_f64();
    let silent = |((party, address), state): ((usize, String), Option<Result<Status>>)| {
        state.unwrap_or_else(|| {
            let server = format!("party {party} at {address}");
            let reason =
                format!("no answer within {waited:.1} s: it hangs, or the way there is cut");
            Err(Error::Unreachable { server, reason })
        })
    };
    Ok(places.into_iter().zip(states).map(silent).collect())
}

/// The number of places that a tape still has.
fn tape_line(party: usize, tape: &TapeState) -> String {
    let TapeState { tape: name, model, dealer, examples, left, answers } = tape;
    let model = model.as_ref().map_or("no model of yours".to_owned(), |model| format!("`{model}`"));
    format!(
        "party {party}: tape {name} of dealer {dealer} for {model}, up to {examples} at once: {left} of {answers} \
         places left"
    )
}

/// Faults that are near but have not happened yet.
fn warnings(state: &Status) -> Vec<String> {
    let party = state.party;
    let now = cluster::now();
    let mut warnings: Vec<_> = state
        .certificates
        .iter()
        .filter_map(|end| Some(format!("party {party}: {}", end.warning(state.clock)?)))
        .collect();
    if state.clock.abs_diff(now) > SKEW {
        let side = if state.clock > now { "ahead of" } else { "behind" };
        let seconds = state.clock.abs_diff(now);
        warnings.push(format!(
            "party {party}: its clock is {seconds} s {side} this machine's; certificates are refused \
             where clocks are wrong, so set both by a time server"
        ));
    }
    for model in &state.damaged {
        warnings.push(format!(
            "party {party}: the model `{model}` is damaged there; put it again, or restore it from a \
             backup (`trefoil model list` says more)"
        ));
    }
    warnings
}

fn value(cell: Option<usize>, party: usize, state: &Result<Status>) -> Value {
    match (state, cell) {
        (Ok(state), _) => json!(state),
        (Err(error), None) => json!({ "party": party, "error": error.to_string() }),
        (Err(error), Some(cell)) => {
            json!({ "party": party, "cell": { "number": cell }, "error": error.to_string() })
        }
    }
}

fn row(cell: Option<usize>, party: usize, state: &Result<Status>) -> Vec<String> {
    let name = cell.map_or(party.to_string(), |cell| format!("{party}, cell {cell}"));
    let Ok(state) = state else {
        return vec![name, "unreachable".to_owned()];
    };
    let link = match (&state.link, &state.step) {
        (Link::Down { .. }, _) => "down".to_owned(),
        (Link::Up, Some(step)) => format!("up, in {step}"),
        (Link::Up, None) => "up".to_owned(),
    };
    let link = if state.stopping { format!("{link}, being stopped") } else { link };
    vec![
        name,
        link,
        match state.damaged.len() {
            0 => state.models.to_string(),
            damaged => format!("{}, {damaged} damaged", state.models),
        },
        state.waiting.to_string(),
        state.done.to_string(),
        state.failed.to_string(),
        format!("{} s", state.up_seconds),
        match state.certificates.iter().map(|end| end.days(state.clock)).min() {
            Some(days) if days < 0 => "expired".to_owned(),
            Some(days) => format!("{days} days"),
            None => String::new(),
        },
        state.engine.clone(),
    ]
}

pub(super) fn ping(arguments: &Ping, global: &Global, output: Output) -> Result<()> {
    let mut client = super::connect(global)?;
    let mut times: Vec<Vec<Duration>> = Vec::new();
    let mut programs: Vec<String> = Vec::new();
    for _ in 0..arguments.count {
        let told = client.ping()?;
        times.resize(told.len(), Vec::new());
        programs.clear();
        for (times, pong) in times.iter_mut().zip(told) {
            times.push(pong.round_trip);
            programs.push(pong.program);
        }
    }
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for (party, times) in times.iter_mut().enumerate() {
        times.sort();
        let [least, median, most] =
            [0, times.len() / 2, times.len() - 1].map(|at| times[at].as_secs_f64());
        let mut row = vec![party.to_string(), programs[party].clone()];
        row.extend([least, median, most].map(seconds));
        rows.push(row);
        values.push(json!({
            "party": party, "program": programs[party],
            "least_seconds": least, "median_seconds": median, "most_seconds": most,
        }));
    }
    output.result(&values, || table(&["party", "program", "least", "median", "most"], &rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::CertificateEnd;

    fn state() -> Status {
        Status {
            party: 1,
            program: String::new(),
            up_seconds: 0,
            engine: String::new(),
            link: Link::Up,
            stopping: false,
            waiting: 0,
            step: None,
            done: 0,
            failed: 0,
            models: 0,
            damaged: Vec::new(),
            clients: 1,
            reserved: 0,
            certificates: Vec::new(),
            clock: cluster::now(),
            tapes: Vec::new(),
            cell: None,
            waiting_seconds: 0.0,
            profile: String::new(),
        }
    }

    #[test]
    fn a_clock_that_is_wrong_is_told_with_its_direction() {
        assert_eq!(warnings(&state()), [""; 0]);
        let now = cluster::now();
        for (clock, said) in [(now + 3600, "ahead of"), (now - 3600, "behind")] {
            let told = warnings(&Status { clock, ..state() }).concat();
            assert!(told.contains("party 1: its clock is 3") && told.contains(said), "{told}");
            assert!(told.contains("time server"), "{told}");
        }
        // A second's delay on the way does not count.
        assert_eq!(warnings(&Status { clock: now - SKEW / 2, ..state() }), [""; 0]);
    }

    #[test]
    fn the_end_of_a_certificate_is_told_by_the_clock_of_its_server() {
        let end = |days: u64| {
            let clock = cluster::now() + 20;
            let ends = CertificateEnd { of: "party-1".to_owned(), end: clock + days * 86_400 };
            warnings(&Status { certificates: vec![ends], clock, ..state() })
        };
        assert_eq!(end(30), [""; 0]);
        let told = end(29).concat();
        assert!(told.contains("party 1: the certificate of party-1 ends in 29 days"), "{told}");
    }
}
