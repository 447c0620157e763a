//! Avro data and delete files: the same tree of columns and the same batches as a Parquet file gives.
//!
//! A file is read from its first block to its last, since only so the positions of its rows are known; a block without a
//! chosen row is passed over without being decompressed. A block is held whole, and so are the bytes that come ahead.
//!
//! | decides, pure | acts |
//! |---|---|
//! | `schema`: the types of a file | `stream`: bytes in the order of the file |
//! | `cursor`, `column`: values into Arrow arrays | `file`: the header; `rows`: block by block |
//! | `codec`: a block decompressed | |

mod codec;
mod column;
mod cursor;
mod file;
mod rows;
mod schema;
mod stream;

pub(super) use file::AvroFile;
pub(super) use rows::AvroRows;
pub(super) use stream::start_head;
