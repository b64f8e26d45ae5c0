//! The names of all benchmarks, from a list that a test compares with the suites: to print them, nothing is compiled.

use anyhow::{Result, bail};

/// A line `suite: case` for each.
const CASES: &str = include_str!("cases.txt");

/// Prints the cases of the suite that the arguments of `cargo xtask bench` name, and that `--only` selects.
///
/// # Errors
/// If there is none.
pub fn print(args: &[String]) -> Result<()> {
    let found = selected(CASES, args);
    if found.is_empty() {
        bail!("no case is selected by {}", args.join(" "));
    }
    println!("{}", found.join("\n"));
    Ok(())
}

fn selected<'a>(cases: &'a str, args: &[String]) -> Vec<&'a str> {
    let suite = args.first().filter(|first| !first.starts_with('-'));
    let after =
        |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let joined = args.iter().find_map(|arg| arg.strip_prefix("--only="));
    let only = joined.or(after("--only").map(String::as_str));
    let wanted = |line: &&str| {
        let (of, case) = line.split_once(": ").unwrap_or(("", line));
        suite.is_none_or(|suite| suite == of) && only.is_none_or(|only| selects(only, case))
    };
    cases.lines().filter(wanted).collect()
}

/// True if `--only only` selects the case `name`: `only` is the case or a parent of it in the path.
pub(crate) fn selects(only: &str, name: &str) -> bool {
    name.strip_prefix(only).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_and_a_case_select_lines() {
        let cases = "net: tls\nring: gemm/1\nring: gemm/2\nring: gemv\n";
        let picked = |args: &str| {
            let args: Vec<_> = args.split_ascii_whitespace().map(str::to_owned).collect();
            selected(cases, &args).len()
        };
        for (args, count) in [
            ("--list", 4),
            ("ring --list", 3),
            ("ring --only gemm --list", 2),
            ("--list --only=gemm/1", 1),
            ("net --list --only gemm", 0),
        ] {
            assert_eq!(picked(args), count, "{args}");
        }
        assert!(print(&["nothing".to_owned(), "--list".to_owned()]).is_err());
    }
}
