//! Sessions in which something goes wrong, and what others notice of it.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Instant,
};

use net::{Message, Party};
use serde_json::Value;

use super::*;
use crate::testing::{Hooked, Hooks};

/// Servers that work, over hooked links.
pub(super) fn hooked(hooks: &Arc<impl Hooks + 'static>) -> World {
    let hooks = hooks.clone();
    let between = move |_: usize, links| -> Box<dyn Transport> {
        Box::new(Hooked::new(links, hooks.clone()))
    };
    let world = World::over(&Limits::default(), Arc::new(between));
    works(&world);
    world
}

pub(super) fn wait_until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LIMIT);
        thread::sleep(Duration::from_millis(1));
    }
}

/// A server that seems to have counted one more than it should have. The count that it sends is changed so, and the
/// count that it receives of the other end is changed the other way.
struct Miscount {
    armed: AtomicBool,
    party: usize,
    mine: &'static str,
    other: usize,
    theirs: &'static str,
}

impl Miscount {
    fn strikes(&self, step: &str, party: Party) -> bool {
        step == "finish job" && party == Party(self.party) && self.armed.load(Ordering::SeqCst)
    }
}

impl Hooks for Miscount {
    fn sends(&self, step: &str, from: Party, _to: Party, message: Message) -> Message {
        if self.strikes(step, from) { count(message, self.mine, 1) } else { message }
    }

    fn receives(&self, step: &str, me: Party, from: Party, message: Message) -> Message {
        let strikes = self.strikes(step, me) && from == Party(self.other);
        if strikes { count(message, self.theirs, -1) } else { message }
    }
}

/// Keeps the errors that servers get from their links.
#[derive(Default)]
struct Listens(Mutex<Vec<String>>);

impl Hooks for Listens {
    fn fails(&self, error: &net::Error) {
        self.0.lock().unwrap().push(error.to_string());
    }
}

/// Gates at which messages of a step wait, from one party to another.
#[derive(Default)]
pub(super) struct Gates {
    shut: Mutex<Vec<(&'static str, usize, usize)>>,
    /// Messages that wait now.
    pub(super) waiting: AtomicUsize,
}

impl Gates {
    pub(super) fn shut(&self, step: &'static str, from: usize, to: usize) {
        self.shut.lock().unwrap().push((step, from, to));
    }

    pub(super) fn open(&self, step: &str) {
        self.shut.lock().unwrap().retain(|gate| gate.0 != step);
    }

    fn is_shut(&self, step: &str, from: Party, to: Party) -> bool {
        self.shut.lock().unwrap().contains(&(step, from.0, to.0))
    }
}

/// Opens all gates when it is dropped.
pub(super) struct OpenAll<'a>(pub(super) &'a Gates);

impl Drop for OpenAll<'_> {
    fn drop(&mut self) {
        self.0.shut.lock().unwrap().clear();
    }
}

