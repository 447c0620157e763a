//! Copies Parquet files with the standard library or the parquet crate and nothing else: what a copy costs at the least.
//! The measure that `scripts/bench` holds a backfill against.
//!
//! usage: raw_copy bytes|splice|decode OUT_DIR THREADS ZSTD_LEVEL FILE...
//!   bytes    reads and writes the bytes
//!   splice   hands the column chunks on into a new file, with a footer of its own
//!   decode   decodes the values and encodes them again
//! Each file is on the disk when it is done.

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;

type Failed = Box<dyn Error + Send + Sync>;
/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 20;

#[derive(Clone, Copy)]
enum Way {
    Bytes,
    Splice,
    Decode(i32),
}

fn main() -> Result<(), Failed> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: raw_copy bytes|splice|decode OUT_DIR THREADS ZSTD_LEVEL FILE...";
    let (Some(way), Some(out), Some(threads), Some(level)) = (args.next(), args.next(), args.next(), args.next())
    else {
        return Err(usage.into());
    };
    let way = match way.as_str() {
        "bytes" => Way::Bytes,
        "splice" => Way::Splice,
        "decode" => Way::Decode(level.parse()?),
        _ => return Err(usage.into()),
    };
    let out = PathBuf::from(out);
    let threads: usize = threads.parse()?;
    std::fs::create_dir_all(&out)?;
    // A queue of files, taken by whichever thread is free.
    let files: Vec<PathBuf> = args.map(PathBuf::from).collect();
    let queue = Mutex::new(files.into_iter().enumerate());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| drain(&queue, &out, way))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a copying thread panicked")?)
    })
}

/// Copies files until the queue is empty.
fn drain(queue: &Mutex<impl Iterator<Item = (usize, PathBuf)> + Send>, out: &Path, way: Way) -> Result<(), Failed> {
    loop {
        let next = queue.lock().map_err(|_| "a copying thread panicked")?.next();
        let Some((number, source)) = next else { return Ok(()) };
        let target = out.join(format!("{number:05}.parquet"));
        match way {
            Way::Bytes => bytes(&source, &target)?,
            Way::Splice => splice(&source, &target)?,
            Way::Decode(level) => decode(&source, &target, level)?,
        }
    }
}

fn bytes(source: &Path, target: &Path) -> Result<(), Failed> {
    let (mut source, mut target) = (File::open(source)?, File::create(target)?);
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = source.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        target.write_all(&buffer[..read])?;
    }
    target.sync_all()?;
    Ok(())
}

fn splice(source: &Path, target: &Path) -> Result<(), Failed> {
    let file = File::open(source)?;
    let reader = SerializedFileReader::new(file.try_clone()?)?;
    let schema = reader.metadata().file_metadata().schema_descr().root_schema_ptr();
    let mut writer = SerializedFileWriter::new(File::create(target)?, schema, Arc::default())?;
    for row_group in reader.metadata().row_groups() {
        let mut to = writer.next_row_group()?;
        for column in row_group.columns() {
            let chunk = ColumnCloseResult {
                bytes_written: column.compressed_size() as u64,
                rows_written: row_group.num_rows() as u64,
                metadata: column.clone(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            to.append_column(&file, chunk)?;
        }
        to.close()?;
    }
    writer.into_inner()?.sync_all()?;
    Ok(())
}

fn decode(source: &Path, target: &Path, level: i32) -> Result<(), Failed> {
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
