//! The locks of those who want to hear of a kind, as `src/interest.rs` describes them and written a second time: their keys
//! are the same in every version.

/// The key of those who want to hear of every kind in this schema.
pub(crate) fn in_everything(schema: &str) -> i64 {
    in_kind(schema, "*")
}

/// FNV-1a of 64 bits.
pub(crate) fn in_kind(schema: &str, kind: &str) -> i64 {
    let text = format!("venturi interest\0{schema}\0{kind}");
    let hash = text
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    i64::from_ne_bytes(hash.to_ne_bytes())
}
