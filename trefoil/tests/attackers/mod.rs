//! Clients with a certificate that mean harm, against three processes; beside each an honest client whose
//! answers stay right and whose waiting stays short. And faults, which nobody means.

mod access;
mod faults;
mod honest;
mod plans;
mod quotas;
mod trainings;
mod unread;
