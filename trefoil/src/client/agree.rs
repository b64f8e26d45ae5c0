//! Compares the servers' descriptions of one model: a client that believed one server alone could
//! be shown wrong labels, or be made to prepare its inputs wrongly.

use crate::{
    base::{Error, Result},
    wire::{ModelState, PublicModel},
};

/// A server's description of a model, or the reason for giving none.
pub type Told = Result<PublicModel, String>;

/// The remedy if servers do not have the same.
const ADVICE: &str = "its owner can put it again with --replace";

/// The fields that must be the same at all servers.
const COMPARED: [(&str, Same<PublicModel>); 7] = [
    ("version", |a, b| a.version == b.version),
    ("owner", |a, b| a.owner == b.owner),
    ("labels", |a, b| a.about.labels == b.about.labels),
    ("preprocessing", |a, b| a.about.preprocess == b.about.preprocess),
    ("fraction bits", |a, b| a.about.fraction_bits == b.about.fraction_bits),
    ("input ranges", |a, b| a.ranges == b.ranges),
    ("structure", |a, b| a.about == b.about),
];

/// The fields that must be the same in the servers' lists.
const LISTED: [(&str, Same<ModelState>); 4] = [
    ("version", |a, b| a.version == b.version),
    ("owner", |a, b| a.owner == b.owner),
    ("readers", |a, b| a.readers == b.readers),
    ("structure", |a, b| (a.weights, &a.inputs, &a.outputs) == (b.weights, &b.inputs, &b.outputs)),
];

type Same<T> = fn(&T, &T) -> bool;

/// The public description of a model, if all servers give the same.
///
/// # Errors
/// [`Error::Refused`] that names the server that differs, and in what.
pub fn agree_on(name: &str, told: Vec<Told>) -> Result<PublicModel> {
    if let Some(reason) = refused_by_all(&told) {
        return Err(Error::refused("servers", reason));
    }
    let mut models = Vec::with_capacity(told.len());
    for (party, told) in told.into_iter().enumerate() {
        let refused = |reason| {
            Error::refused(format_args!("party {party}"), format_args!("{reason}; {ADVICE}"))
        };
        models.push(told.map_err(refused)?);
    }
    compare(name, &models.iter().collect::<Vec<_>>(), &COMPARED)?;
    Ok(models.swap_remove(0))
}

/// The reason for which all servers refuse, if all give the same.
pub(crate) fn refused_by_all(told: &[Told]) -> Option<&str> {
    let [Err(reason), others @ ..] = told else { return None };
    others.iter().all(|other| other.as_ref().err() == Some(reason)).then_some(reason)
}

/// A model's line in the lists of the servers, if all have it and agree.
///
/// # Errors
/// [`Error::Refused`] that names the server that differs, and in what.
pub fn agree_on_line<'a>(name: &str, lists: &'a [Vec<ModelState>]) -> Result<&'a ModelState> {
    let mut lines = Vec::with_capacity(lists.len());
    for (party, list) in lists.iter().enumerate() {
        let Some(line) = list.iter().find(|line| line.name == name) else {
            let reason = format!("party {party} lacks it; {ADVICE}");
            return Err(Error::refused(format_args!("model `{name}`"), reason));
        };
        if let Some(damage) = &line.damage {
            return Err(Error::refused(format_args!("party {party}"), damage));
        }
        lines.push(line);
    }
    compare(name, &lines, &LISTED)?;
    Ok(lines[0])
}

fn compare<T>(name: &str, said: &[&T], what: &[(&str, Same<T>)]) -> Result<()> {
    let differs = |who: String, what: &str| {
        let reason = format!("{who} about its {what}; {ADVICE}");
        Err(Error::refused(format_args!("model `{name}`"), reason))
    };
    for (what, same) in what {
        let like = |party: usize| said.iter().filter(|other| same(said[party], other)).count();
        let like: Vec<_> = (0..said.len()).map(like).collect();
        // One server against others that agree is named.
        let odd =
            like.iter().position(|&like| like == 1).filter(|_| like.contains(&(said.len() - 1)));
        match odd {
            _ if like[0] == said.len() => {}
            Some(party) if said.len() > 2 => {
                let who = format!("party {party} says something else than the others");
                return differs(who, what);
            }
            _ => return differs("each of the servers says something else".to_owned(), what),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::Id,
        model::{About, Preprocess, Range},
    };

    fn public() -> PublicModel {
        PublicModel {
            version: Id::from([1; 16]),
            owner: "alice".to_owned(),
            readers: None,
            about: About { labels: vec!["cat".to_owned()], ..About::default() },
            ranges: vec![],
        }
    }

    #[test]
    fn whoever_says_something_else_than_the_two_others_is_named() {
        let told = || vec![Ok(public()), Ok(public()), Ok(public())];
        assert_eq!(agree_on("m", told()).unwrap(), public());
        type Change = fn(&mut PublicModel);
        let changes: [(&str, Change); 7] = [
            ("version", |model| model.version = Id::from([2; 16])),
            ("owner", |model| model.owner = "mallory".to_owned()),
            ("labels", |model| model.about.labels = vec!["dog".to_owned()]),
            ("preprocessing", |model| model.about.preprocess = Preprocess::Imagenet),
            ("fraction bits", |model| model.about.fraction_bits = 7),
            ("input ranges", |model| model.ranges = vec![Some(Range { low: 0.0, high: 1.0 })]),
            ("structure", |model| model.about.weights = 7),
        ];
        for party in 0..3 {
            for (what, change) in changes {
                let mut told = told();
                change(told[party].as_mut().unwrap());
                let text = agree_on("m", told).unwrap_err().to_string();
                let said = format!("party {party} says something else than the others");
                assert!(text.contains(&said) && text.contains(what), "{text}");
            }
        }
    }

    #[test]
    fn a_server_that_lacks_the_model_or_has_it_damaged_is_named_unless_all_do() {
        let lacks = || Err("there is no such model".to_owned());
        let text = agree_on("m", vec![lacks(), lacks(), lacks()]).unwrap_err().to_string();
        assert!(text.contains("no such model") && !text.contains("party"), "{text}");
        let text = agree_on("m", vec![Ok(public()), lacks(), lacks()]).unwrap_err().to_string();
        assert!(text.contains("party 1") && text.contains("--replace"), "{text}");
    }
}
