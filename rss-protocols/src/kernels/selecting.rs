//! A bit, opened as `v` to the second and the third under a mask `u` of the pivot, times words.

kernel! {
    /// The pivot shares `u` as a word: `(u ^ flip) - p2`, sent to the third.
    BitLead("bit-lead") [u, p2; 2] params => [1] [(u ^ params[0]) - p2]
}
kernel! {
    /// The pivot shares `u (x1 + x2)`: less the third's share, sent to the second. Its components of
    /// the result are streams.
    SelectLead("select-lead") [u, x1, x2, p3, y1, y2; 6] params => [3] {
        let keep = -(u ^ params[0]);
        [(keep & (x1 + x2)) - p3, y1, y2]
    }
}
kernel! {
    /// The second's or the third's summand of the product's third component, masked:
    /// `(1 - 2v)(d + u x3) + v alpha - y`, where the second adds `v x3` too; and `y`.
    SelectOther("select-other") [v, u, d, x3, alpha, y; 6] params => [2] {
        let yes = -v;
        let z = d + u * x3;
        [((z ^ yes) + v) + (yes & (alpha + (x3 & params[0]))) - y, y]
    }
}
kernel! {
    /// The pivot's components of an arithmetic bit are streams; it shares `u` alone.
    ArithLead("arith-lead") [u, p2, y1, y2; 4] params => [3] [(u ^ params[0]) - p2, y1, y2]
}
kernel! {
    /// `u (1 - 2v) + v`, the last at the second alone, less `y`; and `y`.
    ArithOther("arith-other") [v, u, y; 3] params => [2] {
        let yes = -v;
        [((u ^ yes) + v) + (v & params[0]) - y, y]
    }
}
