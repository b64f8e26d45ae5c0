//! The suite that every protocol passes.

use mpc_core::{Error, Finish, Finishing, Profile, Protocol, Security, Term, TestWorld};
use ring_arith::{Bilinear, CpuEngine, Tensor};
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

#[test]
fn a_checked_session_refuses_the_parts_of_several_machines_by_name() {
    let options = Options::default().security(Security::Checked);
    let make = move |session| Rss::with_options(session, CpuEngine::new(1), options);
    TestWorld::new(3).run(make, |mpc| {
        let words = Tensor::vector(vec![7; 4]);
        let x = mpc.constant(&words)?;
        let term = Term { op: Bilinear::Mul, lhs: &x, rhs: &x };
        let refused = [
            mpc.parts(&[&[term]]).map(drop),
            mpc.settle(&[(&words, Finishing::new(Finish::Raw))]).map(drop),
            mpc.components(&x).map(drop),
            mpc.of_components(vec![words.clone(); 2]).map(drop),
        ];
        for outcome in refused {
            let error = outcome.unwrap_err();
            assert!(matches!(error, Error::Unsupported { protocol: "rss", .. }), "{error}");
            assert!(error.to_string().contains("proves each message from the operands"), "{error}");
        }
        // Nothing was sent, and the session goes on.
        mpc.open(&[&x])
    });
}
