//! Which part of a protocol a party plays for one part of a tensor.

use net::Party;

/// A party's part in a protocol of one against two.
///
/// With `x = x1 + x2 + x3`, the pivot holds `(x1, x2)`, the second `(x2, x3)`, the third `(x3, x1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Alone knows `a = x1 + x2`. Sends in round 1 only and receives nothing.
    Pivot,
    /// Knows `b = x3`, and `x2` with the pivot.
    Second,
    /// Knows `b = x3`, and `x1` with the pivot.
    Third,
}

/// Who plays which role for one part of a tensor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat {
    /// This party's role.
    pub role: Role,
    /// Second and third are exchanged.
    pub mirrored: bool,
    /// The pivot, the second and the third.
    parties: [Party; 3],
}

impl Seat {
    /// The seat of party `me` where `pivot` is the pivot.
    pub fn new(me: Party, pivot: Party, mirrored: bool) -> Self {
        let (one, two) = (pivot.after(1, 3), pivot.after(2, 3));
        let parties = if mirrored { [pivot, two, one] } else { [pivot, one, two] };
        let role = match parties.iter().position(|&party| party == me) {
            Some(0) => Role::Pivot,
            Some(1) => Role::Second,
            _ => Role::Third,
        };
        Self { role, mirrored, parties }
    }

    /// The pivot.
    pub fn pivot(&self) -> Party {
        self.parties[0]
    }

    /// The second party.
    pub fn second(&self) -> Party {
        self.parties[1]
    }

    /// The third party.
    pub fn third(&self) -> Party {
        self.parties[2]
    }

    /// With whom the second and the third exchange.
    pub fn partner(&self) -> Party {
        if self.role == Role::Second { self.third() } else { self.second() }
    }

    /// From `(mine, next)` to the role's two components in the role's order, and back.
    pub fn order<T>(&self, mine: T, next: T) -> (T, T) {
        if self.mirrored { (next, mine) } else { (mine, next) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of the component that is `x1`, `x2`, `x3` for a seat.
    fn components(pivot: usize, mirrored: bool) -> [usize; 3] {
        let [one, two, three] = [pivot, (pivot + 1) % 3, (pivot + 2) % 3];
        if mirrored { [two, one, three] } else { [one, two, three] }
    }

    #[test]
    fn every_role_finds_its_two_components_in_order() {
        for (pivot, mirrored) in (0..3).flat_map(|p| [(p, false), (p, true)]) {
            let [x1, x2, x3] = components(pivot, mirrored);
            for me in 0..3 {
                let seat = Seat::new(Party(me), Party(pivot), mirrored);
                let held = seat.order(me, (me + 1) % 3);
                let expected = match seat.role {
                    Role::Pivot => (x1, x2),
                    Role::Second => (x2, x3),
                    Role::Third => (x3, x1),
                };
                assert_eq!(held, expected, "party {me}, pivot {pivot}, mirrored {mirrored}");
            }
        }
    }
}
