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

/// What the next claim takes: nothing above the floor, and so many of the free slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) floor: Floor,
    pub(crate) slots: u32,
}

/// The slots owed to the lower priorities.
///
/// Each claimed slot c owes one slot to Low when `c % r² = 0`, else to Normal when `c % r = 0`. An exchange has one
/// floor for all its free slots, so debts are saved up until they fill it: the shares of a saturated queue are the same
/// whatever the number of free slots, `1 − 1/r`, `1/r − 1/r²` and `1/r²`.
///
/// Saved up from nothing, many free slots at a time, the first debt to Low would be paid after r² exchanges and not after
/// r² slots. So the first backlog is dealt out in three exchanges instead of one: what its slots will owe to Low and to
/// Normal, but one slot at least, is paid ahead.
#[derive(Clone, Debug)]
pub(crate) struct Rotation {
    /// `None`: strict priority.
    ratio: Option<u64>,
    /// The last claimed slot, modulo r².
    slot: u64,
    /// The free slots of the exchange that was asked about last.
    asked: u32,
    /// The most slots that one claim has filled.
    widest: u32,
    /// Below zero: paid ahead.
    low: i64,
    normal: i64,
    ahead: Option<Ahead>,
}

/// What is still to be paid ahead.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead {
    low: u32,
    normal: u32,
}

impl Rotation {
    /// `phase` sets the slot to begin with; workers that start together should differ in it. A ratio below 2 is strict.
    pub(crate) fn new(ratio: Option<u32>, phase: u64) -> Self {
        let ratio = ratio.filter(|ratio| *ratio >= 2).map(u64::from);
        let slot = ratio.map_or(0, |ratio| phase % (ratio * ratio));
        Self { ratio, slot, asked: 0, widest: 0, low: 0, normal: 0, ahead: None }
    }

    /// What an exchange with `free` slots claims.
    ///
    /// No floor after a claim that came back short: then there was nothing left to starve.
    pub(crate) fn turn(&mut self, free: u32, previous_claim_was_full: bool) -> Turn {
        let ahead = self.ahead(free);
        let turn = if free == 0 || !previous_claim_was_full {
            Turn { floor: Floor::None, slots: free.saturating_sub(ahead.low + ahead.normal).max(free.min(1)) }
        } else if ahead.low > 0 {
            Turn { floor: Floor::Low, slots: ahead.low.min(free) }
        } else if ahead.normal > 0 {
            Turn { floor: Floor::Normal, slots: ahead.normal.min(free) }
        } else {
            Turn { floor: self.floor(free.into()), slots: free }
        };
        self.asked = turn.slots;
        turn
    }

    fn floor(&self, free: i64) -> Floor {
        if self.low >= free {
            Floor::Low
        } else if self.normal >= free {
            Floor::Normal
        } else {
            Floor::None
        }
    }

    /// One slot at a time nothing is saved up, and the rule itself sees to it that each priority has its turn.
    fn ahead(&mut self, free: u32) -> Ahead {
        let Some(ratio) = self.ratio.and_then(|ratio| u32::try_from(ratio).ok()) else { return Ahead::default() };
        *self.ahead.get_or_insert_with(|| match free {
            0 | 1 => Ahead::default(),
            _ => {
                let low = (free / ratio / ratio).max(1);
                Ahead { low, normal: (free / ratio).saturating_sub(low).max(1) }
            }
        })
    }

    /// Takes note of a claim that succeeded: `n` rows came, with this floor.
    ///
    /// A floor pays all the slots it was asked for, also those it could not fill: the priority had nothing more to run,
    /// and asking again would cost each later exchange a claim in vain.
    pub(crate) fn claimed(&mut self, n: u32, floor_used: Floor) {
        let (paid, mut nothing) = (self.asked, Ahead::default());
        let ahead = self.ahead.as_mut().unwrap_or(&mut nothing);
        match floor_used {
            Floor::None => {}
            Floor::Normal => {
                self.normal -= i64::from(paid);
                ahead.normal = ahead.normal.saturating_sub(paid);
            }
            Floor::Low => {
                self.low -= i64::from(paid);
                ahead.low = ahead.low.saturating_sub(paid);
            }
        }
        if let Some(ratio) = self.ratio {
            self.owe(n, ratio);
        }
    }

