//! Compares a command's output with the README, with tolerance for values that differ from run to
//! run.

/// Units of time: the number before one of these is not compared, nor is the unit.
const TIMES: &[&str] = &["ns", "us", "ms", "s"];

/// Relative difference of numbers with a decimal point that still counts as the same.
const TOLERANCE: f64 = 0.05;

/// Factor between numbers with an exponent, which are errors, that still counts as the same.
const FACTOR: f64 = 4.0;

/// Compares line by line, and returns the first difference. Spaces count as one; a line `...`
/// stands for any lines; times are free, other decimals and rounds may differ by a twentieth, the
/// rest not.
pub(super) fn differ(expected: &[&str], printed: &str) -> Option<String> {
    let expected: Vec<&str> = trimmed(expected.iter().copied());
    let printed: Vec<&str> = trimmed(printed.lines());
    let mut at = 0;
    let mut free = false;
    for line in expected {
        if line.trim() == "..." {
            free = true;
            continue;
        }
        let found = printed[at..].iter().position(|found| same(line, found));
        match found {
            Some(skipped) if skipped == 0 || free => at += skipped + 1,
            _ => {
                let instead = printed.get(at).copied().unwrap_or("nothing more");
                return Some(format!("expected `{line}`, got `{instead}`"));
            }
        }
        free = false;
    }
    match printed.get(at) {
        Some(more) if !free => Some(format!("prints more than expected: `{more}`")),
        _ => None,
    }
}

fn trimmed<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut lines: Vec<_> = lines.map(str::trim_end).collect();
    while lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    lines
}

/// True if two lines agree.
fn same(expected: &str, printed: &str) -> bool {
    let (a, b): (Vec<_>, Vec<_>) =
        (expected.split_whitespace().collect(), printed.split_whitespace().collect());
    let is_time =
        |word: Option<&&str>| word.is_some_and(|word| TIMES.contains(&word.trim_end_matches(',')));
    a.len() == b.len()
        && (0..a.len()).all(|i| {
            let next = (a.get(i + 1), b.get(i + 1));
            if is_number(a[i]) && is_time(next.0) {
                is_number(b[i]) && is_time(next.1)
            } else if is_time(a.get(i)) {
                is_time(b.get(i))
            } else {
                let next = next.0.copied().unwrap_or_default();
                same_word(a[i], b[i], Kind::before(next))
            }
        })
}

/// The precision at which numbers are compared, by the word after them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Integers to the last digit, others roughly.
    Plain,
    /// All to the last digit.
    Percentage,
    /// All roughly: some rounds of a job overlap with earlier ones.
    Rounds,
}

impl Kind {
    fn before(word: &str) -> Kind {
        match word {
            "%" => Kind::Percentage,
            "round" | "rounds" => Kind::Rounds,
            _ => Kind::Plain,
        }
    }
}

fn is_number(word: &str) -> bool {
    word.parse::<f64>().is_ok()
}

/// True if two words agree piece by piece, numbers by value.
fn same_word(a: &str, b: &str, kind: Kind) -> bool {
    let (a, b) = (pieces(a), pieces(b));
    a.len() == b.len()
        && a.iter().zip(&b).all(|(a, b)| match (a.parse::<f64>(), b.parse::<f64>()) {
            (Ok(x), Ok(y)) if kind == Kind::Plain && a.contains('e') => {
                let ratio = x.abs() / y.abs();
                (1.0 / FACTOR..=FACTOR).contains(&ratio) || x == y
            }
            (Ok(x), Ok(y)) if kind == Kind::Rounds || kind == Kind::Plain && a.contains('.') => {
                (x - y).abs() <= TOLERANCE * x.abs().max(y.abs())
            }
            _ => a == b,
        })
}

/// Cuts a word into numbers, such as `12`, `1.5` or `1e-5`, and the text between them.
fn pieces(word: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = word;
    while !rest.is_empty() {
        let length = match number(rest) {
            0 => (1..=rest.len()).find(|&end| end == rest.len() || starts_number(rest, end)),
            length => Some(length),
        };
        let (piece, after) = rest.split_at(length.unwrap_or(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

fn starts_number(text: &str, at: usize) -> bool {
    text.as_bytes()[at].is_ascii_digit()
}

/// The length of the number that `text` starts with.
fn number(text: &str) -> usize {
    let digits = |from: usize| {
        let bytes = text.as_bytes()[from..].iter();
        from + bytes.take_while(|byte| byte.is_ascii_digit()).count()
    };
    let has =
        |at: usize, wanted: &[u8]| text.as_bytes().get(at).is_some_and(|b| wanted.contains(b));
    let mut end = digits(0);
    if end > 0 && has(end, b".") && digits(end + 1) > end + 1 {
        end = digits(end + 1);
    }
    if end > 0 && has(end, b"e") {
        let sign = end + 1 + usize::from(has(end + 1, b"+-"));
        if digits(sign) > sign {
            end = digits(sign);
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_free_and_other_numbers_are_not() {
        assert!(same(
            "time   219.7 ms for all, 610 us per image",
            "time 1.2 s for all, 3.3 ms per image"
        ));
        assert!(same("error at most 1.4e-5 (2^-16.1)", "error at most 1.6e-5 (2^-15.9)"));
        assert!(!same("error at most 1.4e-5 (2^-16.1)", "error at most 1.4e-4 (2^-12.8)"));
        assert!(same("image 5.0085 9", "image   5.0093   9"));
        assert!(!same("image 5.0085 9", "image 5.0085 8"));
        assert!(!same("80.0 % of the classes", "80.1 % of the classes"));
        assert!(!same("40 for all", "41 for all"));
        assert!(same("1.66 MB, 39 rounds", "1.67 MB, 40 rounds"));
        assert!(!same("1.66 MB, 39 rounds", "1.67 MB, 50 rounds"));
        assert!(!same("at 127.0.0.1:7100", "at 127.0.0.1:7101"));
        assert!(!same("  ::@@%%..", "  ::@@%%--"));
    }

    #[test]
    fn lines_come_in_order_and_three_dots_stand_for_any() {
        let printed = "one\ntwo\nthree\n\n";
        assert_eq!(differ(&["one", "two", "three"], printed), None);
        assert_eq!(differ(&["one", "...", "three", ""], printed), None);
        assert_eq!(differ(&["one", "..."], printed), None);
        assert!(differ(&["one", "three"], printed).is_some_and(|fault| fault.contains("`three`")));
        assert!(differ(&["one", "two"], printed).is_some_and(|fault| fault.contains("more than")));
        assert!(differ(&["one", "...", "four"], printed).is_some());
    }

    #[test]
    fn words_fall_into_numbers_and_the_rest() {
        assert_eq!(pieces("(2^-16.1)"), ["(", "2", "^-", "16.1", ")"]);
        assert_eq!(pieces("1.4e-5,"), ["1.4e-5", ","]);
        assert_eq!(pieces("127.0.0.1:7100"), ["127.0", ".", "0.1", ":", "7100"]);
        assert_eq!(pieces("5e"), ["5", "e"]);
        assert!(pieces("").is_empty());
    }
}
