//! In which order rows are trained on: public, and the same wherever the same seed is used.

/// The order of the rows of a data set, epoch by epoch, in batches of one size. Rows that do not fill a
/// batch are left out of an epoch; each epoch leaves out others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    rows: usize,
    batch: usize,
    seed: u64,
}

impl Order {
    /// The order of `rows` rows in batches of `batch`, which is at least 1.
    pub fn new(rows: usize, batch: usize, seed: u64) -> Self {
        Self { rows, batch: batch.max(1), seed }
    }

    /// Batches of an epoch.
    pub fn steps(&self) -> usize {
        self.rows / self.batch
    }

    /// The rows of every batch of an epoch.
    pub fn epoch(&self, epoch: u32) -> Vec<Vec<usize>> {
        let mut rows: Vec<_> = (0..self.rows).collect();
        let mut state = self.seed ^ u64::from(epoch).wrapping_mul(0xd6e8_feb8_6659_fd93);
        for last in (1..rows.len()).rev() {
            // The remainder's bias is below 2^-40 for any data set.
            let other = next(&mut state) % (last as u64 + 1);
            rows.swap(last, other as usize);
        }
        rows.chunks_exact(self.batch).map(<[usize]>::to_vec).collect()
    }
}

/// SplitMix64: order needs no secrecy, only repeatability.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::Order;

    #[test]
    fn every_epoch_has_each_row_at_most_once_in_an_order_of_its_own_that_a_seed_repeats() {
        let order = Order::new(100, 32, 7);
        assert_eq!(order.steps(), 3);
        let first = order.epoch(0);
        assert!(first.iter().all(|batch| batch.len() == 32) && first.len() == 3);
        let mut rows = first.concat();
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows.len(), 96);
        assert_eq!(first, Order::new(100, 32, 7).epoch(0));
        assert_ne!(first, order.epoch(1));
        assert_ne!(first, Order::new(100, 32, 8).epoch(0));
    }
}
