//! Three parties as processes on loopback, each sending to the next: how fast a network is here.
//!
//! `cargo run --release -p trefoil-net --example bandwidth -- [tls|plain] [MESSAGE BYTES] [TOTAL MIB]`

use std::{
    env,
    time::{Duration, Instant},
};

use net::{
    Endpoint, Job, Message, Result, Transport,
    launch::{self, Network, Processes},
};

fn main() -> Result<()> {
    let mut args = env::args().skip(1);
    let network = match args.next().as_deref() {
        Some("plain") => Network::InsecurePlainTcp,
        _ => Network::Tls,
    };
    let size = args.next().and_then(|size| size.parse().ok()).unwrap_or(1 << 20);
    let total: usize = args.next().and_then(|total| total.parse().ok()).unwrap_or(1024);
    if let Some(endpoint) = launch::joined()? {
        return party(&endpoint, size, (total << 20) / size);
    }
    let mut running = Processes::new(3, network).args(env::args().skip(1)).start()?;
    for party in 0..3 {
        let (_, lines) = running.wait(party, Duration::from_secs(300))?;
        println!("{}", lines.join("\n"));
    }
    Ok(())
}

/// Sends and receives `times` messages, with 8 MiB on their way.
fn party(endpoint: &Endpoint, size: usize, times: usize) -> Result<()> {
    let mut link = endpoint.session(&Job::new("bandwidth"))?.transport;
    let (me, body) = (link.me(), bytes::Bytes::from(vec![1; size]));
    let ahead = ((8 << 20) / size).max(1);
    let began = Instant::now();
    for at in 0..times + ahead {
        if at < times {
            link.send(me.after(1, 3), Message::from(body.clone()))?;
        }
        if at >= ahead {
            link.receive(me.after(2, 3))?;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{me}: {:.2} GB/s", (size * times) as f64 / seconds / 1e9);
    link.close()
}
