/** Runs in the page: all lines, or those asked for. A line below its target is run once more, and the second run decides. */
import { init } from "pocket-broker";
import { LINES as DELAYED } from "./delayed.mjs";
import { LINES as AGAINST_BARE } from "./lines.mjs";
import { LINES as SCALE } from "./scale.mjs";
import { LINES as TRANSMISSION } from "./transmission.mjs";

export const ROUNDS = 11;
export const QUICK_ROUNDS = 9;
export const LINES = [...AGAINST_BARE, ...SCALE, ...DELAYED, ...TRANSMISSION];

export async function runBench({ quick = false, lines = LINES.map((line) => line.id), tell = () => {} } = {}) {
  await init();
  const results = [];
  for (const line of LINES.filter((each) => lines.includes(each.id))) {
    const { id, title, against, target } = line;
    const settings = { quick, rounds: quick ? QUICK_ROUNDS : ROUNDS };
    const attempt = async (again) => {
      tell({ id, state: again ? "running again" : "running", round: 0 });
      return line.run(settings, (round, of) => tell({ id, state: again ? "running again" : "running", round, of }));
    };
    let measured = await attempt(false);
    let first = null;
    // A line without a target is there to be read.
    const isBelow = () => target !== null && measured.ratio < target;
    if (isBelow()) {
      first = measured.ratio;
      measured = await attempt(true);
    }
    const result = { id, title, against, target, ...measured, first, reached: !isBelow() };
    results.push(result);
    tell({ id, state: "done", result });
  }
  return results;
}
