//! Trainings on data sets that the servers join by secret keys.

use mpc_core::{Security, Settings, functions::join_keys};
use nn_layers::train::{Metric, TrainOptions};

use super::{
    learning::{BATCH, Learner, Rows, columns, put_run_of, rows, said, spec},
    observed::audited,
    *,
};
use crate::training::{DataSet, Join, Openings, Position, RowTensor, RunSpec, Training};

/// The secret that the owners have in common.
const SECRET: [u8; 32] = [9; 32];

/// The rows of people, each with a number: those of the hospital have two values and the label, those of the bank the
/// third value.
pub(super) struct People {
    all: Rows,
    hospital: Vec<usize>,
    bank: Vec<usize>,
}

/// Of 16 people the hospital knows 12 and the bank 11, in other orders; 8 are known to both.
pub(super) fn people() -> People {
    let hospital = vec![3, 0, 11, 7, 5, 1, 9, 2, 10, 4, 8, 6];
    let bank = vec![12, 6, 5, 9, 0, 14, 3, 2, 13, 11, 8];
    People { all: rows(16, 4), hospital, bank }
}

impl People {
    /// The numbers of those whom the joined rows are of, in rising order of their keys.
    fn joined(&self, join: Join) -> Vec<usize> {
        let mut numbers = self.hospital.clone();
        numbers.sort_by_key(|&number| keys(&SECRET, &[number])[0]);
        if let Join::Inner { rows } = join {
            numbers.retain(|number| self.bank.contains(number));
            numbers.truncate(rows);
        }
        numbers
    }

    /// The joined rows in the clear: values with zeros where the bank knows nobody, and labels.
    pub(super) fn in_the_clear(&self, join: Join) -> [HostTensor; 2] {
        let numbers = self.joined(join);
        let values = picked(&self.all.values, &numbers).floats().into_owned();
        let known = |at: usize| self.bank.contains(&numbers[at / 3]);
        let values = values.iter().enumerate().map(|(at, &value)| match at % 3 {
            2 if !known(at) => 0.0,
            _ => value,
        });
        let values = HostTensor::new([numbers.len(), 3], values.collect()).unwrap();
        let labels = picked(&self.all.labels, &numbers);
        let labels = labels.floats().iter().map(|&x| x as i64).collect();
        [values, HostTensor::integers([numbers.len(), 2], labels).unwrap()]
    }
}

/// These rows of a tensor.
fn picked(all: &HostTensor, rows: &[usize]) -> HostTensor {
    let wide = all.dims()[1];
    let floats = all.floats();
    let values = rows.iter().flat_map(|&row| floats[row * wide..][..wide].to_vec()).collect();
    HostTensor::new([rows.len(), wide], values).unwrap()
}

fn keys(secret: &[u8; 32], numbers: &[usize]) -> Vec<u64> {
    join_keys(secret, numbers.iter().map(|number| number.to_string()))
}

/// Puts tensors of rows, with a key for each row if there are some.
fn put_parts(
    client: &mut Client,
    name: &str,
    parts: &[(&str, HostTensor, u32)],
    keys: Option<Vec<u64>>,
) -> Result<()> {
    let count = parts[0].1.dims()[0];
    let mut words = Vec::new();
    let mut tensors = Vec::new();
    for (tensor, part, fraction_bits) in parts {
        let dims = part.dims()[1..].to_vec();
        let (name, fraction_bits) = ((*tensor).to_owned(), *fraction_bits);
        tensors.push(RowTensor { name, dims, fraction_bits, ..RowTensor::default() });
        let unit = f64::from(fraction_bits).exp2();
        let encoded = part.floats().iter().map(|x| (x * unit).round() as i64 as u64).collect();
        words.push(Tensor::new(Shape::new(part.dims()).unwrap(), encoded).unwrap());
    }
    let key = keys.iter().map(|_| "id".to_owned()).collect();
    words.extend(keys.map(|keys| Tensor::new(Shape::new([keys.len()]).unwrap(), keys).unwrap()));
    let set = DataSet { rows: count, tensors, key, ..DataSet::default() };
    client.put_data(name, &set, words, &Readers::Everyone, true, &())
}

