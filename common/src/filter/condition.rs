//! The tree of a bound condition, and what a test says of one value.

use super::value::Value;

/// A tree without NOT: a test that is unknown may count as false everywhere, as it does for the whole.
#[derive(Debug, Clone)]
pub(super) enum Node<L> {
    Constant(bool),
    And(Vec<Node<L>>),
    Or(Vec<Node<L>>),
    Leaf(L),
}

impl<L> Node<L> {
    /// All of the parts; what decides alone is left over.
    pub(super) fn and(parts: Vec<Self>) -> Self {
        Self::joined(parts, false, Self::And)
    }

    /// Any of the parts; what decides alone is left over.
    pub(super) fn or(parts: Vec<Self>) -> Self {
        Self::joined(parts, true, Self::Or)
    }

    fn joined(parts: Vec<Self>, deciding: bool, join: impl Fn(Vec<Self>) -> Self) -> Self {
        if parts.iter().any(|part| matches!(part, Self::Constant(value) if *value == deciding)) {
            return Self::Constant(deciding);
        }
        let mut kept = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                Self::Constant(_) => {}
                Self::And(inner) if !deciding => kept.extend(inner),
                Self::Or(inner) if deciding => kept.extend(inner),
                part => kept.push(part),
            }
        }
        let mut parts = kept;
        match parts.len() {
            0 => Self::Constant(!deciding),
            1 => parts.remove(0),
            _ => join(parts),
        }
    }

    /// Whether the tree holds where `leaf` says which of its leaves do.
    pub(super) fn holds(&self, leaf: &impl Fn(&L) -> bool) -> bool {
        match self {
            Self::Constant(value) => *value,
            Self::And(parts) => parts.iter().all(|part| part.holds(leaf)),
            Self::Or(parts) => parts.iter().any(|part| part.holds(leaf)),
            Self::Leaf(of) => leaf(of),
        }
    }

    /// The tree with other leaves.
    pub(super) fn map<T>(&self, leaf: &impl Fn(&L) -> Node<T>) -> Node<T> {
        match self {
            Self::Constant(value) => Node::Constant(*value),
            Self::And(parts) => Node::and(parts.iter().map(|part| part.map(leaf)).collect()),
            Self::Or(parts) => Node::or(parts.iter().map(|part| part.map(leaf)).collect()),
            Self::Leaf(of) => leaf(of),
        }
    }

    pub(super) fn canonical(&self, leaf: &impl Fn(&L) -> String) -> String {
        let joined = |parts: &[Self], word: &str| {
            let parts: Vec<String> = parts.iter().map(|part| part.canonical(leaf)).collect();
            format!("({})", parts.join(word))
        };
        match self {
            Self::Constant(value) => value.to_string(),
            Self::And(parts) => joined(parts, " and "),
            Self::Or(parts) => joined(parts, " or "),
            Self::Leaf(of) => leaf(of),
        }
    }
}

/// A test of one column. Its values are never NaN.
#[derive(Debug, Clone)]
pub(super) enum Test {
    IsNull,
    NotNull,
    IsNan,
    NotNan,
    Eq(Value),
    NotEq(Value),
    Lt(Value),
    LtEq(Value),
    Gt(Value),
    GtEq(Value),
    /// Sorted, without equal ones, and not empty.
    In(Vec<Value>),
    /// As those of `In`.
    NotIn(Vec<Value>),
    StartsWith(String),
    NotStartsWith(String),
}

impl Test {
    /// True of the values that the test is false of, and the other way round.
    pub(super) fn negated(&self) -> Self {
        match self.clone() {
            Self::IsNull => Self::NotNull,
            Self::NotNull => Self::IsNull,
            Self::IsNan => Self::NotNan,
            Self::NotNan => Self::IsNan,
            Self::Eq(value) => Self::NotEq(value),
            Self::NotEq(value) => Self::Eq(value),
            Self::Lt(value) => Self::GtEq(value),
            Self::LtEq(value) => Self::Gt(value),
            Self::Gt(value) => Self::LtEq(value),
            Self::GtEq(value) => Self::Lt(value),
            Self::In(values) => Self::NotIn(values),
            Self::NotIn(values) => Self::In(values),
            Self::StartsWith(prefix) => Self::NotStartsWith(prefix),
            Self::NotStartsWith(prefix) => Self::StartsWith(prefix),
        }
    }

    /// Whether it is true of null. No comparison is.
    pub(super) fn holds_for_null(&self) -> bool {
        matches!(self, Self::IsNull | Self::NotNan)
    }

    /// Whether it is true of NaN, which is larger than all else.
    pub(super) fn holds_for_nan(&self) -> bool {
        matches!(self, Self::NotNull | Self::IsNan | Self::NotEq(_) | Self::Gt(_) | Self::GtEq(_) | Self::NotIn(_))
    }

    pub(super) fn canonical(&self) -> String {
        let list = |values: &[Value]| values.iter().map(Value::canonical).collect::<Vec<_>>().join(", ");
        match self {
            Self::IsNull => "is null".into(),
            Self::NotNull => "is not null".into(),
            Self::IsNan => "is nan".into(),
            Self::NotNan => "is not nan".into(),
            Self::Eq(value) => format!("= {}", value.canonical()),
            Self::NotEq(value) => format!("<> {}", value.canonical()),
            Self::Lt(value) => format!("< {}", value.canonical()),
            Self::LtEq(value) => format!("<= {}", value.canonical()),
            Self::Gt(value) => format!("> {}", value.canonical()),
            Self::GtEq(value) => format!(">= {}", value.canonical()),
            Self::In(values) => format!("in ({})", list(values)),
            Self::NotIn(values) => format!("not in ({})", list(values)),
            Self::StartsWith(prefix) => format!("like {}%", Value::Text(prefix.clone()).canonical()),
            Self::NotStartsWith(prefix) => format!("not like {}%", Value::Text(prefix.clone()).canonical()),
        }
    }
}
