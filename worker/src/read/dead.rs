//! Which rows of a data file are dead, for who carries the file over as it is.

use std::sync::Arc;

use roaring::RoaringTreemap;

use super::ReadError;
use super::deletes::SideDeletes;
use super::difference::marks;
use super::reader::TaskReader;

impl TaskReader {
    /// Positions of the rows of a file that came which are dead nevertheless: where equality deletes reach it, its key
    /// columns are read and no other. To be asked for once for each file difference, in their order.
    pub(crate) fn dead(&mut self, index: usize) -> Result<RoaringTreemap, ReadError> {
        let task = Arc::clone(&self.task);
        let Some(difference) = task.differences.get(index) else {
            let what = format!("it has no file difference {index}");
            return Err(ReadError::Task { task: task.id.0, what });
        };
        let after = self.deletes.side(&difference.file.location, &difference.after)?;
        let marks = marks(None, Some(&after), task.deletes.len());
        let by_position = after.positions.clone();
        let mut dead = match marks.is_empty() {
            true => RoaringTreemap::new(),
            false => {
                let before = SideDeletes::default();
                self.differing_by_key(difference, (&before, &after), by_position.clone(), marks)?.0
            }
        };
        dead |= by_position;
        // A position behind the last row deletes nothing.
        dead.remove_range(difference.file.record_count..);
        self.deletes.release(index);
        Ok(dead)
    }

    /// Nobody asks for the dead rows of this file difference: lets go of what no other one needs.
    pub(crate) fn pass_over(&mut self, index: usize) {
        self.deletes.release(index);
    }
}
