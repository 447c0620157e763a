//! The two tables of a SQL catalog, as Java's JdbcCatalog and pyiceberg have them.

/// How `iceberg_tables` looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Without `iceberg_type`: all rows are tables.
    V0,
    /// With `iceberg_type`: `TABLE`, `VIEW`, or null in rows that are older than the column.
    V1,
}

impl Layout {
    /// The layout of a table with these columns; `None` when it is not a catalog's.
    pub(super) fn of(columns: &[String]) -> Option<Self> {
        let has = |name: &str| columns.iter().any(|column| column.eq_ignore_ascii_case(name));
        let needed = ["catalog_name", "table_namespace", "table_name", "metadata_location"];
        if !needed.into_iter().all(has) {
            return None;
        }
        Some(if has("iceberg_type") { Self::V1 } else { Self::V0 })
    }

    /// A condition that leaves out views.
    fn tables_only(self) -> &'static str {
        match self {
            Self::V0 => "",
            Self::V1 => " AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)",
        }
    }

    /// `$1` catalog, `$2` namespace, `$3` table; gives the metadata location and the row's type.
    pub(super) fn select(self) -> String {
        let kind = match self {
            Self::V0 => "NULL",
            Self::V1 => "iceberg_type",
        };
        format!(
            "SELECT metadata_location, {kind} FROM iceberg_tables \
             WHERE catalog_name = $1 AND table_namespace = $2 AND table_name = $3"
        )
    }

    /// `$1` catalog, `$2` namespace, `$3` table, `$4` metadata location.
    pub(super) fn insert(self) -> &'static str {
        match self {
            Self::V0 => {
                "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, \
                 previous_metadata_location) VALUES ($1, $2, $3, $4, NULL)"
            }
            Self::V1 => {
                "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, \
                 previous_metadata_location, iceberg_type) VALUES ($1, $2, $3, $4, NULL, 'TABLE')"
            }
        }
    }

    /// The compare-and-swap: `$1` catalog, `$2` namespace, `$3` table, `$4` the new location, `$5` the one it replaces.
    pub(super) fn swap(self) -> String {
        format!(
            "UPDATE iceberg_tables SET metadata_location = $4, previous_metadata_location = $5 \
             WHERE catalog_name = $1 AND table_namespace = $2 AND table_name = $3 AND metadata_location = $5{}",
            self.tables_only()
        )
    }
}

/// Makes the tables, in the newer layout.
pub(super) const CREATE: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS iceberg_tables (\
     catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL, \
     metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5), \
     PRIMARY KEY (catalog_name, table_namespace, table_name))",
    "CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (\
     catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255) NOT NULL, \
     property_value VARCHAR(1000) NOT NULL, \
     PRIMARY KEY (catalog_name, namespace, property_key))",
];

/// The columns of a table in SQLite, `$1` being its name.
pub(super) const COLUMNS_SQLITE: &str = "SELECT name FROM pragma_table_info($1)";
/// The columns of a table in PostgreSQL, found along the search path as the statements themselves find it.
pub(super) const COLUMNS_POSTGRES: &str =
    "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped";

/// All names of catalogs in the database.
pub(super) const CATALOG_NAMES: &str = "SELECT catalog_name FROM iceberg_tables \
     UNION SELECT catalog_name FROM iceberg_namespace_properties ORDER BY catalog_name";

/// `$1` catalog, `$2` namespace: a row when the namespace has properties, which is how it exists without tables.
pub(super) const NAMESPACE_PROPERTIES: &str =
    "SELECT property_key, property_value FROM iceberg_namespace_properties WHERE catalog_name = $1 AND namespace = $2";

/// `$1` catalog, `$2` namespace: a row when the namespace has tables.
pub(super) const NAMESPACE_TABLES: &str =
    "SELECT table_name FROM iceberg_tables WHERE catalog_name = $1 AND table_namespace = $2 LIMIT 1";

/// `$1` catalog, `$2` namespace; what pyiceberg and Java write for a namespace without properties.
pub(super) const NAMESPACE_INSERT: &str = "INSERT INTO iceberg_namespace_properties \
     (catalog_name, namespace, property_key, property_value) VALUES ($1, $2, 'exists', 'true')";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_told_by_its_columns() {
        let columns = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut names = vec!["catalog_name", "table_namespace", "table_name", "metadata_location"];
        assert_eq!(Layout::of(&columns(&names)), Some(Layout::V0));
        names.push("ICEBERG_TYPE");
        assert_eq!(Layout::of(&columns(&names)), Some(Layout::V1));
        assert_eq!(Layout::of(&columns(&names[1..])), None);
        assert_eq!(Layout::of(&[]), None);
    }
}
