//! The tree of a condition, as it is written.

use super::temporal::Moment;

/// Characters of a name that a message shows at most.
const SHOWN_CHARACTERS_MAX: usize = 80;

/// A condition, or a part of one.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Expression {
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Not(Box<Expression>),
    Leaf(Leaf),
}

/// A condition on one column.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) column: ColumnName,
    pub(super) negated: bool,
    pub(super) check: Check,
}

/// A column by its name.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ColumnName {
    /// From the top of the table into structs.
    pub(super) parts: Vec<String>,
    /// Its first character, counted from 1.
    pub(super) at: usize,
}

/// What is asked of a column.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Check {
    IsTrue,
    IsNull,
    IsNan,
    Compare(Comparison, Literal),
    Between(Literal, Literal),
    In(Vec<Literal>),
    /// Texts that begin with this.
    Prefix(Literal),
}

/// How a column is compared with a literal to its right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Eq,
    NotEq,
    Lt,
    LtEq,
    Gt,
    GtEq,
}

/// A literal, not yet of a type of Iceberg.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Literal {
    pub(super) value: LiteralValue,
    /// Its first character, counted from 1.
    pub(super) at: usize,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum LiteralValue {
    Boolean(bool),
    Number(Number),
    Text(String),
    Bytes(Vec<u8>),
    /// Days since 1970.
    Date(i32),
    /// Nanoseconds since midnight.
    Time(i64),
    Timestamp(Moment),
}

/// A number as its digits: `digits` times ten to the power of `exponent`.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) is_negative: bool,
    /// Without leading zeros, and without zeros at the end; empty for zero.
    pub(super) digits: String,
    pub(super) exponent: i64,
}

impl Comparison {
    /// With column and literal in each other's place.
    pub(super) fn flipped(self) -> Self {
        match self {
            Self::Eq | Self::NotEq => self,
            Self::Lt => Self::Gt,
            Self::LtEq => Self::GtEq,
            Self::Gt => Self::Lt,
            Self::GtEq => Self::LtEq,
        }
    }

    pub(super) fn symbol(self) -> &'static str {
        match self {
            Self::Eq => "=",
            Self::NotEq => "<>",
            Self::Lt => "<",
            Self::LtEq => "<=",
            Self::Gt => ">",
            Self::GtEq => ">=",
        }
    }
}

impl Number {
    /// Of digits with a point after the first `whole` of them.
    pub(super) fn new(is_negative: bool, digits: &str, whole: usize, exponent: i64) -> Self {
        let places = i64::try_from(digits.len().saturating_sub(whole)).unwrap_or(i64::MAX);
        let mut exponent = exponent.saturating_sub(places);
        let kept = digits.trim_end_matches('0');
        exponent = exponent.saturating_add(i64::try_from(digits.len() - kept.len()).unwrap_or(i64::MAX));
        let kept = kept.trim_start_matches('0');
        if kept.is_empty() {
            return Self { is_negative: false, digits: String::new(), exponent: 0 };
        }
        Self { is_negative, digits: kept.to_owned(), exponent }
    }

    /// Reads `-12.5e3`; `None` for what is no number.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (is_negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (rest, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
            return None;
        }
        Some(Self::new(is_negative, &format!("{whole}{fraction}"), whole.len(), i64::from(exponent)))
    }

    /// Itself as text that [`Self::parse`] and the standard library read.
    pub(super) fn text(&self) -> String {
        let digits = if self.digits.is_empty() { "0" } else { &self.digits };
        format!("{}{digits}e{}", if self.is_negative { "-" } else { "" }, self.exponent)
    }
}

impl Expression {
    /// One text for all ways to write the tree.
    pub(super) fn canonical(&self) -> String {
        let joined = |parts: &[Self], word: &str| {
            let parts: Vec<String> = parts.iter().map(Self::canonical).collect();
            format!("({})", parts.join(word))
        };
        match self {
            Self::And(parts) => joined(parts, " and "),
            Self::Or(parts) => joined(parts, " or "),
            Self::Not(part) => format!("not {}", part.canonical()),
            Self::Leaf(leaf) => leaf.canonical(),
        }
    }
}

impl Leaf {
    fn canonical(&self) -> String {
        let column = self.column.quoted();
        let not = if self.negated { "not " } else { "" };
        match &self.check {
            Check::IsTrue => format!("{not}{column}"),
            Check::IsNull => format!("{column} is {not}null"),
            Check::IsNan => format!("{column} is {not}nan"),
            Check::Compare(comparison, literal) => {
                format!("{not}{column} {} {}", comparison.symbol(), literal.canonical())
            }
            Check::Between(low, high) => {
                format!("{column} {not}between {} and {}", low.canonical(), high.canonical())
            }
            Check::In(literals) => {
                let literals: Vec<String> = literals.iter().map(Literal::canonical).collect();
                format!("{column} {not}in ({})", literals.join(", "))
            }
            Check::Prefix(literal) => format!("{column} {not}like {}%", literal.canonical()),
        }
    }
}

impl ColumnName {
    /// As it may be shown: plain words as they are, others in double quotes. One that has text in quotes inside is most likely
    /// a literal that a quote in the wrong place has swallowed. It is on one line, and not longer than a person reads.
    pub(super) fn shown(&self) -> String {
        let is_plain =
            |part: &String| !part.is_empty() && part.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
        let shown = |part: &String| match part {
            part if is_plain(part) => part.clone(),
            part if part.contains('\'') => "\"...\"".into(),
            part => quoted(part, '"'),
        };
        let mut line = String::new();
        for (count, letter) in self.parts.iter().map(shown).collect::<Vec<_>>().join(".").chars().enumerate() {
            if count == SHOWN_CHARACTERS_MAX {
                line.push_str("...");
                break;
            }
            if letter.is_control() { line.extend(letter.escape_default()) } else { line.push(letter) }
        }
        line
    }

    fn quoted(&self) -> String {
        self.parts.iter().map(|part| quoted(part, '"')).collect::<Vec<_>>().join(".")
    }
}

impl Literal {
    fn canonical(&self) -> String {
        match &self.value {
            LiteralValue::Boolean(value) => value.to_string(),
            LiteralValue::Number(number) => number.text(),
            LiteralValue::Text(text) => quoted(text, '\''),
            LiteralValue::Bytes(bytes) => format!("x'{}'", hex(bytes)),
            LiteralValue::Date(days) => format!("date {days}"),
            LiteralValue::Time(nanos) => format!("time {nanos}"),
            LiteralValue::Timestamp(moment) => match moment.offset_seconds {
                Some(_) => format!("timestamp {} utc", moment.utc_nanos()),
                None => format!("timestamp {}", moment.local_nanos()),
            },
        }
    }
}

/// Between two quotes, those inside doubled.
pub(super) fn quoted(text: &str, quote: char) -> String {
    format!("{quote}{}{quote}", text.replace(quote, &format!("{quote}{quote}")))
}

/// Two digits for each byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
