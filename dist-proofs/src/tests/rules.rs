//! The rules of the flow, over links: when challenges are released, what they depend on, and what verdicts need.

use net::{Error, Fault, Metered, Party, Report, Result, Strike, Tamper, Transport, launch};
use ring_arith::{Generator, Shape, Tensor};

use super::recorder::{Event, Log, Recorder, batch, proofs, small, statements};
use crate::{
    Known, Side, Size, Verdict,
    keys::{CHALLENGES, Draw, Keys},
    ring::{Ring, galois::Galois, gf64::Gf64, prime::Prime},
    statement::Statements,
};

#[test]
pub fn honest_parties_accept_batch_after_batch_and_send_what_is_declared() {
    let statements = statements(&mut Draw::for_test(40));
    let logs = launch::threads(3, 1, |mut session| {
        let mut proofs = proofs(&session)?;
        let log = Log::default();
        let batch = batch(&statements, session.transport.me());
        let mut transport = Recorder { inner: session.transport, log: log.clone() };
        for job in 0..2 {
            proofs.begin_job(job);
            for _ in 0..2 {
                assert_eq!(proofs.run(&mut transport, batch)?, Verdict::Accepted);
            }
        }
        session.transport = Box::new(transport);
        session.transport.close()?;
        let log = log.lock().expect("no thread panics while it holds it").clone();
        Ok::<_, Error>(log)
    });
    let mut challenges = Vec::new();
    for (me, log) in logs.into_iter().enumerate() {
        let log = log.expect("an honest party gets no error");
        let me = Party(me);
        let batch = batch(&statements, me);
        let [next, previous] = [me.after(1, 3), me.after(2, 3)];
        let messages = |to| {
            log.iter().filter_map(move |event| match event {
                Event::Sent(party, body) if *party == to => Some(body),
                _ => None,
            })
        };
        let sent = |to| messages(to).map(Vec::len).sum::<usize>();
        let cost = [batch.prover, batch.left, batch.right].map(Statements::cost);
        // To the party before go the proof and two verdicts, to the one after an announcement, challenges, last values and
        // two verdicts.
        assert_eq!(sent(previous), 4 * (cost[0].prover_bytes + 16));
        assert_eq!(sent(next), 4 * (cost[1].left_bytes + cost[2].right_bytes + 16));
        challenges.extend(messages(next).filter(|body| body.len() == 32).cloned());
    }
    let all = challenges.len();
    challenges.sort();
    challenges.dedup();
    assert_eq!(challenges.len(), all, "two challenges are the same");
}

#[test]
fn rounds_are_those_declared() {
    let statements = statements(&mut Draw::for_test(47));
    let stats = launch::threads(3, 7, |session| {
        let mut proofs = proofs(&session)?;
        let mut transport = Metered::new(session.transport);
        let meter = transport.meter();
        let batch = batch(&statements, transport.me());
        assert_eq!(proofs.run(&mut transport, batch)?, Verdict::Accepted);
        Box::new(transport).close()?;
        Ok::<_, Error>(meter.stats())
    });
    let report =
        Report::of(&stats.into_iter().collect::<Result<Vec<_>>>().expect("all are honest"));
    assert_eq!(report.rounds as usize, statements[0][0].cost().rounds);
}

/// A prover that still owes the left verifier a message waits in vain for a challenge.
#[test]
pub fn no_challenge_is_released_before_the_left_verifier_has_all_messages() {
    let statements = statements(&mut Draw::for_test(41));
    let outcomes = launch::threads(3, 2, |mut session| {
        let me = session.transport.me();
        let mut proofs = proofs(&session)?;
        let transport = &mut *session.transport;
        match me.0 {
            0 => {
                transport.step("proofs");
                // Party 2 is the right verifier. What it announces is about another proof.
                transport.receive(Party(2))?;
                transport.receive(Party(2)).map(|_| "a challenge".to_owned())
            }
            1 => transport.receive(Party(0)).map(|_| "the message".to_owned()),
            _ => {
                proofs.run(transport, batch(&statements, me)).map(|verdict| format!("{verdict:?}"))
            }
        }
    });
    for outcome in outcomes {
        assert!(outcome.is_err(), "{outcome:?}");
    }
}

#[test]
fn verifiers_that_hold_other_statements_do_not_begin() {
    let draw = &mut Draw::for_test(42);
    let mut theirs = statements(draw);
    let mut longer = small(draw);
    longer.add_words(64, 1, 0, draw);
    let ours = theirs.clone();
    theirs[0][1] = longer.sides()[1].clone();
    let outcomes = launch::threads(3, 3, |mut session| {
        let me = session.transport.me();
        let mut proofs = proofs(&session)?;
        // Party 1 is the left verifier of party 0.
        let statements = if me.0 == 1 { &theirs } else { &ours };
        proofs.run(&mut *session.transport, batch(statements, me))
    });
    assert!(
        matches!(outcomes[2], Err(Error::Violation { peer: Party(1), .. })),
        "{:?}",
        outcomes[2]
    );
    assert!(outcomes.iter().all(Result::is_err));
}

