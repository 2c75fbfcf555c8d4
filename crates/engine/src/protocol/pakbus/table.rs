//! The file `.TDF`: the tables of a logger and their fields. Records are in `record.rs`.

use super::PakBusParseError;
use super::codec::{MessageReader, MessageWriter};
use super::frame::{SIGNATURE_SEED, signature};
use super::value::{FieldType, LoggerTime};

/// Version of the file: the only supported one.
const DEFINITIONS_VERSION: u8 = 1;

/// Type of time stamps: seconds and nanoseconds.
const NSEC_TYPE: u8 = 14;

/// Bytes of a header cell besides its text: index, quotes, comma.
const HEADER_BYTES_PER_CELL: u64 = 16;

/// Flag of the type of a read-only field.
const READ_ONLY_FLAG: u8 = 0x80;

/// Table of a logger. Its number is its position in the list, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableDefinition {
    /// Name of the table.
    pub name: String,
    /// Maximum number of stored records; a new one replaces the oldest.
    pub capacity: u32,
    /// Type of the time stamps.
    pub(crate) time_type: FieldType,
    /// Time within the interval at which a record is stored.
    pub offset: LoggerTime,
    /// Time between records; zero for records stored on events.
    pub interval: LoggerTime,
    /// Fields in their order; the first has number 1.
    pub fields: Vec<FieldDefinition>,
}

/// A field of a table: one value, or an array of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldDefinition {
    /// Type of the values.
    pub kind: FieldType,
    /// Whether clients cannot set the values.
    pub is_read_only: bool,
    /// Name of the field.
    pub name: String,
    /// Further names of the field.
    pub aliases: Vec<String>,
    /// Method that produced the value: `Smp`, `Avg`, …
    pub processing: String,
    /// Unit of the values, as free text.
    pub units: String,
    /// Description, as free text.
    pub description: String,
    /// Index of the first value.
    pub first_index: u32,
    /// Number of values, 1 for a scalar; bytes of a text.
    pub dimension: u32,
    /// The dimensions of an array.
    pub dimensions: Vec<u32>,
}

/// Parses all tables of a `.TDF`.
///
/// # Errors
///
/// [`PakBusParseError::TooShort`] for a truncated file, [`PakBusParseError::Unknown`] for another version or type.
pub fn read(bytes: &[u8]) -> Result<Vec<TableDefinition>, PakBusParseError> {
    let mut reader = MessageReader(bytes);
    if reader.u8()? != DEFINITIONS_VERSION {
        return Err(PakBusParseError::Unknown);
    }
    let mut tables = Vec::new();
    while !reader.is_empty() {
        tables.push(TableDefinition::read(&mut reader)?);
    }
    Ok(tables)
}

/// Encodes a `.TDF` with these tables.
pub fn write(tables: &[TableDefinition]) -> Vec<u8> {
    let mut bytes = vec![DEFINITIONS_VERSION];
    tables.iter().for_each(|table| table.write(&mut bytes));
    bytes
}

impl TableDefinition {
    /// A table with the usual type of time stamps.
    pub fn new(name: &str, size: u32, interval: LoggerTime, fields: Vec<FieldDefinition>) -> TableDefinition {
        let (time, offset) = (FieldType(NSEC_TYPE), LoggerTime::default());
        TableDefinition { name: name.to_owned(), capacity: size, time_type: time, offset, interval, fields }
    }

    fn read(reader: &mut MessageReader) -> Result<TableDefinition, PakBusParseError> {
        let mut table = TableDefinition {
            name: reader.text()?,
            capacity: reader.u32()?,
            time_type: FieldType(reader.u8()?),
            offset: reader.instant()?,
            interval: reader.instant()?,
            fields: Vec::new(),
        };
        loop {
            match reader.u8()? {
                0 => return Ok(table),
                kind => table.fields.push(FieldDefinition::read(kind, reader)?),
            }
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.text(&self.name);
        bytes.u32(self.capacity);
        bytes.u8(self.time_type.0);
        bytes.instant(self.offset);
        bytes.instant(self.interval);
        self.fields.iter().for_each(|field| field.write(bytes));
        bytes.u8(0);
    }

    /// Signature that identifies the definition: a collection contains it, and a logger rejects a wrong one.
    pub fn signature(&self) -> u16 {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        signature(SIGNATURE_SEED, &bytes)
    }

    /// Number of values of a record.
    pub(crate) fn value_count(&self) -> u64 {
        self.fields.iter().map(|field| u64::from(field.value_count())).sum()
    }

    /// Maximum bytes of the header of a file with its records.
    pub(crate) fn header_bytes(&self) -> u64 {
        self.fields.iter().map(FieldDefinition::header_bytes).fold(0, u64::saturating_add)
    }

    /// Whether a record is stored at every interval.
    pub fn has_fixed_interval(&self) -> bool {
        self.interval != LoggerTime::default()
    }
}

impl FieldDefinition {
    /// A field with one value, or a text of `dimension` bytes.
    pub fn new(name: &str, kind: FieldType, dimension: u32) -> FieldDefinition {
        FieldDefinition {
            kind,
            is_read_only: false,
            name: name.to_owned(),
            aliases: Vec::new(),
            processing: String::new(),
            units: String::new(),
            description: String::new(),
            first_index: 1,
            dimension,
            dimensions: if kind == FieldType::ASCII { vec![dimension] } else { Vec::new() },
        }
    }

    /// Number of values in a record; each takes at least one byte there.
    pub(crate) fn value_count(&self) -> u32 {
        if self.kind == FieldType::ASCII { self.dimension.min(1) } else { self.dimension }
    }

