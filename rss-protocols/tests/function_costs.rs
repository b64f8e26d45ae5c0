//! What the functions of `mpc_core` cost over replicated sharing, against the table beside them.

use mpc_core::{Format, Profile, Protocol, Result, SecretTensor, TestWorld, functions as f};
use net::Party;
use ring_arith::{CpuEngine, FracBits, Shape, Window};
use rss_protocols::{
    Options, Rss,
    costs::{self, Cost},
};

type Mpc = Rss<CpuEngine>;
type Function = fn(&mut Mpc, &SecretTensor<Mpc>) -> Result<SecretTensor<Mpc>>;

/// Elements of a case: enough that rounding to whole words does not show.
const N: usize = 12_288;

fn function(name: &str) -> Option<Function> {
    Some(match name {
        "lt" => |mpc, x| f::lt(mpc, x, x),
        "eq" => |mpc, x| f::eq(mpc, x, x),
        "abs" => f::abs,
        "sign" => f::sign,
        "relu" => f::relu,
        "relu6" => f::relu6,
        "leaky_relu" => |mpc, x| f::leaky_relu(mpc, x, 0.01),
        "clamp" => |mpc, x| f::clamp(mpc, x, Some(-1.0), Some(1.0)),
        "select" => |mpc, x| {
            let bit = SecretTensor::new(x.share().clone(), Format::integer(2));
            f::select(mpc, &bit, x, x)
        },
        "exp" => f::exp,
        "exp_nonpositive" => f::exp_nonpositive,
        "log" => f::log,
        "reciprocal" => f::reciprocal,
        "reciprocal_positive" => f::reciprocal_positive,
        "div" => |mpc, x| f::div(mpc, x, x),
        "sqrt" => f::sqrt,
        "inv_sqrt" => f::inv_sqrt,
        "sigmoid" => f::sigmoid,
        "tanh" => f::tanh,
        "silu" => f::silu,
        "erf" => f::erf,
        "gelu" => f::gelu,
        "gelu_tanh" => f::gelu_tanh,
        "softplus" => f::softplus,
        "softsign" => f::softsign,
        "elu" => |mpc, x| f::elu(mpc, x, 0.7),
        "hard_sigmoid" => |mpc, x| f::hard_sigmoid(mpc, x, 0.2, 0.5),
        "hard_swish" => f::hard_swish,
        "maximum" => |mpc, x| f::maximum(mpc, x, x),
        "floor" => f::floor,
        "bitwise" => |mpc, x| {
            let x = SecretTensor::new(x.share().clone(), Format::integer(x.width()));
            f::bitwise(mpc, f::Bitwise::And, &x, &x)
        },
        "shift_right" => |mpc, x| {
            let x = SecretTensor::new(x.share().clone(), Format::integer(x.width()));
            f::shift_right(mpc, &x, 20)
        },
        "logical" => |mpc, x| {
            let bit = SecretTensor::new(x.share().clone(), Format::integer(2));
            f::logical(mpc, f::Logic::Or, &bit, &bit)
        },
        "where_positive" => |mpc, x| f::where_positive(mpc, x, x),
        "dot of 256" => |mpc, x| {
            let rows = f::reshape(mpc, x, &Shape::new([x.shape().len() / 256, 256])?)?;
            f::dot(mpc, &rows, None, &[1], 20)
        },
        "max_pool of 3x3 by 2" => |mpc, x| {
            let images = f::reshape(mpc, x, &Shape::new([x.shape().len() / 1024, 32, 32])?)?;
            f::max_pool(mpc, &images, Window::new([3, 3], [2, 2]).padded([1; 4]))
        },
        "sin" => f::sin,
        "cos" => f::cos,
        "pow 3" => |mpc, x| f::pow(mpc, x, 3),
        "powf" => |mpc, x| f::powf(mpc, x, 0.3),
        "polynomial of degree 4" => |mpc, x| f::polynomial(mpc, x, &[1.0, 0.5, 0.25, 0.125, 0.5]),
        "one_hot of 16" => |mpc, x| {
            let labels = SecretTensor::new(x.share().clone(), Format::integer(6));
            f::one_hot(mpc, &labels, 16)
        },
        "gather_at of 16" => |mpc, x| {
            let cells = f::slice(mpc, x, 0, 0, 16, 1)?;
            let places = SecretTensor::new(x.share().clone(), Format::integer(6));
            f::gather_at(mpc, &cells, &places, 0)
        },
        "scatter_add to 16" => |mpc, x| {
            let places = SecretTensor::new(x.share().clone(), Format::integer(6));
            f::scatter_add(mpc, x, &places, 16)
        },
        "max of 16" => |mpc, x| rows(mpc, x, f::max),
        "argmax of 16" => |mpc, x| rows(mpc, x, f::argmax),
        "sort of 16" => |mpc, x| rows(mpc, x, f::sort),
        "argsort of 16" => |mpc, x| rows(mpc, x, f::argsort),
        "top_k of 16" => |mpc, x| rows(mpc, x, |mpc, x, axis| Ok(f::top_k(mpc, x, 4, axis)?.0)),
        "median of 16" => |mpc, x| rows(mpc, x, f::median),
        "quantile of 16" => |mpc, x| rows(mpc, x, |mpc, x, axis| f::quantile(mpc, x, &[0.9], axis)),
        "distinct of 16" => |mpc, x| rows(mpc, x, f::distinct),
        "softmax of 16" => |mpc, x| rows(mpc, x, f::softmax),
        "log_softmax of 16" => |mpc, x| rows(mpc, x, f::log_softmax),
        "mean of 16" => |mpc, x| rows(mpc, x, |mpc, x, axis| f::mean(mpc, x, &[axis])),
        "var of 16" => |mpc, x| rows(mpc, x, |mpc, x, axis| f::var(mpc, x, &[axis])),
        "sum_squares of 16" => {
            |mpc, x| rows(mpc, x, |mpc, x, axis| f::sum_squares(mpc, x, &[axis]))
        }
        "normalize of 16" => |mpc, x| rows(mpc, x, |mpc, x, axis| f::normalize(mpc, x, axis, 1e-5)),
        "normalize_watched of 16" => |mpc, x| {
            rows(mpc, x, |mpc, x, axis| {
                Ok(f::normalize_watched(mpc, x, axis, f::Centre::Zero, 1e-5)?.rows)
            })
        },
        "norm of 16" => |mpc, x| rows(mpc, x, |mpc, x, axis| f::norm(mpc, x, &[axis])),
        _ => return None,
    })
}

