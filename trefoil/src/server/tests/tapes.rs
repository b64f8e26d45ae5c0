//! Jobs of several clients that two servers answer from one place of a dealer's tapes.

use cluster_protocols::ProtocolChoice;
use mpc_core::Settings;
use net::{Authority, Role, Trust};
use ring_arith::Generator;

use super::{
    meetings::meet,
    observed::audited,
    sessions::Gates,
    together::{ask, is},
    *,
};
use crate::{
    client::{Answer, Total},
    local,
    tapes::Order,
    testing::Hooked,
    wire::Cost,
};

/// Examples for which a place has room.
const ROOM: usize = 8;

const DAY: Duration = Duration::from_secs(86_400);

/// Two servers that play tapes, and gates between them. The model `m` is for everyone but the dealer.
fn world() -> (World<2>, Arc<Gates>) {
    let gates = Arc::new(Gates::default());
    let hooks = gates.clone();
    let between = move |_: usize, links| -> Box<dyn Transport> {
        Box::new(Hooked::new(links, hooks.clone()))
    };
    let audits = [0, 1].map(|_| folder("audit").join("audit.jsonl"));
    let computing = Computing { protocol: ProtocolChoice::RssDealt, ..Computing::default() };
    let (limits, between) = (Limits::default(), Arc::new(between));
    let world =
        World::start(&limits, |_| Access::default(), |_, _| {}, between, (audits, computing));
    let readers = Readers::Named(["a", "b", "c", "d", "e"].map(str::to_owned).into());
    put_for(&mut world.client("owner"), "m", &model(ONE), false, &readers).unwrap();
    (world, gates)
}

/// Has a dealer make tapes of this many places, and gives each server its own.
fn deal(world: &World<2>, answers: u64) {
    let authority = Authority::generate(DAY).unwrap();
    let dealer = authority.issue(&Role::dealer("maker").unwrap(), DAY).unwrap();
    let order = Order {
        program: &model(ONE).program,
        examples: ROOM,
        answers,
        settings: Settings::default(),
        generator: Generator::Aes128Ctr,
    };
    let made = folder("tapes");
    let paths = [0, 1].map(|party| made.join(format!("{party}.tape")));
    let engine = AnyEngine::Cpu(CpuEngine::new(1));
    order.make(engine, &dealer, &paths, &mut |_| {}).unwrap();
    for (party, (server, path)) in world.servers.iter().zip(&paths).enumerate() {
        server.trust(Trust::new(authority.certificate_pem(), None).unwrap());
        server.0.shelf.as_ref().unwrap().add(path, party).unwrap();
    }
}

/// Places that are left at each server.
fn left(world: &World<2>) -> Vec<u64> {
    let left = |server: &Server| server.0.tape_states(|_| true).unwrap()[0].left;
    world.servers.iter().map(left).collect()
}

#[test]
fn jobs_that_wait_take_one_place_of_a_tape_as_far_as_it_has_room() {
    let (world, gates) = world();
    deal(&world, 4);
    let before = world.servers[0].status().unwrap().done;
    let rows = |numbers: usize| -> Vec<f64> { (0..3 * numbers).map(|at| at as f64).collect() };
    // Of 1 + 2 + 4 + 3 + 1 examples 3 have no room in the first place.
    let answers = meet::<_, 5, 2>(
        &world,
        &gates,
        [
            &|world| ask(world, "a", &[1.0, 2.0, 4.0]).unwrap(),
            &|world| ask(world, "b", &[5.0, 6.0, 2.0, 0.0, 1.0, 0.0]).unwrap(),
            &|world| ask(world, "c", &rows(4)).unwrap(),
            &|world| ask(world, "d", &rows(3)).unwrap(),
            &|world| ask(world, "e", &[0.0, 0.0, 2.0]).unwrap(),
        ],
    );
    is(&answers[0], &[3.0, 0.0]);
    is(&answers[1], &[6.0, 5.0, 0.0, 1.0]);
    is(&answers[2], &[1.0, 0.0, 5.5, 1.5, 10.0, 3.0, 14.5, 4.5]);
    is(&answers[3], &[1.0, 0.0, 5.5, 1.5, 10.0, 3.0]);
    is(&answers[4], &[1.0, -1.0]);
    assert_eq!(left(&world), [2, 2], "five jobs took two places");
    assert_eq!(world.servers[0].status().unwrap().done, before + 5);
    let lines = audited(&world, 0, "job");
    let of = |what: &str| -> Vec<u64> {
        let lines = lines.iter().filter(|line| line["kind"] == "infer");
        lines.map(|line| line[what].as_u64().unwrap()).collect()
    };
    assert_eq!(of("examples"), [1, 2, 4, 1, 3], "a line for each job, in the order of the places");
    let (sent, place) = (of("sent_bytes"), answers[0].costs[0].bytes);
    assert_eq!([sent[..4].iter().sum::<u64>(), sent[4]], [place, place], "a place is counted once");

    // Every place costs what was predicted, however many examples and clients are at it.
    let alone = ask(&world, "a", &[1.0, 2.0, 4.0]).unwrap();
    assert_eq!(left(&world), [1, 1]);
    let computing = Computing { protocol: ProtocolChoice::RssDealt, ..Computing::default() };
    let predicted = local::predict(&model(ONE).program, ROOM, computing).unwrap();
    let of = |costs: &[Cost]| {
        let total = Total::of(costs);
        (total.bytes, total.tape, total.rounds)
    };
    for answer in answers.iter().chain([&alone]) {
        assert_eq!(of(&answer.costs), of(&predicted));
    }

    // A job that no place has room for, and those for which no place is left.
    let large = ask(&world, "a", &rows(ROOM + 1)).unwrap_err().to_string();
    assert!(large.contains("for 8 examples at once, and the job has 9"), "{large}");
    ask(&world, "b", &rows(ROOM)).unwrap();
    assert_eq!(left(&world), [0, 0]);
    let spent = meet::<_, 2, 2>(
        &world,
        &gates,
        [&|world| ask(world, "a", &rows(1)), &|world| ask(world, "b", &rows(1))],
    );
    for refused in spent {
        let reason = refused.unwrap_err().to_string();
        assert!(reason.contains("the tape for this model is spent"), "{reason}");
    }
    assert!(world.servers.iter().all(|server| server.status().unwrap().link == Link::Up));
}

#[test]
fn a_value_out_of_range_is_told_to_its_own_client_alone_also_at_a_place_of_a_tape() {
    let (world, gates) = world();
    deal(&world, 1);
    let answers = meet::<_, 3, 2>(
        &world,
        &gates,
        [
            &|world| ask(world, "a", &[1.0, 2.0, 4.0]).unwrap(),
            &|world| ask(world, "b", &[1.0, 2.0, 4.0, 3e8, 6.0, 2.0]).unwrap(),
            &|world| ask(world, "c", &[0.0, 0.0, 2.0]).unwrap(),
        ],
    );
    assert_eq!(left(&world), [0, 0]);
    let left = |answer: &Answer| answer.outputs.last().unwrap().words().to_vec();
    assert!(left(&answers[0]).iter().chain(&left(&answers[2])).all(|&word| word == 0));
    assert!(left(&answers[1]).iter().any(|&word| word != 0));
    is(&answers[2], &[1.0, -1.0]);
}
