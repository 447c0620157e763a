//! From text to a tree that still has everything the file said: keys that occur twice, and each scalar as it is written.
//!
//! Two readings: the first finds the shape and what kind of scalar each one is, the second fetches the scalars' own
//! text. A catalog property `1.10` or `True` so passes through as it stands.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::error::{ConfigError, Problem, shown};

/// A value of the job file.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// `null`, or nothing at all.
    Null,
    /// Text, a number, true or false.
    Scalar(Scalar),
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the file's order; a key may occur more than once.
    Map(Vec<(String, Node)>),
    /// A value that was found wrong and reported; nothing more is said about it.
    Broken,
}

/// Text, a number, true or false.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scalar {
    /// What YAML takes it for.
    pub(super) kind: Kind,
    /// Its text: as written, or with the values of environment variables in it.
    pub(super) text: String,
    /// Its text as written, when `text` has values of environment variables in it. Only this may be shown.
    pub(super) template: Option<String>,
}

/// What YAML takes a scalar for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Float,
    Text,
}

impl Scalar {
    /// The text for a message, without values of environment variables.
    pub(super) fn shown(&self) -> String {
        shown(self.template.as_deref().unwrap_or(&self.text))
    }
}

impl Node {
    /// What it is, without its value.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null | Self::Broken => "nothing",
            Self::Scalar(scalar) => match scalar.kind {
                Kind::Bool => "true or false",
                Kind::Int | Kind::Float => "a number",
                Kind::Text => "text",
            },
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }

    /// What it is, with a scalar's own text, for a message that wants something else.
    pub(super) fn description(&self) -> String {
        match self {
            Self::Scalar(scalar) if scalar.kind == Kind::Text => format!("'{}'", scalar.shown()),
            Self::Scalar(scalar) => scalar.shown(),
            node => node.kind().to_owned(),
        }
    }
}

/// Reads YAML into a tree.
pub(super) fn read(text: &str) -> Result<Node, ConfigError> {
    let mut node = Shape.deserialize(serde_norway::Deserializer::from_str(text)).map_err(|e| syntax(text, &e))?;
    Texts(&mut node).deserialize(serde_norway::Deserializer::from_str(text)).map_err(|e| syntax(text, &e))?;
    Ok(node)
}

/// The parser's error without any value of the file: its own messages are fixed texts, save those of serde that quote
/// what they did not expect.
fn syntax(text: &str, error: &serde_norway::Error) -> ConfigError {
    let only_comments = |text: &str| text.lines().all(|line| line.trim().is_empty() || line.trim().starts_with('#'));
    if only_comments(text) {
        return ConfigError::Invalid(vec![Problem { key: String::new(), message: "the job file is empty".to_owned() }]);
    }
    let line = error.location().map(|location| location.line());
    let mut problem = error.to_string();
    if problem.contains("invalid value: ") || problem.contains("invalid type: ") {
        problem = "a key is not text, or a value is not what its tag says".to_owned();
        if let Some(line) = line {
            problem.push_str(&format!(" at line {line}"));
        }
    }
    if text.contains("${") {
        problem.push_str("; inside { } or [ ], ${NAME} must be in quotes");
    }
    ConfigError::Syntax { line, problem }
}

/// The first reading: shape and kinds.
struct Shape;

impl<'de> DeserializeSeed<'de> for Shape {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

fn scalar<E>(kind: Kind, text: impl Into<String>) -> Result<Node, E> {
    Ok(Node::Scalar(Scalar { kind, text: text.into(), template: None }))
}

impl<'de> Visitor<'de> for Shape {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        scalar(Kind::Bool, value.to_string())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        scalar(Kind::Int, value.to_string())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        scalar(Kind::Int, value.to_string())
    }

    fn visit_i128<E>(self, value: i128) -> Result<Node, E> {
        scalar(Kind::Int, value.to_string())
    }

    fn visit_u128<E>(self, value: u128) -> Result<Node, E> {
        scalar(Kind::Int, value.to_string())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        scalar(Kind::Float, value.to_string())
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        scalar(Kind::Text, value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = items.next_element_seed(Self)? {
            nodes.push(node);
        }
        Ok(Node::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut nodes = Vec::new();
        while let Some(key) = entries.next_key::<String>()? {
            nodes.push((key, entries.next_value_seed(Self)?));
        }
        Ok(Node::Map(nodes))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<Node, A::Error> {
        Err(A::Error::custom("tags such as !name are not taken here"))
    }
}

/// The second reading, over the same text: puts each scalar's own text where the first one left its value.
struct Texts<'a>(&'a mut Node);

impl<'de> DeserializeSeed<'de> for Texts<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.0 {
            Node::Null | Node::Broken => deserializer.deserialize_ignored_any(IgnoredAny).map(drop),
            Node::Scalar(_) => deserializer.deserialize_str(self),
            Node::List(_) => deserializer.deserialize_seq(self),
            Node::Map(_) => deserializer.deserialize_map(self),
        }
    }
}

