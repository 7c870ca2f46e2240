/** Runs in the page: all lines, or those asked for. A line below its target is run once more, and the second run decides. */
import { init } from "pocket-broker";
import { LINES } from "./lines.mjs";

export const ROUNDS = 11;
export const QUICK_ROUNDS = 9;
export { LINES };

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
    if (measured.ratio < target) {
      first = measured.ratio;
      measured = await attempt(true);
    }
    const result = { id, title, against, target, ...measured, first, reached: measured.ratio >= target };
    results.push(result);
    tell({ id, state: "done", result });
  }
  return results;
}
