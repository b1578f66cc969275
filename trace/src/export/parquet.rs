// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A capture as Parquet: a row a record.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::Result as Written;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use super::table::{COLUMNS, Row, Value, rows};
use crate::capture::Capture;
use crate::error::Result;
use crate::inside::Senders;

/// Rows that are gathered before they are written.
const GROUP: usize = 1 << 16;

/// Values of a column, and of each row whether it has one.
struct Gathered<T> {
    values: Vec<T>,
    there: Vec<i16>,
}

impl<T> Gathered<T> {
    fn new() -> Self {
        Self {
            values: Vec::new(),
            there: Vec::new(),
        }
    }

    fn push(&mut self, value: Option<T>) {
        self.there.push(value.is_some().into());
        self.values.extend(value);
    }

    fn write<D: DataType<T = T>, W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Written<()> {
        if let Some(mut column) = group.next_column()? {
            let writer = column.typed::<D>();
            writer.write_batch(&self.values, Some(&self.there), None)?;
            column.close()?;
        }
        self.values.clear();
        self.there.clear();
        Ok(())
    }
}

/// A column of the rows since the last group.
enum Column {
    Numbers(fn(&Row) -> Option<u64>, Gathered<i64>),
    Texts(
        fn(&Row) -> Option<std::borrow::Cow<'static, str>>,
        Gathered<ByteArray>,
    ),
}

impl Column {
    fn push(&mut self, row: &Row<'_>) {
        match self {
            // Numbers of a capture are far below the sign.
            Self::Numbers(of, gathered) => gathered.push(of(row).map(u64::cast_signed)),
            Self::Texts(of, gathered) => gathered.push(of(row).map(|text| (&*text).into())),
        }
    }
}

fn schema() -> Written<Type> {
    let field = |(name, value): &(&str, Value)| {
        let field = match value {
            Value::Number(_) => Type::primitive_type_builder(name, Physical::INT64),
            Value::Text(_) => Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
                .with_logical_type(Some(LogicalType::String)),
        };
        field.with_repetition(Repetition::OPTIONAL).build()
    };
    let fields: Written<Vec<_>> = COLUMNS.iter().map(|c| field(c).map(Arc::new)).collect();
    Type::group_type_builder("records")
        .with_fields(fields?)
        .build()
}

/// Writes the capture, up to damage if there is any; returns the number of records.
pub fn write(capture: &Capture, senders: &Senders, out: impl Write + Send) -> Result<u64> {
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    let properties = Arc::new(properties.build());
    let mut file = SerializedFileWriter::new(out, Arc::new(schema()?), properties)?;
    let column = |(_, value): &(&str, Value)| match *value {
        Value::Number(of) => Column::Numbers(of, Gathered::new()),
        Value::Text(of) => Column::Texts(of, Gathered::new()),
    };
    let mut columns: Vec<_> = COLUMNS.iter().map(column).collect();
    let mut gathered = 0;
    let mut flush = |columns: &mut Vec<Column>| -> Written<()> {
        let mut group = file.next_row_group()?;
        for column in columns {
            match column {
                Column::Numbers(_, numbers) => numbers.write::<Int64Type, _>(&mut group)?,
                Column::Texts(_, texts) => texts.write::<ByteArrayType, _>(&mut group)?,
            }
        }
        group.close()?;
        Ok(())
    };
    let count = rows(capture, senders, |row| {
        columns.iter_mut().for_each(|column| column.push(row));
        gathered += 1;
        if gathered == GROUP {
            gathered = 0;
            flush(&mut columns)?;
        }
        Ok(())
    })?;
    flush(&mut columns)?;
    file.close()?;
    Ok(count)
}
