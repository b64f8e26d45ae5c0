//! Lets a crate compile plans for one protocol, as [`mpc_core::instances`] does with the functions.

use mpc_core::Protocol;

use crate::{Plan, train::TrainPlan};

/// The addresses of what runs plans and trainings on a protocol.
///
/// A crate compiles all of these if one of its functions that is not generic calls this.
pub fn instances<P: Protocol>() -> Vec<*const ()> {
    vec![
        Plan::run::<P> as *const (),
        Plan::run_guarded::<P> as *const (),
        Plan::run_joined::<P> as *const (),
        Plan::step::<P> as *const (),
        Plan::step_guarded::<P> as *const (),
        Plan::rewind::<P> as *const (),
        Plan::secret_weights::<P> as *const (),
        Plan::secret_inputs::<P> as *const (),
        TrainPlan::secret_state::<P> as *const (),
        TrainPlan::finish::<P> as *const (),
        TrainPlan::step_guarded::<P> as *const (),
        TrainPlan::noise::<P> as *const (),
    ]
}
