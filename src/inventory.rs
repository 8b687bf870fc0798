//! The pieces of the schema that the migrations make, and how what is there differs from them.
//!
//! The list is data, `inventory.txt`, and never written by hand: a test migrates an empty schema, takes its inventory, and
//! says what the list has to be.
#![deny(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

const EXPECTED: &str = include_str!("inventory.txt");

/// What a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Table,
    View,
    Sequence,
    Function,
    Column,
    Index,
    Constraint,
    Trigger,
    Rule,
    /// A table that a crash of the server empties.
    Unlogged,
    /// A table with row-level security.
    RowSecurity,
    /// An index that cannot be used.
    Invalid,
    /// A table that inherits from one of ours, or is its partition.
    Child,
    /// What one of ours inherits from, or is a partition of.
    Parent,
    Partitioned,
    Materialized,
    ForeignTable,
}

impl Class {
    const ALL: [(Self, &'static str); 17] = [
        (Self::Table, "table"),
        (Self::View, "view"),
        (Self::Sequence, "sequence"),
        (Self::Function, "function"),
        (Self::Column, "column"),
        (Self::Index, "index"),
        (Self::Constraint, "constraint"),
        (Self::Trigger, "trigger"),
        (Self::Rule, "rule"),
        (Self::Unlogged, "unlogged"),
        (Self::RowSecurity, "row security"),
        (Self::Invalid, "invalid"),
        (Self::Child, "child"),
        (Self::Parent, "parent"),
        (Self::Partitioned, "partitioned table"),
        (Self::Materialized, "materialized view"),
        (Self::ForeignTable, "foreign table"),
    ];

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().find_map(|(class, name)| (*name == word).then_some(*class))
    }

    fn word(self) -> &'static str {
        Self::ALL.iter().find_map(|(class, name)| (*class == self).then_some(*name)).unwrap_or_default()
    }

    /// Whether the statements of queues and workers fail without it.
    fn is_needed(self) -> bool {
        matches!(self, Self::Table | Self::View | Self::Sequence | Self::Function | Self::Column)
    }

    /// Whether it has a name in the schema that nothing else can have.
    fn takes_name(self) -> bool {
        self.is_relation() || self == Self::Function
    }

    fn is_relation(self) -> bool {
        matches!(
            self,
            Self::Table | Self::View | Self::Sequence | Self::Partitioned | Self::Materialized | Self::ForeignTable
        )
    }
}

/// One thing of the schema.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Piece {
    pub(crate) class: Class,
    /// The table or view that it is part of; `-`: none.
    pub(crate) owner: String,
    pub(crate) name: String,
    /// What has to be the same besides; `-`: nothing.
    pub(crate) shape: String,
}

/// How a schema differs from what the migrations make.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    pub(crate) missing: Vec<Piece>,
    /// As it has to be, and the shape that it has.
    pub(crate) changed: Vec<(Piece, String)>,
    pub(crate) extra: Vec<Piece>,
}

impl Differences {
    /// What has the name of a relation that is missing.
    pub(crate) fn instead_of(&self, missing: &Piece) -> Option<&Piece> {
        let same = |it: &&Piece| it.class.is_relation() && it.name == missing.name;
        self.extra.iter().find(same).filter(|_| missing.class.is_relation())
    }
}

/// As people are told of it.
impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.class.word(), self.name)?;
        if self.owner == "-" { Ok(()) } else { write!(f, " of {}", self.owner) }
    }
}

/// The names to look for: of tables, views and sequences, and of functions.
pub(crate) fn names() -> (Vec<String>, Vec<String>) {
    let mut relations = Vec::new();
    let mut functions = BTreeSet::new();
    for piece in expected() {
        match piece.class {
            Class::Table | Class::View | Class::Sequence => relations.push(piece.name),
            Class::Function => {
                functions.extend(piece.name.split_once('(').map(|(name, _)| name.to_owned()));
            }
            _ => {}
        }
    }
    (relations, functions.into_iter().collect())
}

pub(crate) fn compare(found: &[Piece]) -> Differences {
    let key = |piece: &Piece| (piece.class, piece.owner.clone(), piece.name.clone());
    let mut there: BTreeMap<_, _> = found.iter().map(|piece| (key(piece), piece.clone())).collect();
    let mut differences = Differences::default();
    for piece in expected() {
        match there.remove(&key(&piece)) {
            None => differences.missing.push(piece),
            Some(found) if found.shape != piece.shape => differences.changed.push((piece, found.shape)),
            Some(_) => {}
        }
    }
    let gone: BTreeSet<String> =
        differences.missing.iter().filter(|it| it.class.takes_name()).map(|it| it.name.clone()).collect();
    // Who misses a table knows that its columns are gone; what is in its place may have any.
    differences.missing.retain(|piece| !gone.contains(&piece.owner));
    differences.changed.retain(|(piece, _)| !gone.contains(&piece.owner));
    differences.extra = there.into_values().filter(|piece| !gone.contains(&piece.owner)).collect();
    differences
}

/// Without which the statements of queues and workers fail.
pub(crate) fn needed_and_missing(found: &[Piece]) -> Vec<Piece> {
    let missing = compare(found).missing;
    missing.into_iter().filter(|piece| piece.class.is_needed()).collect()
}

/// What has a name that the first migrations are about to give.
pub(crate) fn in_the_way(found: &[Piece]) -> Vec<&Piece> {
    found.iter().filter(|piece| piece.class.takes_name() && piece.name != "migration").collect()
}

/// `class | owner | name | shape`, one piece per line.
fn expected() -> impl Iterator<Item = Piece> {
    EXPECTED.lines().filter_map(|line| {
        let mut parts = line.splitn(4, " | ").map(str::to_owned);
        let class = Class::from_word(&parts.next()?)?;
        Some(Piece { class, owner: parts.next()?, name: parts.next()?, shape: parts.next()? })
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What a schema has that nobody has touched.
    pub(crate) fn whole() -> Vec<Piece> {
        expected().collect()
    }

    /// The list that says so.
    pub(crate) fn listed(found: &[Piece]) -> String {
        let mut found = found.to_vec();
        found.sort();
        let line = |it: &Piece| format!("{} | {} | {} | {}\n", it.class.word(), it.owner, it.name, it.shape);
        found.iter().map(line).collect()
    }

    #[test]
    fn every_line_of_the_list_is_a_piece() {
        assert_eq!(listed(&whole()), EXPECTED);
        assert!(Class::ALL.iter().all(|(class, word)| Class::from_word(word) == Some(*class) && class.word() == *word));
    }

    #[test]
    fn who_misses_a_table_is_not_told_of_its_columns() {
        let without: Vec<_> = whole().into_iter().filter(|it| it.name != "live" && it.owner != "live").collect();
        let missing = compare(&without).missing;
        assert_eq!(missing.iter().map(ToString::to_string).collect::<Vec<_>>(), ["table live"]);
        assert_eq!(needed_and_missing(&without), missing);
    }

    #[test]
    fn no_statement_fails_for_a_missing_index_or_constraint() {
        let kept = |it: &Piece| !matches!(it.class, Class::Index | Class::Constraint);
        let without: Vec<_> = whole().into_iter().filter(kept).collect();
        assert_eq!(needed_and_missing(&without), Vec::new());
        assert!(!compare(&without).missing.is_empty());
    }
}
