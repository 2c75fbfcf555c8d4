//! The file `.TDF`: what tables a logger keeps, and of which fields. Not for their records (`record.rs`).

use super::Malformed;
use super::frame::{SEED, signature};
use super::text::{Reader, Write};
use super::value::{Instant, Type};

/// The only version known.
const VERSION: u8 = 1;

/// The kind of time stamp that loggers of this kind use: seconds and nanoseconds.
const NSEC: u8 = 14;

/// What a text in the head of a file takes beside its own bytes: index, quotes, comma.
const PER_CELL: u64 = 16;

/// In front of a field's type: clients may not write it.
const READ_ONLY: u8 = 0x80;

/// A table: its place in the list, from 1, is its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub name: String,
    /// Records that the logger keeps; the oldest goes when a new one comes.
    pub size: u32,
    /// The type of its time stamps.
    pub time: Type,
    /// When, within the interval, a record is stored.
    pub offset: Instant,
    /// From one record to the next; zero: whenever something happens.
    pub interval: Instant,
    /// In order; the first has number 1.
    pub fields: Vec<Field>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub kind: Type,
    pub read_only: bool,
    pub name: String,
    pub aliases: Vec<String>,
    /// How the value was made: `Smp`, `Avg`, …
    pub processing: String,
    pub units: String,
    pub description: String,
    /// Index of the first value.
    pub begin: u32,
    /// How many values, 1 for a scalar; bytes of a text.
    pub dimension: u32,
    /// The dimensions of an array.
    pub dimensions: Vec<u32>,
}

/// All tables in a `.TDF`.
pub fn read(bytes: &[u8]) -> Result<Vec<Table>, Malformed> {
    let mut reader = Reader(bytes);
    if reader.u8()? != VERSION {
        return Err(Malformed::Unknown);
    }
    let mut tables = Vec::new();
    while !reader.is_empty() {
        tables.push(Table::read(&mut reader)?);
    }
    Ok(tables)
}

pub fn write(tables: &[Table]) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    tables.iter().for_each(|table| table.write(&mut bytes));
    bytes
}

impl Table {
    /// A table with time stamps of the usual kind.
    pub fn new(name: &str, size: u32, interval: Instant, fields: Vec<Field>) -> Table {
        let (time, offset) = (Type(NSEC), Instant::default());
        Table { name: name.to_owned(), size, time, offset, interval, fields }
    }

    fn read(reader: &mut Reader) -> Result<Table, Malformed> {
        let mut table = Table {
            name: reader.text()?,
            size: reader.u32()?,
            time: Type(reader.u8()?),
            offset: reader.instant()?,
            interval: reader.instant()?,
            fields: Vec::new(),
        };
        loop {
            match reader.u8()? {
                0 => return Ok(table),
                kind => table.fields.push(Field::read(kind, reader)?),
            }
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.text(&self.name);
        bytes.u32(self.size);
        bytes.u8(self.time.0);
        bytes.instant(self.offset);
        bytes.instant(self.interval);
        self.fields.iter().for_each(|field| field.write(bytes));
        bytes.u8(0);
    }

    /// What tells this definition from others: a collection names it, and a logger refuses another one.
    pub fn signature(&self) -> u16 {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        signature(SEED, &bytes)
    }

    /// How many values a record has.
    pub fn values(&self) -> u64 {
        self.fields.iter().map(|field| u64::from(field.values())).sum()
    }

    /// Most bytes of the head of a file that holds its records.
    pub fn head_bytes(&self) -> u64 {
        self.fields.iter().map(Field::head_bytes).fold(0, u64::saturating_add)
    }

    /// Whether a record is stored at every interval.
    pub fn is_regular(&self) -> bool {
        self.interval != Instant::default()
    }
}

impl Field {
    /// A field with one value, or a text of `dimension` bytes.
    pub fn new(name: &str, kind: Type, dimension: u32) -> Field {
        Field {
            kind,
            read_only: false,
            name: name.to_owned(),
            aliases: Vec::new(),
            processing: String::new(),
            units: String::new(),
            description: String::new(),
            begin: 1,
            dimension,
            dimensions: if kind == Type::ASCII { vec![dimension] } else { Vec::new() },
        }
    }

    /// How many values a record holds of it; each takes at least one byte there.
    pub fn values(&self) -> u32 {
        if self.kind == Type::ASCII { self.dimension.min(1) } else { self.dimension }
    }

    /// Most bytes that its texts take in the head of a file, which repeats them for each value.
    fn head_bytes(&self) -> u64 {
        let texts = [&self.name, &self.units, &self.processing].map(|text| text.len() as u64 + PER_CELL);
        texts.iter().sum::<u64>().saturating_mul(self.values().into())
    }

