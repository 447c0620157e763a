//! Which way a file is carried over.

use iceferry_common::model::{ColumnMetrics, DataFile, EpochContext, FileFormat, SourceCommit};

use super::chunk::{is_carried, is_of_old_writer};
use super::entry::contradicts;
use super::{Reason, Recipe, Whole};
use crate::read::file_schema::{FileField, Shape};
use crate::read::project::FIRST_RESERVED_ID;
use crate::stage::layout::Layout;

/// How the rows of a file get to the target.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// The object as it is. The recipe serves to describe it, and to splice it when row groups are left out.
    Copy(Recipe),
    /// Its column chunks in a new file; and why it is not copied.
    Splice(Recipe, Reason),
    /// Its rows are decoded.
    Decode(Reason),
}

#[cfg(test)]
impl Way {
    /// The recipe, unless the file is decoded.
    pub(crate) fn recipe(&self) -> Option<&Recipe> {
        match self {
            Self::Copy(recipe) | Self::Splice(recipe, _) => Some(recipe),
            Self::Decode(_) => None,
        }
    }

    /// Why it is not copied; `None` when it is.
    pub(crate) fn reason(&self) -> Option<Reason> {
        match self {
            Self::Copy(_) => None,
            Self::Splice(_, reason) | Self::Decode(reason) => Some(*reason),
        }
    }
}

/// The cheapest way that gives what decoding gives. `entry` is what the source's manifest says of the file's columns. Deletes
/// are the caller's concern: all three ways keep positions, or say where they went.
pub(super) fn way(
    context: &EpochContext,
    layout: &Layout,
    (file, commit): (&DataFile, Option<SourceCommit>),
    whole: &Whole,
    entry: &[ColumnMetrics],
) -> Way {
    match recipe(context, layout, (file, commit), whole, entry) {
        Err(reason) => Way::Decode(reason),
        Ok(recipe) => match not_copied(context, whole, &recipe) {
            None => Way::Copy(recipe),
            Some(reason) => Way::Splice(recipe, reason),
        },
    }
}

fn recipe(
    context: &EpochContext,
    layout: &Layout,
    (file, commit): (&DataFile, Option<SourceCommit>),
    whole: &Whole,
    entry: &[ColumnMetrics],
) -> Result<Recipe, Reason> {
    if context.source.filter.is_some() {
        return Err(Reason::Filter);
    }
    if file.format != FileFormat::Parquet {
        return Err(Reason::Format);
    }
    if whole.has_encrypted_columns {
        return Err(Reason::Encrypted);
    }
    let footer = whole.footer();
    if is_of_old_writer(footer.file_metadata()) {
        return Err(Reason::OldWriter);
    }
    // One without rows may lie anywhere, and readers never look at it.
    if footer.row_groups().iter().any(|group| group.num_rows() == 0) || whole.row_count() == 0 {
        return Err(Reason::Empty);
    }
    if whole.row_count() != file.record_count || !is_consistent(whole) {
        return Err(Reason::Contradiction);
    }
    let recipe = Recipe::of(context, layout, (file, commit), whole)?;
    // All chunks, since a copy takes those of other columns as well.
    let mut chunks = footer.row_groups().iter().flat_map(|group| group.columns());
    if !chunks.all(is_carried) {
        return Err(Reason::Encoding);
    }
    if contradicts(layout, &recipe, footer, entry) {
        return Err(Reason::Contradiction);
    }
    Ok(recipe)
}

/// Whether each chunk has as many values as its row group has rows, or more where values repeat, and no more nulls.
fn is_consistent(whole: &Whole) -> bool {
    whole.footer().row_groups().iter().all(|group| {
        group.columns().iter().all(|chunk| {
            let repeats = chunk.column_descr().max_rep_level() > 0;
            let values = chunk.num_values();
            let nulls = chunk.statistics().and_then(|statistics| statistics.null_count_opt());
            let counts = if repeats { values >= group.num_rows() } else { values == group.num_rows() };
            counts && (repeats || nulls.is_none_or(|nulls| nulls <= values.unsigned_abs()))
        })
    })
}

/// Why the object cannot be taken as it is, when it can be spliced.
fn not_copied(context: &EpochContext, whole: &Whole, recipe: &Recipe) -> Option<Reason> {
    if recipe.not_copied.is_some() {
        return recipe.not_copied;
    }
    // Without ids in the file, the names in it have to mean the same in both tables.
    let mapping =
        |text: &Option<String>| text.as_deref().and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
    if !whole.has_ids {
        let (source, target) = (mapping(&context.source.name_mapping), mapping(&context.target.name_mapping));
        if source.is_none() || source != target {
            return Some(Reason::FieldIds);
        }
    }
    whole.schema.fields.iter().find_map(|field| extra(context, recipe, field))
}

/// Why a field of the file, or one below it, must not be in a file of the target: it is no column, and the target may come to
/// take it for one.
fn extra(context: &EpochContext, recipe: &Recipe, field: &FileField) -> Option<Reason> {
    let Some(id) = field.id else { return Some(Reason::FieldIds) };
    let target = &context.target;
    let is_free = id < FIRST_RESERVED_ID
        && (1..=target.last_column_id).contains(&id)
        && target.write_schema.field_by_id(id).is_none();
    if !recipe.taken.contains(&id) && !is_free {
        return Some(Reason::ExtraColumns);
    }
    match &field.shape {
        Shape::Leaf { .. } => None,
        Shape::Struct(fields) => fields.iter().find_map(|field| extra(context, recipe, field)),
        Shape::List(element) => extra(context, recipe, element),
        Shape::Map(key, value) => extra(context, recipe, key).or_else(|| extra(context, recipe, value)),
    }
}
