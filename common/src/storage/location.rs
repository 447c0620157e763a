//! Locations as they stand in Iceberg metadata.

use object_store::path::Path;

use super::StorageError;

/// Whether a location is on the local file system: a plain absolute path or a `file:` one.
pub fn is_local(location: &str) -> bool {
    location.starts_with('/') || location.starts_with("file:")
}

/// The path of a local location. Writers disagree on `file:/a`, `file:///a` and `/a`; all three are one file. Nothing in
/// a location is percent-decoded: metadata holds names as they are.
pub(super) fn local_path(location: &str) -> Result<Path, StorageError> {
    let path = match location.strip_prefix("file:") {
        Some(rest) => rest.strip_prefix("//").unwrap_or(rest),
        None => location,
    };
    if !path.starts_with('/') {
        return Err(StorageError::Scheme { location: location.to_owned() });
    }
    let squeezed: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    Path::parse(squeezed.join("/")).map_err(|source| StorageError::Location { location: location.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_ways_to_write_a_local_path_are_one() {
        for location in ["/a/b c", "file:/a/b c", "file:///a/b c", "file:///a//b c"] {
            assert_eq!(local_path(location).unwrap().as_ref(), "a/b c", "{location}");
        }
    }

    #[test]
    fn what_is_not_local_is_refused_by_name() {
        for location in ["s3://b/k", "relative/path", "file://host/path/", ""] {
            let got = local_path(location);
            assert!(matches!(got, Err(StorageError::Scheme { .. })), "{location}: {got:?}");
        }
        assert!(matches!(local_path("/a/../b"), Err(StorageError::Location { .. })));
    }
}
