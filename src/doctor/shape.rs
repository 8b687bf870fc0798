//! From the schema's differences to findings.
#![deny(clippy::disallowed_methods)]

use crate::inventory::{Class, Differences, Piece};

use super::{Finding, Severity, found};

/// Of a schema whose version this code knows.
pub(super) fn of(differences: &Differences) -> Vec<Finding> {
    let mut all = flaws(differences);
    all.extend(missing(differences));
    all.extend(changed(differences));
    all.extend(children(differences));
    all.extend(foreign(differences));
    all
}

/// What is wrong in a schema of any version.
pub(super) fn flaws(differences: &Differences) -> Vec<Finding> {
    let named = |class, evidence: &str, code, remedy| {
        let names: Vec<&str> =
            differences.extra.iter().filter(|it| it.class == class).map(|it| it.name.as_str()).collect();
        (!names.is_empty()).then(|| found(Severity::Error, code, format!("{evidence}: {}", names.join(", ")), remedy))
    };
    let invalid = "REINDEX INDEX it; one that ends in _ccnew or _ccold is left over: DROP it.";
    let unlogged = "ALTER TABLE … SET LOGGED, which locks the table while it is written anew.";
    let secured = "ALTER TABLE … DISABLE ROW LEVEL SECURITY.";
    [
        named(Class::Invalid, "not usable", "index_invalid", invalid),
        named(Class::Unlogged, "a crash of the server empties what is unlogged", "table_unlogged", unlogged),
        named(Class::RowSecurity, "row-level security hides rows of", "row_security", secured),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn missing(differences: &Differences) -> Vec<Finding> {
    let (indexes, others): (Vec<&Piece>, Vec<&Piece>) =
        differences.missing.iter().partition(|piece| piece.class == Class::Index);
    let (replaced, others): (Vec<&Piece>, Vec<&Piece>) =
        others.into_iter().partition(|piece| differences.instead_of(piece).is_some());
    let indexes = (!indexes.is_empty()).then(|| {
        let names: Vec<&str> = indexes.iter().map(|piece| piece.name.as_str()).collect();
        let remedy = "Create it as `venturi migrate --sql` shows.";
        found(Severity::Error, "index_missing", format!("not there: {}", names.join(", ")), remedy)
    });
    let others = (!others.is_empty()).then(|| {
        let remedy = "Restore it from a backup; or, if what it held may be lost, create it as `venturi migrate --sql` \
                      shows, where it is named last.";
        found(Severity::Error, "schema_missing", format!("not there: {}", listed(others)), remedy)
    });
    let replaced = (!replaced.is_empty()).then(|| {
        let words = |piece| differences.instead_of(piece).map(|it| format!("{it} is in the place of {piece}"));
        let evidence = replaced.into_iter().filter_map(words).collect::<Vec<_>>().join(", ");
        let remedy = "Rename it, create the right one as `venturi migrate --sql` shows, where it is named last, and move \
                      the rows: a table of venturi cannot be partitioned.";
        found(Severity::Error, "schema_replaced", evidence, remedy)
    });
    [indexes, others, replaced].into_iter().flatten().collect()
}

fn changed(differences: &Differences) -> Option<Finding> {
    (!differences.changed.is_empty()).then(|| {
        let evidence = differences.changed.iter().map(|(piece, shape)| other(piece, shape)).collect::<Vec<_>>().join("; ");
        let remedy = "Make it as `venturi migrate --sql` shows: DROP and create an index, ALTER a column or sequence, CREATE \
                      OR REPLACE a function.";
        found(Severity::Error, "schema_changed", evidence, remedy)
    })
}

fn other(piece: &Piece, shape: &str) -> String {
    let (text, set) = settings(&piece.shape);
    match settings(shape) {
        _ if piece.class != Class::Function => format!("{piece} is `{shape}`, not `{}`", piece.shape),
        (other_text, _) if other_text != text => format!("{piece} is another one"),
        (_, others) => format!("{piece} has the settings `{others}`, not `{set}`"),
    }
}

/// What a function is, and what is SET for it.
fn settings(shape: &str) -> (&str, &str) {
    shape.split_once(" SET ").unwrap_or((shape, "none"))
}

/// A statement that names a table means its children as well, whose rows lie at the same places as others of ours.
fn children(differences: &Differences) -> Option<Finding> {
    let children: Vec<&Piece> = differences.extra.iter().filter(|piece| piece.class == Class::Child).collect();
    (!children.is_empty()).then(|| {
        let evidence = format!("claims and settlements take its rows for those of venturi: {}", listed(children));
        let remedy =
            "DROP it, or ALTER TABLE it NO INHERIT its parent, or DETACH PARTITION it: before the workers go on.";
        found(Severity::Error, "schema_foreign", evidence, remedy)
    })
}

/// As bad as the worst of them.
fn foreign(differences: &Differences) -> Option<Finding> {
    let foreign: Vec<&Piece> = differences.extra.iter().filter(|piece| weight(piece).is_some()).collect();
    let worst = foreign.iter().filter_map(|piece| weight(piece)).max()?;
    let evidence = format!("among what is venturi's, and not made by it: {}", listed(foreign));
    let remedy = "DROP it, or be sure that it refuses and changes no row: it is part of each enqueue, claim or settlement, \
                  and may be in the way of a migration.";
    Some(found(worst, "schema_foreign", evidence, remedy))
}

/// `None`: it has nothing to do with our tables, or is told of elsewhere.
fn weight(piece: &Piece) -> Option<Severity> {
    match piece.class {
        // They decide what is stored, and whether.
        Class::Trigger if piece.shape == "BEFORE" => Some(Severity::Error),
        Class::Rule => Some(Severity::Error),
        // One of identity is filled.
        Class::Column if has(piece, "GENERATED") => Some(Severity::Note),
        // Rows that do not have it are refused.
        Class::Column if piece.shape.ends_with("NOT NULL") => Some(Severity::Error),
        Class::Column if has(piece, "DOMAIN") || has(piece, "STORED") => Some(Severity::Warning),
        Class::Index if has(piece, "UNIQUE") || has(piece, "EXCLUDE") => Some(Severity::Warning),
        Class::Column | Class::Parent | Class::Index => Some(Severity::Note),
        // Of functions, one that a call may mean instead of ours.
        Class::Trigger | Class::Constraint | Class::Function => Some(Severity::Warning),
        _ => None,
    }
}

/// Whether it is a word of its shape.
fn has(piece: &Piece, word: &str) -> bool {
    piece.shape.split(' ').any(|it| it == word)
}

fn listed(pieces: Vec<&Piece>) -> String {
    pieces.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use crate::inventory::compare;
    use crate::inventory::tests::whole;

    use super::*;

    fn piece(class: Class, owner: &str, name: &str, shape: &str) -> Piece {
        Piece { class, owner: owner.to_owned(), name: name.to_owned(), shape: shape.to_owned() }
    }

    fn found_of(pieces: &[Piece]) -> Vec<(&'static str, Severity)> {
        of(&compare(pieces)).into_iter().map(|finding| (finding.code, finding.severity)).collect()
    }

    fn with(class: Class, shape: &str) -> Vec<(&'static str, Severity)> {
        let mut pieces = whole();
        pieces.push(piece(class, "live", "other", shape));
        found_of(&pieces)
    }

    #[test]
    fn a_schema_as_the_migrations_make_it_has_no_findings() {
        assert_eq!(found_of(&whole()), Vec::new());
    }

    #[test]
    fn what_others_have_put_on_our_tables_is_as_bad_as_what_it_can_do() {
        use Severity::{Error, Note, Warning};
        let foreign = |severity| vec![("schema_foreign", severity)];
        assert_eq!(with(Class::Trigger, "BEFORE"), foreign(Error));
        assert_eq!(with(Class::Rule, "-"), foreign(Error));
        assert_eq!(with(Class::Column, "integer NOT NULL"), foreign(Error));
        assert_eq!(with(Class::Trigger, "AFTER"), foreign(Warning));
        assert_eq!(with(Class::Constraint, "CHECK"), foreign(Warning));
        assert_eq!(with(Class::Index, "UNIQUE btree (kind)"), foreign(Warning));
        assert_eq!(with(Class::Index, "btree (kind)"), foreign(Note));
        assert_eq!(with(Class::Column, "integer NOT NULL DEFAULT"), foreign(Note));
        assert_eq!(with(Class::Child, "-"), foreign(Error));
        assert_eq!(with(Class::Parent, "-"), foreign(Note));
        assert_eq!(with(Class::Function, "text sql 0"), foreign(Warning));
        assert_eq!(with(Class::Index, "EXCLUDE gist (kind)"), foreign(Warning));
        assert_eq!(with(Class::Column, "tenant DOMAIN NOT NULL"), foreign(Error));
        assert_eq!(with(Class::Column, "tenant DOMAIN NOT NULL DEFAULT"), foreign(Warning));
        assert_eq!(with(Class::Column, "tenant DOMAIN"), foreign(Warning));
        assert_eq!(with(Class::Column, "integer STORED DEFAULT"), foreign(Warning));
        assert_eq!(with(Class::Column, "bigint GENERATED ALWAYS NOT NULL"), foreign(Note));
    }

    #[test]
    fn what_has_the_name_of_a_table_is_told_of_once_with_all_that_is_on_it() {
        let mut pieces: Vec<_> =
            whole().into_iter().filter(|it| it.class != Class::Table || it.name != "live").collect();
        pieces.push(piece(Class::Partitioned, "-", "live", "-"));
        pieces.push(piece(Class::Child, "live", "part", "-"));
        pieces.push(piece(Class::Column, "live", "other", "integer NOT NULL"));
        assert_eq!(found_of(&pieces), [("schema_replaced", Severity::Error)]);
        pieces.retain(|it| it.class != Class::Partitioned);
        assert_eq!(found_of(&pieces), [("schema_missing", Severity::Error)]);
    }

    #[test]
    fn what_is_wrong_with_a_table_or_an_index_is_told_of_once() {
        for (class, code) in [
            (Class::Unlogged, "table_unlogged"),
            (Class::RowSecurity, "row_security"),
            (Class::Invalid, "index_invalid"),
        ] {
            assert_eq!(with(class, "-"), [(code, Severity::Error)]);
        }
    }
}