    /// Maximum bytes of the field's texts in the header of a file, which repeats them for each value.
    fn header_bytes(&self) -> u64 {
        let texts =
            [&self.name, &self.units, &self.processing].map(|text| text.len() as u64 + HEADER_BYTES_PER_CELL);
        texts.iter().sum::<u64>().saturating_mul(self.value_count().into())
    }

    fn read(kind: u8, reader: &mut MessageReader) -> Result<FieldDefinition, PakBusParseError> {
        let (kind, read_only) = (FieldType(kind & !READ_ONLY_FLAG), kind & READ_ONLY_FLAG != 0);
        let name = reader.text()?;
        let aliases = read_until(|| reader.text(), String::is_empty)?;
        let (processing, units, description) = (reader.text()?, reader.text()?, reader.text()?);
        let (begin, dimension) = (reader.u32()?, reader.u32()?);
        let dimensions = read_until(|| reader.u32(), |&dimension| dimension == 0)?;
        Ok(FieldDefinition {
            kind,
            is_read_only: read_only,
            name,
            aliases,
            processing,
            units,
            description,
            first_index: begin,
            dimension,
            dimensions,
        })
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.u8(self.kind.0 | if self.is_read_only { READ_ONLY_FLAG } else { 0 });
        bytes.text(&self.name);
        self.aliases.iter().for_each(|alias| bytes.text(alias));
        bytes.u8(0);
        [&self.processing, &self.units, &self.description].into_iter().for_each(|text| bytes.text(text));
        [self.first_index, self.dimension].into_iter().for_each(|number| bytes.u32(number));
        self.dimensions.iter().for_each(|&dimension| bytes.u32(dimension));
        bytes.u32(0);
    }
}

/// Reads items until the terminator.
fn read_until<T>(
    mut next: impl FnMut() -> Result<T, PakBusParseError>,
    nothing: impl Fn(&T) -> bool,
) -> Result<Vec<T>, PakBusParseError> {
    let mut items = Vec::new();
    loop {
        match next()? {
            item if nothing(&item) => return Ok(items),
            item => items.push(item),
        }
    }
}

/// The tables that the tests of this folder use.
#[cfg(test)]
pub(super) fn example_tables() -> Vec<TableDefinition> {
    let field = |name: &str, kind, processing: &str, units: &str| FieldDefinition {
        processing: processing.to_owned(),
        units: units.to_owned(),
        ..FieldDefinition::new(name, kind, 1)
    };
    let version =
        FieldDefinition { is_read_only: true, ..FieldDefinition::new("OSVersion", FieldType::ASCII, 16) };
    let status = vec![version, FieldDefinition::new("PakBusAddress", FieldType::INT4, 1)];
    let fields = vec![
        field("Seq", FieldType::INT4, "Smp", ""),
        field("Batt", FieldType::IEEE4, "Avg", "Volts"),
        field("Temp", FieldType::FP2, "Avg", "DegC"),
    ];
    let minute = LoggerTime { seconds: 60, nanoseconds: 0 };
    vec![
        TableDefinition::new("Status", 1, LoggerTime::default(), status),
        TableDefinition::new("Bench", 100, minute, fields),
        TableDefinition::new("Ev", 10, LoggerTime::default(), vec![field("X", FieldType::IEEE4, "Smp", "")]),
        TableDefinition::new("Text", 10, minute, vec![FieldDefinition::new("Name", FieldType::ASCII, 4)]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::pakbus::parse_hex;
    use proptest::prelude::*;

    const ZEROS: &str = "00000000000000000000000000000000";

    fn definitions() -> [Vec<u8>; 3] {
        [
            parse_hex(&format!(
                "53746174757300 00000001 0E {ZEROS} 8B 4F5356657273696F6E00 00 00 00 00 00000001 00000010 00000010 \
                 00000000 06 50616B4275734164647265737300 00 00 00 00 00000001 00000001 00000000 00"
            )),
            parse_hex(
                "42656E636800 00000064 0E 0000000000000000 0000003C00000000 \
                 06 53657100 00 536D7000 00 00 00000001 00000001 00000000 \
                 09 4261747400 00 41766700 566F6C747300 00 00000001 00000001 00000000 \
                 07 54656D7000 00 41766700 4465674300 00 00000001 00000001 00000000 00",
            ),
            parse_hex(&format!(
                "457600 0000000A 0E {ZEROS} 09 5800 00 536D7000 00 00 00000001 00000001 00000000 00"
            )),
        ]
    }

    #[test]
    fn definitions_and_signatures_agree_with_other_programs() {
        let definitions = definitions();
        assert_eq!([definitions[0].len(), definitions[1].len()], [91, 111]);
        let file = [&[DEFINITIONS_VERSION][..], &definitions.concat()].concat();
        let tables = read(&file).unwrap();
        assert_eq!(tables, example_tables()[..3]);
        assert_eq!(write(&tables), file);
        assert_eq!([0, 1, 2].map(|table| tables[table].signature()), [0xA3D5, 0xBB4A, 0x7850]);
        assert_eq!([0, 1, 2].map(|table| tables[table].has_fixed_interval()), [false, true, false]);
    }

    #[test]
    fn a_cut_definition_is_refused() {
        let file = [&[DEFINITIONS_VERSION][..], &definitions()[1]].concat();
        for end in 2..file.len() {
            assert_eq!(read(&file[..end]), Err(PakBusParseError::TooShort));
        }
        assert_eq!(read(&[9]), Err(PakBusParseError::Unknown));
    }

    proptest! {
        #[test]
        fn what_can_be_read_writes_back(at in 0usize..203, byte: u8) {
            let mut file = write(&example_tables()[..2]);
            file[at] = byte;
            if let Ok(tables) = read(&file) {
                prop_assert_eq!(write(&tables), file);
            }
        }

        #[test]
        fn nothing_panics(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }
    }
}
