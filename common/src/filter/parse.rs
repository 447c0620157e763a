//! From text to the tree of a condition.

use super::error::FilterError;
use super::syntax::{Check, ColumnName, Comparison, Expression, Leaf, Literal, LiteralValue, Number};
use super::temporal;
use super::token::{Kind, Token, tokens};

/// Bytes of a text at most: far beyond what a person writes, and little to hold.
const TEXT_BYTES_MAX: usize = 256 * 1024;
/// Parentheses inside each other at most, so that no text exhausts the stack.
const DEPTH_MAX: usize = 64;

const CONDITION: &str = "a column, a literal, NOT or (";
const OPERATOR: &str = "=, <>, <, <=, >, >=, [NOT] IN, [NOT] LIKE, [NOT] BETWEEN or IS [NOT]";
const LITERAL: &str = "a literal";

/// Reads a whole condition.
pub(super) fn parse(text: &str) -> Result<Expression, FilterError> {
    if text.len() > TEXT_BYTES_MAX {
        let what = format!("the filter has more than {TEXT_BYTES_MAX} bytes: shorten it");
        return Err(FilterError::Unsupported { at: 1, what });
    }
    let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0 };
    let root = parser.either()?;
    match parser.peek() {
        Kind::End => Ok(root),
        kind if is_operator(kind) => Err(parser.unsupported(
            "only a column or a literal is compared: write it without parentheses, and one comparison \
                                    at a time",
        )),
        _ => Err(parser.wrong("AND, OR or the end")),
    }
}

struct Parser {
    /// The last is the end, and is never passed.
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
}

/// What can be compared.
enum Operand {
    Column(ColumnName),
    Literal(Literal),
}

