//! How long a conversation waits after its transport could not take a message.

use crate::ids::Ids;

/// The first wait, and the longest, in milliseconds.
const FIRST: f64 = 1_000.0;
const LONGEST: f64 = 60_000.0;
/// The longest that a transport may ask for.
const LONGEST_ASKED: f64 = 3_600_000.0;
/// So much of a wait is chance, either way: many that failed together are not tried together.
const JITTER: f64 = 0.2;

/// The wait after so many failures in a row. `asked`: what the transport has asked for, which wins.
pub(crate) fn wait(ids: &dyn Ids, attempts: u64, asked: Option<f64>) -> f64 {
    if let Some(asked) = asked.filter(|asked| !asked.is_nan()) {
        // Who asks for no wait and fails again waits all the same.
        return asked.clamp(if attempts > 1 { FIRST } else { 0.0 }, LONGEST_ASKED);
    }
    let doublings = i32::try_from(attempts.saturating_sub(1)).unwrap_or(i32::MAX).min(16);
    let length = (FIRST * 2.0_f64.powi(doublings)).min(LONGEST);
    let chance = ids.uuid().as_bytes().last().copied().map_or(0.5, |byte| f64::from(byte) / 255.0);
    length * (1.0 - JITTER + 2.0 * JITTER * chance)
}

#[cfg(test)]
mod tests {
    use super::wait;
    use crate::ids::Ids;

    struct Fixed(u8);

    impl Ids for Fixed {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0);
        }
    }

    #[test]
    fn it_doubles_from_one_second_to_a_minute_and_no_two_wait_alike() {
        let waits = |chance: u8| (1..=9).map(|attempts| wait(&Fixed(chance), attempts, None)).collect::<Vec<_>>();
        assert_eq!(waits(0), [800.0, 1_600.0, 3_200.0, 6_400.0, 12_800.0, 25_600.0, 48_000.0, 48_000.0, 48_000.0]);
        let longest: Vec<_> = waits(255).iter().map(|wait| wait.round()).collect();
        assert_eq!(longest, [1_200.0, 2_400.0, 4_800.0, 9_600.0, 19_200.0, 38_400.0, 72_000.0, 72_000.0, 72_000.0]);
        assert!(wait(&Fixed(9), u64::MAX, None) < 72_000.0);
    }

    #[test]
    fn what_the_transport_asks_for_wins_up_to_an_hour() {
        assert_eq!(wait(&Fixed(0), 1, Some(30.0)), 30.0);
        assert_eq!(wait(&Fixed(0), 2, Some(30.0)), 1_000.0, "or it would be asked again and again");
        assert_eq!(wait(&Fixed(0), 1, Some(f64::INFINITY)), 3_600_000.0);
        assert_eq!(wait(&Fixed(0), 5, Some(7_200_000.0)), 3_600_000.0);
        assert_eq!(wait(&Fixed(0), 1, Some(-5.0)), 0.0);
        assert_eq!(wait(&Fixed(0), 1, Some(f64::NAN)), 800.0);
    }
}
