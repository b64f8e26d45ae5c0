//! PTX from the trace of a word kernel.
//!
//! A thread computes two neighbouring words of each output; with streams among the inputs, eight, for which it
//! makes one ChaCha block (two where the words straddle them) in registers. Words are read and written in
//! pairs where they are aligned, and one by one at a row's ragged end.

use std::fmt::Write;

use ring_arith::trace::{Binary, Node, Shift, Unary, Value};

/// The name of the generated kernel.
pub(crate) const ENTRY: &str = "step";
/// Words of a ChaCha block, and columns that a thread takes in launches with streams.
pub(crate) const BLOCK: usize = 8;

/// Everything that the generated text depends on.
#[derive(Hash, PartialEq, Eq)]
pub(crate) struct Spec {
    pub nodes: Vec<Node>,
    pub results: Vec<Value>,
    pub inputs: Vec<Input>,
    /// For each result, whether each row starts at a pair of words.
    pub targets: Vec<bool>,
    pub params: usize,
    /// There is one row, so that no division finds it.
    pub one_row: bool,
}

/// The source of an input word.
#[derive(Debug, Hash, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Input {
    /// `address[row * stride + col]`; paired if each row starts at a pair of words.
    Rows { paired: bool },
    /// `address[row]`
    PerRow,
    /// Word `offset + row * stride + col` of a ChaCha stream, whose first word of a row is word `skip` of
    /// a block.
    ChaCha { rounds: u32, skip: u32 },
}

impl Spec {
    /// Columns that one thread computes at a time.
    pub(crate) fn columns(&self) -> usize {
        let streams = self.inputs.iter().any(|i| matches!(i, Input::ChaCha { .. }));
        if streams { BLOCK } else { 2 }
    }
}

/// A register or a constant in the text.
type Name = String;

/// The text under construction.
#[derive(Default)]
struct Code {
    body: String,
    params: Vec<String>,
    words: usize,
    halves: usize,
    flags: usize,
}

/// The module's text. Parameters: rows, cols; for each input its address and stride (per row: address;
/// stream: key, nonce, offset, stride); for each output its address and stride; the scalars.
pub(crate) fn text(kernel: &str, spec: &Spec) -> String {
    let mut c = Code::default();
    let (rows, cols) = (c.param(), c.param());
    let inputs: Vec<Source> = spec.inputs.iter().map(|i| c.source(*i)).collect();
    let targets: Vec<(Name, Name)> = spec.results.iter().map(|_| (c.param(), c.param())).collect();
    let scalars: Vec<Name> = (0..spec.params).map(|_| c.param()).collect();
    let width = spec.columns();
    let up = c.op("add.s64", &[&cols, &(width - 1).to_string()]);
    let per_row = c.op("shr.u64", &[&up, &width.trailing_zeros().to_string()]);
    let items = c.op("mul.lo.s64", &[&per_row, &rows]);
    let (item, step) = c.thread();
    c.line("$item:");
    let done = c.compare("ge.u64", &item, &items);
    c.line(&format!("@{done} bra $end;"));
    let (row, chunk) = if spec.one_row {
        ("0".to_string(), item.clone())
    } else {
        (c.op("div.u64", &[&item, &per_row]), c.op("rem.u64", &[&item, &per_row]))
    };
    let first = c.op("shl.b64", &[&chunk, &width.trailing_zeros().to_string()]);
    let starts: Vec<Start> = inputs.iter().map(|s| c.start(s, &row, &first)).collect();
    let outs: Vec<Name> = targets.iter().map(|(a, s)| c.address(a, s, &row, &first)).collect();
    let last = c.op("add.s64", &[&first, &width.to_string()]);
    let ragged = c.compare("gt.u64", &last, &cols);
    c.line(&format!("@{ragged} bra $ragged;"));
    for j in (0..width).step_by(2) {
        let words: Vec<[Name; 2]> = starts.iter().map(|s| c.pair(s, j)).collect();
        let results = [0, 1].map(|e| {
            let words: Vec<Name> = words.iter().map(|w| w[e].clone()).collect();
            c.step(spec, &words, &scalars)
        });
        for (i, address) in outs.iter().enumerate() {
            let [x, y] = [&results[0][i], &results[1][i]];
            if spec.targets[i] {
                c.line(&format!("st.global.v2.u64 [{address}+{}], {{{x}, {y}}};", 8 * j));
            } else {
                c.line(&format!("st.global.u64 [{address}+{}], {x};", 8 * j));
                c.line(&format!("st.global.u64 [{address}+{}], {y};", 8 * j + 8));
            }
        }
    }
    c.line("bra $next;");
    c.line("$ragged:");
    for j in 0..width - 1 {
        if j > 0 {
            let col = c.op("add.s64", &[&first, &j.to_string()]);
            let past = c.compare("ge.u64", &col, &cols);
            c.line(&format!("@{past} bra $next;"));
        }
        let words: Vec<Name> = starts.iter().map(|s| c.word(s, j)).collect();
        let results = c.step(spec, &words, &scalars);
        for (address, value) in outs.iter().zip(results) {
            c.line(&format!("st.global.u64 [{address}+{}], {value};", 8 * j));
        }
    }
    c.line("$next:");
    c.line(&format!("add.s64 {item}, {item}, {step};"));
    c.line("bra $item;");
    c.line("$end:");
    c.line("ret;");
    c.module(kernel)
}

