//! Boxes that overlap a better one are left out.

use super::{model, near};

/// Indices of the boxes `[y, x, y, x, score]` that are left, by ONNX's definition.
fn suppressed(rows: &[[f64; 5]], most: usize, overlap: f64, least: f64) -> Vec<f64> {
    let area =
        |[top, left, bottom, right]: [f64; 4]| (bottom - top).max(0.0) * (right - left).max(0.0);
    let corners = |row: &[f64; 5]| {
        [row[0].min(row[2]), row[1].min(row[3]), row[0].max(row[2]), row[1].max(row[3])]
    };
    let mut order: Vec<usize> = (0..rows.len()).filter(|&at| rows[at][4] > least).collect();
    order.sort_by(|&a, &b| rows[b][4].total_cmp(&rows[a][4]));
    let mut taken: Vec<usize> = vec![];
    for at in order {
        let own = corners(&rows[at]);
        let apart = taken.iter().all(|&other| {
            let other = corners(&rows[other]);
            let both = area(
                [0, 1, 2, 3]
                    .map(|i| if i < 2 { own[i].max(other[i]) } else { own[i].min(other[i]) }),
            );
            both <= overlap * (area(own) + area(other) - both)
        });
        if apart && taken.len() < most {
            taken.push(at);
        }
    }
    let row = |i: usize| taken.get(i).map_or([-1.0; 3], |&at| [0.0, 0.0, at as f64]);
    (0..most).flat_map(row).collect()
}

#[test]
fn boxes_that_overlap_a_better_one_are_left_out_at_any_size() {
    let mut random = 7u64;
    let mut draw = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 40) as f64 / 2f64.powi(24)
    };
    // Parts of a picture, and places in one of 1,000 pixels.
    for (size, overlap) in [(1.0, 0.5), (1000.0, 0.3), (1.0, 0.0), (0.02, 0.7)] {
        let rows: Vec<[f64; 5]> = (0..20)
            .map(|_| {
                let [y, x] = [draw(), draw()];
                let [height, width] = [0.1 + 0.4 * draw(), 0.1 + 0.4 * draw()];
                let ends = [y, x, y + height, x + width].map(|v| v * size);
                // The corners come in any order.
                let ends = if draw() < 0.5 { ends } else { [ends[2], ends[1], ends[0], ends[3]] };
                [ends[0], ends[1], ends[2], ends[3], draw() * 20.0 - 10.0]
            })
            .collect();
        let built = model(&[1, 20, 5])
            .ints("start", &[0])
            .ints("four", &[4])
            .ints("five", &[5])
            .ints("axis", &[2])
            .ints("flat", &[1, 1, 20])
            .ints("most", &[9])
            .floats("overlap", &[1], &[overlap as f32])
            .floats("least", &[1], &[-8.0])
            .node("Slice", &["x", "start", "four", "axis"], "boxes", &[])
            .node("Slice", &["x", "four", "five", "axis"], "column", &[])
            .node("Reshape", &["column", "flat"], "scores", &[]);
        let operands = ["boxes", "scores", "most", "overlap", "least"];
        let y = built.node("NonMaxSuppression", &operands, "y", &[]).run(&rows.concat());
        near(&y, &suppressed(&rows, 9, f64::from(overlap as f32), -8.0));
    }
}
