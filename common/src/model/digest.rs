//! What the rows of a table state come to when they are counted and hashed, and how a worker hands it over: two files for
//! each task. The digest file has the sums, and says where in the other file the hashes of single rows are to be found.
//!
//! Numbers in the files are little-endian.

use std::ops::{AddAssign, Range};

use super::DigestWork;

/// The first bytes of a digest file; the last one is its version.
const MAGIC: [u8; 8] = *b"ifdigst\x01";
/// Hashes of single rows lie in two to this power pages at most: a page is what is read of them at once.
const PAGE_BITS_MAX: u8 = 10;
/// Bits of a position in its file; the bits above it are the number of the file.
const POSITION_BITS: u32 = 40;

/// The bucket of a row whose key has this hash.
pub fn bucket_of(key_hash: u64, bucket_bits: u8) -> usize {
    top(key_hash, bucket_bits)
}

/// The page of a row whose key has this hash: as many buckets as it takes, side by side.
pub fn page_of(key_hash: u64, bucket_bits: u8) -> usize {
    top(key_hash, page_bits(bucket_bits))
}

/// How many pages there are, as a power of two.
pub fn page_bits(bucket_bits: u8) -> u8 {
    bucket_bits.min(PAGE_BITS_MAX)
}

fn top(hash: u64, bits: u8) -> usize {
    match bits {
        0 => 0,
        bits => (hash >> (64 - u32::from(bits))) as usize,
    }
}

/// The rows of a bucket: how many, and the sum of their hashes, whatever their order. A row that is there twice counts
/// twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BucketSum {
    /// Rows.
    pub rows: u64,
    /// Their hashes, added up without regard to overflow.
    pub hash: u128,
}

impl BucketSum {
    /// Adds a row of this hash.
    pub fn add_row(&mut self, hash: u128) {
        *self += Self { rows: 1, hash };
    }
}

impl AddAssign for BucketSum {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.hash = self.hash.wrapping_add(other.hash);
    }
}

/// A row, told by hashes, and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowHash {
    /// Hash of the columns that tell rows apart.
    pub key: u64,
    /// Hash of all columns.
    pub row: u64,
    /// The file, as a number in [`TaskDigest::locations`].
    pub file: u32,
    /// Its position in the file.
    pub position: u64,
}

impl RowHash {
    /// Bytes of a row in the file.
    pub const BYTES: usize = 24;

    /// The row as bytes; none when its place is beyond what they can say.
    pub fn to_bytes(self) -> Option<[u8; Self::BYTES]> {
        let file = u64::from(self.file);
        if file >> (64 - POSITION_BITS) != 0 || self.position >> POSITION_BITS != 0 {
            return None;
        }
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.key.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.row.to_le_bytes());
        bytes[16..].copy_from_slice(&((file << POSITION_BITS) | self.position).to_le_bytes());
        Some(bytes)
    }

    /// The rows in `bytes`; a rest that is no whole row is left out.
    pub fn all_of(bytes: &[u8]) -> impl Iterator<Item = Self> {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |number, byte| (number << 8) | u64::from(*byte));
        bytes.chunks_exact(Self::BYTES).map(move |bytes| {
            let place = number(&bytes[16..]);
            Self {
                key: number(&bytes[..8]),
                row: number(&bytes[8..16]),
                file: (place >> POSITION_BITS) as u32,
                position: place & ((1 << POSITION_BITS) - 1),
            }
        })
    }
}

/// Hashes of single rows that were written together, page after page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The first row's number in the file.
    pub start: u64,
    /// For each page, how many rows it and those before it have.
    pub page_ends: Vec<u32>,
}

impl Run {
    /// The rows of some pages, as numbers in the file.
    pub fn rows(&self, pages: Range<usize>) -> Range<u64> {
        let end = |pages: usize| match pages.checked_sub(1).and_then(|last| self.page_ends.get(last)) {
            Some(end) => self.start + u64::from(*end),
            None => self.start,
        };
        end(pages.start)..end(pages.end)
    }
}

/// What the rows of a task came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskDigest {
    /// Two to this power is the number of buckets.
    pub bucket_bits: u8,
    /// The data files, as manifests name them.
    pub locations: Vec<String>,
    /// The buckets, all of them.
    pub sums: Vec<BucketSum>,
    /// Where the hashes of single rows are.
    pub runs: Vec<Run>,
}

impl TaskDigest {
    /// A digest of no rows yet.
    pub fn new(bucket_bits: u8, locations: Vec<String>) -> Self {
        Self { bucket_bits, locations, sums: vec![BucketSum::default(); 1 << bucket_bits], runs: Vec::new() }
    }