impl Hooks for Gates {
    fn sends(&self, step: &str, from: Party, to: Party, message: Message) -> Message {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while self.is_shut(step, from, to) {
            thread::sleep(Duration::from_millis(1));
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        message
    }
}

/// Adds to a counter in a message that tells all of them.
fn count(message: Message, counter: &str, more: i64) -> Message {
    let mut tally: Value = serde_json::from_slice(&message.body).unwrap();
    let counter = tally.pointer_mut(counter).unwrap();
    *counter = (counter.as_i64().unwrap() + more).into();
    Message { body: serde_json::to_vec(&tally).unwrap().into(), ..message }
}

/// Runs the model `check` for another client than the one in trouble.
fn ask_as_bob(world: &World) {
    close(&infer(&mut world.client("bob"), "check", [1.0, 2.0, 4.0]).unwrap(), [3.0, 0.0]);
}

#[test]
fn counters_that_differ_after_a_job_keep_its_answer_back_and_begin_a_new_session() {
    for (party, mine, other, theirs, said) in [
        (0, "/operations", 1, "/operations", "operations; nothing was answered"),
        (1, "/sent/2/0", 2, "/received/1/0", "messages"),
        (2, "/received/0/1", 0, "/sent/2/1", "bytes"),
    ] {
        let armed = AtomicBool::new(false);
        let miscount = Arc::new(Miscount { armed, party, mine, other, theirs });
        let world = hooked(&miscount);
        let failed = || world.servers.each_ref().map(|server| server.status().unwrap().failed);
        let before = failed();
        miscount.armed.store(true, Ordering::SeqCst);
        let request = request(&world, false);
        // Fails where a server answers.
        let replies = send_some(&world, &[0, 1, 2], [(); 3].map(|()| request.clone()));
        miscount.armed.store(false, Ordering::SeqCst);
        assert!(replies.iter().any(|reply| reply.contains(said)), "{replies:?}");
        assert!(replies.iter().all(|reply| reply.contains("the job failed")), "{replies:?}");
        assert_eq!(failed(), before.map(|count| count + 1));
        ask_as_bob(&world);
    }
}

#[test]
fn a_server_that_fails_alone_tells_the_others_what_of() {
    let heard = Arc::new(Listens::default());
    let world = hooked(&heard);
    // Party 2 cannot write the manifest: a file has the name of the folder for files that are being written.
    let unfinished = world.servers[2].0.store.root().join("unfinished");
    std::fs::remove_dir(&unfinished).unwrap();
    std::fs::write(&unfinished, "").unwrap();
    let shared = world.client("alice").share("check", &Readers::Everyone, &());
    assert!(shared.unwrap_err().to_string().contains("manifest"));
    let told = |text: &&String| text.contains("party 2") && text.contains("models/check/manifest");
    wait_until(|| heard.0.lock().unwrap().iter().filter(told).count() >= 2);
    std::fs::remove_file(&unfinished).unwrap();
    std::fs::create_dir(&unfinished).unwrap();
    ask_as_bob(&world);
}

#[test]
fn a_cancellation_never_ends_the_job_of_another_client() {
    for (step, spoilt) in [("finish job", false), ("prepare job", true)] {
        let gates = Arc::new(Gates::default());
        let world = hooked(&gates);
        // The leader learns of two jobs at once, so that it can run one after the other.
        gates.shut("next job", 1, 0);
        wait_until(|| gates.waiting.load(Ordering::SeqCst) > 0);
        let request = request(&world, false);
        let Request::Infer { job, .. } = request else { unreachable!() };
        let waiting = |jobs| {
            let jobs_at = |server: &Server| server.0.state().jobs.len();
            wait_until(|| world.servers.iter().all(|server| jobs_at(server) == jobs));
        };
        let runs = |party: usize, client: &str| {
            let runs = |running: &Running| running.of(client).count() > 0;
            world.servers[party].0.state().running.as_ref().is_some_and(runs)
        };
        thread::scope(|scope| {
            // If something fails here, those that wait come to their end too.
            let _guard = OpenAll(&gates);
            let (world, request) = (&world, &request);
            let ends = scope.spawn(move || send_spoilt(world, request, spoilt));
            waiting(1);
            let other = scope.spawn(|| ask_as_bob(world));
            waiting(2);
            // Party 1 learns late that the first job is over, and party 0 continues with the
            // second.
            gates.shut(step, 2, 1);
            gates.open("next job");
            wait_until(|| runs(0, "bob") && runs(1, "half"));
            let mut server = world.connect("half").into_iter().nth(1).unwrap();
            assert!(at(&mut *server, job, step));
            say(&mut *server, &Request::Cancel { job }).unwrap();
            let told = hear::<Reply>(&mut *server, LIMIT).unwrap();
            // It is known only later if a job that has not begun can still be cancelled.
            assert_eq!(matches!(told, Reply::Done), spoilt, "{told:?}");
            gates.open(step);
            other.join().unwrap();
            let replies = ends.join().unwrap();
            assert!(replies.iter().all(|reply| matches!(reply, Reply::Failed { .. }) == spoilt));
        });
    }
}

/// True if a job is in a step at a server.
fn at(server: &mut dyn Channel, job: Id, step: &str) -> bool {
    say(server, &Request::Jobs).unwrap();
    let Reply::Jobs(jobs) = hear::<Reply>(server, LIMIT).unwrap() else { panic!("no jobs") };
    let found = jobs.iter().find(|state| state.job == job);
    found.is_some_and(|state| matches!(&state.stage, Stage::Working(place) if place.step == step))
}

/// Sends a job to all servers, with a part that does not fit if so wanted; returns how each ends.
fn send_spoilt(world: &World, request: &Request, spoilt: bool) -> [Reply; 3] {
    let mut sent = plans::Sent::infer(request.clone());
    if spoilt {
        plans::spoil(&mut sent.parts[1], 7);
    }
    sent.send(world, "half")
}
