//! The paths of the REST specification's resources.

use iceberg::{NamespaceIdent, TableIdent};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::super::CatalogError;
use super::super::properties::{Properties, path_parts};

/// What is written with percent signs in a part of a path: all but the unreserved characters of RFC 3986.
const PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// What is written with percent signs in the prefix. Servers give it ready for use, with slashes and percent signs.
const PREFIX: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>').add(b'?').add(b'`');

/// Sign between the levels of a namespace, unless the server has its own.
const SEPARATOR: &str = "\u{1f}";

/// Makes the paths of a catalog.
#[derive(Debug)]
pub(super) struct Paths {
    base: String,
    separator: String,
}

/// The address of the configuration, for which no configuration is needed.
pub(super) fn config(uri: &str, warehouse: Option<&str>) -> String {
    let base = format!("{}/v1/config", uri.trim_end_matches('/'));
    match warehouse {
        Some(warehouse) => format!("{base}?warehouse={}", utf8_percent_encode(warehouse, PART)),
        None => base,
    }
}

impl Paths {
    pub(super) fn new(uri: &str, properties: &Properties) -> Self {
        let mut base = format!("{}/v1", uri.trim_end_matches('/'));
        if let Some(prefix) = properties.get("prefix") {
            base = format!("{base}/{}", utf8_percent_encode(prefix.trim_matches('/'), PREFIX));
        }
        // The server sends the separator as it stands in a path.
        let separator = properties.get("namespace-separator").unwrap_or(SEPARATOR);
        Self { base, separator: percent_decode_str(separator).decode_utf8_lossy().into_owned() }
    }

    pub(super) fn namespaces(&self) -> String {
        format!("{}/namespaces", self.base)
    }

    pub(super) fn namespace(&self, namespace: &NamespaceIdent) -> String {
        let joined = namespace.join(&self.separator);
        format!("{}/namespaces/{}", self.base, utf8_percent_encode(&joined, PART))
    }

    pub(super) fn tables(&self, namespace: &NamespaceIdent) -> String {
        format!("{}/tables", self.namespace(namespace))
    }

    /// A part of a path cannot be `..` or hold a slash: servers and proxies on the way would take it for a step.
    pub(super) fn table(&self, table: &TableIdent) -> Result<String, CatalogError> {
        path_parts(table)?;
        Ok(format!("{}/{}", self.tables(table.namespace()), utf8_percent_encode(table.name(), PART)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing;
    use super::*;

    fn paths(pairs: &[(&str, &str)]) -> Paths {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Paths::new("http://h/", &Properties(pairs.collect()))
    }

    #[test]
    fn every_part_is_encoded() {
        let plain = paths(&[]);
        for (namespace, name, expected) in [
            (&["ns"][..], "t", "http://h/v1/namespaces/ns/tables/t"),
            (&["a", "b"], "t", "http://h/v1/namespaces/a%1Fb/tables/t"),
            (&["my ns"], "data#1", "http://h/v1/namespaces/my%20ns/tables/data%231"),
            (&["a.b"], "x+y?z&%", "http://h/v1/namespaces/a.b/tables/x%2By%3Fz%26%25"),
            (&["ü"], "t", "http://h/v1/namespaces/%C3%BC/tables/t"),
        ] {
            assert_eq!(plain.table(&testing::table(namespace, name)).unwrap(), expected);
        }
        assert!(plain.table(&testing::table(&["ns"], "..")).is_err());
    }

    #[test]
    fn the_prefix_and_the_separator_are_the_servers() {
        let table = testing::table(&["a", "b"], "t");
        for (prefix, expected) in [
            ("ws", "http://h/v1/ws/namespaces/a.b/tables/t"),
            ("projects/p/catalogs/c", "http://h/v1/projects/p/catalogs/c/namespaces/a.b/tables/t"),
            ("arn%3Aaws", "http://h/v1/arn%3Aaws/namespaces/a.b/tables/t"),
            ("my ws", "http://h/v1/my%20ws/namespaces/a.b/tables/t"),
        ] {
            let paths = paths(&[("prefix", prefix), ("namespace-separator", "%2E")]);
            assert_eq!(paths.table(&table).unwrap(), expected);
        }
        assert_eq!(config("http://h/", Some("s3://b/w w")), "http://h/v1/config?warehouse=s3%3A%2F%2Fb%2Fw%20w");
        assert_eq!(config("http://h", None), "http://h/v1/config");
    }
}
