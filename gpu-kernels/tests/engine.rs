//! Every operation against the CPU engine: one test for each comparison, and what is refused.

use crate::common::engine;
use gpu_kernels::{
    Method,
    check::{CHECKS, Extent},
};
use ring_arith::{Bilinear, Engine, Shape, Tensor, View};

macro_rules! compared {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            let check = CHECKS.iter().find(|c| c.name == $name).expect("there is such a check");
            check.run(&engine(), Extent::Small).expect("the device agrees with the CPU");
        })*

        #[test]
        fn every_check_has_a_test() {
            let tested = [$($name),*];
            assert_eq!(CHECKS.iter().map(|c| c.name).collect::<Vec<_>>(), tested);
        }
    };
}

compared! {
    limbs_meet_in_the_matrix_instruction_as_they_should: "mma-limbs",
    limbs_meet_in_hoppers_instruction_where_there_is_one: "wgmma-limbs",
    streams_are_those_of_the_cpu: "streams",
    views_move_words_as_on_the_cpu: "views",
    views_of_views_and_concatenation_agree: "concat",
    sums_agree_over_every_choice_of_axes: "sums",
    window_sums_agree: "window-sums",
    planes_agree_at_every_width_and_ragged_length: "planes",
    word_kernels_agree_for_streams_rows_and_offsets: "word-kernels",
    elementwise_products_agree: "products",
    matrix_products_agree: "matmul",
    the_longest_exact_sum_of_largest_limbs_and_one_beyond_it_are_right: "longest-sums",
    convolutions_and_their_gradients_agree: "convolutions",
}

#[test]
fn operands_cut_into_parts_give_the_same_products() {
    for name in ["matmul", "convolutions"] {
        let check = CHECKS.iter().find(|c| c.name == name).expect("there is such a check");
        // Room for a tile: every part has one.
        let engine = engine().with_limb_memory(1);
        check.run_only(&engine, Extent::Small, Method::Limbs8).expect("parts agree with the whole");
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let e = engine();
    let x = Tensor::full(Shape::new([2, 3]).expect("small"), 1);
    let x = e.upload(x).expect("upload");
    assert!(e.bilinear(&Bilinear::MATMUL, &[(&x, &x)], &[]).is_err());
    assert!(e.view(&x, &View::Slice { axis: 1, start: 2, end: 4, step: 1 }).is_err());
    assert!(e.sum(&x, &[2]).is_err() && e.sum(&x, &[0, 0]).is_err());
    assert!(e.to_planes(&x, 60, 5).is_err());
    assert!(e.concat(&[], 0).is_err());
}
