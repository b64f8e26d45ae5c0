//! The text of a module: directives, declarations, labels, and instructions with their operands.

mod module;
mod tokens;

use std::{collections::HashMap, sync::Arc};

use crate::{
    Error, Result, decode,
    instr::{Address, Instr, Op, Operand, Reg, Special, Ty},
};

pub use module::{Kernel, Module, Param};
use tokens::{Token, tokens};

/// Generic addresses of shared memory start here; those of constant memory at [`CONST_BASE`].
pub(crate) const SHARED_BASE: u64 = 0x0100_0000_0000_0000;
pub(crate) const CONST_BASE: u64 = 0x0200_0000_0000_0000;

/// An operand as written.
#[derive(Debug, Clone)]
pub(crate) enum Raw {
    Value(Operand),
    Pair(Reg, Reg),
    Address(Address),
    Vector(Vec<Operand>),
    Label(String),
}

/// An instruction as written.
pub(crate) struct Statement<'a> {
    pub line: u32,
    pub opcode: Vec<&'a str>,
    pub operands: Vec<Raw>,
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    /// Module-level symbols: constants by their generic address.
    globals: HashMap<&'a str, Symbol>,
    constants: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Symbol {
    /// A number: an address in its state space.
    At(u64),
    /// The start of the dynamic shared memory.
    DynamicShared,
}

