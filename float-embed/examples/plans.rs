//! Prints, for each unit and width of limb, the number of products for a word product and the
//! largest depth of an exact sum.

use float_embed::{Digits, LimbPlan, Merge, Unit};

fn main() {
    println!("{:<36} {:>9} {:>13} {:>10}", "plan", "products", "accumulators", "exact to K");
    for unit in [Unit::F64, Unit::F16, Unit::Bf16, Unit::Int8] {
        for digits in [Digits::Unsigned, Digits::Balanced] {
            for limb_bits in [7, 8, 9, 11, 13, 16, 22] {
                // Widths that the unit cannot hold, or that are never exact, are left out.
                if let Ok(plan) = LimbPlan::new(unit, limb_bits, digits, Merge::Diagonals) {
                    println!(
                        "{:<36} {:>9} {:>13} {:>10}",
                        plan.to_string(),
                        plan.pairs().len(),
                        plan.accumulators().len(),
                        plan.largest_k()
                    );
                }
            }
        }
    }
}
