//! Rows, and how an engine that reads them prints them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Random;
use super::shape::{Column, Shape};

/// The default that `w` has in rows older than the column, on tables that give it one.
pub(super) const W_DEFAULT: &str = "w0";

/// A row with all columns that a table ever has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) id: i64,
    pub(super) p: Option<i32>,
    pub(super) v: Option<String>,
    pub(super) f: Option<f64>,
    pub(super) tags: Option<BTreeMap<String, Option<i32>>>,
    pub(super) s: Option<(Option<i32>, Option<String>)>,
    pub(super) w: Option<String>,
    /// The column that has the name of the dropped `v`.
    pub(super) v_again: Option<String>,
    /// Row lineage as written into the file: row id and last updated sequence number.
    pub(super) lineage: Option<i64>,
}

impl Row {
    /// Random values for all columns but the id.
    pub(super) fn random(random: &mut Random, id: i64) -> Self {
        let text = |random: &mut Random| {
            let of = ["a", "b", "ä\"quoted\"", ""];
            if random.chance(15) { None } else { random.one_of(&of).map(str::to_owned) }
        };
        let int = |random: &mut Random| if random.chance(20) { None } else { Some(random.below(3) as i32) };
        Self {
            id,
            p: int(random),
            v: text(random),
            // All of these are floats as well, so that a widened column keeps them.
            f: random.one_of(&[None, Some(1.5), Some(f64::NAN), Some(0.0), Some(-0.0), Some(-325_000.5)]).flatten(),
            tags: random.chance(70).then(|| {
                let count = random.below(3);
                (0..count).map(|_| (random.one_of(&["k", "l", "m"]).unwrap_or("k").to_owned(), int(random))).collect()
            }),
            s: random.chance(80).then(|| (int(random), text(random))),
            w: text(random),
            v_again: text(random),
            lineage: None,
        }
    }

    /// The row as a file of this shape holds it: what the shape lacks is gone.
    pub(super) fn written_as(mut self, shape: &Shape) -> Self {
        let has = |column| shape.columns.iter().any(|(has, _)| *has == column);
        if !has(Column::V) {
            self.v = None;
        }
        if !has(Column::W) {
            self.w = None;
        }
        if !has(Column::VAgain) {
            self.v_again = None;
        }
        if let (false, Some((_, b))) = (shape.s_has_b, &mut self.s) {
            *b = None;
        }
        self
    }

    /// The row as it is read from a file of shape `written` in the table's present shape.
    pub(super) fn read_as(mut self, written: &Shape, now: &Shape) -> Self {
        if now.w_has_default && written.columns.iter().all(|(column, _)| *column != Column::W) {
            self.w = Some(W_DEFAULT.to_owned());
        }
        self
    }

    /// The value of a column that deletes may be by.
    pub(super) fn key(&self, field_id: i32) -> Key {
        match field_id {
            1 => Key::Number(Some(self.id)),
            2 => Key::Number(self.p.map(i64::from)),
            3 => Key::Text(self.v.clone()),
            other => panic!("no deletes are by field {other}"),
        }
    }

    /// One line of canonical JSON, with the columns of a shape.
    pub(super) fn line(&self, shape: &Shape) -> String {
        let cells: Vec<String> = shape
            .columns
            .iter()
            .map(|(column, name)| {
                let value = match column {
                    Column::Id => json!(self.id),
                    Column::P => json!(self.p),
                    Column::V => json!(self.v),
                    Column::F => double(self.f),
                    Column::Tags => json!(self.tags.as_ref().map(|tags| tags.iter().collect::<Vec<_>>())),
                    // An object's keys are sorted, and so are those of the struct.
                    Column::S => json!(
                        self.s
                            .as_ref()
                            .map(|(a, b)| { if shape.s_has_b { json!({"a": a, "b": b}) } else { json!({"a": a}) } })
                    ),
                    Column::W => json!(self.w),
                    Column::VAgain => json!(self.v_again),
                };
                format!("{}:{value}", json!(name))
            })
            .collect();
        format!("{{{}}}", cells.join(","))
    }
}

/// NaN is no JSON number.
fn double(value: Option<f64>) -> Value {
    match value {
        None => Value::Null,
        Some(value) if value.is_nan() => json!("NaN"),
        Some(value) => json!(value),
    }
}

/// The value of a column in an equality delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    Number(Option<i64>),
    Text(Option<String>),
}