/// Names of one kernel.
struct Names<'a> {
    registers: Vec<HashMap<&'a str, Reg>>,
    /// `.reg .b32 %r<10>` declares `%r0` to `%r9`: prefix, count, first register.
    ranges: Vec<(&'a str, u32, Reg)>,
    next: Reg,
    symbols: HashMap<&'a str, Symbol>,
    shared: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self> {
        Ok(Self { tokens: tokens(text)?, at: 0, globals: HashMap::new(), constants: Vec::new() })
    }

    fn peek(&self) -> &'a str {
        self.tokens.get(self.at).map_or("", |t| t.text)
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |t| t.line)
    }

    fn next(&mut self) -> Result<&'a str> {
        let text = self.peek();
        if text.is_empty() {
            return Err(self.error("the text ends in the middle of a statement"));
        }
        self.at += 1;
        Ok(text)
    }

    fn expect(&mut self, text: &str) -> Result<()> {
        let found = self.next()?;
        if found == text {
            Ok(())
        } else {
            Err(self.error(format!("`{text}` expected, `{found}` found")))
        }
    }

    fn accept(&mut self, text: &str) -> bool {
        let found = self.peek() == text;
        self.at += usize::from(found);
        found
    }

    fn skip_past(&mut self, text: &str) -> Result<()> {
        while self.next()? != text {}
        Ok(())
    }

    fn error(&self, reason: impl Into<String>) -> Error {
        Error::Parse { line: self.line(), reason: reason.into() }
    }

    fn number(&mut self) -> Result<usize> {
        let text = self.next()?;
        text.parse().map_err(|_| self.error(format!("a number expected, `{text}` found")))
    }

    fn module(mut self) -> Result<Module> {
        let mut bodies = Vec::new();
        while !self.peek().is_empty() {
            match self.next()? {
                ".version" | ".target" | ".address_size" => self.directive_line(),
                ".visible" | ".weak" | ".extern" => {}
                ".entry" => bodies.push(self.entry()?),
                ".const" => self.constant()?,
                ".shared" => {
                    let (name, _) = self.declaration()?;
                    self.globals.insert(name, Symbol::DynamicShared);
                }
                other => return Err(self.error(format!("directive `{other}` is not known"))),
            }
        }
        let constants = Arc::new(std::mem::take(&mut self.constants));
        let kernels = bodies.into_iter().map(|mut k| {
            k.constants = Arc::clone(&constants);
            (k.name.clone(), Arc::new(k))
        });
        Ok(Module { kernels: kernels.collect() })
    }

    /// Skips a directive without a terminator: the rest of its line.
    fn directive_line(&mut self) {
        let line = self.tokens[self.at - 1].line;
        while self.tokens.get(self.at).is_some_and(|t| t.line == line) {
            self.at += 1;
        }
    }

    /// `.align 4 .b8 name[80]` up to its `;`, without an initialiser; the name and size in bytes.
    fn declaration(&mut self) -> Result<(&'a str, usize)> {
        let (name, bytes, _) = self.variable()?;
        self.expect(";")?;
        Ok((name, bytes))
    }

    /// A variable's name, size and alignment in bytes.
    fn variable(&mut self) -> Result<(&'a str, usize, usize)> {
        let mut align = None;
        if self.accept(".align") {
            align = Some(self.number()?);
        }
        let ty = self.ty()?;
        if self.accept(".ptr") {
            // Pointers to global memory carry the alignment of their targets.
            while matches!(self.peek(), ".global" | ".shared" | ".const") {
                self.at += 1;
            }
            if self.accept(".align") {
                self.number()?;
            }
        }
        let name = self.next()?;
        let mut bytes = ty.bytes();
        while self.accept("[") {
            bytes *= if self.peek() == "]" { 0 } else { self.number()? };
            self.expect("]")?;
        }
        Ok((name, bytes, align.unwrap_or(ty.bytes())))
    }

    fn ty(&mut self) -> Result<Ty> {
        let text = self.next()?;
        text.strip_prefix('.')
            .and_then(Ty::parse)
            .ok_or_else(|| self.error(format!("a type expected, `{text}` found")))
    }

    fn constant(&mut self) -> Result<()> {
        let (name, bytes, align) = self.variable()?;
        let start = self.constants.len().next_multiple_of(align.max(1));
        self.constants.resize(start + bytes, 0);
        if self.accept("=") {
            self.expect("{")?;
            let width = bytes_per_value(&self.tokens[..self.at]).unwrap_or(1);
            let mut at = start;
            while !self.accept("}") {
                let text = self.next()?;
                let value =
                    immediate(text).ok_or_else(|| self.error(format!("`{text}` is no number")))?;
                let room = self.constants.get_mut(at..at + width);
                let Some(room) = room else { return Err(self.error("too many initial values")) };
                room.copy_from_slice(&value.to_le_bytes()[..width]);
                at += width;
                self.accept(",");
            }
        }
        self.globals.insert(name, Symbol::At(CONST_BASE + start as u64));
        self.expect(";")
    }

    fn entry(&mut self) -> Result<Kernel> {
        let name = self.next()?.to_string();
        let mut names = Names {
            registers: vec![HashMap::new()],
            ranges: Vec::new(),
            next: 1,
            symbols: self.globals.clone(),
            shared: 0,
        };
        let mut params = Vec::new();
        if self.accept("(") {
            let mut end = 0usize;
            while !self.accept(")") {
                self.expect(".param")?;
                let (name, bytes, align) = self.variable()?;
                let offset = end.next_multiple_of(align.max(1));
                names.symbols.insert(name, Symbol::At(offset as u64));
                params.push(Param { offset, bytes });
                end = offset + bytes;
                self.accept(",");
            }
        }
        let mut max_threads = None;
        while self.peek() != "{" {
            match self.next()? {
                ".maxntid" => {
                    let mut product = self.number()?;
                    while self.accept(",") {
                        product *= self.number()?;
                    }
                    max_threads = u32::try_from(product).ok();
                }
                ".reqntid" | ".minnctapersm" | ".maxnreg" => self.directive_line(),
                other => {
                    return Err(
                        self.error(format!("`{other}` before a kernel's body is not known"))
                    );
                }
            }
        }
        let code = self.body(&mut names)?;
        Ok(Kernel {
            name,
            params,
            code,
            registers: names.next as usize,
            static_shared: names.shared,
            max_threads,
            constants: Arc::default(),
        })
    }

    fn body(&mut self, names: &mut Names<'a>) -> Result<Vec<Instr>> {
        let mut code: Vec<Instr> = Vec::new();
        let mut labels = HashMap::new();
        let mut jumps: Vec<(usize, String)> = Vec::new();
        self.expect("{")?;
        while !names.registers.is_empty() {
            let word = self.next()?;
            match word {
                "{" => names.registers.push(HashMap::new()),
                "}" => drop(names.registers.pop()),
                ";" => {}
                ".reg" => self.registers(names)?,
                ".shared" => {
                    let (name, bytes, align) = self.variable()?;
                    self.expect(";")?;
                    let start = names.shared.next_multiple_of(align.max(1));
                    names.symbols.insert(name, Symbol::At(start as u64));
                    names.shared = start + bytes;
                }
                ".pragma" => self.skip_past(";")?,
                ".loc" | ".file" => self.directive_line(),
                label if self.peek() == ":" => {
                    self.at += 1;
                    labels.insert(label, code.len());
                }
                _ => {
                    self.at -= 1;
                    let (instr, target) = self.instruction(names)?;
                    if let Some(target) = target {
                        jumps.push((code.len(), target));
                    }
                    code.push(instr);
                }
            }
        }
        for (at, label) in jumps {
            let line = code[at].line;
            let Some(&target) = labels.get(label.as_str()) else {
                return Err(Error::Parse {
                    line,
                    reason: format!("label `{label}` is not defined"),
                });
            };
            code[at].op = Op::Bra(target);
        }
        // Falling off the end of the body is a return.
        code.push(Instr { guard: None, op: Op::Ret, line: self.line() });
        Ok(code)
    }

    fn registers(&mut self, names: &mut Names<'a>) -> Result<()> {
        self.ty()?;
        loop {
            let name = self.next()?;
            if self.accept("<") {
                let count = self.number()? as u32;
                self.expect(">")?;
                names.ranges.push((name, count, names.next));
                names.next += count;
            } else {
                let scope = names.registers.last_mut().expect("inside a body");
                scope.insert(name, names.next);
                names.next += 1;
            }
            if !self.accept(",") {
                return self.expect(";");
            }
        }
    }

    fn instruction(&mut self, names: &Names<'a>) -> Result<(Instr, Option<String>)> {
        let line = self.line();
        let mut guard = None;
        if self.accept("@") {
            let negated = self.accept("!");
            let name = self.next()?;
            guard = Some((self.register(names, name)?, !negated));
        }
        let opcode = self.next()?.split('.').collect();
        let mut operands = Vec::new();
        while !self.accept(";") {
            operands.push(self.operand(names)?);
            self.accept(",");
        }
        let statement = Statement { line, opcode, operands };
        if statement.opcode[0] == "bra" {
            let Some(Raw::Label(label)) = statement.operands.first() else {
                return Err(self.error("a branch needs a label"));
            };
            return Ok((Instr { guard, op: Op::Nop, line }, Some(label.clone())));
        }
        Ok((Instr { guard, op: decode::decode(&statement)?, line }, None))
    }

    fn operand(&mut self, names: &Names<'a>) -> Result<Raw> {
        if self.accept("[") {
            let base = self.value(names)?;
            let offset = self.offset()?;
            self.expect("]")?;
            return Ok(Raw::Address(Address { base, offset }));
        }
        if self.accept("{") {
            let mut values = Vec::new();
            while !self.accept("}") {
                values.push(self.value(names)?);
                self.accept(",");
            }
            return Ok(Raw::Vector(values));
        }
        let word = self.peek();
        let known =
            word.starts_with('%') || self.find(names, word).is_some() || immediate(word).is_some();
        if !known && !matches!(word, "!" | "_" | "-") {
            self.at += 1;
            return Ok(Raw::Label(word.to_string()));
        }
        let value = self.value(names)?;
        if self.accept("|") {
            let (Operand::Reg(p), Operand::Reg(q)) = (value, self.value(names)?) else {
                return Err(self.error("`|` joins two registers"));
            };
            return Ok(Raw::Pair(p, q));
        }
        match (value, self.offset()?) {
            (Operand::Imm(v), offset) => {
                Ok(Raw::Value(Operand::Imm(v.wrapping_add_signed(offset))))
            }
            (value, 0) => Ok(Raw::Value(value)),
            _ => Err(self.error("an offset outside an address")),
        }
    }

    /// `+ 16`, `+-16` or nothing.
    fn offset(&mut self) -> Result<i64> {
        if !self.accept("+") {
            return Ok(0);
        }
        let negative = self.accept("-");
        let text = self.next()?;
        let value =
            immediate(text).ok_or_else(|| self.error(format!("`{text}` is no offset")))? as i64;
        Ok(if negative { -value } else { value })
    }

    fn value(&mut self, names: &Names<'a>) -> Result<Operand> {
        let word = self.next()?;
        if word == "!" {
            let name = self.next()?;
            return Ok(Operand::Not(self.register(names, name)?));
        }
        if word == "-" {
            let text = self.next()?;
            let value =
                immediate(text).ok_or_else(|| self.error(format!("`{text}` is no number")))?;
            return Ok(Operand::Imm(value.wrapping_neg()));
        }
        if word == "_" {
            return Ok(Operand::Reg(crate::instr::SINK));
        }
        if let Some(special) = special(word) {
            return Ok(Operand::Special(special));
        }
        if let Some(register) = self.find(names, word) {
            return Ok(register);
        }
        immediate(word)
            .map(Operand::Imm)
            .ok_or_else(|| self.error(format!("operand `{word}` is not known")))
    }

    /// A register or a symbol.
    fn find(&self, names: &Names<'a>, word: &str) -> Option<Operand> {
        if let Some(&register) = names.registers.iter().rev().find_map(|scope| scope.get(word)) {
            return Some(Operand::Reg(register));
        }
        for &(prefix, count, first) in &names.ranges {
            let number = word.strip_prefix(prefix).and_then(|n| n.parse::<u32>().ok());
            if let Some(n) = number.filter(|n| *n < count) {
                return Some(Operand::Reg(first + n));
            }
        }
        names.symbols.get(word).map(|symbol| match *symbol {
            Symbol::At(address) => Operand::Imm(address),
            Symbol::DynamicShared => Operand::Special(Special::DynamicSmem),
        })
    }

    fn register(&self, names: &Names<'a>, name: &str) -> Result<Reg> {
        match self.find(names, name) {
            Some(Operand::Reg(r)) => Ok(r),
            _ => Err(self.error(format!("register `{name}` is not declared"))),
        }
    }
}

