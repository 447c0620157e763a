//! `${NAME}` in a value becomes the environment variable's value; `$${` stands for `${` itself.
//!
//! It happens in the tree that YAML gave, never in its text: a variable's value can so not bring keys of its own.

use super::error::Report;
use super::yaml::{Kind, Node};

/// Replaces variables in all text below `node`. A value whose variable is missing is reported and left broken.
pub(super) fn substitute(node: &mut Node, path: &str, env: &dyn Fn(&str) -> Option<String>, report: &mut Report) {
    match node {
        Node::Scalar(scalar) if scalar.kind == Kind::Text => match expand(&scalar.text, env) {
            Ok(None) => {}
            Ok(Some(text)) => scalar.template = Some(std::mem::replace(&mut scalar.text, text)),
            Err(message) => {
                report.problem(path, message);
                *node = Node::Broken;
            }
        },
        Node::List(nodes) => {
            for (index, node) in nodes.iter_mut().enumerate() {
                substitute(node, &format!("{path}[{index}]"), env, report);
            }
        }
        Node::Map(entries) => {
            for (key, node) in entries {
                substitute(node, &super::keys::join(path, key), env, report);
            }
        }
        Node::Null | Node::Scalar(_) | Node::Broken => {}
    }
}

/// `text` with its variables replaced; `None` when there is nothing to replace. A message never quotes the text: it may
/// be a secret that happens to have `${` in it.
fn expand(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Option<String>, String> {
    if !text.contains("${") {
        return Ok(None);
    }
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = &from[2..];
            continue;
        }
        expanded.push_str(before);
        let Some(end) = from.find('}') else {
            return Err("has '${' without '}': close it, or write '$${' for the characters themselves".to_owned());
        };
        let name = &from[2..end];
        if !is_variable_name(name) {
            return Err(
                "has '${...}' without a variable's name in it: take letters, digits and '_' only, or write '$${' \
                        for the characters themselves"
                    .to_owned(),
            );
        }
        let Some(value) = env(name) else {
            return Err(format!("environment variable {name} is not set"));
        };
        expanded.push_str(&value);
        rest = &from[end + 1..];
    }
    expanded.push_str(rest);
    Ok(Some(expanded))
}

fn is_variable_name(name: &str) -> bool {
    name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "A" => Some("alpha".into()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${A}".into()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_replaced_once_and_escapes_undone() {
        let cases = [
            ("plain", None),
            ("$A {A} $", None),
            ("${A}", Some("alpha")),
            ("x${A}y${A}z", Some("xalphayalphaz")),
            ("${EMPTY}", Some("")),
            ("${NESTED}", Some("${A}")),
            ("$${A}", Some("${A}")),
            ("$${A}${A}", Some("${A}alpha")),
            ("$$${A}", Some("$${A}")),
            ("$${", Some("${")),
            ("ü${A}ü", Some("üalphaü")),
        ];
        for (text, expanded) in cases {
            assert_eq!(expand(text, &env).unwrap().as_deref(), expanded, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_replaced_is_an_error_without_the_text() {
        for text in ["hunter2${", "hunter2${A", "${}", "${hunter2-}", "${A:-hunter2}", "${ A }", "${2}"] {
            let message = expand(text, &env).unwrap_err();
            assert!(message.starts_with("has '${") && !message.contains("hunter2"), "{text}: {message}");
        }
        assert_eq!(expand("hunter2${B}", &env).unwrap_err(), "environment variable B is not set");
    }
}
