//! A helper that takes values out of a block of keys by type, and reports what does not fit.

use std::collections::{BTreeMap, BTreeSet};

use super::error::Report;
use super::keys::{ELSEWHERE, join, nearest};
use super::yaml::{Kind, Node, Scalar};

/// A block of keys that are taken out one by one. Opening it reports unknown and repeated keys.
pub(super) struct Block<'r> {
    path: &'static str,
    entries: BTreeMap<String, Node>,
    given: BTreeSet<String>,
    pub(super) report: &'r mut Report,
}

/// A scalar's text with how it may be shown in a message.
pub(super) struct Text {
    pub(super) value: String,
    pub(super) shown: String,
}

impl From<Scalar> for Text {
    fn from(scalar: Scalar) -> Self {
        Self { shown: scalar.shown(), value: scalar.text }
    }
}

impl<'r> Block<'r> {
    /// The block at `path`, which has the `known` keys.
    pub(super) fn open(path: &'static str, known: &[&str], node: Node, report: &'r mut Report) -> Option<Self> {
        let nodes = match node {
            Node::Map(nodes) => nodes,
            Node::Broken => return None,
            node => {
                let keys = if path.is_empty() { "name, source and target" } else { "keys and values" };
                let whole = if path.is_empty() { "the job file " } else { "" };
                // Not the value: a file of another kind, given by mistake, may be a secret as a whole.
                report.problem(path, format!("{whole}wants a mapping of {keys}, not {}", node.kind()));
                return None;
            }
        };
        let mut block = Self { path, entries: BTreeMap::new(), given: BTreeSet::new(), report };
        for (key, node) in nodes {
            if !known.contains(&key.as_str()) {
                block.unknown(&key);
            } else if block.given.insert(key.clone()) {
                block.entries.insert(key, node);
            } else {
                block.problem(&key, "is given twice: keep one");
            }
        }
        Some(block)
    }

    fn unknown(&mut self, key: &str) {
        let message = match ELSEWHERE.iter().find(|(elsewhere, _)| *elsewhere == key) {
            Some((_, advice)) if !self.path.is_empty() => format!("is not a key of this file; {advice}"),
            _ => match nearest(self.path, key) {
                Some(near) => {
                    let message = format!("unknown key; did you mean {near}?");
                    self.report.suggested(near);
                    message
                }
                None => "unknown key".to_owned(),
            },
        };
        self.problem(key, message);
    }

    /// Whether the file gives `key`, right or wrong.
    pub(super) fn has(&self, key: &str) -> bool {
        self.given.contains(key)
    }

    /// Reports what is wrong with `key`.
    pub(super) fn problem(&mut self, key: &str, message: impl Into<String>) {
        self.report.problem(join(self.path, key), message);
    }

    /// Reports what is wrong with the block.
    pub(super) fn block_problem(&mut self, message: impl Into<String>) {
        self.report.problem(self.path, message);
    }

    /// Reports that `key` is for a later version, if it is given.
    pub(super) fn not_yet(&mut self, key: &str) {
        if self.has(key) {
            self.report.not_yet(join(self.path, key));
        }
    }

    /// Reports that this value of `key` is for a later version.
    pub(super) fn value_not_yet(&mut self, key: &str, value: &str) {
        self.report.not_yet(format!("{}: {value}", join(self.path, key)));
    }

    /// Reports the pairs among `keys` that the file gives: at most one of them may be there.
    pub(super) fn exclusive(&mut self, keys: &[&str]) {
        let given: Vec<&str> = keys.iter().copied().filter(|key| self.has(key)).collect();
        if let [first @ .., last] = given.as_slice()
            && !first.is_empty()
        {
            self.block_problem(format!("{} and {last} exclude each other: keep one", first.join(", ")));
        }
    }

    /// Reports `key` as missing unless the file gives it.
    pub(super) fn require(&mut self, key: &str, advice: &str) {
        if !self.has(key) && !self.report.is_suggested(&join(self.path, key)) {
            self.problem(key, format!("is missing: {advice}"));
        }
    }

    /// The value of `key`, whatever it is.
    pub(super) fn take(&mut self, key: &str) -> Option<Node> {
        match self.entries.remove(key)? {
            Node::Null => {
                self.problem(key, "has no value: give one, or leave the key out");
                None
            }
            Node::Broken => None,
            node => Some(node),
        }
    }

    fn wants(&mut self, key: &str, wanted: &str, node: &Node) {
        self.problem(key, format!("wants {wanted}, not {}", node.description()));
    }

