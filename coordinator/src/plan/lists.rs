//! Manifest lists that were read last, so that consecutive epochs read each list once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::manifests::Named;

/// Lists that are kept: the two states of an epoch. A list takes some hundred bytes for each manifest of its snapshot.
const KEPT_MAX: usize = 2;

/// The lists of the states that were planned last, by where they are stored: a list never changes. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct ManifestLists(Arc<Mutex<VecDeque<Kept>>>);

#[derive(Debug)]
struct Kept {
    location: String,
    list: Arc<Vec<Named>>,
}

impl ManifestLists {
    pub(super) fn get(&self, location: &str) -> Option<Arc<Vec<Named>>> {
        self.kept().iter().find(|kept| kept.location == location).map(|kept| Arc::clone(&kept.list))
    }

    /// Keeps a list, and drops the oldest when there are too many.
    pub(super) fn keep(&self, location: &str, list: &Arc<Vec<Named>>) {
        let mut kept = self.kept();
        kept.retain(|other| other.location != location);
        while kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(Kept { location: location.to_owned(), list: Arc::clone(list) });
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        // Whole entries come and go, so what a thread left that panicked is as good as before.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_lists_that_came_last_are_kept() {
        let lists = ManifestLists::default();
        let list = Arc::new(Vec::new());
        for location in ["a", "b", "b", "c"] {
            lists.clone().keep(location, &list);
        }
        let kept: Vec<bool> = ["a", "b", "c"].iter().map(|location| lists.get(location).is_some()).collect();
        assert_eq!(kept, [false, true, true]);
    }
}
