//! Advice on replacements for operators that cannot be run on shares.

/// Operators, and the advice for each of them. A name that ends with a dot stands for a domain.
const ADVICE: &[(&[&str], &str)] = &[
    (
        &["MaxRoiPool", "DeformConv"],
        "which places are read depends on secrets; export the part before it, or a model that resizes (Resize) or pools instead",
    ),
    (
        &[
            "RandomNormal",
            "RandomNormalLike",
            "RandomUniform",
            "RandomUniformLike",
            "Multinomial",
            "Bernoulli",
        ],
        "draw random numbers where the input is prepared, and make them an input of the model",
    ),
    (
        &[
            "StringNormalizer",
            "StringConcat",
            "StringSplit",
            "RegexFullMatch",
            "TfIdfVectorizer",
            "ai.onnx.ml.CategoryMapper",
            "ai.onnx.ml.DictVectorizer",
        ],
        "encode texts as numbers where the input is prepared, and export the model behind that",
    ),
    (
        &["ai.onnx.ml.CastMap"],
        "export a model that takes a tensor: with skl2onnx, initial types such as FloatTensorType",
    ),
    (
        &["ImageDecoder"],
        "decode pictures where the input is prepared; `trefoil infer` reads PNG and JPEG",
    ),
    (&["Det"], "write determinants of small matrices out as products and sums"),
    (
        &["ai.onnx.preview.training."],
        "export the network in evaluation mode; `trefoil train` trains on shares",
    ),
    (
        &["com.microsoft.", "com.ms.internal.nhwc.", "ai.onnxruntime."],
        "onnxruntime's optimiser has put it there: give the file from before, or optimise with \
         ORT_ENABLE_BASIC, which keeps to ONNX's own operators",
    ),
    (
        &["org.pytorch.aten.", "aten.", "pkg.onnxscript.torch_lib.", "prim."],
        "PyTorch's exporter has found no ONNX operator: export with torch.onnx.export(..., dynamo=True), or \
         write the layer with others",
    ),
    (
        &["ai.onnx.contrib.", "com.microsoft.extensions."],
        "take preparation and tokenisation out of the model: they belong where the input is prepared",
    ),
];

/// The advice for operators that are not in [`ADVICE`].
const OTHERWISE: &str = "models/OPERATORS.md lists the operators that are understood; export the layer written with those";

/// The advice on a replacement for an operator. The operator's name includes its domain unless that is ONNX's own.
pub(crate) fn instead_of(operator: &str) -> &'static str {
    let named =
        |known: &&str| operator == *known || known.ends_with('.') && operator.starts_with(known);
    ADVICE.iter().find(|(known, _)| known.iter().any(named)).map_or(OTHERWISE, |(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::ops;

    #[test]
    fn advice_is_about_operators_that_are_not_understood_and_reaches_domains() {
        for operator in ADVICE.iter().flat_map(|(known, _)| *known) {
            assert!(ops::lookup(operator).is_none(), "{operator} is understood");
        }
        assert!(instead_of("DeformConv").contains("pools"));
        assert!(instead_of("com.microsoft.BiasSoftmax").contains("optimiser"));
        assert_eq!(instead_of("Unheard"), OTHERWISE);
    }
}
