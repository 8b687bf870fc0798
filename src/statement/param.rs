//! Parameters that know their type in the database, so that a statement need not be prepared to learn it.
#![deny(clippy::disallowed_methods)]

use std::fmt::Debug;
use std::time::SystemTime;

use tokio_postgres::types::{Json, ToSql, Type};

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
    SystemTime: TIMESTAMPTZ, TIMESTAMPTZ_ARRAY;
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
