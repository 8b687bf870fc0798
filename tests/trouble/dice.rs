use std::time::Duration;

/// Randomness that a seed repeats (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Dice for somebody else, who may roll them at any time.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// 0 to `sides` - 1.
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.next() % sides.max(1)
    }

    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.roll(to - from))
    }

    #[expect(clippy::indexing_slicing, reason = "what is rolled is less than the length, and nobody picks of nothing")]
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.roll(of.len() as u64)).unwrap_or_default()]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for nth in (1..items.len()).rev() {
            items.swap(nth, usize::try_from(self.roll(nth as u64 + 1)).unwrap_or_default());
        }
    }
}
