//! The words of a condition.

use super::error::FilterError;
use super::syntax::Number;

/// A word, and where its first character stands, counted from 1.
#[derive(Clone)]
pub(super) struct Token {
    pub(super) at: usize,
    pub(super) kind: Kind,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A plain word: a keyword or a name.
    Word(String),
    /// A name in quotes, without them.
    Name(String),
    Text(String),
    Bytes(Vec<u8>),
    /// Without a sign.
    Number(Number),
    Symbol(&'static str),
    End,
}

/// Longer ones first, so that `<=` is not taken for `<`.
const SYMBOLS: &[&str] =
    &["<=>", "==", "<>", "!=", "<=", ">=", "||", "<", ">", "=", "(", ")", ",", ".", "-", "+", "*", "/", "%"];

impl Kind {
    /// What it is, without what it says.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Word(word) => KEYWORDS.iter().find(|keyword| keyword.eq_ignore_ascii_case(word)).unwrap_or(&"a name"),
            Self::Name(_) => "a quoted name",
            Self::Text(_) => "text",
            Self::Bytes(_) => "bytes",
            Self::Number(_) => "a number",
            Self::Symbol(symbol) => symbol,
            Self::End => "the end",
        }
    }

    pub(super) fn is_word(&self, keyword: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    pub(super) fn is_keyword(&self) -> bool {
        KEYWORDS.iter().any(|keyword| self.is_word(keyword))
    }
}

/// Words that are no names unless they stand in quotes.
const KEYWORDS: &[&str] = &["AND", "OR", "NOT", "IN", "IS", "NULL", "LIKE", "BETWEEN", "TRUE", "FALSE"];

/// Cuts a text into words, with an end behind the last.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, FilterError> {
    let mut cursor = Cursor { rest: text, at: 1 };
    let mut tokens = Vec::new();
    loop {
        cursor.skip(cursor.rest.len() - cursor.rest.trim_start().len());
        let at = cursor.at;
        let kind = cursor.next()?;
        let is_end = kind == Kind::End;
        tokens.push(Token { at, kind });
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Cursor<'t> {
    rest: &'t str,
    at: usize,
}

impl<'t> Cursor<'t> {
    /// Takes so many bytes, which end at a character's end.
    fn skip(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.at += taken.chars().count();
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, fits: impl Fn(char) -> bool) -> &'t str {
        self.skip(self.rest.find(|letter| !fits(letter)).unwrap_or(self.rest.len()))
    }

    fn next(&mut self) -> Result<Kind, FilterError> {
        let Some(first) = self.rest.chars().next() else { return Ok(Kind::End) };
        match first {
            '\'' => Ok(Kind::Text(self.quoted(first, "a quote that ends the text")?)),
            '"' | '`' => Ok(Kind::Name(self.quoted(first, "a quote that ends the name")?)),
            'x' | 'X' if self.rest[1..].starts_with('\'') => {
                let at = self.at;
                self.skip(1);
                let digits = self.quoted('\'', "a quote that ends the bytes")?;
                Ok(Kind::Bytes(bytes(&digits).ok_or_else(|| FilterError::Syntax {
                    at,
                    expected: "two hexadecimal digits for each byte".into(),
                    found: "other characters",
                })?))
            }
            _ if first.is_ascii_digit() => self.number(),
            _ if first.is_alphabetic() || first == '_' => {
                Ok(Kind::Word(self.take_while(|letter| letter.is_alphanumeric() || letter == '_').to_owned()))
            }
            _ => match SYMBOLS.iter().find(|symbol| self.rest.starts_with(**symbol)) {
                Some(symbol) => {
                    self.skip(symbol.len());
                    Ok(Kind::Symbol(symbol))
                }
                None => Err(FilterError::Syntax {
                    at: self.at,
                    expected:
                        "a column, an operator or a literal; a name with other characters stands in double quotes"
                            .into(),
                    found: "another character",
                }),
            },
        }
    }

    /// What stands between two quotes; a doubled one stands for itself.
    fn quoted(&mut self, quote: char, expected: &str) -> Result<String, FilterError> {
        self.skip(quote.len_utf8());
        let mut text = String::new();
        loop {
            text.push_str(self.take_while(|letter| letter != quote));
            if self.rest.is_empty() {
                return Err(FilterError::Syntax { at: self.at, expected: expected.into(), found: "the end" });
            }
            self.skip(quote.len_utf8());
            if !self.rest.starts_with(quote) {
                return Ok(text);
            }
            text.push(quote);
            self.skip(quote.len_utf8());
        }
    }

    fn number(&mut self) -> Result<Kind, FilterError> {
        let at = self.at;
        let start = self.rest;
        self.take_while(|letter| letter.is_ascii_digit());
        if self.rest.starts_with('.') {
            self.skip(1);
            self.take_while(|letter| letter.is_ascii_digit());
        }
        if self.rest.starts_with(['e', 'E']) {
            self.skip(1);
            if self.rest.starts_with(['+', '-']) {
                self.skip(1);
            }
            self.take_while(|letter| letter.is_ascii_digit());
        }
        let runs_on = self.rest.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        match Number::parse(&start[..start.len() - self.rest.len()]) {
            Some(number) if !runs_on => Ok(Kind::Number(number)),
            _ => Err(FilterError::Syntax {
                at,
                expected: "a number such as 12, 1.5 or 1e3; a name that begins with a digit stands in double quotes"
                    .into(),
                found: "other characters",
            }),
        }
    }
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}
