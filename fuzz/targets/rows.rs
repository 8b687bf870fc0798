//! Any bytes in the columns that statements read, some of them of another type.
#![no_main]

#[path = "../../src/fuzzing/tests/rows.rs"]
mod made;

use libfuzzer_sys::fuzz_target;
use made::Cell;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use venturi::fuzzing::{COLUMNS, TYPES, rows};

/// Takes bytes from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    fn take(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Mostly as long as a value of this type.
    fn cell(&mut self, ty: &Type) -> Cell {
        let length = match (self.byte() % 8, ty) {
            (0, _) => return None,
            (1, _) => self.byte().into(),
            (_, &Type::BOOL) => 1,
            (_, &Type::INT2) => 2,
            (_, &Type::INT4) => 4,
            (_, &Type::INT8 | &Type::FLOAT8 | &Type::TIMESTAMPTZ) => 8,
            _ => usize::from(self.byte() % 32),
        };
        Some(self.take(length).to_vec())
    }

    fn table(&mut self) -> Vec<Row> {
        // Which column is of another type, and of which.
        let (odd, ty) = (usize::from(self.byte()), usize::from(self.byte()));
        let mut columns = COLUMNS.to_vec();
        if let (Some(column), Some(ty)) = (columns.get_mut(odd), TYPES.get(ty % TYPES.len())) {
            column.1 = ty.clone();
        }
        let values: Vec<Vec<Cell>> =
            (0..self.byte() % 3).map(|_| columns.iter().map(|(_, ty)| self.cell(ty)).collect()).collect();
        made::rows(&columns, &values).expect("the client takes them for rows")
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = Bytes(bytes);
    rows(&[bytes.table(), bytes.table()]);
});