/// An input's parameters.
enum Source {
    Rows { address: Name, stride: Name, paired: bool },
    PerRow { address: Name },
    ChaCha { rounds: u32, skip: u32, key: Vec<Name>, nonce: Name, offset: Name, stride: Name },
}

/// An input at the first column of a thread.
enum Start {
    /// An address, from which columns follow; aligned to pairs or not.
    Address(Name, bool),
    /// The same word for every column.
    Word(Name),
    /// Eight words.
    Words(Vec<Name>),
}

impl Code {
    fn line(&mut self, text: &str) {
        self.body.push_str(text);
        self.body.push('\n');
    }

    fn word_register(&mut self) -> Name {
        self.words += 1;
        format!("%rd{}", self.words - 1)
    }

    fn half_register(&mut self) -> Name {
        self.halves += 1;
        format!("%r{}", self.halves - 1)
    }

    /// `op d, args..` on 64-bit registers.
    fn op(&mut self, op: &str, args: &[&str]) -> Name {
        let d = self.word_register();
        self.line(&format!("{op} {d}, {};", args.join(", ")));
        d
    }

    /// `op d, args..` on 32-bit registers.
    fn half(&mut self, op: &str, args: &[&str]) -> Name {
        let d = self.half_register();
        self.line(&format!("{op} {d}, {};", args.join(", ")));
        d
    }

    fn compare(&mut self, how: &str, a: &str, b: &str) -> Name {
        let p = format!("%p{}", self.flags);
        self.flags += 1;
        self.line(&format!("setp.{how} {p}, {a}, {b};"));
        p
    }

    /// A parameter of one word, loaded.
    fn param(&mut self) -> Name {
        let name = format!("p{}", self.params.len());
        self.params.push(format!(".param .u64 {name}"));
        self.op("ld.param.u64", &[&format!("[{name}]")])
    }

    fn source(&mut self, input: Input) -> Source {
        match input {
            Input::Rows { paired } => {
                Source::Rows { address: self.param(), stride: self.param(), paired }
            }
            Input::PerRow => Source::PerRow { address: self.param() },
            Input::ChaCha { rounds, skip } => {
                let name = format!("p{}", self.params.len());
                self.params.push(format!(".param .align 8 .b8 {name}[32]"));
                let key = (0..8)
                    .map(|i| self.half("ld.param.u32", &[&format!("[{name}+{}]", 4 * i)]))
                    .collect();
                let (nonce, offset, stride) = (self.param(), self.param(), self.param());
                Source::ChaCha { rounds, skip, key, nonce, offset, stride }
            }
        }
    }

    /// This thread's number and the number of threads.
    fn thread(&mut self) -> (Name, Name) {
        let [tid, cta, size, count] =
            ["%tid.x", "%ctaid.x", "%ntid.x", "%nctaid.x"].map(|s| self.half("mov.u32", &[s]));
        let before = self.op("mul.wide.u32", &[&cta, &size]);
        let tid = self.op("cvt.u64.u32", &[&tid]);
        (self.op("add.s64", &[&before, &tid]), self.op("mul.wide.u32", &[&count, &size]))
    }

    /// `address + 8 * (row * stride + col)`
    fn address(&mut self, address: &str, stride: &str, row: &str, col: &str) -> Name {
        let index = self.op("mad.lo.s64", &[row, stride, col]);
        let bytes = self.op("shl.b64", &[&index, "3"]);
        self.op("add.s64", &[address, &bytes])
    }

    fn start(&mut self, source: &Source, row: &str, first: &str) -> Start {
        match source {
            Source::Rows { address, stride, paired } => {
                Start::Address(self.address(address, stride, row, first), *paired)
            }
            Source::PerRow { address } => {
                let at = self.address(address, "1", row, "0");
                Start::Word(self.op("ld.global.u64", &[&format!("[{at}]")]))
            }
            Source::ChaCha { rounds, skip, key, nonce, offset, stride } => {
                let position = self.op("mad.lo.s64", &[row, stride, first]);
                let position = self.op("add.s64", &[&position, offset]);
                let block = self.op("shr.u64", &[&position, "3"]);
                let mut words = self.chacha(*rounds, key, nonce, &block);
                if *skip > 0 {
                    let next = self.op("add.s64", &[&block, "1"]);
                    words.extend(self.chacha(*rounds, key, nonce, &next));
                }
                Start::Words(words[*skip as usize..][..BLOCK].to_vec())
            }
        }
    }

