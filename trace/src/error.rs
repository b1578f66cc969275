// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong when captures and packet files are read and written.

use std::path::PathBuf;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Fewer bytes than the structure takes.
    #[error("cut off: {needed} bytes are needed, {have} are there")]
    CutOff {
        /// Bytes that the structure takes.
        needed: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// Zeros where a block belongs: room that was made for it, and never used.
    #[error("nothing was written here: who wrote the capture did not come to its end")]
    Unwritten,
    /// The four bytes `MWB1` are missing.
    #[error("not a block: magic number is {0:#010x}")]
    Magic(u32),
    /// A version of the block format that this program doesn't know.
    #[error("block version {0} is not known")]
    Version(u16),
    /// A size in the block header that can't be.
    #[error("block header: {field} is {value}")]
    Size {
        /// Field of the block header.
        field: &'static str,
        /// Its value.
        value: u32,
    },
    /// The block's bytes are not those that the card wrote.
    #[error("block checksum is {found:#010x}, its bytes give {computed:#010x}")]
    Crc {
        /// Written in the header.
        found: u32,
        /// Computed from the bytes.
        computed: u32,
    },
    /// The records in the block do not fill it as its header says.
    #[error("{records} records announced do not fill the {used_bytes} bytes used")]
    Units {
        /// Records by the header.
        records: u32,
        /// Bytes by the header.
        used_bytes: u32,
    },
    /// A whole block, but not the one that follows.
    #[error("{field} is {found}, {expected} follows")]
    Order {
        /// Field of the block header.
        field: &'static str,
        /// Value that continues the capture.
        expected: u64,
        /// Value in the header.
        found: u64,
    },
    /// Bytes follow the final block.
    #[error("data follows the final block")]
    AfterFinal,
    /// The text names none of the known values.
    #[error("{text:?} is not a {what}")]
    Name {
        /// What was expected.
        what: &'static str,
        /// What was found.
        text: String,
    },
    /// A file of packets is not as its format has it.
    #[error("{path}: {what}")]
    PacketFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A table could not be read or written.
    #[error(transparent)]
    Table(#[from] csv::Error),
    /// A Parquet file could not be written.
    #[error(transparent)]
    Parquet(#[from] parquet::errors::ParquetError),
    /// An output could not be written.
    #[error("writing: {0}")]
    Write(#[from] std::io::Error),
}