fn special(word: &str) -> Option<Special> {
    let axis = |rest: &str| ["x", "y", "z"].iter().position(|a| *a == rest);
    let (name, rest) = word.strip_prefix('%')?.split_once('.').unwrap_or((&word[1..], ""));
    Some(match name {
        "tid" => Special::Tid(axis(rest)?),
        "ntid" => Special::Ntid(axis(rest)?),
        "ctaid" => Special::Ctaid(axis(rest)?),
        "nctaid" => Special::Nctaid(axis(rest)?),
        "laneid" => Special::Lane,
        _ => return None,
    })
}

/// An unsigned number: decimal, `0x`, or the bits of a float as `0f`, `0d`.
fn immediate(word: &str) -> Option<u64> {
    let hex = |digits: &str| u64::from_str_radix(digits.trim_end_matches('U'), 16).ok();
    match word.get(..2) {
        Some("0x" | "0X" | "0d" | "0D" | "0f" | "0F") => hex(&word[2..]),
        _ => word.trim_end_matches('U').parse().ok(),
    }
}

/// Bytes of one initial value: the type of the declaration that these tokens end with.
fn bytes_per_value(tokens: &[Token<'_>]) -> Option<usize> {
    let types = tokens.iter().rev().take(12);
    types.filter_map(|t| Ty::parse(t.text.strip_prefix('.')?)).next().map(Ty::bytes)
}