    /// The words of columns `j` and `j + 1`.
    fn pair(&mut self, start: &Start, j: usize) -> [Name; 2] {
        if let Start::Address(at, true) = start {
            let [x, y] = [self.word_register(), self.word_register()];
            self.line(&format!("ld.global.v2.u64 {{{x}, {y}}}, [{at}+{}];", 8 * j));
            return [x, y];
        }
        [self.word(start, j), self.word(start, j + 1)]
    }

    fn word(&mut self, start: &Start, j: usize) -> Name {
        match start {
            Start::Address(at, _) => self.op("ld.global.u64", &[&format!("[{at}+{}]", 8 * j)]),
            Start::Word(word) => word.clone(),
            Start::Words(words) => words[j].clone(),
        }
    }

    /// One block of the original ChaCha as eight words.
    fn chacha(&mut self, rounds: u32, key: &[Name], nonce: &str, counter: &str) -> Vec<Name> {
        let split = |c: &mut Self, word: &str| {
            let (low, high) = (c.half_register(), c.half_register());
            c.line(&format!("mov.b64 {{{low}, {high}}}, {word};"));
            [low, high]
        };
        let constants =
            [0x6170_7865u32, 0x3320_646e, 0x7962_2d32, 0x6b20_6574].map(|c| c.to_string());
        let mut start = constants.to_vec();
        start.extend_from_slice(key);
        start.extend(split(self, counter));
        start.extend(split(self, nonce));
        let mut x: Vec<Name> = start.iter().map(|s| self.half("mov.u32", &[s])).collect();
        for _ in 0..rounds / 2 {
            for [a, b, c, d] in QUARTERS {
                self.quarter(&mut x, [a, b, c, d]);
            }
        }
        let sums: Vec<Name> = (0..16).map(|i| self.half("add.u32", &[&x[i], &start[i]])).collect();
        sums.chunks_exact(2)
            .map(|w| self.op("mov.b64", &[&format!("{{{}, {}}}", w[0], w[1])]))
            .collect()
    }

    fn quarter(&mut self, x: &mut [Name], [a, b, c, d]: [usize; 4]) {
        for (to, other, turned, count) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)]
        {
            x[to] = self.half("add.u32", &[&x[to], &x[other]]);
            let mixed = self.half("xor.b32", &[&x[turned], &x[to]]);
            x[turned] = self.half("shf.l.wrap.b32", &[&mixed, &mixed, &count.to_string()]);
        }
    }

    /// The step on one word of each input.
    fn step(&mut self, spec: &Spec, inputs: &[Name], params: &[Name]) -> Vec<Name> {
        let mut values: Vec<Name> = Vec::with_capacity(spec.nodes.len());
        for node in &spec.nodes {
            let at = |v: Value| values[v.0 as usize].as_str();
            let value = match *node {
                Node::Input(i) => inputs[i as usize].clone(),
                Node::Param(p) => params[p as usize].clone(),
                Node::Constant(value) => self.op("mov.u64", &[&value.to_string()]),
                Node::Unary(Unary::Neg, x) => self.op("neg.s64", &[at(x)]),
                Node::Unary(Unary::Not, x) => self.op("not.b64", &[at(x)]),
                Node::Binary(op, x, y) => self.op(binary(op), &[at(x), at(y)]),
                Node::Shift(op, x, count) => self.op(shift(op), &[at(x), &count.to_string()]),
            };
            values.push(value);
        }
        spec.results.iter().map(|v| values[v.0 as usize].clone()).collect()
    }

    fn module(&self, kernel: &str) -> String {
        let mut text = String::from(".version 8.0\n.target sm_80\n.address_size 64\n");
        // Writing to a string does not fail.
        let _ = writeln!(text, "// word kernel {kernel}");
        let _ = writeln!(text, ".visible .entry {ENTRY}({})\n{{", self.params.join(", "));
        for (ty, prefix, count) in
            [("b64", "%rd", self.words), ("b32", "%r", self.halves), ("pred", "%p", self.flags)]
        {
            let _ = writeln!(text, ".reg .{ty} {prefix}<{count}>;");
        }
        text + &self.body + "}\n"
    }
}

/// The quarter rounds of a double round: columns, then diagonals.
const QUARTERS: [[usize; 4]; 8] = [
    [0, 4, 8, 12],
    [1, 5, 9, 13],
    [2, 6, 10, 14],
    [3, 7, 11, 15],
    [0, 5, 10, 15],
    [1, 6, 11, 12],
    [2, 7, 8, 13],
    [3, 4, 9, 14],
];

fn binary(op: Binary) -> &'static str {
    match op {
        Binary::Add => "add.s64",
        Binary::Sub => "sub.s64",
        Binary::Mul => "mul.lo.s64",
        Binary::And => "and.b64",
        Binary::Or => "or.b64",
        Binary::Xor => "xor.b64",
    }
}

fn shift(op: Shift) -> &'static str {
    match op {
        Shift::Left => "shl.b64",
        Shift::Right => "shr.u64",
        Shift::RightSigned => "shr.s64",
    }
}
