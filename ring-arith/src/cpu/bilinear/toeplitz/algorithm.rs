//! Toeplitz matrix-vector products with few multiplications, and without divisions.
//!
//! `r` outputs of a filter of `r` taps are `y_i = sum_j d_{i+j} g_j`: a Toeplitz matrix of `2r - 1`
//! inputs times a vector of weights. Each algorithm here transforms the inputs and the weights into
//! `m < r^2` sums each, which are multiplied pair by pair, and gets the outputs as sums of the
//! products. It is the transpose of a multiplication of polynomials of `r` terms.

/// An algorithm for filters of a number of taps, up to 5; the one for 1 tap does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Algorithm(usize);

impl Algorithm {
    /// All of them.
    pub(super) const ALL: [Self; 5] = [Self(1), Self(2), Self(3), Self(4), Self(5)];

    /// Taps of the filter, and outputs.
    pub(super) const fn taps(self) -> usize {
        self.0
    }

    /// Inputs that the outputs depend on.
    pub(super) const fn inputs(self) -> usize {
        2 * self.0 - 1
    }

    /// Products; `taps` squared without an algorithm.
    pub(super) const fn products(self) -> usize {
        [1, 3, 6, 9, 13][self.0 - 1]
    }
}

/// One tap: nothing to do.
pub(super) mod one {
    #[inline(always)]
    pub(in super::super) fn same<W>(words: [W; 1]) -> [W; 1] {
        words
    }
}

/// Three products instead of four.
pub(super) mod two {
    use crate::Word;

    #[inline(always)]
    pub(in super::super) fn inputs<W: Word>([d0, d1, d2]: [W; 3]) -> [W; 3] {
        [d0 - d1, d1, d2 - d1]
    }

    #[inline(always)]
    pub(in super::super) fn weights<W: Word>([g0, g1]: [W; 2]) -> [W; 3] {
        [g0, g0 + g1, g1]
    }

    #[inline(always)]
    pub(in super::super) fn outputs<W: Word>([p0, p1, p2]: [W; 3]) -> [W; 2] {
        [p0 + p1, p1 + p2]
    }
}

/// Six products instead of nine: one for each pair of taps, one for each tap.
pub(super) mod three {
    use crate::Word;

    #[inline(always)]
    pub(in super::super) fn inputs<W: Word>([d0, d1, d2, d3, d4]: [W; 5]) -> [W; 6] {
        let sum = d2 + d3;
        [d1, d2, d3, d0 - d1 - d2, d2 - d1 - d3, d4 - sum]
    }

    #[inline(always)]
    pub(in super::super) fn weights<W: Word>([g0, g1, g2]: [W; 3]) -> [W; 6] {
        [g0 + g1, g0 + g2, g1 + g2, g0, g1, g2]
    }

    #[inline(always)]
    pub(in super::super) fn outputs<W: Word>([p01, p02, p12, p0, p1, p2]: [W; 6]) -> [W; 3] {
        [p01 + p02 + p0, p01 + p12 + p1, p02 + p12 + p2]
    }
}

/// Nine products instead of sixteen: pairs of pairs.
pub(super) mod four {
    use super::two;
    use crate::Word;

    #[inline(always)]
    pub(in super::super) fn inputs<W: Word>(d: [W; 7]) -> [W; 9] {
        let [d0, d1, d2, d3, d4, d5, d6] = d;
        let [a0, a1, a2] = two::inputs([d0 - d2, d1 - d3, d2 - d4]);
        let [b0, b1, b2] = two::inputs([d2, d3, d4]);
        let [c0, c1, c2] = two::inputs([d4 - d2, d5 - d3, d6 - d4]);
        [a0, a1, a2, b0, b1, b2, c0, c1, c2]
    }

    #[inline(always)]
    pub(in super::super) fn weights<W: Word>([g0, g1, g2, g3]: [W; 4]) -> [W; 9] {
        let [a0, a1, a2] = two::weights([g0, g1]);
        let [b0, b1, b2] = two::weights([g0 + g2, g1 + g3]);
        let [c0, c1, c2] = two::weights([g2, g3]);
        [a0, a1, a2, b0, b1, b2, c0, c1, c2]
    }

    #[inline(always)]
    pub(in super::super) fn outputs<W: Word>(p: [W; 9]) -> [W; 4] {
        let [a0, a1, a2, b0, b1, b2, c0, c1, c2] = p;
        let ([a0, a1], [b0, b1]) = (two::outputs([a0, a1, a2]), two::outputs([b0, b1, b2]));
        let [c0, c1] = two::outputs([c0, c1, c2]);
        [a0 + b0, a1 + b1, b0 + c0, b1 + c1]
    }
}

/// Thirteen products instead of twenty-five: the transpose of P. Montgomery's formula for polynomials
/// of five terms (IEEE Trans. Computers 54(3), 2005).
pub(super) mod five {
    use crate::Word;

    #[inline(always)]
    pub(in super::super) fn inputs<W: Word>(d: [W; 9]) -> [W; 13] {
        let [d0, d1, d2, d3, d4, d5, d6, d7, d8] = d;
        // First differences, and the second ones in the middle.
        let (e0, e1, e2, e3) = (d0 - d1, d1 - d2, d2 - d3, d3 - d4);
        let (e4, e5, e6, e7) = (d4 - d5, d5 - d6, d6 - d7, d7 - d8);
        let (s3, s4, s5) = (e2 - e3, e3 - e4, e4 - e5);
        let (low, high) = (s3 + e4, s5 - e3);
        [
            low + s5 + e0,
            high + s3 - e7,
            e3 + d5,
            s4,
            high,
            low,
            s3 - e1,
            s5 + e6,
            e1 + e4,
            e3 + e6,
            s4 - s3 - s5,
            s3,
            s5,
        ]
    }

