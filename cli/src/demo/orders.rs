//! The demo's data: what happens to the orders. Pure.

use std::fmt;
use std::path::Path;

use super::show::Rows;

/// One order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Order {
    pub(super) order_id: i64,
    pub(super) customer: String,
    pub(super) amount_cents: i64,
    pub(super) status: String,
}

/// What one snapshot of the source does. An updated order is in both lists.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Commit {
    pub(super) what: &'static str,
    pub(super) deleted: Vec<i64>,
    pub(super) inserted: Vec<Order>,
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let updated = self.inserted.iter().filter(|order| self.deleted.contains(&order.order_id)).count();
        let inserted = self.inserted.len() - updated;
        let deleted = self.deleted.len() - updated;
        write!(f, "{} ({inserted} inserted, {updated} updated, {deleted} deleted)", self.what)
    }
}

const CUSTOMERS: [&str; 6] = ["Ada", "Björn", "Chidi", "Dalia", "Emi", "Farid"];

fn order(order_id: i64, status: &str) -> Order {
    let customer = CUSTOMERS[(order_id % CUSTOMERS.len() as i64).unsigned_abs() as usize];
    let amount_cents = 900 + order_id * 1_337 % 9_000;
    Order { order_id, customer: customer.to_owned(), amount_cents, status: status.to_owned() }
}

/// The history that a first demo begins with.
pub(super) fn first() -> Vec<Commit> {
    vec![
        Commit { what: "the first orders", deleted: vec![], inserted: (1..=8).map(|id| order(id, "new")).collect() },
        Commit {
            what: "two are paid, more come in",
            deleted: vec![1, 2],
            inserted: [order(1, "paid"), order(2, "paid")]
                .into_iter()
                .chain((9..=12).map(|id| order(id, "new")))
                .collect(),
        },
        Commit { what: "one is cancelled", deleted: vec![5], inserted: vec![] },
    ]
}

/// What happens next to the orders that are there.
pub(super) fn more(rows: &Rows) -> Vec<Commit> {
    let ids = rows.first_column_as_ids();
    let next = ids.iter().max().copied().unwrap_or(0) + 1;
    let is = |id: i64, status: &str| {
        rows.rows.iter().any(|row| row[0] == id.to_string() && row.last().is_some_and(|s| s == status))
    };
    let paid: Vec<i64> = ids.iter().copied().filter(|id| is(*id, "new")).take(2).collect();
    let shipped: Vec<i64> = ids.iter().copied().filter(|id| is(*id, "paid")).take(1).collect();
    let cancelled: Vec<i64> = ids.iter().copied().filter(|id| is(*id, "new")).skip(2).take(1).collect();
    let mut commits = vec![Commit {
        what: "more orders come in, some are paid",
        deleted: paid.clone(),
        inserted: paid.iter().map(|id| order(*id, "paid")).chain((next..next + 3).map(|id| order(id, "new"))).collect(),
    }];
    if !shipped.is_empty() || !cancelled.is_empty() {
        commits.push(Commit {
            what: "one is shipped, one cancelled",
            deleted: shipped.iter().chain(&cancelled).copied().collect(),
            inserted: shipped.iter().map(|id| order(*id, "shipped")).collect(),
        });
    }
    commits
}

/// The demo's job file.
pub(super) fn job_file(folder: &Path) -> String {
    let quoted = |part: &str| serde_json::Value::String(folder.join(part).display().to_string()).to_string();
    format!(
        "# Keeps lake.orders equal to shop.orders. Run it again whenever the source has changed.\n\
         name: orders\n\
         source:\n  \
           table: shop.orders\n  \
           catalog_properties: {{ type: hadoop, warehouse: {} }}\n\
         target:\n  \
           table: lake.orders\n  \
           catalog_properties: {{ type: hadoop, warehouse: {} }}\n  \
           equality_columns: [order_id]\n",
        quoted("source"),
        quoted("target"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_file_parses_whatever_the_folder_is_called() {
        let text = job_file(Path::new("/a b/\"c\" #d"));
        let job = iceferry_common::config::JobFile::parse(&text, &|_| None).unwrap();
        assert_eq!(job.source.catalog_properties.get("warehouse"), Some("/a b/\"c\" #d/source"));
    }

    #[test]
    fn more_always_changes_something() {
        let rows = Rows { columns: vec![], rows: vec![] };
        assert!(!more(&rows)[0].inserted.is_empty());
    }
}
