//! What a condition compares: columns and literals.

use super::error::FilterError;
use super::parse::{OPERATOR, Parser};
use super::syntax::{ColumnName, Literal, LiteralValue, Number};
use super::temporal;
use super::token::Kind;

const LITERAL: &str = "a literal";

/// What can be compared.
pub(super) enum Operand {
    Column(ColumnName),
    Literal(Literal),
}

impl Parser {
    pub(super) fn literal(&mut self) -> Result<Literal, FilterError> {
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

    pub(super) fn operand(&mut self, expected: &str) -> Result<Operand, FilterError> {
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