    /// A scalar of any kind, by its text.
    pub(super) fn scalar(&mut self, key: &str, wanted: &str) -> Option<Text> {
        match self.take(key)? {
            Node::Scalar(scalar) => Some(scalar.into()),
            node => {
                self.wants(key, wanted, &node);
                None
            }
        }
    }

    /// Text that is not empty.
    pub(super) fn text(&mut self, key: &str, wanted: &str) -> Option<Text> {
        match self.take(key)? {
            Node::Scalar(scalar) if scalar.kind == Kind::Text => {
                if scalar.text.trim().is_empty() {
                    self.problem(key, format!("is empty: give {wanted}"));
                    return None;
                }
                Some(scalar.into())
            }
            Node::Scalar(scalar) => {
                self.problem(key, format!("wants {wanted} as text: put {} in quotes", scalar.shown()));
                None
            }
            node => {
                self.wants(key, wanted, &node);
                None
            }
        }
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, key: &str) -> Option<bool> {
        let text = self.scalar(key, "true or false")?;
        match text.value.to_ascii_lowercase().as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                self.problem(key, format!("wants true or false, not '{}'", text.shown));
                None
            }
        }
    }

    /// A whole number of at least `min`.
    pub(super) fn whole(&mut self, key: &str, min: i64, wanted: &str) -> Option<i64> {
        let text = self.scalar(key, wanted)?;
        match text.value.trim().parse::<i64>() {
            Ok(number) if number >= min => Some(number),
            _ => {
                self.problem(key, format!("wants {wanted}, not {}", text.shown));
                None
            }
        }
    }

    /// One of `words`; in any letter case, and `_` for `-` or the other way round.
    pub(super) fn word<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Option<T> {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let wanted = alternatives(&known);
        let text = self.scalar(key, &wanted)?;
        let plain = |word: &str| word.trim().to_ascii_lowercase().replace('-', "_");
        let found = words.iter().find(|(word, _)| plain(word) == plain(&text.value));
        if found.is_none() {
            self.problem(key, format!("wants {wanted}, not '{}'", text.shown));
        }
        found.map(|(_, value)| *value)
    }

    /// A list of texts, at least one and each once.
    pub(super) fn names(&mut self, key: &str, of: &str) -> Option<Vec<String>> {
        let nodes = match self.take(key)? {
            Node::List(nodes) => nodes,
            node => {
                self.wants(key, &format!("a list of {of}"), &node);
                return None;
            }
        };
        if nodes.is_empty() {
            self.problem(key, format!("is an empty list: name {of}, or leave the key out"));
            return None;
        }
        let mut names = Vec::with_capacity(nodes.len());
        let mut is_right = true;
        for (index, node) in nodes.into_iter().enumerate() {
            let item = format!("{key}[{index}]");
            // Each item is taken as if it were a key of its own: the same checks, the same messages.
            self.entries.insert(item.clone(), node);
            match self.text(&item, &format!("one of the {of}")) {
                Some(text) if names.contains(&text.value) => {
                    self.problem(&item, format!("'{}' is in the list twice", text.shown));
                    is_right = false;
                }
                Some(text) => names.push(text.value),
                None => is_right = false,
            }
        }
        is_right.then_some(names)
    }

    /// A mapping to scalars, with each scalar's own text. A message never shows a value of it.
    pub(super) fn properties(&mut self, key: &str) -> Option<BTreeMap<String, Text>> {
        let nodes = match self.take(key)? {
            Node::Map(nodes) => nodes,
            Node::List(_) => {
                self.problem(key, "wants a mapping of keys to text, not a list");
                return None;
            }
            _ => {
                self.problem(key, "wants a mapping of keys to text");
                return None;
            }
        };
        let mut properties = BTreeMap::new();
        let mut is_right = true;
        for (name, node) in nodes {
            let path = join(key, &name);
            let message = match node {
                Node::Scalar(scalar) => match properties.insert(name, scalar.into()) {
                    None => continue,
                    Some(_) => "is given twice: keep one",
                },
                Node::Null => "has no value: give one, '' for an empty one, or leave the key out",
                Node::List(_) => "wants text, not a list",
                Node::Map(_) => "wants text, not a mapping",
                Node::Broken => {
                    is_right = false;
                    continue;
                }
            };
            // Not through `problem`: the name is escaped already.
            self.report.problem(format!("{}.{path}", self.path), message);
            is_right = false;
        }
        is_right.then_some(properties)
    }
}

/// `a`, `a or b`, `a, b or c`.
pub(super) fn alternatives(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
