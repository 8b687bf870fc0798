//! Which priority the next claim may not go above, so that no priority starves.
#![deny(clippy::disallowed_methods)]

/// The most urgent priority that a claim takes: `priority >= floor` in SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Floor {
    /// Any priority.
    None,
    /// Normal and Low.
    Normal,
    /// Low alone.
    Low,
}

impl Floor {
    /// The floor as the statement's parameter.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::None => 0,
            Self::Normal => 1,
            Self::Low => 2,
        }
    }

    pub(crate) fn is_none(self) -> bool {
        self == Self::None
    }
}

/// The slots owed to the lower priorities.
///
/// Each claimed slot c owes one slot to Low when `c % r² = 0`, else to Normal when `c % r = 0`. An exchange has one
/// floor for all its free slots, so debts are saved up until they fill it: the shares of a saturated queue are the same
/// whatever the number of free slots, `1 − 1/r`, `1/r − 1/r²` and `1/r²`.
#[derive(Clone, Debug)]
pub(crate) struct Rotation {
    /// `None`: strict priority.
    ratio: Option<u64>,
    /// The last claimed slot, modulo r².
    slot: u64,
    /// The free slots of the exchange that was asked about last.
    asked: u64,
    /// The most slots that one claim has filled.
    widest: u64,
    low: u64,
    normal: u64,
}

impl Rotation {
    /// `phase` sets the slot to begin with; workers that start together should differ in it. A ratio below 2 is strict.
    pub(crate) fn new(ratio: Option<u32>, phase: u64) -> Self {
        let ratio = ratio.filter(|ratio| *ratio >= 2).map(u64::from);
        let slot = ratio.map_or(0, |ratio| phase % (ratio * ratio));
        Self { ratio, slot, asked: 0, widest: 0, low: 0, normal: 0 }
    }

    /// The floor of an exchange with `free` slots.
    ///
    /// None after a claim that came back short: then there was nothing left to starve.
    pub(crate) fn floor(&mut self, free: u32, previous_claim_was_full: bool) -> Floor {
        self.asked = u64::from(free);
        if free == 0 || !previous_claim_was_full {
            Floor::None
        } else if self.low >= self.asked {
            Floor::Low
        } else if self.normal >= self.asked {
            Floor::Normal
        } else {
            Floor::None
        }
    }

    /// Takes note of a claim that succeeded: `n` rows came, with this floor.
    ///
    /// A floor pays all the slots it was asked for, also those it could not fill: the priority had nothing more to run,
    /// and asking again would cost each later exchange a claim in vain.
    pub(crate) fn claimed(&mut self, n: u32, floor_used: Floor) {
        match floor_used {
            Floor::None => {}
            Floor::Normal => self.normal = self.normal.saturating_sub(self.asked),
            Floor::Low => self.low = self.low.saturating_sub(self.asked),
        }
        if let Some(ratio) = self.ratio {
            self.owe(u64::from(n), ratio);
        }
    }

