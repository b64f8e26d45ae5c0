//! The networks have the papers' shapes and numbers of weights, and plans cost what they should.

use crate::common::{distance, plaintext, run};
use models::architectures::{
    NAMES, Pooling, RandomWeights, Role, SENTIMENT_WORDS, Transformer, Weights, by_name, sentiment,
    vit, wav2letter,
};
use nn_layers::{Compiled, HostTensor, PlanOptions};

/// Counts weights without making them.
struct Counted(usize);

impl Weights for Counted {
    fn tensor(&mut self, name: &str, dims: &[usize], role: Role) -> models::Result<HostTensor> {
        // The statistics of a normalisation are not trained.
        if !name.contains("running") {
            self.0 += dims.iter().product::<usize>();
        }
        let value = if matches!(role, Role::Variance) { 1.0 } else { 0.0 };
        Ok(HostTensor::new(dims, vec![value; dims.iter().product()])?)
    }
}

#[test]
fn networks_have_the_published_numbers_of_weights() {
    let published = [
        ("lenet", 431_080),
        ("small-cnn", 34_602),
        ("alexnet-imagenet", 61_100_840),
        ("vgg16-imagenet", 138_357_544),
        ("resnet8", 78_042),
        ("resnet20", 272_474),
        ("resnet18", 11_689_512),
        ("resnet34", 21_797_672),
        ("resnet50", 25_557_032),
        ("resnet101", 44_549_160),
        ("resnet152", 60_192_808),
    ];
    for (name, weights) in published {
        let mut counted = Counted(0);
        by_name(name, Pooling::Max, &mut counted).unwrap();
        assert_eq!(counted.0, weights, "{name}");
    }
}

#[test]
fn networks_of_patches_words_and_sounds_have_the_published_numbers_of_weights() {
    let counted = |make: &dyn Fn(&mut Counted)| {
        let mut counted = Counted(0);
        make(&mut counted);
        counted.0
    };
    // One row of `width` less than torchvision's, which has two for the first position.
    let of_images = |counted: &mut Counted| {
        vit(&Transformer::base(197), 16, 1000, counted).unwrap();
    };
    assert_eq!(counted(&of_images), 86_567_656 - 768);
    let of_sounds = |counted: &mut Counted| {
        wav2letter(16_000, counted).unwrap();
    };
    // torchaudio's `Wav2Letter(num_classes=29, input_type="waveform")`.
    assert_eq!(counted(&of_sounds), 26_189_279);
    let of_words = |counted: &mut Counted| {
        sentiment(SENTIMENT_WORDS, counted).unwrap();
    };
    assert_eq!(counted(&of_words), 519_820 * 32 + 33 * 2);
}

#[test]
fn an_image_that_has_no_whole_number_of_patches_is_refused() {
    for time in [0, 1, 2, 196] {
        let size = Transformer { layers: 1, ..Transformer::base(time) };
        let made = vit(&size, 16, 10, &mut Counted(0));
        assert_eq!(made.is_ok(), time == 2, "{time}");
    }
}

#[test]
fn speech_and_words_in_fixed_point_agree_with_floats() {
    let mut random = RandomWeights::new(11);
    let networks = [wav2letter(700, &mut random).unwrap(), sentiment(500, &mut random).unwrap()];
    for graph in networks {
        let compiled = Compiled::new(&graph, &PlanOptions::default()).unwrap();
        let shape = compiled.plan.input_shapes(1).unwrap().remove(0);
        let x = random.around(shape.dims(), 0.0, 1.0).unwrap();
        let expected = graph.evaluate(std::slice::from_ref(&x)).unwrap();
        let got = run(&mut plaintext(), &compiled, &[x]).unwrap();
        let error = distance(&got[0], &expected[0]);
        assert!(error < 1.0 / 1024.0, "{error}");
    }
}

#[test]
fn every_network_can_be_planned_for_every_batch_size() {
    for name in NAMES.iter().filter(|n| !n.contains("imagenet") && !n.contains("152")) {
        for pooling in [Pooling::Average, Pooling::Max] {
            let graph = by_name(name, pooling, &mut Counted(0)).unwrap();
            let plan = Compiled::new(&graph, &PlanOptions::default()).unwrap().plan;
            assert_eq!(plan.fixed_batch(), None, "{name}");
            assert_eq!(plan.output_shapes(5).unwrap()[0].dims()[0], 5, "{name}");
        }
    }
}

#[test]
fn small_networks_in_fixed_point_agree_with_floats() {
    for name in ["lenet", "alexnet-cifar", "alexnet-tiny", "vgg16-cifar"] {
        for pooling in [Pooling::Average, Pooling::Max] {
            let mut random = RandomWeights::new(11);
            let graph = by_name(name, pooling, &mut random).unwrap();
            let compiled = Compiled::new(&graph, &PlanOptions::default()).unwrap();
            let shape = compiled.plan.input_shapes(1).unwrap()[0].clone();
            let x = random.around(shape.dims(), 0.0, 1.0).unwrap();
            let expected = graph.evaluate(std::slice::from_ref(&x)).unwrap();
            let floats =
                compiled.plan.evaluate(&compiled.weights, std::slice::from_ref(&x)).unwrap();
            assert!(distance(&floats[0], &expected[0]) < 1e-9, "{name}");
            let got = run(&mut plaintext(), &compiled, &[x]).unwrap();
            let error = distance(&got[0], &expected[0]);
            println!("{name}, {pooling:?}: largest error {error:e}");
            assert!(error < 1.0 / 1024.0, "{name}: {error}");
        }
    }
}

#[test]
fn an_unknown_name_is_answered_with_the_known_ones() {
    let error = by_name("resnet19", Pooling::Max, &mut Counted(0)).unwrap_err().to_string();
    assert!(error.contains("`resnet19` is none of lenet, small-cnn"), "{error}");
}
