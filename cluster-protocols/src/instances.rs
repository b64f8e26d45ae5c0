//! See [`mpc_core::instances`].

use crate::{AdditiveServer, MaskedServer, ReplicatedServer};

/// Each protocol's operations and the plans above them, which this crate compiles for the crates above.
pub fn all() -> Vec<*const ()> {
    let mut all = mpc_core::instances::instances::<ReplicatedServer>();
    all.extend(mpc_core::instances::instances::<AdditiveServer>());
    all.extend(mpc_core::instances::instances::<MaskedServer>());
    all.extend(nn_layers::instances::instances::<ReplicatedServer>());
    all.extend(nn_layers::instances::instances::<AdditiveServer>());
    all.extend(nn_layers::instances::instances::<MaskedServer>());
    all
}
