//! Steps without protocol: sums, masks, gates.

kernel! {
    /// `x + y`.
    Sum("sum") [x, y; 2] _ => [1] [x + y]
}
kernel! {
    /// `x - y`.
    Difference("difference") [x, y; 2] _ => [1] [x - y]
}
kernel! {
    /// A word in two: `x - y` and `y`.
    Split("split") [x, y; 2] _ => [2] [x - y, y]
}
kernel! {
    /// `-x`.
    Negate("negate") [x; 1] _ => [1] [-x]
}
kernel! {
    /// `x * c`.
    Scale("scale") [x; 1] params => [1] [x * params[0]]
}
kernel! {
    /// `x + c`.
    Shift("shift") [x; 1] params => [1] [x + params[0]]
}
kernel! {
    /// A sum of four terms with factors, and a constant.
    Combine("combine") [w, x, y, z; 4] params => [1] [
        w * params[0] + x * params[1] + y * params[2] + z * params[3] + params[4]
    ]
}
kernel! {
    /// `x`: a stream made into a tensor.
    Copy("copy") [x; 1] _ => [1] [x]
}
kernel! {
    /// `x - m - n`: a word that its sender alone can unmask.
    MaskedDifference("masked-difference") [x, m, n; 3] _ => [1] [x - m - n]
}
kernel! {
    /// `x + y + z`.
    MaskedSum("masked-sum") [x, y, z; 3] _ => [1] [x + y + z]
}
kernel! {
    /// `x ^ y`.
    Xor("xor") [x, y; 2] _ => [1] [x ^ y]
}
kernel! {
    /// `x ^ y ^ z`.
    Xor3("xor-3") [x, y, z; 3] _ => [1] [x ^ y ^ z]
}
kernel! {
    /// `x ^ c`.
    XorWord("xor-word") [x; 1] params => [1] [x ^ params[0]]
}
kernel! {
    /// One party's addend of `x & y` of replicated bits, masked: `x_i y_i ^ x_i y_j ^ x_j y_i ^ m ^ n`.
    AndAddend("and-addend") [x, x1, y, y1, m, n; 6] _ => [1] [(x & (y ^ y1)) ^ (x1 & y) ^ m ^ n]
}
kernel! {
    /// A pair of words `x` of this party's component and `y` of the next: `x A + y` of `paired.rs`.
    PairLeft("pair-left") [x0, x1, y0, y1; 4] _ => [2] [x1 + y0, x1 - x0 + y1]
}
kernel! {
    /// A pair of words `x` of this party's component and `y` of the next: `x + A^-1 y` of `paired.rs`.
    PairRight("pair-right") [x0, x1, y0, y1; 4] _ => [2] {
        let below = x1 - y0;
        mutant!("paired: a sign of the inverse", below = x1 + y0);
        [x0 + y0 + y1, below]
    }
}
kernel! {
    /// The dealer's part of a value, with a addend and a factor, masked: `z + c s - m - n`.
    AddedDealer("added-dealer") [z, m, n, s; 4] params => [1] [z + s * params[0] - m - n]
}
kernel! {
    /// An evaluator's part of a value, with a addend and a factor, masked: `z + c s + m`.
    AddedEvaluator("added-evaluator") [z, m, s; 3] params => [1] [z + s * params[0] + m]
}
kernel! {
    /// The dealer's part of the product of two shared words, with a addend, masked.
    MulDealer("mul-dealer") [x, x1, y, y1, m, n, s; 7] _ => [1] [
        x * (y + y1) + x1 * y + s - m - n
    ]
}
kernel! {
    /// An evaluator's part of the product of two shared words, with a addend, masked.
    MulEvaluator("mul-evaluator") [x, x1, y, y1, m, s; 6] _ => [1] [x * (y + y1) + x1 * y + s + m]
}