    /// The bytes of the digest file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let filled = || self.sums.iter().enumerate().filter(|(_, sum)| **sum != BucketSum::default());
        let mut bytes = MAGIC.to_vec();
        let put = |bytes: &mut Vec<u8>, number: usize| bytes.extend((number as u64).to_le_bytes());
        bytes.push(self.bucket_bits);
        put(&mut bytes, self.locations.len());
        for location in &self.locations {
            put(&mut bytes, location.len());
            bytes.extend(location.as_bytes());
        }
        put(&mut bytes, filled().count());
        for (bucket, sum) in filled() {
            put(&mut bytes, bucket);
            bytes.extend(sum.rows.to_le_bytes());
            bytes.extend(sum.hash.to_le_bytes());
        }
        put(&mut bytes, self.runs.len());
        for run in &self.runs {
            bytes.extend(run.start.to_le_bytes());
            run.page_ends.iter().for_each(|end| bytes.extend(end.to_le_bytes()));
        }
        bytes
    }

    /// The digest that these bytes are of.
    ///
    /// # Errors
    /// What is wrong with them, when they are none, or not whole.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let mut bytes = Bytes(bytes);
        if bytes.take(MAGIC.len())? != MAGIC {
            return Err("it is no digest file of this version; run the same version everywhere".to_owned());
        }
        let bucket_bits = bytes.take(1)?[0];
        if !(1..=DigestWork::BUCKET_BITS_MAX).contains(&bucket_bits) {
            return Err(format!("it has 2^{bucket_bits} buckets"));
        }
        let mut digest = Self::new(bucket_bits, Vec::new());
        for _ in 0..bytes.count()? {
            let length = bytes.count()?;
            let location = std::str::from_utf8(bytes.take(length)?).map_err(|error| error.to_string())?;
            digest.locations.push(location.to_owned());
        }
        for _ in 0..bytes.count()? {
            let bucket = bytes.count()?;
            let sum = BucketSum { rows: bytes.number()?, hash: u128::from_le_bytes(bytes.array()?) };
            *digest.sums.get_mut(bucket).ok_or_else(|| format!("it has a bucket {bucket}"))? = sum;
        }
        for _ in 0..bytes.count()? {
            let start = bytes.number()?;
            let pages = 1 << page_bits(bucket_bits);
            let page_ends = (0..pages).map(|_| bytes.array().map(u32::from_le_bytes)).collect::<Result<Vec<_>, _>>()?;
            if !page_ends.is_sorted() {
                return Err("its pages are not in order".to_owned());
            }
            digest.runs.push(Run { start, page_ends });
        }
        if bytes.0.is_empty() { Ok(digest) } else { Err(format!("{} bytes are left over", bytes.0.len())) }
    }
}

/// Bytes that are not read yet.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, left) = self.0.split_at_checked(length).ok_or("it ends too early")?;
        self.0 = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.take(N)?.try_into().map_err(|_| "it ends too early".to_owned())
    }

    fn number(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    fn count(&mut self) -> Result<usize, String> {
        usize::try_from(self.number()?).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest() -> TaskDigest {
        let mut digest = TaskDigest::new(12, vec!["file:/a b/1.parquet".into(), "/ü".into()]);
        digest.sums[0].add_row(u128::MAX);
        digest.sums[0].add_row(5);
        digest.sums[4095] = BucketSum { rows: u64::MAX, hash: 1 << 100 };
        let ends = |step: u32| (0..1024).map(|page| page * step).collect();
        digest.runs = vec![Run { start: 0, page_ends: ends(3) }, Run { start: 3069, page_ends: ends(0) }];
        digest
    }

    #[test]
    fn a_digest_comes_back_from_its_bytes_and_from_nothing_less() {
        let bytes = digest().to_bytes();
        assert_eq!(TaskDigest::from_bytes(&bytes).unwrap(), digest());
        for length in (0..bytes.len()).step_by(7) {
            assert!(TaskDigest::from_bytes(&bytes[..length]).is_err(), "{length} bytes of {}", bytes.len());
        }
        assert!(TaskDigest::from_bytes(&[bytes.as_slice(), &[0]].concat()).is_err(), "a byte too many");
        let mut other = bytes;
        other[7] += 1;
        assert!(TaskDigest::from_bytes(&other).unwrap_err().contains("this version"));
    }

    #[test]
    fn the_order_of_rows_does_not_count_and_their_number_does() {
        let sum = |hashes: &[u128]| {
            let mut sum = BucketSum::default();
            hashes.iter().for_each(|hash| sum.add_row(*hash));
            sum
        };
        assert_eq!(sum(&[1, u128::MAX, 7]), sum(&[7, 1, u128::MAX]));
        assert_ne!(sum(&[1]), sum(&[1, 1]));
        assert_ne!(sum(&[0]), sum(&[0, 0]), "also where the hashes add up to the same");
        let mut parts = sum(&[1, 2]);
        parts += sum(&[u128::MAX]);
        assert_eq!(parts, sum(&[u128::MAX, 2, 1]));
    }

    #[test]
    fn a_row_comes_back_from_its_bytes_unless_its_place_is_too_far() {
        let row = RowHash { key: u64::MAX - 1, row: 3, file: (1 << 24) - 1, position: (1 << 40) - 1 };
        let bytes = row.to_bytes().unwrap();
        let mut two = [bytes, RowHash { file: 0, ..row }.to_bytes().unwrap()].concat();
        two.push(9);
        assert_eq!(RowHash::all_of(&two).collect::<Vec<_>>(), [row, RowHash { file: 0, ..row }]);
        assert_eq!(RowHash { file: 1 << 24, ..row }.to_bytes(), None);
        assert_eq!(RowHash { position: 1 << 40, ..row }.to_bytes(), None);
    }

    #[test]
    fn a_page_is_whole_buckets_and_says_where_its_rows_are() {
        for bits in 1..=DigestWork::BUCKET_BITS_MAX {
            for hash in [0, 1, u64::MAX, u64::MAX / 3, 1 << 63, (1 << 48) - 1] {
                let (bucket, page) = (bucket_of(hash, bits), page_of(hash, bits));
                assert!(bucket < 1 << bits && page < 1 << page_bits(bits));
                assert_eq!(bucket >> (bits - page_bits(bits)), page);
            }
        }
        let run = Run { start: 100, page_ends: vec![0, 4, 4, 9] };
        assert_eq!(
            [run.rows(0..1), run.rows(0..2), run.rows(2..4), run.rows(0..4)],
            [100..100, 100..104, 104..109, 100..109]
        );
    }
}
