//! Parameters that know their type in the database, so that a statement need not be prepared to learn it.
#![deny(clippy::disallowed_methods)]

use std::error::Error;
use std::fmt::Debug;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, Json, ToSql, Type, accepts, to_sql_checked};

pub(crate) type Param<'a> = Box<dyn Parameter + 'a>;

pub(crate) trait Parameter: ToSql + Send + Sync {
    fn ty(&self) -> Type;

    fn as_sql(&self) -> &(dyn ToSql + Sync);
}

/// A value, as a parameter of its own and in an array of its kind. Nothing here is sent as two different types.
pub(super) trait Value {
    const ONE: Type;
    const MANY: Type;
}

impl<T: Value + ToSql + Send + Sync> Parameter for T {
    fn ty(&self) -> Type {
        T::ONE
    }

    fn as_sql(&self) -> &(dyn ToSql + Sync) {
        self
    }
}

impl<T: Value + ToSql + Send + Sync> Parameter for Vec<T> {
    fn ty(&self) -> Type {
        T::MANY
    }

    fn as_sql(&self) -> &(dyn ToSql + Sync) {
        self
    }
}

impl<T: Value + ToSql + Send + Sync> Parameter for &Vec<T> {
    fn ty(&self) -> Type {
        T::MANY
    }

    fn as_sql(&self) -> &(dyn ToSql + Sync) {
        self
    }
}

macro_rules! values {
    ($($value:ty: $one:ident, $many:ident;)*) => {
        $(impl Value for $value {
            const ONE: Type = Type::$one;
            const MANY: Type = Type::$many;
        })*
    };
}

values! {
    bool: BOOL, BOOL_ARRAY;
    i16: INT2, INT2_ARRAY;
    i32: INT4, INT4_ARRAY;
    i64: INT8, INT8_ARRAY;
    f64: FLOAT8, FLOAT8_ARRAY;
    &str: TEXT, TEXT_ARRAY;
    String: TEXT, TEXT_ARRAY;
    Stamp: TIMESTAMPTZ, TIMESTAMPTZ_ARRAY;
}

/// An instant as PostgreSQL stores it: microseconds since the year 2000, where the two ends mean infinity.
///
/// What the client offers for a `SystemTime` overflows there, and a row may hold either end: it comes back with a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(i64);

/// 2000-01-01, in seconds since 1970.
const ORIGIN: Duration = Duration::from_secs(946_684_800);

impl From<SystemTime> for Stamp {
    fn from(at: SystemTime) -> Self {
        let micros = |time: Duration| i64::try_from(time.as_micros());
        Self(match at.duration_since(UNIX_EPOCH + ORIGIN) {
            Ok(since) => micros(since).unwrap_or(i64::MAX),
            Err(before) => micros(before.duration()).map_or(i64::MIN, |before| -before),
        })
    }
}

impl ToSql for Stamp {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.0.to_sql(ty, out)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<T: Debug> Value for Json<T> {
    const ONE: Type = Type::JSON;
    const MANY: Type = Type::JSON_ARRAY;
}

impl<T: Value> Value for &T {
    const ONE: Type = T::ONE;
    const MANY: Type = T::MANY;
}

impl<T: Value> Value for Option<T> {
    const ONE: Type = T::ONE;
    const MANY: Type = T::MANY;
}

/// Parameters as a client takes them together with a text that it has not prepared.
pub(crate) fn typed<'a>(params: &'a [Param<'_>]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    params.iter().map(|param| (param.as_sql(), param.ty())).collect()
}

#[cfg(test)]
mod tests {
    use tokio_postgres::types::FromSql;

    use super::*;

    /// The instant that is read from these eight bytes is written as the same ones.
    #[test]
    fn each_instant_that_can_be_read_can_be_written() {
        for micros in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX] {
            let read = SystemTime::from_sql(&Type::TIMESTAMPTZ, &micros.to_be_bytes()).unwrap();
            let mut written = BytesMut::new();
            Stamp::from(read).to_sql_checked(&Type::TIMESTAMPTZ, &mut written).unwrap();
            assert_eq!(written[..], micros.to_be_bytes(), "{micros}");
        }
    }

    #[test]
    fn an_instant_beyond_the_calendar_is_its_end() {
        let far = Duration::from_secs(1 << 62);
        assert_eq!(Stamp::from(UNIX_EPOCH + far), Stamp(i64::MAX));
        assert_eq!(Stamp::from(UNIX_EPOCH - far), Stamp(i64::MIN));
    }
}
