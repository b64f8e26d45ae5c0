//! Checks of values in files.

/// Checks the name of a model or client: 1 to 64 of `a-z A-Z 0-9 . _ -`, a letter or digit first.
///
/// # Errors
/// A sentence that states what a name may be.
pub fn check_name(what: &str, name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(plain)
    {
        return Ok(());
    }
    Err(format!(
        "{what} `{}` is not a name; use 1 to 64 letters, digits, `.`, `_` or `-`, \
         the first a letter or digit",
        name.escape_default()
    ))
}

/// Checks that a text is `host:port`.
///
/// # Errors
/// A sentence that states what an address looks like.
pub fn check_address(what: &str, address: &str) -> Result<(), String> {
    let sound = address.rsplit_once(':').is_some_and(|(host, port)| {
        let clean = host.bytes().all(|b| b.is_ascii_graphic());
        let bracketed = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
        !host.is_empty() && clean && bracketed && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    if sound {
        return Ok(());
    }
    let shown = address.escape_default();
    Err(format!(
        "`{what}` is `{shown}`; write host:port with a port from 1 to 65535, for example 127.0.0.1:7100"
    ))
}

pub(crate) fn check_range(key: &str, value: u64, low: u64, high: u64) -> Result<(), String> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(format!("`{key}` is {value}; it must be between {low} and {high}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_paths_are_refused() {
        for name in ["", ".", "..", "a/b", "../x", "-x", "a b", "ä", &"x".repeat(65)] {
            assert!(check_name("model", name).is_err(), "{name}");
        }
        for name in ["a", "lenet-5", "v1.2_x", "9"] {
            check_name("model", name).unwrap();
        }
    }
}