/// Operands come from what the verifiers hold: a proof of a true statement about other words is rejected.
#[test]
fn a_proof_about_other_words_than_the_verifiers_is_rejected_by_both() {
    let draw = &mut Draw::for_test(43);
    for prover in 0..3 {
        let honest = small(draw);
        let mut lied = honest.clone();
        lied.flip(1, 0, 17);
        let mut statements = statements(draw);
        let [_, left, right] = lied.sides();
        statements[prover] = [honest.sides()[0].clone(), left, right];
        let verdicts = launch::threads(3, 4, |mut session| {
            let me = session.transport.me();
            let mut proofs = proofs(&session)?;
            let verdict = proofs.run(&mut *session.transport, batch(&statements, me))?;
            // After that there is no other.
            assert!(matches!(
                proofs.run(&mut *session.transport, batch(&statements, me)),
                Err(Error::Dead(_))
            ));
            Ok::<_, Error>(verdict)
        });
        for (me, verdict) in verdicts.into_iter().enumerate() {
            let Ok(Verdict::Rejected { suspects, step }) = verdict else { panic!("{verdict:?}") };
            assert!(!suspects.contains(&Party(me)));
            let refusing = Party(prover).after(2, 3);
            assert_eq!(step, format!("proof of party {prover} in batch 1, refused by {refusing}"));
        }
    }
}

/// A party that says one thing to one peer and something else to the other does not divide them.
#[test]
pub fn no_honest_party_accepts_what_another_refuses() {
    let statements = statements(&mut Draw::for_test(44));
    for (nth, step) in [(0, "proof of party 2"), (1, "verdicts")] {
        let verdicts = launch::threads(3, 5, |mut session| {
            let me = session.transport.me();
            let mut proofs = proofs(&session)?;
            let mut transport = session.transport;
            if me.0 == 1 {
                let strike =
                    Strike::new(Fault::Flip(0)).to(Party(0)).in_step("proofs/verdict").nth(nth);
                transport = Box::new(Tamper::new(transport, vec![strike]));
            }
            session.transport = transport;
            proofs.run(&mut *session.transport, batch(&statements, me))
        });
        for honest in [0, 2] {
            let Ok(Verdict::Rejected { step: found, .. }) = &verdicts[honest] else {
                // What party 1 concluded reaches party 0 alone, after all decisions were the same.
                assert!(nth == 1 && honest == 2, "{:?}", verdicts[honest]);
                continue;
            };
            assert!(found.starts_with(step) || found.starts_with("verdicts"), "{found}");
        }
    }
}

#[test]
pub fn challenges_that_remove_the_blinding_are_never_taken() {
    let draw = &mut Draw::for_test(45);
    let prime = Prime::random(draw, 2);
    let [zero, one] = [prime.zero(), prime.one()];
    for _ in 0..200 {
        assert!(Gf64::new(2).challenge(draw) > 1);
        assert!(![zero, one].contains(&prime.challenge(draw)));
        let ring = Galois::new(2);
        assert!(![ring.zero(), ring.one()].contains(&ring.challenge(draw)));
    }
}

/// No two streams of a pair are the same: not those of two purposes, provers, rounds, batches or jobs.
#[test]
pub fn streams_are_never_used_twice() {
    let keys = launch::threads(3, 6, |session| {
        let mut keys = Keys::new(&session, Generator::Aes128Ctr).expect("a session of three");
        let me = session.transport.me();
        let mut all = Vec::new();
        for (job, batch) in [(0, 1), (0, 2), (1, 1)] {
            (keys.job, keys.batch) = (job, batch);
            for prover in [0, 1, 2].map(Party) {
                if prover != me {
                    all.extend([0, 1].map(|round| keys.challenge(prover, round)));
                }
                if prover.after(2, 3) != me {
                    all.push(keys.shares(prover));
                }
                if prover.after(1, 3) != me {
                    all.push(keys.blinding(prover));
                }
            }
        }
        let number = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), number);
        if me.0 == 0 {
            assert_ne!(keys.shares(me), keys.derive(CHALLENGES, Party(1), me, 0));
        }
        all
    });
    // Two parties have each in common, and no third one has it.
    let mut all = keys.concat();
    all.sort_unstable();
    let twice = all.chunk_by(|a, b| a == b).all(|same| same.len() == 2);
    assert!(twice);
}

/// The relations of a layer's product and truncation, of one prover, for 2^16 elements.
#[test]
fn the_proof_of_a_usual_batch_has_less_than_8_kilobytes() {
    const ELEMENTS: usize = 1 << 16;
    let zeros = |words| Tensor::zeros(Shape::new([words]).expect("it is small"));
    let mut statements = Statements::new(Side::Right);
    let mut bits = |planes: usize, products: usize| {
        let right = zeros(planes * ELEMENTS / 64);
        let pairs: Vec<_> = (0..products)
            .map(|_| {
                (
                    statements.left_operand(Known::Elsewhere),
                    statements.right_operand(Known::Here(&right)),
                )
            })
            .collect();
        let relation = statements.bits(planes, ELEMENTS).right(Known::Here(&right));
        pairs.into_iter().fold(relation, |relation, (a, b)| relation.product(a, b));
    };
    bits(43, 2);
    bits(40, 1);
    let right = zeros(ELEMENTS);
    let [x, y] = [(); 2].map(|()| statements.left_operand(Known::Elsewhere));
    let [z, w] = [(); 2].map(|()| statements.right_operand(Known::Here(&right)));
    statements.words(64, ELEMENTS).product(x, z).product(y, w).right(Known::Here(&right));
    let cost = statements.cost();
    assert_eq!(cost.bits, Size { relations: 83 * ELEMENTS, products: 126 * ELEMENTS });
    assert_eq!(cost.words, Size { relations: ELEMENTS, products: 2 * ELEMENTS });
    // Bits: 728 values, the blinding, and eight values in each of 9 rounds. Words: 63 words of quotients, the blinding, and
    // 9 rounds too.
    assert_eq!(cost.prover_bytes, 8 * (728 + 1 + 72 + 63 + 1 + 72));
    assert!(cost.prover_bytes < 8_000);
    assert_eq!(cost.rounds, 4 + 2 * 10);
}
