//! The suite that every protocol passes.

use mpc_core::{Profile, TestWorld};
use ring_arith::CpuEngine;
use rss_protocols::{Options, Partition, Rss, Tree};

mpc_core::conformance! {
    rss: 3, |session| Rss::new(session, CpuEngine::new(1));
    dealt: TestWorld::new(2).with_dealer(), |session| {
        Rss::dealt(session, CpuEngine::new(1), Options::default())
    };
    by_twos_in_six_parts: 3, |session| {
        let options = Options::default().tree(Tree::Twos).partition(Partition::Six);
        Rss::with_options(session, CpuEngine::new(1), options)
    };
    by_fours_with_chacha: 3, |session| {
        let options =
            Options::default().tree(Tree::Fours).generator(ring_arith::Generator::ChaCha12);
        Rss::with_options(session, CpuEngine::new(1), options)
    };
    for_slow_links: 3, |session| {
        let options = Options::default().profile(Profile::SlowLinks);
        Rss::with_options(session, CpuEngine::new(1), options)
    };
}
