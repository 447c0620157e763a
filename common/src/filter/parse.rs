//! From text to the tree of a condition.

use super::error::FilterError;
use super::operand::Operand;
use super::syntax::{Check, ColumnName, Comparison, Expression, Leaf, Literal, LiteralValue};
use super::token::{Kind, Token, tokens};

/// Bytes of a text at most: far beyond what a person writes, and little to hold.
const TEXT_BYTES_MAX: usize = 256 * 1024;
/// Parentheses inside each other at most, so that no text exhausts the stack.
const DEPTH_MAX: usize = 64;

const CONDITION: &str = "a column, a literal, NOT or (";
pub(super) const OPERATOR: &str = "=, <>, <, <=, >, >=, [NOT] IN, [NOT] LIKE, [NOT] BETWEEN or IS [NOT]";

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

/// Goes through the words of a condition.
pub(super) struct Parser {
    /// The last is the end, and is never passed.
    pub(super) tokens: Vec<Token>,
    pub(super) next: usize,
    depth: usize,
}

impl Parser {
    fn token(&self) -> &Token {
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    pub(super) fn peek(&self) -> &Kind {
        &self.token().kind
    }

    pub(super) fn at(&self) -> usize {
        self.token().at
    }

    pub(super) fn advance(&mut self) -> Kind {
        let kind = self.peek().clone();
        self.next += 1;
        kind
    }

    /// Takes the word if it is next.
    pub(super) fn word(&mut self, keyword: &str) -> bool {
        let is_next = self.peek().is_word(keyword);
        self.next += usize::from(is_next);
        is_next
    }

    /// Takes the symbol if it is next.
    pub(super) fn symbol(&mut self, symbol: &str) -> bool {
        let is_next = matches!(self.peek(), Kind::Symbol(found) if *found == symbol);
        self.next += usize::from(is_next);
        is_next
    }

    pub(super) fn wrong(&self, expected: &str) -> FilterError {
        FilterError::Syntax { at: self.at(), expected: expected.into(), found: self.peek().name() }
    }

    pub(super) fn unsupported(&self, what: &str) -> FilterError {
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
}

fn is_operator(kind: &Kind) -> bool {
    matches!(kind, Kind::Symbol(symbol) if !matches!(*symbol, "(" | ")" | "," | "."))
        || ["IN", "LIKE", "BETWEEN", "IS"].iter().any(|word| kind.is_word(word))
}

fn ends_condition(kind: &Kind) -> bool {
    matches!(kind, Kind::End | Kind::Symbol(")")) || kind.is_word("AND") || kind.is_word("OR")
}
