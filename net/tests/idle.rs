//! Links on which nothing happens. Alone in its file: it measures the time of the whole process.

#![cfg(target_os = "linux")]

use std::time::Duration;

use bytes::Bytes;
use net::{
    Endpoint, Job, Limits, Message, Party, Result,
    launch::{self, Network},
};

/// CPU time of this process so far, in hundredths of a second.
fn cpu_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // Fields 14 and 15; the second is a name in brackets.
    let fields = stat[stat.rfind(')').unwrap()..].split_ascii_whitespace();
    fields.skip(12).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

#[test]
fn waiting_for_a_message_or_for_its_receiver_takes_no_time() {
    let pause = Duration::from_secs(2);
    for network in [Network::InsecurePlainTcp, Network::Tls] {
        let limits = Limits { queue: 1 << 20, ..Limits::default() };
        let endpoints = launch::endpoints(network, 2, &limits).unwrap();
        let job = Job::new("idle").parties(2);
        let party = &|endpoint: &Endpoint| -> Result<()> {
            let mut link = endpoint.session(&job)?.transport;
            if link.me() == Party(0) {
                // Party 1 stops reading, and this party has to wait in a send.
                for _ in 0..20 {
                    link.send(Party(1), Message::from(Bytes::from(vec![1; 1 << 20])))?;
                }
                std::thread::sleep(pause);
                link.send(Party(1), Message::from(Bytes::from(vec![2; 8])))?;
            } else {
                let before = cpu_time();
                std::thread::sleep(pause);
                let blocked = cpu_time() - before;
                for _ in 0..20 {
                    link.receive(Party(0))?;
                }
                let before = cpu_time();
                assert_eq!(link.receive(Party(0))?.body[..], [2; 8]);
                let waiting = cpu_time() - before;
                let all = 100 * pause.as_secs();
                assert!(blocked < all / 4, "{network:?}: {blocked} of {all}");
                assert!(waiting < all / 4, "{network:?}: {waiting} of {all}");
            }
            link.close()
        };
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let run = |endpoint| scope.spawn(move || party(endpoint));
            let parties: Vec<_> = endpoints.iter().map(run).collect();
            parties.into_iter().map(|party| party.join().unwrap()).collect()
        });
        outcomes.into_iter().collect::<Result<()>>().unwrap();
    }
}