    fn owe(&mut self, n: u64, ratio: u64) {
        let end = self.slot + n;
        let low = end / (ratio * ratio);
        let normal = end / ratio - self.slot / ratio - low;
        self.slot = end % (ratio * ratio);
        self.widest = self.widest.max(n);
        // While claims come back short no floor is used, and what is owed would grow for days, to be paid in one go at
        // the expense of High when the queue fills up. A full exchange needs no more than its own width; the second
        // width is for what is owed while the other debt is paid.
        let most = self.widest * 2;
        self.low = (self.low + low).min(most);
        self.normal = (self.normal + normal).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims `total` slots, `free` at a time, from a queue that always has jobs of the priorities in `present`.
    fn saturated(rotation: &mut Rotation, free: u32, total: u32, present: &[i32]) -> Vec<i32> {
        let mut claimed = Vec::new();
        let mut full = true;
        while claimed.len() < total as usize {
            let floor = rotation.floor(free, full);
            let best = present.iter().copied().find(|tier| *tier >= floor.code());
            full = best.is_some();
            rotation.claimed(if full { free } else { 0 }, floor);
            claimed.extend(best.into_iter().flat_map(|tier| std::iter::repeat_n(tier, free as usize)));
        }
        claimed
    }

    fn shares(claimed: &[i32]) -> [f64; 3] {
        [0, 1, 2].map(|tier| claimed.iter().filter(|it| **it == tier).count() as f64 * 100.0 / claimed.len() as f64)
    }

    #[test]
    fn a_saturated_queue_is_shared_in_the_promised_parts() {
        for free in [1, 5, 16] {
            for phase in [0, 7, u64::MAX] {
                let mut rotation = Rotation::new(Some(4), phase);
                let found = shares(&saturated(&mut rotation, free, 1_600, &[0, 1, 2]));
                for (found, wanted) in found.iter().zip([75.0, 18.75, 6.25]) {
                    assert!((found - wanted).abs() <= 2.0, "{free} free, phase {phase}: {found} instead of {wanted}");
                }
            }
        }
    }

    #[test]
    fn one_slot_at_a_time_each_priority_gets_its_turn_within_r_squared_claims() {
        for ratio in [2, 3, 4, 10] {
            let mut rotation = Rotation::new(Some(ratio), 5);
            let window = (ratio * ratio) as usize;
            let claimed = saturated(&mut rotation, 1, ratio * ratio * 5, &[0, 1, 2]);
            for turn in claimed.windows(window) {
                for tier in 0..3 {
                    assert!(turn.contains(&tier), "ratio {ratio}: {turn:?} lacks {tier}");
                }
            }
        }
    }

    #[test]
    fn a_slot_that_owes_to_low_does_not_owe_to_normal() {
        let mut rotation = Rotation::new(Some(4), 0);
        rotation.claimed(16, Floor::None);
        assert_eq!((rotation.low, rotation.normal), (1, 3));
        rotation.claimed(17, Floor::None);
        assert_eq!((rotation.low, rotation.normal), (2, 7 - 1));
    }

    #[test]
    fn what_is_owed_does_not_depend_on_how_claims_are_cut() {
        let mut once = Rotation::new(Some(4), 9);
        let mut singly = Rotation::new(Some(4), 9);
        once.claimed(64, Floor::None);
        singly.widest = 64;
        (0..64).for_each(|_| singly.claimed(1, Floor::None));
        assert_eq!((once.low, once.normal, once.slot), (singly.low, singly.normal, singly.slot));
    }

    #[test]
    fn an_empty_priority_costs_one_claim_in_vain_per_debt() {
        let mut rotation = Rotation::new(Some(4), 0);
        let mut floored = 0;
        for _ in 0..160 {
            let floor = rotation.floor(1, true);
            if !floor.is_none() {
                rotation.claimed(0, floor);
                floored += 1;
            }
            rotation.claimed(1, Floor::None);
        }
        assert!((35..=40).contains(&floored), "{floored} of 160");
        let only_high = saturated(&mut rotation, 5, 100, &[0]);
        assert!(only_high.iter().all(|tier| *tier == 0));
    }

    #[test]
    fn a_claim_that_failed_pays_nothing() {
        let mut rotation = Rotation::new(Some(2), 0);
        rotation.claimed(4, Floor::None);
        assert_eq!(rotation.floor(1, true), Floor::Low);
        assert_eq!(rotation.floor(1, true), Floor::Low);
        rotation.claimed(1, Floor::Low);
        assert_eq!(rotation.floor(1, true), Floor::Normal);
    }

    #[test]
    fn no_floor_is_used_after_a_short_claim_or_without_a_free_slot() {
        let mut rotation = Rotation::new(Some(2), 0);
        rotation.claimed(8, Floor::None);
        assert_eq!(rotation.floor(1, false), Floor::None);
        assert_eq!(rotation.floor(0, true), Floor::None);
    }

    #[test]
    fn debts_that_cannot_be_paid_stay_small() {
        let mut rotation = Rotation::new(Some(2), 0);
        for _ in 0..100_000 {
            assert_eq!(rotation.floor(8, false), Floor::None);
            rotation.claimed(3, Floor::None);
        }
        assert!(rotation.low <= 6 && rotation.normal <= 6, "{rotation:?}");
    }

    #[test]
    fn strict_priority_never_uses_a_floor() {
        for ratio in [None, Some(0), Some(1)] {
            let mut rotation = Rotation::new(ratio, 3);
            let claimed = saturated(&mut rotation, 1, 500, &[0, 1, 2]);
            assert!(claimed.iter().all(|tier| *tier == 0));
        }
    }

    #[test]
    fn the_largest_ratio_and_claim_do_not_overflow() {
        let mut rotation = Rotation::new(Some(u32::MAX), u64::MAX);
        for _ in 0..4 {
            rotation.claimed(u32::MAX, Floor::None);
        }
        assert!(rotation.low + rotation.normal <= 5);
    }
}
