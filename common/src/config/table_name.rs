//! The name of a table within its catalog.

use std::fmt;
use std::str::FromStr;

use iceberg::{NamespaceIdent, TableIdent};

/// Namespace and name of a table, written `namespace.name`; the namespace may have several parts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableName {
    /// At least one part, none of them empty.
    namespace: Vec<String>,
    name: String,
}

/// A text that is no table name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TableNameError {
    /// There is no dot.
    #[error("has no namespace: write namespace.table")]
    NoNamespace,
    /// Nothing before, after or between dots.
    #[error("has an empty part: write namespace.table, with one dot between parts")]
    EmptyPart,
    /// A part begins or ends with a space, or has characters that names cannot have.
    #[error("has a part with a slash, a control character, or a space at an end")]
    Character,
    /// Braces that do not pair up, or with nothing between them.
    #[error("has braces that do not enclose a column's name")]
    Braces,
}

impl TableName {
    /// The parts of the namespace, the outermost first.
    pub fn namespace(&self) -> &[String] {
        &self.namespace
    }

    /// The name without its namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All parts, the name last.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.namespace.iter().chain([&self.name]).map(String::as_str)
    }

    /// The name as the iceberg crate has it.
    pub fn ident(&self) -> TableIdent {
        let namespace = NamespaceIdent::from_vec(self.namespace.clone());
        TableIdent::new(namespace.expect("a table name has a namespace, or it was not parsed"), self.name.clone())
    }

    /// Whether the name has `{column}` in it, so that it stands for many tables.
    pub fn is_template(&self) -> bool {
        self.parts().any(|part| part.contains('{'))
    }
}

impl FromStr for TableName {
    type Err = TableNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = parts(text)?;
        // Neither a path nor a catalog's key is safe with these in it.
        let is_odd = |part: &str| part.trim() != part || part.contains(['/', '\\']) || part.contains(char::is_control);
        if parts.iter().any(String::is_empty) {
            return Err(TableNameError::EmptyPart);
        }
        if parts.iter().any(|part| is_odd(part)) {
            return Err(TableNameError::Character);
        }
        match parts.pop() {
            Some(name) if !parts.is_empty() => Ok(Self { namespace: parts, name }),
            _ => Err(TableNameError::NoNamespace),
        }
    }
}

/// The text between dots. A dot inside braces belongs to the path of a nested column.
fn parts(text: &str) -> Result<Vec<String>, TableNameError> {
    let mut parts = vec![String::new()];
    let mut column: Option<usize> = None;
    for c in text.chars() {
        match (c, column) {
            ('{', None) => column = Some(0),
            ('}', Some(length)) if length > 0 => column = None,
            ('{' | '}', _) => return Err(TableNameError::Braces),
            ('.', None) => {
                parts.push(String::new());
                continue;
            }
            (_, Some(length)) => column = Some(length + 1),
            (_, None) => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    if column.is_some() { Err(TableNameError::Braces) } else { Ok(parts) }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.namespace.join("."), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_name_is_its_parts_and_prints_as_written() {
        let cases: [(&str, &[&str], &str); 5] = [
            ("sales.orders", &["sales"], "orders"),
            ("a.b.c", &["a", "b"], "c"),
            ("my ns.t", &["my ns"], "t"),
            ("ü.Ü-1_x", &["ü"], "Ü-1_x"),
            ("lake.t_{a.b}_{c}", &["lake"], "t_{a.b}_{c}"),
        ];
        for (text, namespace, name) in cases {
            let table: TableName = text.parse().unwrap();
            assert_eq!(
                (table.namespace(), table.name()),
                (namespace.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>().as_slice(), name)
            );
            assert_eq!(table.to_string(), text);
            assert_eq!(table.is_template(), text.contains('{'));
            assert_eq!(table.ident().namespace().as_ref(), table.namespace());
            assert_eq!(table.ident().name(), name);
        }
    }

    #[test]
    fn what_is_no_table_name_says_why() {
        use TableNameError::{Braces, Character, EmptyPart, NoNamespace};
        let cases = [
            ("orders", NoNamespace),
            ("", EmptyPart),
            (".", EmptyPart),
            ("a.", EmptyPart),
            (".a", EmptyPart),
            ("a..b", EmptyPart),
            (" a.b", Character),
            ("a. b", Character),
            ("a.b\n", Character),
            ("a.b\u{1f}c", Character),
            ("a.../etc/x", EmptyPart),
            ("a.x/y", Character),
            ("a.{b", Braces),
            ("a.b}", Braces),
            ("a.{}", Braces),
            ("a.{{b}}", Braces),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<TableName>(), Err(error), "{text:?}");
        }
    }
}