impl<'de> Visitor<'de> for Texts<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the same YAML value again")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if let Node::Scalar(scalar) = self.0 {
            text.clone_into(&mut scalar.text);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        if let Node::List(nodes) = self.0 {
            for node in nodes {
                items.next_element_seed(Texts(node))?;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        if let Node::Map(nodes) = self.0 {
            for (_, node) in nodes {
                entries.next_key::<IgnoredAny>()?;
                entries.next_value_seed(Texts(node))?;
            }
            // The end of the mapping must be asked for, or the parser stays inside it.
            entries.next_key::<IgnoredAny>()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar_of(text: &str) -> Scalar {
        match read(text).unwrap() {
            Node::Map(entries) => match entries.into_iter().next() {
                Some((_, Node::Scalar(scalar))) => scalar,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_scalar_keeps_its_kind_and_its_own_text() {
        let cases = [
            ("a: 1.10", Kind::Float, "1.10"),
            ("a: True", Kind::Bool, "True"),
            ("a: '1.10'", Kind::Text, "1.10"),
            ("a: 012", Kind::Text, "012"),
            ("a: +5", Kind::Int, "+5"),
            ("a: 0x1F", Kind::Int, "0x1F"),
            ("a: 9223372036854775808", Kind::Int, "9223372036854775808"),
            ("a: .inf", Kind::Float, ".inf"),
            ("a: 2026-01-31T12:00:00Z", Kind::Text, "2026-01-31T12:00:00Z"),
            ("a: \"x\\ny\"", Kind::Text, "x\ny"),
            ("a: |\n  x\n  y\n", Kind::Text, "x\ny\n"),
            ("a: !!str 5", Kind::Text, "5"),
            ("a: yes", Kind::Text, "yes"),
        ];
        for (text, kind, value) in cases {
            assert_eq!(scalar_of(text), Scalar { kind, text: value.into(), template: None }, "{text}");
        }
    }

    #[test]
    fn aliases_lists_nulls_and_repeated_keys_come_through() {
        let node = read("x: &a [1.0, ~, {b: 2.50}]\ny: *a\nx:\n").unwrap();
        let float = |text: &str| Node::Scalar(Scalar { kind: Kind::Float, text: text.into(), template: None });
        let list = Node::List(vec![float("1.0"), Node::Null, Node::Map(vec![("b".into(), float("2.50"))])]);
        assert_eq!(node, Node::Map(vec![("x".into(), list.clone()), ("y".into(), list), ("x".into(), Node::Null)]));
    }

    #[test]
    fn a_syntax_error_names_its_line_and_no_value() {
        let cases = [
            ("a: 1\nb: [hunter2", Some(3)),
            ("a: 1\nb: 'hunter2", Some(2)),
            ("a: 1\n  b: hunter2", Some(2)),
            ("a: \"hunter2\\q\"", Some(1)),
            ("a: *hunter2", Some(1)),
            ("a:\n  b: !!int hunter2", Some(2)),
            ("a: !!bool hunter2", Some(1)),
            ("a: !!float hunter2", Some(1)),
            ("a: !!null hunter2", Some(1)),
            ("a: !secret hunter2", Some(1)),
            ("? [hunter2]\n: 1", Some(1)),
            ("a: hunter2\n---\nb: 1", None),
        ];
        for (text, expected) in cases {
            match read(text).unwrap_err() {
                ConfigError::Syntax { line, problem } => {
                    assert!(!problem.contains("hunter2"), "{text}: {problem}");
                    assert!(problem.is_ascii() && problem.contains(' '), "{text}: {problem}");
                    assert_eq!(line, expected, "{text}: {problem}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_file_without_anything_is_called_empty() {
        for text in ["", "\n", "# nothing\n  # here\n"] {
            match read(text) {
                Ok(Node::Null) => {}
                Err(error) => assert_eq!(error.to_string(), "the job file is empty", "{text:?}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_document_that_unfolds_without_end_is_refused() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for i in 1..12 {
            let inner = vec![format!("*a{}", i - 1); 9].join(", ");
            text.push_str(&format!("a{i}: &a{i} [{inner}]\n"));
        }
        assert!(matches!(read(&text), Err(ConfigError::Syntax { .. })));
    }
}
