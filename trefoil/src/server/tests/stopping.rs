//! Servers that are being stopped.

use super::*;

/// Announces a job at all servers.
fn announce(world: &World, request: &Request) -> [Box<dyn Channel>; 3] {
    let mut channels = world.connect("half");
    for channel in &mut channels {
        say(&mut **channel, request).unwrap();
        assert_eq!(hear::<Reply>(&mut **channel, LIMIT).unwrap(), Reply::Send);
    }
    channels
}

fn wait_until_stopping(server: &Server) {
    while !server.status().unwrap().stopping {
        thread::yield_now();
    }
}

#[test]
fn a_server_that_is_stopped_ends_the_jobs_it_has_taken_and_takes_no_others() {
    for party in 0..3 {
        let world = World::new(&Limits::default());
        works(&world);
        let mut early = world.client("alice");
        let version = early.model("check").unwrap().version;
        let mut channels = announce(&world, &request(&world, false));
        thread::scope(|scope| {
            let stopped = scope.spawn(|| world.servers[party].stop());
            wait_until_stopping(&world.servers[party]);
            for mut client in [early, world.client("bob")] {
                let error = client.infer("check", version, &[input([1.0; 3])], false, &());
                let error = error.unwrap_err();
                assert!(matches!(error, Error::Stopping { party: it } if it == party), "{error}");
                assert_eq!((error.exit_code(), error.kind()), (5, "unreachable"));
            }
            let mut client = world.client("alice");
            let error = put(&mut client, "new", &model(ONE), false).unwrap_err();
            assert!(matches!(error, Error::Stopping { .. }), "{error}");
            let error = world.client("alice").remove("check", &()).unwrap_err();
            assert!(matches!(error, Error::Stopping { .. }), "{error}");
            // Requests that do not make work are answered.
            assert_eq!(world.client("alice").model("check").unwrap().version, version);
            assert!(!stopped.is_finished(), "a job that was taken is not done");
            let dealt = Replicated.deal(vec![input([1.0; 3])]).unwrap();
            for (party, channel) in channels.iter_mut().enumerate() {
                send_parcel(&mut **channel, &dealt[party], &mut |_| {}).unwrap();
            }
            for channel in &mut channels {
                let reply = loop {
                    match hear::<Reply>(&mut **channel, LIMIT).unwrap() {
                        Reply::Waiting { .. } | Reply::Working(_) => {}
                        reply => break reply,
                    }
                };
                assert!(matches!(reply, Reply::Result { .. }), "{reply:?}");
            }
            // An answer counts as given when it has been sent.
            drop(channels);
            assert_eq!(stopped.join().unwrap(), 0);
        });
        let others = world.servers.iter().enumerate().filter(|(me, _)| *me != party);
        for (_, server) in others {
            let reason = loop {
                if let Link::Down { reason } = server.status().unwrap().link {
                    break reason;
                }
                thread::yield_now();
            };
            assert!(reason.contains(&format!("party {party}")), "{reason}");
        }
    }
}

#[test]
fn a_server_that_is_stopped_waits_for_its_jobs_no_longer_than_its_limit() {
    let world = World::new(&Limits { drain_seconds: 1, ..Limits::default() });
    put(&mut world.client("alice"), "endless", &endless(), false).unwrap();
    thread::scope(|scope| {
        let runs = scope.spawn(|| infer(&mut world.client("alice"), "endless", [1.0; 3]));
        while world.servers[1].status().unwrap().step.is_none() {
            thread::yield_now();
        }
        assert_eq!(world.servers[1].stop(), 1);
        let text = runs.join().unwrap().unwrap_err().to_string();
        assert!(text.contains("party 1 is being stopped"), "{text}");
    });
}