fn put_hospital(client: &mut Client, people: &People, keys: Option<Vec<u64>>) {
    let values = columns(&picked(&people.all.values, &people.hospital), 0, 2);
    let labels = picked(&people.all.labels, &people.hospital);
    put_parts(client, "hospital", &[("values", values, 20), ("labels", labels, 0)], keys).unwrap();
}

fn put_bank(client: &mut Client, people: &People, keys: Option<Vec<u64>>) {
    let values = columns(&picked(&people.all.values, &people.bank), 2, 3);
    put_parts(client, "bank", &[("values", values, 20)], keys).unwrap();
}

/// Data of alice and bob under one secret, and carol, who trains.
pub(super) fn prepared(world: &World, people: &People) -> [Client; 3] {
    let [mut alice, mut bob, carol] = ["alice", "bob", "carol"].map(|name| world.client(name));
    put_hospital(&mut alice, people, Some(keys(&SECRET, &people.hospital)));
    put_bank(&mut bob, people, Some(keys(&SECRET, &people.bank)));
    [alice, bob, carol]
}

fn network() -> Learner {
    network_with(false)
}

fn network_with(standardize: bool) -> Learner {
    let mut graph = Graph::new(BATCH);
    let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(3)]).unwrap();
    let w = HostTensor::new([3, 2], vec![0.1, -0.2, 0.3, 0.2, -0.1, 0.4]).unwrap();
    let w = graph.weight("w", w);
    let y = graph.add("y", matmul(), &[x, w]).unwrap();
    graph.train(|_| true);
    let metrics = [Metric::Loss, Metric::Right];
    let options = TrainOptions::default().with_metrics(metrics).with_standardize(standardize);
    Learner::new(&graph, y, &options)
}

/// A run of three epochs on the hospital's rows joined with the bank's.
fn joined(client: &mut Client, join: Join, rows: usize) -> RunSpec {
    let mut spec = spec(client, &["hospital", "bank"]);
    spec.data[1].position = Position::Joined(join);
    let epoch = (rows / BATCH) as u32;
    spec.openings = Openings::last(3 * epoch, epoch);
    spec
}

/// Makes the run and has both owners consent to it.
fn begin([alice, bob, carol]: &mut [Client; 3], name: &str, spec: &RunSpec) -> Digest {
    put_run_of(carol, name, spec, &network(), true).unwrap();
    let mark = carol.run(name).unwrap().run.fingerprint;
    alice.approve(name, mark, &()).unwrap();
    bob.approve(name, mark, &()).unwrap();
    mark
}

#[test]
fn a_run_on_joined_rows_learns_what_the_same_rows_joined_in_the_clear_teach() {
    // As many pairs as there are, fewer, and all rows of the hospital.
    let [all, some] = [8, 5].map(|rows| ("inner", Join::Inner { rows }, rows));
    teaches(&World::new(&Limits::default()), &[all, some, ("left", Join::Left, 12)]);
}

#[test]
fn servers_that_check_each_other_join_too() {
    let audits = [0, 1, 2].map(|_| folder("audit").join("audit.jsonl"));
    let settings = Settings { security: Security::Checked, ..Settings::default() };
    let computing = Computing { settings, ..Computing::default() };
    let (limits, links) = (Limits::default(), Arc::new(|_, links| links));
    let world = World::start(&limits, |_| Access::default(), |_, _| {}, links, (audits, computing));
    teaches(&world, &[("inner", Join::Inner { rows: 8 }, 8)]);
}