    fn owe(&mut self, n: u32, ratio: u64) {
        let end = self.slot + u64::from(n);
        let low = end / (ratio * ratio);
        let normal = end / ratio - self.slot / ratio - low;
        self.slot = end % (ratio * ratio);
        self.widest = self.widest.max(n);
        // While claims come back short no floor is used, and what is owed would grow for days, to be paid in one go at
        // the expense of High when the queue fills up. A full exchange needs no more than its own width; the second
        // width is for what is owed while the other debt is paid.
        let most = i64::from(self.widest) * 2;
        let add = |debt: i64, more: u64| debt.saturating_add_unsigned(more).min(most);
        (self.low, self.normal) = (add(self.low, low), add(self.normal, normal));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims `total` slots, `free` at a time, from a queue that always has jobs of the priorities in `present`.
    fn saturated(rotation: &mut Rotation, free: u32, total: u32, present: &[i32]) -> Vec<i32> {
        let (mut claimed, mut full, mut left) = (Vec::new(), true, free);
        while claimed.len() < total as usize {
            let Turn { floor, slots } = rotation.turn(left, full);
            let best = present.iter().copied().find(|tier| *tier >= floor.code());
            full = best.is_some();
            let got = if full { slots } else { 0 };
            rotation.claimed(got, floor);
            left = if got == left { free } else { left - got };
            claimed.extend(best.into_iter().flat_map(|tier| std::iter::repeat_n(tier, slots as usize)));
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
    fn at_first_each_priority_starts_within_r_squared_slots_however_many_are_free() {
        for ratio in [2, 3, 4, 10] {
            for free in [1, 2, 3, 5, 16, 64] {
                let mut rotation = Rotation::new(Some(ratio), 5);
                let claimed = saturated(&mut rotation, free, ratio * ratio + 64, &[0, 1, 2]);
                // Of the exchange that the last of these slots is in, all slots start at once.
                let window = (ratio * ratio).max(free) as usize;
                for tier in 0..3 {
                    assert!(claimed[..window].contains(&tier), "ratio {ratio}, {free} free: {claimed:?} lacks {tier}");
                }
            }
        }
    }

    #[test]
    fn only_the_first_backlog_takes_more_exchanges_than_one() {
        let mut rotation = Rotation::new(Some(4), 0);
        let slots = |rotation: &mut Rotation, free, full| {
            let turn = rotation.turn(free, full);
            rotation.claimed(turn.slots, turn.floor);
            (turn.floor, turn.slots)
        };
        assert_eq!(slots(&mut rotation, 16, false), (Floor::None, 12));
        assert_eq!(slots(&mut rotation, 4, true), (Floor::Low, 1));
        assert_eq!(slots(&mut rotation, 3, true), (Floor::Normal, 3));
        for _ in 0..100 {
            assert_eq!(slots(&mut rotation, 16, true).1, 16);
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
            let floor = rotation.turn(1, true).floor;
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
        assert_eq!(rotation.turn(1, true).floor, Floor::Low);
        assert_eq!(rotation.turn(1, true).floor, Floor::Low);
        rotation.claimed(1, Floor::Low);
        assert_eq!(rotation.turn(1, true).floor, Floor::Normal);
    }

    #[test]
    fn no_floor_is_used_after_a_short_claim_or_without_a_free_slot() {
        let mut rotation = Rotation::new(Some(2), 0);
        rotation.claimed(8, Floor::None);
        assert_eq!(rotation.turn(1, false).floor, Floor::None);
        assert_eq!(rotation.turn(0, true), Turn { floor: Floor::None, slots: 0 });
    }

    #[test]
    fn debts_that_cannot_be_paid_stay_small() {
        let mut rotation = Rotation::new(Some(2), 0);
        for _ in 0..100_000 {
            assert_eq!(rotation.turn(8, false).floor, Floor::None);
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
