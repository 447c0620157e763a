//! The temporary files of comparisons: in a folder of their own beside the target's data, where no table looks.

use iceferry_common::clock;
use iceferry_common::fault::chain;
use iceferry_common::model::{JobName, RunId, staging_folder};
use uuid::Uuid;

use crate::catalog::LoadedTable;
use crate::commit;

/// Files of a comparison that began so long ago are nobody's any more: it was killed.
const OLD_MS: i64 = 24 * 60 * 60 * 1000;

/// The folder of all comparisons with a target, without a slash at its end.
pub(super) fn location(target: &LoadedTable) -> String {
    format!("{}/iceferry-verify", commit::data_location(&target.metadata))
}

/// Removes what a comparison wrote. What cannot be removed is found on another day.
pub(super) async fn remove(target: &LoadedTable, job: &JobName, run: &RunId) {
    remove_below(target, &staging_folder(&location(target), job, run), |_| true).await;
}

/// Removes what killed comparisons left.
pub(super) async fn remove_old(target: &LoadedTable) {
    let now_ms = clock::unix_ms();
    remove_below(target, &location(target), |file| is_old(file, now_ms)).await;
}

async fn remove_below(target: &LoadedTable, folder: &str, goes: impl Fn(&str) -> bool) {
    let storage = &target.storage;
    let removed = async {
        for found in storage.list(folder).await? {
            if goes(&found.location) {
                storage.delete(&found.location).await?;
            }
        }
        Ok::<_, iceferry_common::storage::StorageError>(())
    };
    if let Err(error) = removed.await {
        tracing::warn!(folder, error = chain(&error), "could not remove temporary files of a comparison");
    }
}

/// Whether a file is of a comparison that began long ago: the folder that it is in is named after the moment.
fn is_old(location: &str, now_ms: i64) -> bool {
    let run = location.rsplit('/').nth(1).and_then(|run| Uuid::try_parse(run).ok());
    let began = run.and_then(|run| run.get_timestamp()).map(|began| began.to_unix());
    began.is_some_and(|(seconds, _)| (seconds as i64).saturating_mul(1000).saturating_add(OLD_MS) < now_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_old_a_day_after_their_comparison_began_and_those_of_others_never() {
        let now = clock::unix_ms();
        let file =
            format!("/lake/t/data/iceferry-verify/iceferry/orders/{}/000000-000001-0-00000-digest", RunId::new());
        assert!(!is_old(&file, now));
        assert!(!is_old(&file, now + OLD_MS - 10_000));
        assert!(is_old(&file, now + OLD_MS + 10_000));
        for other in ["/lake/t/data/iceferry-verify/mine/file", "file", "/lake/t/data/1.parquet"] {
            assert!(!is_old(other, i64::MAX), "{other}");
        }
    }
}