/// Trains on the people's rows, joined in these ways, and compares with the same in the clear.
fn teaches(world: &World, joins: &[(&str, Join, usize)]) {
    let people = people();
    let mut clients = prepared(world, &people);
    for &(name, join, rows) in joins {
        let spec = joined(&mut clients[2], join, rows);
        let mark = begin(&mut clients, name, &spec);
        let carol = &mut clients[2];
        let state = carol.run(name).unwrap();
        assert_eq!(
            (state.run.rows, &state.run.owners[..]),
            (rows, &["alice", "bob"].map(str::to_owned)[..])
        );
        let training = Training::new(network().plan, &spec, rows).unwrap();
        let all = people.in_the_clear(join);
        let mut floats = network().start;
        let epoch = training.steps() / 3;
        let mut slices = vec![(0, true), (epoch, true), (2 * epoch, true)];
        if epoch > 1 {
            // The slice after this one begins with what is on the disk, so the sets are joined a second time: what is in
            // memory is that of another step.
            slices.insert(1, (epoch, false));
        }
        for (from, counts) in slices {
            let steps = if counts { epoch } else { 1 };
            let answer = carol.train(name, mark, from, steps, counts, &()).unwrap();
            if !counts {
                continue;
            }
            let found = training.decode_metrics(&answer.outputs, from + steps).unwrap().unwrap();
            let sums = training.run_in_the_clear(&mut floats, &all, from..from + steps).unwrap();
            for (found, sum) in found.iter().zip(sums) {
                let wanted = sum / training.rows_of(steps) as f64;
                assert!((found - wanted).abs() < 1e-3, "{name}: {found} {wanted}");
            }
        }
        let words = carol.release(name, mark, training.steps(), &()).unwrap();
        let weights = training.plan().decode_network(&words).unwrap();
        for (found, wanted) in weights[0].floats().iter().zip(floats[0].floats().iter()) {
            assert!((found - wanted).abs() < 1e-3, "{name}: {found} {wanted}");
        }
    }
}

#[test]
fn a_join_that_the_sets_do_not_allow_is_not_kept() {
    let world = World::new(&Limits::default());
    let people = people();
    let [mut alice, mut bob, mut carol] = prepared(&world, &people);
    put_parts(
        &mut alice,
        "one",
        &[("values", picked(&people.all.values, &[3]), 20)],
        Some(keys(&SECRET, &[3])),
    )
    .unwrap();
    let eight = joined(&mut carol, Join::Inner { rows: 8 }, 8);
    let put = |spec: &RunSpec| {
        said(put_run_of(&mut world.client("carol"), "bad", spec, &network(), false))
    };
    for (join, reason) in [
        (Join::Inner { rows: 12 }, "12 rows are asked for, and `bank` has 11"),
        (Join::Inner { rows: 0 }, "0 rows are asked for"),
        (Join::Inner { rows: 1 }, "1 rows do not fill a batch"),
        (Join::Inner { rows: usize::MAX }, "are asked for"),
    ] {
        let mut bad = eight.clone();
        bad.data[1].position = Position::Joined(join);
        let text = put(&bad);
        assert!(text.contains(reason), "{reason}: {text}");
    }
    // A join brings two sets together, and the labels come with the first of a left one.
    let mut three = spec(&mut carol, &["hospital", "bank", "one"]);
    three.data[1].position = Position::Joined(Join::Inner { rows: 8 });
    for position in [Position::Joined(Join::Inner { rows: 1 }), Position::Beside] {
        three.data[2].position = position;
        assert!(put(&three).contains("a join brings two data sets together"));
    }
    let mut alone = eight.clone();
    alone.data.remove(0);
    assert!(put(&alone).contains("no data set stands before `bank`"));
    let mut turned = eight.clone();
    turned.data.reverse();
    turned.data[0].position = Position::After;
    turned.data[1].position = Position::Joined(Join::Left);
    assert!(put(&turned).contains("name the set with the labels first"));
    // Rows without a partner would count with zeros.
    let left = joined(&mut carol, Join::Left, 12);
    let mut again = world.client("carol");
    let text = said(put_run_of(&mut again, "bad", &left, &network_with(true), false));
    assert!(text.contains("ask for an inner join"), "{text}");
    // The servers look for keys themselves, whatever a client says.
    put_bank(&mut bob, &people, None);
    let keyless = joined(&mut carol, Join::Inner { rows: 8 }, 8);
    assert!(put(&keyless).contains("join of `hospital` with `bank`: `bank` has no key"));
    assert!(carol.runs().unwrap().iter().all(Vec::is_empty));
}