    #[inline(always)]
    pub(in super::super) fn weights<W: Word>([g0, g1, g2, g3, g4]: [W; 5]) -> [W; 13] {
        let (first, last) = (g0 + g1, g3 + g4);
        let (left, right) = (g0 - g2 - g3, g1 + g2 - g4);
        [
            g0,
            g4,
            first + g2 + last,
            first - last,
            left - g4,
            g0 + right,
            g1,
            g3,
            first,
            last,
            g0 - g4,
            right,
            left,
        ]
    }

    #[inline(always)]
    pub(in super::super) fn outputs<W: Word>(p: [W; 13]) -> [W; 5] {
        let [p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12] = p;
        let (left, right) = (p3 + p8 + p2 + p5, p2 - p3 - p4 - p9);
        [
            left + p0 + p4 + p10 - p12,
            left + p6 - p11,
            p2 - p4 + p5 - p11 + p12,
            right + p7 + p12,
            right + p1 - p5 - p10 + p11,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::{Extent, LANES, Rows, Step, run};
    use super::*;
    use crate::Isa;

    /// The outputs for single inputs and weights, by the transforms of one algorithm.
    fn outputs_of(algorithm: Algorithm, isa: Isa, d: &[u64], g: &[u64]) -> Vec<u64> {
        let [r, m] = [algorithm.taps(), algorithm.products()];
        let rows = Rows { group: 0, row: LANES, width: LANES, panel: 0 };
        let extent = Extent { algorithm, groups: 1, len: LANES };
        let spread = |words: &[u64]| -> Vec<u64> {
            words
                .iter()
                .flat_map(|w| (0..LANES as u64).map(move |l| w.wrapping_mul(l + 1)))
                .collect()
        };
        let [mut u, mut v] = [vec![0; m * LANES], vec![0; m * LANES]];
        run(isa, Step::Inputs, extent, &spread(d), rows, &mut v, rows);
        let weight: Vec<_> = g.iter().flat_map(|w| [*w; LANES]).collect();
        run(isa, Step::Weights, extent, &weight, rows, &mut u, rows);
        let products: Vec<_> = u.iter().zip(&v).map(|(u, v)| u.wrapping_mul(*v)).collect();
        let mut y = vec![0; r * LANES];
        run(isa, Step::Outputs, extent, &products, rows, &mut y, rows);
        for (i, y) in y.iter().enumerate() {
            let first = y_first(&products, algorithm, isa, i / LANES);
            assert_eq!(*y, first.wrapping_mul((i % LANES) as u64 + 1), "lanes differ");
        }
        y.chunks(LANES).map(|y| y[0]).collect()
    }

    /// Output `i` of the first lane, alone.
    fn y_first(products: &[u64], algorithm: Algorithm, isa: Isa, i: usize) -> u64 {
        let alone: Vec<_> = products.chunks(LANES).flat_map(|p| [p[0]; LANES]).collect();
        let mut y = vec![0; algorithm.taps() * LANES];
        let rows = Rows { group: 0, row: LANES, width: LANES, panel: 0 };
        let extent = Extent { algorithm, groups: 1, len: LANES };
        run(isa, Step::Outputs, extent, &alone, rows, &mut y, rows);
        y[i * LANES + 3]
    }

    fn model(d: &[u64], g: &[u64]) -> Vec<u64> {
        let dot = |d: &[u64]| {
            d.iter().zip(g).fold(0u64, |sum, (d, g)| sum.wrapping_add(d.wrapping_mul(*g)))
        };
        d.windows(g.len()).map(dot).collect()
    }

    #[test]
    fn algorithms_are_right_on_every_pair_of_basis_vectors() {
        // Outputs are bilinear in inputs and weights, so this is a proof.
        for isa in Isa::supported() {
            for algorithm in Algorithm::ALL {
                for (e, j) in
                    (0..algorithm.inputs()).flat_map(|e| (0..algorithm.taps()).map(move |j| (e, j)))
                {
                    let [mut d, mut g] = [vec![0; algorithm.inputs()], vec![0; algorithm.taps()]];
                    (d[e], g[j]) = (1, 1);
                    assert_eq!(outputs_of(algorithm, isa, &d, &g), model(&d, &g), "{e} {j}");
                }
            }
        }
    }

    #[test]
    fn algorithms_are_right_on_words_of_all_bits() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            state ^ state >> 29
        };
        for isa in Isa::supported() {
            for algorithm in Algorithm::ALL {
                let d: Vec<_> = (0..algorithm.inputs()).map(|_| next()).collect();
                let g: Vec<_> = (0..algorithm.taps()).map(|_| next()).collect();
                assert_eq!(outputs_of(algorithm, isa, &d, &g), model(&d, &g));
                let most = [vec![u64::MAX; d.len()], vec![1 << 63; g.len()]];
                let result = outputs_of(algorithm, isa, &most[0], &most[1]);
                assert_eq!(result, model(&most[0], &most[1]));
            }
        }
    }
}
