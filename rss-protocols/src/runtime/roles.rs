//! The role of each party for one chunk.

use mpc_core::Result;
use net::Party;

/// A party's role in a protocol of one against two.
///
/// With `x = x0 + x1 + x2`, the dealer holds `(x0, x1)`, the left evaluator `(x1, x2)`, the right evaluator `(x2, x0)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Only this role knows `a = x0 + x1`. It sends only in round 1 and receives nothing.
    Dealer,
    /// Knows `b = x2`, and `x1` with the dealer.
    Left,
    /// Knows `b = x2`, and `x0` with the dealer.
    Right,
}

/// The role of each party for one chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Roles {
    /// This party's role.
    pub role: Role,
    /// Left and right are exchanged.
    pub swapped: bool,
    /// The dealer, the left and the right evaluator.
    parties: [Party; 3],
}

/// A role's two components of a value, in the order in which [`Role`] names them.
#[derive(Clone)]
pub(crate) struct Pair<T>(pub T, pub T);

impl<T> Pair<T> {
    /// Does the same to both.
    pub fn try_map<R>(&self, mut step: impl FnMut(&T) -> Result<R>) -> Result<Pair<R>> {
        Ok(Pair(step(&self.0)?, step(&self.1)?))
    }
}

impl Roles {
    /// The roles as party `me` sees them, where `dealer` is the dealer.
    pub fn new(me: Party, dealer: Party, swapped: bool) -> Self {
        let one = dealer.after(1, 3);
        let two = dealer.after(2, 3);
        let parties = if swapped { [dealer, two, one] } else { [dealer, one, two] };
        let role = match parties.iter().position(|&party| party == me) {
            Some(0) => Role::Dealer,
            Some(1) => Role::Left,
            _ => Role::Right,
        };
        Self { role, swapped, parties }
    }

    /// The dealer.
    pub fn dealer(&self) -> Party {
        self.parties[0]
    }

    /// The left evaluator.
    pub fn left(&self) -> Party {
        self.parties[1]
    }

    /// The right evaluator.
    pub fn right(&self) -> Party {
        self.parties[2]
    }

    /// The party that has a role.
    pub fn party(&self, role: Role) -> Party {
        self.parties[role as usize]
    }

    /// The role that a party has.
    pub fn role_of(&self, party: Party) -> Role {
        Self::new(party, self.dealer(), self.swapped).role
    }

    /// A role's own component and the next, as a party numbers them.
    pub fn components(&self, role: Role) -> [usize; 2] {
        let [first, second] = [role as usize, (role as usize + 1) % 3];
        if self.swapped { [second, first] } else { [first, second] }
    }

    /// The other evaluator.
    pub fn peer(&self) -> Party {
        if self.role == Role::Left { self.right() } else { self.left() }
    }

    /// From a party's own component and the next to the role's two.
    pub fn pair<T>(&self, mine: T, next: T) -> Pair<T> {
        if self.swapped { Pair(next, mine) } else { Pair(mine, next) }
    }

    /// From the role's two components to a party's own and the next.
    pub fn mine_and_next<T>(&self, Pair(first, second): Pair<T>) -> [T; 2] {
        if self.swapped { [second, first] } else { [first, second] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of the component that is `x0`, `x1`, `x2` for these roles.
    fn components(dealer: usize, swapped: bool) -> [usize; 3] {
        let [one, two, three] = [dealer, (dealer + 1) % 3, (dealer + 2) % 3];
        if swapped { [two, one, three] } else { [one, two, three] }
    }

    #[test]
    fn every_role_finds_its_two_components_in_order() {
        for (dealer, swapped) in (0..3).flat_map(|p| [(p, false), (p, true)]) {
            let [x0, x1, x2] = components(dealer, swapped);
            for me in 0..3 {
                let roles = Roles::new(Party(me), Party(dealer), swapped);
                let Pair(first, second) = roles.pair(me, (me + 1) % 3);
                let expected = match roles.role {
                    Role::Dealer => [x0, x1],
                    Role::Left => [x1, x2],
                    Role::Right => [x2, x0],
                };
                assert_eq!([first, second], expected, "party {me}, dealer {dealer}, {swapped}");
            }
        }
    }
}