#[test]
fn consent_to_a_join_is_to_that_join_alone() {
    let world = World::new(&Limits::default());
    let people = people();
    let mut clients = prepared(&world, &people);
    let eight = joined(&mut clients[2], Join::Inner { rows: 8 }, 8);
    let mark = begin(&mut clients, "run", &eight);
    let beside = |position| {
        let mut spec = eight.clone();
        spec.data[1].position = position;
        spec
    };
    let fewer = joined(&mut clients[2], Join::Inner { rows: 4 }, 4);
    let left = joined(&mut clients[2], Join::Left, 12);
    for other in [fewer, left] {
        let mut carol = world.client("carol");
        put_run_of(&mut carol, "run", &other, &network(), true).unwrap();
        let fresh = carol.run("run").unwrap().run.fingerprint;
        assert_ne!(fresh, mark);
        let text = said(world.client("carol").train("run", mark, 0, 1, false, &()));
        assert!(text.contains("another run by now"), "{text}");
        let text = said(world.client("carol").train("run", fresh, 0, 1, false, &()));
        assert!(text.contains("waits for the consent of alice, bob"), "{text}");
    }
    let text = said(put_run_of(
        &mut world.client("carol"),
        "run",
        &beside(Position::Beside),
        &network(),
        true,
    ));
    assert!(text.contains("they have 12 and 11 rows"), "{text}");
}

/// Each join opens a bit, and servers continue after it, whatever it says.
#[test]
fn too_few_pairs_and_keys_that_are_there_twice_end_a_run_before_its_first_step() {
    let world = World::new(&Limits::default());
    let people = people();
    let mut clients = prepared(&world, &people);
    let few = "fewer than 9 of their rows have a partner";
    let other = keys(&[8; 32], &people.bank);
    let mut twice = keys(&SECRET, &people.bank);
    twice[4] = twice[5];
    let all_alike = vec![u64::MAX; 11];
    // A key has 60 bits. Rows of an owner that sends more find no partner.
    let above = |all: Vec<u64>| -> Vec<u64> {
        all.iter().zip(0..).map(|(key, at)| key | (at % 16) << 60).collect()
    };
    for (name, keys, rows, reason) in [
        ("nine", keys(&SECRET, &people.bank), 9, few),
        ("secrets", other, 4, "under different secrets (--key-secret)"),
        ("twice", twice, 4, "a table has two rows with one key"),
        (
            "above",
            above(keys(&SECRET, &people.bank)),
            4,
            "fewer than 4 of their rows have a partner",
        ),
        ("alike", all_alike, 4, "a table has two rows with one key"),
    ] {
        put_bank(&mut clients[1], &people, Some(keys));
        let spec = joined(&mut clients[2], Join::Inner { rows }, rows);
        let mark = begin(&mut clients, name, &spec);
        for _ in 0..2 {
            let text = said(world.client("carol").train(name, mark, 0, 1, false, &()));
            assert!(text.contains("data sets `hospital` and `bank` are not joined"), "{text}");
            assert!(text.contains(reason), "{name}: {text}");
        }
        assert_eq!(clients[2].run(name).unwrap().run.step, 0);
        works(&world);
    }
    // Each join is in the audit logs before it opens anything.
    let opened = audited(&world, 1, "opened");
    let joins = opened.iter().filter(|line| line["what"] == "join" && line["numbers"] == 2);
    assert_eq!(joins.count(), 10);
}
