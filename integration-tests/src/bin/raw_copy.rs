//! Decodes Parquet files and encodes them again with the parquet crate and nothing else: what a copy costs at the least.
//! The measure that `scripts/bench` holds a backfill against.
//!
//! usage: raw_copy OUT_DIR THREADS ZSTD_LEVEL FILE...

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut args = std::env::args().skip(1);
    let (Some(out), Some(threads), Some(level)) = (args.next(), args.next(), args.next()) else {
        return Err("usage: raw_copy OUT_DIR THREADS ZSTD_LEVEL FILE...".into());
    };
    let out = PathBuf::from(out);
    let threads: usize = threads.parse()?;
    let level: i32 = level.parse()?;
    std::fs::create_dir_all(&out)?;
    // A queue of files, taken by whichever thread is free.
    let files: Vec<PathBuf> = args.map(PathBuf::from).collect();
    let queue = Mutex::new(files.into_iter().enumerate());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| drain(&queue, &out, level))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a copying thread panicked")?)
    })
}

/// Copies files until the queue is empty.
fn drain(
    queue: &Mutex<impl Iterator<Item = (usize, PathBuf)> + Send>,
    out: &Path,
    level: i32,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    loop {
        let next = queue.lock().map_err(|_| "a copying thread panicked")?.next();
        let Some((number, source)) = next else { return Ok(()) };
        copy(&source, &out.join(format!("{number:05}.parquet")), level)?;
    }
}

/// Copies one file value by value, and waits until it is on the disk.
fn copy(source: &Path, target: &Path, level: i32) -> Result<(), Box<dyn Error + Send + Sync>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(source)?)?.with_batch_size(8192);
    let compression = Compression::ZSTD(ZstdLevel::try_new(level)?);
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut writer = ArrowWriter::try_new(File::create(target)?, reader.schema().clone(), Some(properties))?;
    for batch in reader.build()? {
        writer.write(&batch?)?;
    }
    let file = writer.into_inner()?;
    file.sync_all()?;
    Ok(())
}