impl Parser {
    fn token(&self) -> &Token {
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn peek(&self) -> &Kind {
        &self.token().kind
    }

    fn at(&self) -> usize {
        self.token().at
    }

    fn advance(&mut self) -> Kind {
        let kind = self.peek().clone();
        self.next += 1;
        kind
    }

    /// Takes the word if it is next.
    fn word(&mut self, keyword: &str) -> bool {
        let is_next = self.peek().is_word(keyword);
        self.next += usize::from(is_next);
        is_next
    }

    /// Takes the symbol if it is next.
    fn symbol(&mut self, symbol: &str) -> bool {
        let is_next = matches!(self.peek(), Kind::Symbol(found) if *found == symbol);
        self.next += usize::from(is_next);
        is_next
    }

    fn wrong(&self, expected: &str) -> FilterError {
        FilterError::Syntax { at: self.at(), expected: expected.into(), found: self.peek().name() }
    }

    fn unsupported(&self, what: &str) -> FilterError {
        FilterError::Unsupported { at: self.at(), what: what.into() }
    }

    fn either(&mut self) -> Result<Expression, FilterError> {
        let first = self.all()?;
        if !self.peek().is_word("OR") {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.word("OR") {
            parts.push(self.all()?);
        }
        Ok(Expression::Or(parts))
    }

    fn all(&mut self) -> Result<Expression, FilterError> {
        let first = self.negatable()?;
        if !self.peek().is_word("AND") {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.word("AND") {
            parts.push(self.negatable()?);
        }
        Ok(Expression::And(parts))
    }

    fn negatable(&mut self) -> Result<Expression, FilterError> {
        let mut negated = false;
        while self.word("NOT") {
            negated = !negated;
        }
        let expression = self.condition()?;
        Ok(if negated { Expression::Not(Box::new(expression)) } else { expression })
    }

    fn condition(&mut self) -> Result<Expression, FilterError> {
        let at = self.at();
        if self.symbol("(") {
            if self.depth == DEPTH_MAX {
                let what = format!("more than {DEPTH_MAX} parentheses inside each other are not supported: nest less");
                return Err(FilterError::Unsupported { at, what });
            }
            self.depth += 1;
            let inner = self.either()?;
            self.depth -= 1;
            if !self.symbol(")") {
                return Err(self.wrong("AND, OR or )"));
            }
            return Ok(inner);
        }
        match self.operand(CONDITION)? {
            Operand::Column(column) => self.of_column(column),
            Operand::Literal(literal) => {
                let Some(comparison) = self.comparison()? else {
                    return Err(self.wrong("=, <>, <, <=, > or >=, and a column, after the literal"));
                };
                let at = self.at();
                match self.operand("a column")? {
                    Operand::Column(column) => {
                        let check = Check::Compare(comparison.flipped(), literal);
                        Ok(Expression::Leaf(Leaf { column, negated: false, check }))
                    }
                    Operand::Literal(_) => {
                        let what = "comparing two literals is not supported: compare a column with a literal".into();
                        Err(FilterError::Unsupported { at, what })
                    }
                }
            }
        }
    }

    /// What follows a column.
    fn of_column(&mut self, column: ColumnName) -> Result<Expression, FilterError> {
        if self.word("IS") {
            let negated = self.word("NOT");
            let check = if self.word("NULL") {
                Check::IsNull
            } else if self.word("NAN") {
                Check::IsNan
            } else {
                return Err(self.wrong(if negated { "NULL or NAN" } else { "NOT, NULL or NAN" }));
            };
            return Ok(Expression::Leaf(Leaf { column, negated, check }));
        }
        let negated = self.word("NOT");
        let check = if self.word("IN") {
            Check::In(self.list()?)
        } else if self.word("LIKE") {
            self.pattern()?
        } else if self.word("BETWEEN") {
            let low = self.literal()?;
            if !self.word("AND") {
                return Err(self.wrong("AND and the upper end"));
            }
            Check::Between(low, self.literal()?)
        } else if negated {
            return Err(self.wrong("IN, LIKE or BETWEEN"));
        } else if let Some(comparison) = self.comparison()? {
            Check::Compare(comparison, self.literal()?)
        } else if ends_condition(self.peek()) {
            Check::IsTrue
        } else {
            return Err(self.wrong(OPERATOR));
        };
        Ok(Expression::Leaf(Leaf { column, negated, check }))
    }

    fn comparison(&mut self) -> Result<Option<Comparison>, FilterError> {
        let comparison = match self.peek() {
            Kind::Symbol("=" | "==") => Comparison::Eq,
            Kind::Symbol("<>" | "!=") => Comparison::NotEq,
            Kind::Symbol("<") => Comparison::Lt,
            Kind::Symbol("<=") => Comparison::LtEq,
            Kind::Symbol(">") => Comparison::Gt,
            Kind::Symbol(">=") => Comparison::GtEq,
            Kind::Symbol("<=>") => {
                return Err(self.unsupported("<=> is not supported: write = or IS NULL"));
            }
            Kind::Symbol("+" | "-" | "*" | "/" | "%" | "||" | "(") => {
                return Err(self.unsupported("arithmetic is not supported: compare the column itself with a literal"));
            }
            _ => return Ok(None),
        };
        self.next += 1;
        Ok(Some(comparison))
    }

    fn list(&mut self) -> Result<Vec<Literal>, FilterError> {
        if !self.symbol("(") {
            return Err(self.wrong("( and a list of literals"));
        }
        let mut literals = vec![self.literal()?];
        while self.symbol(",") {
            literals.push(self.literal()?);
        }
        if !self.symbol(")") {
            return Err(self.wrong(", or )"));
        }
        Ok(literals)
    }

    /// A pattern that is a text, or the beginning of one.
    fn pattern(&mut self) -> Result<Check, FilterError> {
        let at = self.at();
        let Kind::Text(pattern) = self.peek().clone() else {
            return Err(self.wrong("a pattern as text, such as 'abc%'"));
        };
        self.next += 1;
        if self.peek().is_word("ESCAPE") {
            return Err(self.unsupported("ESCAPE is not supported: write a pattern without it"));
        }
        let prefix = pattern.trim_end_matches('%');
        if prefix.contains(['%', '_', '\\']) {
            let what =
                "a LIKE pattern is not supported unless it is text with at most a % at its end, without _ and \\";
            return Err(FilterError::Unsupported { at, what: what.into() });
        }
        let literal = Literal { value: LiteralValue::Text(prefix.to_owned()), at };
        Ok(if prefix.len() == pattern.len() { Check::Compare(Comparison::Eq, literal) } else { Check::Prefix(literal) })
    }

    fn literal(&mut self) -> Result<Literal, FilterError> {
        let at = self.at();
        let literal = match self.operand(LITERAL)? {
            Operand::Literal(literal) => literal,
            Operand::Column(_) => {
                let what = "comparing a column with a column is not supported: compare it with a literal; text stands in \
                            single quotes";
                return Err(FilterError::Unsupported { at, what: what.into() });
            }
        };
        if matches!(self.peek(), Kind::Symbol("+" | "-" | "*" | "/" | "%" | "||")) {
            return Err(self.unsupported("arithmetic is not supported: write the result"));
        }
        Ok(literal)
    }

    fn operand(&mut self, expected: &str) -> Result<Operand, FilterError> {
        let at = self.at();
        let literal = |value| Ok(Operand::Literal(Literal { value, at }));
        if self.word("TRUE") {
            return literal(LiteralValue::Boolean(true));
        }
        if self.word("FALSE") {
            return literal(LiteralValue::Boolean(false));
        }
        if self.peek().is_word("NULL") {
            return Err(self.unsupported("comparing with NULL is true of no row: write IS NULL or IS NOT NULL"));
        }
        if self.peek().is_keyword() {
            return Err(self.wrong(expected));
        }
        match self.peek() {
            Kind::Word(word) => {
                let word = word.clone();
                let typed = self.tokens.get(self.next + 1).is_some_and(|token| matches!(token.kind, Kind::Text(_)));
                if typed {
                    return self.typed(&word);
                }
                self.column()
            }
            Kind::Name(_) => self.column(),
            Kind::Symbol("-" | "+") => {
                let is_negative = self.advance() == Kind::Symbol("-");
                match self.advance() {
                    Kind::Number(number) => {
                        let is_negative = is_negative && !number.digits.is_empty();
                        literal(LiteralValue::Number(Number { is_negative, ..number }))
                    }
                    _ => {
                        self.next -= 1;
                        Err(self.wrong("a number after the sign"))
                    }
                }
            }
            Kind::Text(_) | Kind::Bytes(_) | Kind::Number(_) => match self.advance() {
                Kind::Text(text) => literal(LiteralValue::Text(text)),
                Kind::Bytes(bytes) => literal(LiteralValue::Bytes(bytes)),
                Kind::Number(number) => literal(LiteralValue::Number(number)),
                Kind::Word(_) | Kind::Name(_) | Kind::Symbol(_) | Kind::End => Err(self.wrong(expected)),
            },
            Kind::Symbol(_) | Kind::End => Err(self.wrong(expected)),
        }
    }

    /// `DATE '...'` and the like.
    fn typed(&mut self, word: &str) -> Result<Operand, FilterError> {
        let at = self.at();
        let is = |keyword: &str| word.eq_ignore_ascii_case(keyword);
        if !is("DATE") && !is("TIME") && !is("TIMESTAMP") {
            self.next += 1;
            return Err(self.wrong(OPERATOR));
        }
        self.next += 1;
        let text_at = self.at();
        let Kind::Text(text) = self.advance() else { return Err(self.wrong("text")) };
        let (value, expected) = if is("DATE") {
            (temporal::date(&text).map(LiteralValue::Date), "a date such as 2026-01-31")
        } else if is("TIME") {
            (temporal::time(&text).map(LiteralValue::Time), "a time such as 12:30:00.5")
        } else {
            let expected = "a timestamp such as 2026-01-31 12:30:00, with or without a zone such as Z or +01:00";
            (temporal::moment(&text).map(LiteralValue::Timestamp), expected)
        };
        match value {
            Some(value) => Ok(Operand::Literal(Literal { value, at })),
            None => Err(FilterError::Syntax { at: text_at, expected: expected.into(), found: "other text" }),
        }
    }

    fn column(&mut self) -> Result<Operand, FilterError> {
        let at = self.at();
        let mut parts = Vec::new();
        loop {
            match self.peek().clone() {
                Kind::Word(word) if !(parts.is_empty() && self.peek().is_keyword()) => parts.push(word),
                Kind::Name(name) => parts.push(name),
                _ => return Err(self.wrong("the name of a field after the dot")),
            }
            self.next += 1;
            if !self.symbol(".") {
                break;
            }
        }
        if matches!(self.peek(), Kind::Symbol("(")) {
            let function = ColumnName { parts, at }.shown();
            let what = format!("function {function} is not supported: compare a column with a literal");
            return Err(FilterError::Unsupported { at, what });
        }
        Ok(Operand::Column(ColumnName { parts, at }))
    }
}

fn is_operator(kind: &Kind) -> bool {
    matches!(kind, Kind::Symbol(symbol) if !matches!(*symbol, "(" | ")" | "," | "."))
        || ["IN", "LIKE", "BETWEEN", "IS"].iter().any(|word| kind.is_word(word))
}

fn ends_condition(kind: &Kind) -> bool {
    matches!(kind, Kind::End | Kind::Symbol(")")) || kind.is_word("AND") || kind.is_word("OR")
}