    fn read(kind: u8, reader: &mut Reader) -> Result<Field, Malformed> {
        let (kind, read_only) = (Type(kind & !READ_ONLY), kind & READ_ONLY != 0);
        let name = reader.text()?;
        let aliases = until_nothing(|| reader.text(), String::is_empty)?;
        let (processing, units, description) = (reader.text()?, reader.text()?, reader.text()?);
        let (begin, dimension) = (reader.u32()?, reader.u32()?);
        let dimensions = until_nothing(|| reader.u32(), |&dimension| dimension == 0)?;
        Ok(Field {
            kind,
            read_only,
            name,
            aliases,
            processing,
            units,
            description,
            begin,
            dimension,
            dimensions,
        })
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.u8(self.kind.0 | if self.read_only { READ_ONLY } else { 0 });
        bytes.text(&self.name);
        self.aliases.iter().for_each(|alias| bytes.text(alias));
        bytes.u8(0);
        [&self.processing, &self.units, &self.description].into_iter().for_each(|text| bytes.text(text));
        [self.begin, self.dimension].into_iter().for_each(|number| bytes.u32(number));
        self.dimensions.iter().for_each(|&dimension| bytes.u32(dimension));
        bytes.u32(0);
    }
}

/// What comes before an item that is nothing.
fn until_nothing<T>(
    mut next: impl FnMut() -> Result<T, Malformed>,
    nothing: impl Fn(&T) -> bool,
) -> Result<Vec<T>, Malformed> {
    let mut items = Vec::new();
    loop {
        match next()? {
            item if nothing(&item) => return Ok(items),
            item => items.push(item),
        }
    }
}

/// The tables that the tests of this folder speak of.
#[cfg(test)]
pub(super) fn examples() -> Vec<Table> {
    let field = |name: &str, kind, processing: &str, units: &str| Field {
        processing: processing.to_owned(),
        units: units.to_owned(),
        ..Field::new(name, kind, 1)
    };
    let version = Field { read_only: true, ..Field::new("OSVersion", Type::ASCII, 16) };
    let status = vec![version, Field::new("PakBusAddress", Type::INT4, 1)];
    let bench = vec![
        field("Seq", Type::INT4, "Smp", ""),
        field("Batt", Type::IEEE4, "Avg", "Volts"),
        field("Temp", Type::FP2, "Avg", "DegC"),
    ];
    let minute = Instant { seconds: 60, nanoseconds: 0 };
    vec![
        Table::new("Status", 1, Instant::default(), status),
        Table::new("Bench", 100, minute, bench),
        Table::new("Ev", 10, Instant::default(), vec![field("X", Type::IEEE4, "Smp", "")]),
        Table::new("Text", 10, minute, vec![Field::new("Name", Type::ASCII, 4)]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::pakbus::hex;
    use proptest::prelude::*;

    const ZEROS: &str = "00000000000000000000000000000000";

    fn definitions() -> [Vec<u8>; 3] {
        [
            hex(&format!(
                "53746174757300 00000001 0E {ZEROS} 8B 4F5356657273696F6E00 00 00 00 00 00000001 00000010 00000010 \
                 00000000 06 50616B4275734164647265737300 00 00 00 00 00000001 00000001 00000000 00"
            )),
            hex("42656E636800 00000064 0E 0000000000000000 0000003C00000000 \
                 06 53657100 00 536D7000 00 00 00000001 00000001 00000000 \
                 09 4261747400 00 41766700 566F6C747300 00 00000001 00000001 00000000 \
                 07 54656D7000 00 41766700 4465674300 00 00000001 00000001 00000000 00"),
            hex(&format!(
                "457600 0000000A 0E {ZEROS} 09 5800 00 536D7000 00 00 00000001 00000001 00000000 00"
            )),
        ]
    }

    #[test]
    fn definitions_and_signatures_agree_with_other_programs() {
        let definitions = definitions();
        assert_eq!([definitions[0].len(), definitions[1].len()], [91, 111]);
        let file = [&[VERSION][..], &definitions.concat()].concat();
        let tables = read(&file).unwrap();
        assert_eq!(tables, examples()[..3]);
        assert_eq!(write(&tables), file);
        assert_eq!([0, 1, 2].map(|table| tables[table].signature()), [0xA3D5, 0xBB4A, 0x7850]);
        assert_eq!([0, 1, 2].map(|table| tables[table].is_regular()), [false, true, false]);
    }

    #[test]
    fn a_cut_definition_is_refused() {
        let file = [&[VERSION][..], &definitions()[1]].concat();
        for end in 2..file.len() {
            assert_eq!(read(&file[..end]), Err(Malformed::Short));
        }
        assert_eq!(read(&[9]), Err(Malformed::Unknown));
    }

    proptest! {
        #[test]
        fn what_can_be_read_writes_back(at in 0usize..203, byte: u8) {
            let mut file = write(&examples()[..2]);
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
