//! The natural logarithm.

use std::f64::consts::LN_2;

use crate::functions::{
    arithmetic::fixed::{run, working, working_chain},
    rescale,
    smooth::exponent::{Exponent, argument, look_up},
    smooth::tables::LOG,
};
use crate::{Format, Protocol, Result, SecretTensor};

/// Most fraction bits.
const MOST: u32 = 40;

/// `ln(x)`.
///
/// # Domain and error
/// `x > 0`: error below three units in the last place, and `2^-19`. For 0 the result is some number below
/// -3, as nothing stands for minus infinity; for negative `x` it is meaningless.
///
/// # Method
/// Normalisation by the highest set bit, a polynomial of degree 8 on `[1/2, 1]`, and the exponent times
/// `ln 2` from the same look-up.
///
/// # Cost
/// With replicated sharing see `rss_protocols::costs`.
/// With replicated sharing at width 44: 22 rounds and 3660 bits for each element in all.
///
/// # Errors
/// [`crate::Error::Invalid`] for more than 40 fraction bits; [`crate::Error::Net`] if a peer failed.
pub fn log<P: Protocol>(mpc: &mut P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
    let frac = x.frac();
    let x = working(mpc, "log", x, MOST)?;
    let f = x.frac();
    let n = (x.width().min(63) - 1).max(1);
    let logs = |e: u32| (f64::from(e) * LN_2 * 2f64.powi(f as i32)).round() as u64;
    // ln(m 2^(n - e - f)); the high table carries the constant, since one of its planes is set.
    let constant = (f64::from(n) - f64::from(f)) * LN_2 * 2f64.powi(f as i32);
    let constant = constant.round() as i64 as u64;
    mutant!("log: eight units too much", constant = constant.wrapping_add(8));
    let wanted = Exponent {
        planes: n,
        wraps: false,
        signed: false,
        top: n,
        low: &[&|b| 1 << b, &|b| logs(b).wrapping_neg()],
        high: &[&|a| 1 << (8 * a), &|a| constant.wrapping_sub(logs(8 * a))],
        sizes: &[],
    };
    let looked = look_up(mpc, x.share(), &wanted)?;
    let mut chain = working_chain::<P>(mpc);
    let [number, low, high] = [x.share(), &looked.low[0], &looked.high[0]].map(|x| chain.input(x));
    let scale = chain.product(low, high, 0);
    let v = argument(&mut chain, number, scale, n, mpc.truncation());
    let m = LOG.eval(&mut chain, &v, f);
    let m = run(mpc, chain, m)?;
    let share = mpc.combine(&[(1, &m), (1, &looked.low[1]), (1, &looked.high[1])], 0)?;
    rescale(mpc, &SecretTensor::new(share, Format { frac: f, width: f + 7 }), frac)
}
