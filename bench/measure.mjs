/**
 * Interleaved measuring: in every round each side does the same work once, in turns, so that whatever slows the machine down
 * slows both. The first rounds only warm up. A ratio is the bare side's time over ours in the same round; reported is the median.
 */
export const WARM_UP = 2;

export const median = (numbers) => {
  const sorted = [...numbers].sort((one, two) => one - two);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};

async function timed(work) {
  const begun = performance.now();
  await work();
  return performance.now() - begun;
}

/**
 * One line of the table. `sides` gives { bare, ours }, each { before?(round), work(round), after?(round) }: only `work` is timed, and `after`
 * throws when the work was not done. `operations` is how many one round holds.
 */
export async function interleave({ rounds, warmUp = WARM_UP, operations, bare, ours }, tell = () => {}) {
  const times = { bare: [], ours: [] };
  for (let round = 0; round < rounds + warmUp; round += 1) {
    const order = round % 2 === 0 ? [["bare", bare], ["ours", ours]] : [["ours", ours], ["bare", bare]];
    for (const [, side] of order) await side.before?.(round);
    for (const [name, side] of order) {
      const ms = await timed(() => side.work(round));
      if (round >= warmUp) times[name].push(ms);
    }
    for (const [, side] of order) await side.after?.(round);
    tell(round + 1, rounds + warmUp);
  }
  const ratios = times.bare.map((ms, round) => ms / times.ours[round]);
  return {
    ratio: median(ratios),
    lowest: Math.min(...ratios),
    highest: Math.max(...ratios),
    rounds: ratios.length,
    bareMs: median(times.bare) / operations,
    oursMs: median(times.ours) / operations,
  };
}

export function check(actual, expected, what) {
  if (actual !== expected) throw new Error(`the work was not done: ${what} is ${actual}, not ${expected}`);
}
