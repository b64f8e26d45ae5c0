//! `trefoil chat`: a person and a language model write a text in turn.

use std::{
    io::{self, BufRead, IsTerminal},
    time::Instant,
};

use serde::Serialize;

use crate::{
    base::{Error, Result, format::seconds},
    cli::{
        arguments::{Chat, Global},
        output::Output,
    },
    client::{Client, Talk, Total},
    inputs::{Tokenizer, Unfolding},
    model::Text,
};

/// A person's words, and the model's.
#[derive(Debug, Serialize)]
struct Turn {
    prompt: String,
    answer: String,
    /// The answer's tokens.
    tokens: Vec<u64>,
    /// True if it ended with a token that ends answers, and not with the most tokens that were asked for.
    ended: bool,
    cost: Total,
}

/// A conversation from the client's side.
struct Session<'a> {
    arguments: &'a Chat,
    global: &'a Global,
    output: Output,
    client: Client,
    tokenizer: Tokenizer,
    text: Text,
    talk: Talk,
}

pub(super) fn run(arguments: &Chat, global: &Global, output: Output) -> Result<()> {
    let name = &arguments.model;
    let mut client = super::connect(global)?;
    let public = super::patiently(global, &mut client, |client| client.model(name))?;
    let Some(text) = public.about.text.clone() else {
        let reason = "it has no tokenizer; its owner puts it with --tokenizer";
        return Err(Error::input(format_args!("model `{name}`"), reason));
    };
    let talk = Talk::new(name, public)?;
    let bytes =
        super::patiently(global, &mut client, |client| client.tokenizer(name, text.tokenizer))?;
    let tokenizer = Tokenizer::parse(&bytes)
        .map_err(|reason| Error::input(format_args!("model `{name}`"), reason))?;
    let mut session = Session { arguments, global, output, client, tokenizer, text, talk };
    let ended = session.converse();
    // What the servers keep goes at once, and not when they need the room. After an error it goes then.
    let Session { mut client, talk, .. } = session;
    ended.and_then(|()| talk.close(&mut client))
}

impl Session<'_> {
    fn converse(&mut self) -> Result<()> {
        if !self.arguments.text.is_empty() {
            return self.turn(&self.arguments.text.join(" "));
        }
        let asks = io::stdin().is_terminal();
        if asks {
            self.output.remark("write a line; an empty one ends the conversation")?;
        }
        for line in io::stdin().lock().lines() {
            let line = line.map_err(|cause| Error::input("standard input", cause))?;
            if line.trim().is_empty() {
                if asks {
                    break;
                }
                continue;
            }
            self.turn(&line)?;
        }
        Ok(())
    }

    /// Says a person's words, and prints the model's as they come.
    fn turn(&mut self, prompt: &str) -> Result<()> {
        let began = Instant::now();
        let first = self.talk.said().is_empty();
        let words = self.text.form.replacen("{}", prompt, 1);
        let mut given = self.tokenizer.encode(&words, first)?;
        let mut answer = Unfolding::default();
        let mut tokens = Vec::new();
        let mut cost: Option<Total> = None;
        let mut ended = false;
        while !ended && tokens.len() < self.arguments.new as usize {
            let left = self.arguments.new - tokens.len() as u32;
            let (next, total) = self.next(&given, self.arguments.ahead.min(left))?;
            given.clear();
            match &mut cost {
                Some(sum) => sum.add(&total),
                None => cost = Some(total),
            }
            let here = next.iter().position(|token| self.text.stop.contains(token));
            let whole = here.map_or(next.as_slice(), |stop| &next[..stop]);
            for &token in whole {
                self.output.piece(&answer.add(&self.tokenizer, token)?)?;
            }
            tokens.extend_from_slice(whole);
            if let Some(stop) = here {
                // The model went on behind the end of its answer: that was not said.
                self.talk.cut(self.talk.said().len() - (next.len() - stop - 1));
                ended = true;
            }
        }
        let cost = cost.ok_or_else(|| Error::input("--new", "at least one token"))?;
        let count = tokens.len().max(1);
        let answer = answer.text(&self.tokenizer)?;
        let turn = Turn { prompt: prompt.to_owned(), answer, tokens, ended, cost };
        self.output.end_of_pieces(&turn)?;
        let each = seconds(began.elapsed().as_secs_f64() / count as f64);
        let line = turn.cost.line();
        self.output.remark(format!("{count} tokens, {each} each; at the servers {line}"))
    }

    /// The next tokens, through servers that are being started again too.
    fn next(&mut self, given: &[u64], ahead: u32) -> Result<(Vec<u64>, Total)> {
        let Self { global, client, talk, .. } = self;
        super::patiently(global, client, |client| talk.say(client, given, ahead, &()))
    }
}