/// Elements of a case for slow links: what is worth its bytes for few is worth them here.
const FEW: usize = 960;

fn rows(
    mpc: &mut Mpc,
    x: &SecretTensor<Mpc>,
    function: fn(&mut Mpc, &SecretTensor<Mpc>, usize) -> Result<SecretTensor<Mpc>>,
) -> Result<SecretTensor<Mpc>> {
    let x = f::reshape(mpc, x, &Shape::new([x.shape().len() / 16, 16])?)?;
    function(mpc, &x, 1)
}

/// Rounds, and bits for each element in all.
fn measure(function: Function, profile: Profile, n: usize) -> (u32, f64) {
    let program = move |counted: bool| {
        let world = TestWorld::new(3).with_seed(1);
        let (_, traffic) = world.run_metered(
            move |session| {
                let options = Options::default().profile(profile);
                Rss::with_options(session, CpuEngine::new(1), options)
            },
            move |mpc: &mut Mpc| {
                let values: Vec<f64> = (0..n).map(|i| 0.25 + (i % 64) as f64 / 16.0).collect();
                let mine = (mpc.me() == Party(0)).then_some(&values[..]);
                let x = f::input(mpc, Party(0), &Shape::new([n])?, mine, FracBits::DEFAULT)?;
                let x = x.with_width(44);
                if counted {
                    let _ = function(mpc, &x)?;
                }
                Ok(())
            },
        );
        traffic
    };
    let (with, without) = (program(true), program(false));
    let bits = 8.0 * (with.bytes - without.bytes) as f64 / n as f64;
    (with.rounds - without.rounds, bits)
}

/// Holds functions to their table.
fn check(table: &[Cost], profile: Profile, n: usize) {
    let mut wrong = vec![];
    for Cost { function: name, rounds, bits } in table {
        let Some(function) = function(name) else { panic!("no such function: {name}") };
        let (got_rounds, got_bits) = measure(function, profile, n);
        println!(
            "    Cost {{ function: \"{name}\", rounds: {got_rounds}, bits: {got_bits:.0}.0 }},"
        );
        // Sums over parts round to whole words. A table that says too much is wrong too.
        if got_rounds != *rounds || (got_bits - bits).abs() > 0.01 * bits + 1.0 {
            wrong.push(format!("{name}: {got_rounds} rounds, {got_bits} bits"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("; "));
}

#[test]
fn functions_cost_what_their_table_says() {
    check(costs::functions(), Profile::Bytes, N);
}

#[test]
fn functions_of_few_elements_cost_what_their_table_for_slow_links_says() {
    check(costs::for_slow_links(), Profile::SlowLinks, FEW);
}
