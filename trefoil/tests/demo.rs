//! The README's first command.

use crate::common::trefoil;
use serde_json::Value;

#[test]
fn the_demo_agrees_with_the_plaintext_model_on_all_test_images() {
    let run = trefoil(&["demo", "--json", "--profile"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let report: Value = serde_json::from_str(&run.out).unwrap();
    let number = |key: &str| report[key].as_f64().unwrap();
    assert_eq!((number("images"), number("agreement")), (360.0, 1.0));
    assert_eq!(number("accuracy_private"), number("accuracy_plaintext"));
    assert!(number("accuracy_private") > 0.98);
    assert!(number("largest_error_of_a_logit") < 1.0 / 512.0);
    assert!(report["cost"]["layers"].as_array().unwrap().len() > 5);
}

#[test]
fn the_demo_prints_pictures_and_figures() {
    let run = trefoil(&["demo", "--images", "5", "--show", "5"]);
    assert_eq!(run.code, 0, "{}", run.err);
    for word in ["is 2, read 2", "##", "accuracy", "agreement", "per image", "rounds"] {
        assert!(run.out.contains(word), "{word}: {}", run.out);
    }
    let quiet = trefoil(&["--quiet", "demo", "--images", "5"]);
    assert_eq!(quiet.out.lines().count(), 7, "{}", quiet.out);
    assert_eq!(trefoil(&["demo", "--images", "361"]).code, 3);
}

#[test]
fn the_demo_trains_on_shares_as_in_the_clear() {
    let run = trefoil(&["demo", "--train", "--epochs", "3", "--json"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let report: Value = serde_json::from_str(&run.out).unwrap();
    let number = |key: &str| report[key].as_f64().unwrap();
    assert_eq!((number("images"), number("held_out"), number("steps")), (1437.0, 360.0, 66.0));
    assert!(number("accuracy_private") > 0.9, "{report}");
    assert!((number("accuracy_private") - number("accuracy_plaintext")).abs() < 0.01, "{report}");
    let curve = report["curve"].as_array().unwrap();
    assert_eq!(curve.len(), 3);
    for point in curve {
        let difference = |what: &str| {
            let of = |kind: &str| point[format!("{what}_{kind}")].as_f64().unwrap();
            (of("private") - of("plaintext")).abs()
        };
        assert!(difference("loss") < 0.01 && difference("right") < 0.01, "{point}");
    }
    let loss = |at: usize| curve[at]["loss_private"].as_f64().unwrap();
    assert!(loss(2) < 0.5 * loss(0));
}
