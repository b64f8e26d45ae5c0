//! Jobs about one model that wait at the same time. A job that was allowed when it was asked for is checked again in
//! the order in which they run.

use std::sync::atomic::Ordering;

use super::{
    sessions::{Gates, OpenAll, hooked, wait_until},
    *,
};

/// The request of a client. A request without an answer returns nothing.
pub(super) type Ask<'a, T = Result<Vec<f64>>, W = World> = &'a (dyn Fn(&W) -> T + Sync);

/// Hands in jobs one after the other, before the first of them can run. Returns how each ended.
pub(super) fn meet<T: Send, const N: usize, const SERVERS: usize>(
    world: &World<SERVERS>,
    gates: &Gates,
    asks: [Ask<'_, T, World<SERVERS>>; N],
) -> Vec<T> {
    gates.shut("next job", 1, 0);
    wait_until(|| gates.waiting.load(Ordering::SeqCst) > 0);
    thread::scope(|scope| {
        // If something fails here, those that wait come to their end too.
        let _guard = OpenAll(gates);
        let mut threads = Vec::new();
        for ask in asks {
            threads.push(scope.spawn(move || ask(world)));
            let all_hold = |server: &Server| server.0.state().jobs.len() == threads.len();
            wait_until(|| world.servers.iter().all(all_hold));
        }
        gates.open("next job");
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

pub(super) fn world() -> (World, Arc<Gates>) {
    let gates = Arc::new(Gates::default());
    (hooked(&gates), gates)
}

/// Puts `y = x W` under the name `m`.
fn puts(client: &str, weights: [f64; 6], replace: bool) -> impl Fn(&World) -> Result<Vec<f64>> {
    move |world| put(&mut world.client(client), "m", &model(weights), replace).map(|()| Vec::new())
}

/// Runs the version of `m` that is current when it asks.
fn asks(world: &World) -> Result<Vec<f64>> {
    infer(&mut world.client("alice"), "m", [1.0, 2.0, 4.0])
}

fn removes(world: &World) -> Result<Vec<f64>> {
    world.client("alice").remove("m", &()).map(|()| Vec::new())
}

fn said(ended: &Result<Vec<f64>>) -> String {
    ended.as_ref().unwrap_err().to_string()
}

/// That all servers have one version of `m`, the same, and nothing else of it.
fn one_version_is_left(world: &World) {
    let held = world.servers.each_ref().map(|server| {
        let mut held = server.0.store.inventory().unwrap();
        held.retain(|holding| holding.name == "m");
        held
    });
    assert!(held.iter().all(|here| *here == held[0]), "{held:?}");
    assert!(held[0].len() == 1 && held[0][0].visible.is_some(), "{held:?}");
    assert_eq!(held[0][0].staged, []);
    assert!(world.servers.iter().all(|server| server.status().unwrap().link == Link::Up));
}

#[test]
fn of_two_puts_of_one_name_at_once_the_first_alone_succeeds() {
    let (world, gates) = world();
    let ended = meet(&world, &gates, [&puts("alice", TWO, false), &puts("alice", ONE, false)]);
    assert!(ended[0].is_ok(), "{ended:?}");
    assert!(said(&ended[1]).contains("is there already; use --replace"), "{ended:?}");
    close(&asks(&world).unwrap(), [6.0, 0.0]);
    one_version_is_left(&world);
}

#[test]
fn of_two_clients_that_put_one_name_at_once_the_first_owns_it() {
    let (world, gates) = world();
    // Replacing a model that another client has put meanwhile fails too.
    let ended = meet(&world, &gates, [&puts("carol", TWO, false), &puts("dave", ONE, true)]);
    assert!(ended[0].is_ok(), "{ended:?}");
    assert!(said(&ended[1]).contains("belongs to client carol"), "{ended:?}");
    assert_eq!(world.client("alice").model("m").unwrap().owner, "carol");
    close(&asks(&world).unwrap(), [6.0, 0.0]);
    one_version_is_left(&world);
}

#[test]
fn of_two_replacements_at_once_the_last_is_in_force() {
    let (world, gates) = world();
    puts("alice", ONE, false)(&world).unwrap();
    let half = ONE.map(|weight| weight / 2.0);
    let ended = meet(&world, &gates, [&puts("alice", TWO, true), &puts("alice", half, true)]);
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    close(&asks(&world).unwrap(), [1.5, 0.0]);
    one_version_is_left(&world);
}

#[test]
fn an_answer_is_never_of_another_version_than_the_one_that_was_asked_for() {
    let (world, gates) = world();
    puts("alice", ONE, false)(&world).unwrap();
    let ended = meet(&world, &gates, [&puts("alice", TWO, true), &asks]);
    assert!(ended[0].is_ok(), "{ended:?}");
    assert!(said(&ended[1]).contains("replaced by another version meanwhile"), "{ended:?}");
    close(&asks(&world).unwrap(), [6.0, 0.0]);
    // The first client still gets the old one's answer.
    let ended = meet(&world, &gates, [&asks, &puts("alice", ONE, true), &asks]);
    close(ended[0].as_ref().unwrap(), [6.0, 0.0]);
    assert!(ended[1].is_ok() && said(&ended[2]).contains("replaced by another"), "{ended:?}");
    close(&asks(&world).unwrap(), [3.0, 0.0]);
    one_version_is_left(&world);
}

#[test]
fn a_removal_leaves_nothing_to_those_behind_it_and_a_put_behind_it_is_new() {
    let (world, gates) = world();
    puts("alice", ONE, false)(&world).unwrap();
    let ended = meet(&world, &gates, [&removes, &asks, &puts("alice", TWO, true), &asks]);
    assert!(ended[0].is_ok() && ended[2].is_ok(), "{ended:?}");
    assert!(said(&ended[1]).contains("no such model"), "{ended:?}");
    assert!(said(&ended[3]).contains("replaced by another version"), "{ended:?}");
    close(&asks(&world).unwrap(), [6.0, 0.0]);
    one_version_is_left(&world);
    let ended = meet(&world, &gates, [&puts("alice", ONE, true), &removes]);
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    assert!(said(&asks(&world)).contains("no such model"));
}
