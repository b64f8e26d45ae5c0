//! A line of measurement, as `bench` writes it and `report` reads it.

use serde::{Deserialize, Serialize};

/// The name of this project among the systems of the records.
pub const OURS: &str = "trefoil";

/// The rows of `docs/measured.md`: a description, and suite and case of `cargo xtask bench`.
pub const MEASURED: &[(&str, &str)] = &[
    ("ReLU of 1,000,000 words", "protocols/relu/1e6"),
    ("product of two 1024 x 1024 matrices", "protocols/matmul/1024"),
    ("convolution of a ResNet block, 56 x 56 x 64", "protocols/conv/resnet-block"),
    ("softmax of 128 rows of 10", "protocols/softmax/128x10"),
    ("exp of 100,000 numbers", "protocols/exp/1e5"),
    ("GELU of 100,000 numbers", "protocols/gelu/1e5"),
    ("sigmoid of 100,000 numbers", "protocols/sigmoid/1e5"),
    ("join of 100,000 rows with 100,000", "protocols/join/1e5"),
    ("LeNet, one image", "models/lenet/1"),
    ("AlexNet for CIFAR-10, one image", "models/alexnet-cifar/1"),
    ("VGG-16 for CIFAR-10, one image", "models/vgg16-cifar/1"),
    ("ResNet-18 for ImageNet, one image", "models/resnet18/1"),
    ("ResNet-50 for ImageNet, one image", "models/resnet50/1"),
    ("ViT-B/16 for ImageNet, one image", "models/vit-b-16/1"),
    ("Wav2Letter, a second of sound", "models/wav2letter/1"),
    ("sentiment of 32 texts, 519,820 words", "models/sentiment/32"),
    ("BERT-base, 128 tokens", "models/bert-base/1"),
    ("GPT-2, a token behind 127", "models/gpt2/decode-128"),
    ("training step of LeNet, 128 images", "training/lenet/128"),
];

/// One line of JSON: a case, its conditions and its results. Absent values are `null`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Record {
    /// The suite's name.
    pub suite: String,
    /// The case's name, stable over time.
    pub case: String,
    /// Whose program: ours, or that of another system with its version.
    pub system: String,
    /// The protocol, such as `rss`.
    pub protocol: Option<String>,
    /// The engine, such as `cpu/avx512`.
    pub engine: Option<String>,
    /// The network between the parties.
    pub network: Option<String>,
    /// The size of the operation, such as `512x512x512`.
    pub size: Option<String>,
    /// Threads per party.
    pub threads: Option<usize>,
    /// Median time of one run.
    pub seconds_median: Option<f64>,
    /// Shortest time of one run.
    pub seconds_min: Option<f64>,
    /// Number of runs.
    pub runs: Option<usize>,
    /// Mean CPU time of one run, all threads of the measured process or processes together.
    pub cpu_seconds: Option<f64>,
    /// Work per second at the median, in `rate_unit`.
    pub rate: Option<f64>,
    /// Unit of `rate`, such as `GMAC/s`.
    pub rate_unit: Option<String>,
    /// The limit or rival form measured in the same run.
    pub reference: Option<String>,
    /// Speed relative to `reference`: above 1 is faster than it.
    pub ratio: Option<f64>,
    /// Bytes sent by one party, the largest of the parties.
    pub bytes_per_party: Option<u64>,
    /// Rounds, as the depth of dependent messages.
    pub rounds: Option<u64>,
    /// Largest absolute difference from the result computed in the clear.
    pub max_abs_error: Option<f64>,
    /// CPU and cores.
    pub machine: String,
    /// The commit measured.
    pub commit: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_every_field_and_null_for_those_that_do_not_apply() {
        let line = serde_json::to_value(Record::default()).unwrap();
        let fields = "suite case system protocol engine network size threads seconds_median seconds_min \
                      runs rate rate_unit reference ratio bytes_per_party rounds max_abs_error \
                      machine commit cpu_seconds";
        let object = line.as_object().unwrap();
        for field in fields.split_ascii_whitespace() {
            assert!(object.contains_key(field), "{field}");
        }
        assert_eq!(object.len(), 21);
        assert!(line["rounds"].is_null());
    }

    #[test]
    fn a_line_that_lacks_a_field_is_read_and_one_with_a_strange_field_is_not() {
        let record: Record = serde_json::from_str(r#"{"suite": "ring", "runs": 3}"#).unwrap();
        assert_eq!((record.suite.as_str(), record.runs), ("ring", Some(3)));
        assert!(serde_json::from_str::<Record>(r#"{"sweet": "ring"}"#).is_err());
    }
}
