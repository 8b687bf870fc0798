//! The lock of those who want to hear of every kind, as `src/interest.rs` describes it and written a second time: its keys
//! are the same in every version.

/// The key of that lock in this schema: FNV-1a of 64 bits.
pub(crate) fn in_everything(schema: &str) -> i64 {
    let text = format!("venturi interest\0{schema}\0*");
    let hash = text
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    i64::from_ne_bytes(hash.to_ne_bytes())
}
