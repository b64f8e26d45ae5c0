//! Tests of what `Metered` counts.

use bytes::Bytes;
use net::{Message, Metered, Party, Report, Result, Session, Stats, Transport, UNTRACED, launch};

fn bytes(len: usize) -> Message {
    Message::from(Bytes::from(vec![0; len]))
}

fn run(program: impl Fn(Session) -> Result<Stats> + Sync) -> Vec<Stats> {
    launch::threads(3, 3, program).into_iter().collect::<Result<_>>().unwrap()
}

/// Party 0 sends all it has for every step ahead, parties 1 and 2 exchange `rounds` times; in the
/// step after that, party 0 is told the result.
fn pivot(rounds: usize, repeat: usize) -> Vec<Stats> {
    run(|session| {
        let mut link = Metered::new(session.transport);
        let meter = link.meter();
        let me = link.me();
        for _ in 0..repeat {
            link.step("exchange");
            if me == Party(0) {
                (0..rounds).try_for_each(|_| link.send(Party(1), bytes(10)))?;
            }
            for _ in 0..rounds {
                if me != Party(0) {
                    let other = Party(3 - me.0);
                    link.send(other, bytes(100))?;
                    link.receive(other)?;
                }
                if me == Party(1) {
                    link.receive(Party(0))?;
                }
            }
            link.step("tell");
            match me.0 {
                0 => drop(link.receive(Party(2))?),
                2 => link.send(Party(0), bytes(1))?,
                _ => {}
            }
        }
        let stats = meter.stats();
        Box::new(link).close()?;
        Ok(stats)
    })
}

#[test]
fn rounds_of_a_step_are_the_growth_of_causal_depth_over_all_parties() {
    let report = Report::of(&pivot(5, 1));
    let exchange = report.step("exchange").unwrap();
    assert_eq!((exchange.rounds, exchange.messages, exchange.bytes), (5, 15, 1050));
    let tell = report.step("tell").unwrap();
    assert_eq!((tell.rounds, tell.messages, tell.bytes), (1, 1, 1));
    assert_eq!((report.rounds, report.messages, report.bytes), (6, 16, 1051));
    assert!(report.step(UNTRACED).is_none());
}

#[test]
fn repeated_steps_add_up_under_their_name() {
    let report = Report::of(&pivot(2, 10));
    assert_eq!(report.step("exchange").unwrap().rounds, 20);
    assert_eq!(report.step("tell").unwrap().rounds, 10);
    assert_eq!(report.rounds, 30);
}

#[test]
fn many_messages_that_nobody_waits_for_in_turn_are_one_round() {
    let stats = run(|session| {
        let mut link = Metered::new(session.transport);
        let (meter, me) = (link.meter(), link.me());
        (0..20).try_for_each(|_| link.send(me.after(1, 3), bytes(8)))?;
        for _ in 0..20 {
            link.receive(me.after(2, 3))?;
        }
        Ok(meter.stats())
    });
    assert_eq!(Report::of(&stats).rounds, 1);
    for party in &stats {
        assert_eq!((party.bytes_sent(), party.messages_sent()), (160, 20));
        assert_eq!(party.sent[party.me.after(1, 3).0].messages, 20);
        assert_eq!(party.received[party.me.after(2, 3).0].bytes, 160);
        assert_eq!(party.sent[party.me.after(2, 3).0].messages, 0);
    }
}

#[test]
fn counting_begins_anew_after_a_reset() {
    let stats = run(|session| {
        let mut link = Metered::new(session.transport);
        let (meter, me) = (link.meter(), link.me());
        for name in ["before", "between", "after"] {
            link.step(name);
            link.send(me.after(1, 3), bytes(4))?;
            link.receive(me.after(2, 3))?;
            if name == "before" {
                meter.reset();
            }
        }
        Ok(meter.stats())
    });
    let report = Report::of(&stats);
    assert_eq!((report.rounds, report.messages), (2, 6));
    assert_eq!(report.step("before").unwrap().rounds, 0);
    assert_eq!(report.step("after").unwrap().rounds, 1);
}
