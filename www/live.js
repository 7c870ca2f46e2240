// @ts-check
// Looks again after each commit that any tab made.

/** @typedef {import("./broker.js").Broker} Broker */

/**
 * Looks at what the broker holds, at most once per frame and never twice at a time.
 * @param {Broker} broker
 * @param {() => Promise<void>} look reads and shows
 * @param {(error: unknown) => void} failed
 */
export function keepLooking(broker, look, failed) {
  let scheduled = false;
  let again = false;
  /** @type {Promise<void> | undefined} */
  let running;

  function run() {
    scheduled = false;
    again = false;
    running = look().catch(failed).finally(() => {
      running = undefined;
      if (again) refresh();
    });
    return running;
  }

  function refresh() {
    if (running) again = true;
    else if (!scheduled) {
      scheduled = true;
      // A hidden page gets no frames.
      if (document.hidden) setTimeout(due);
      else requestAnimationFrame(due);
    }
  }

  function due() {
    if (scheduled && !running) void run();
  }

  // A frame asked for just before the page was hidden may never come.
  document.addEventListener("visibilitychange", () => { if (scheduled) setTimeout(due); });
  broker.addEventListener("changed", refresh);
  return {
    refresh,
    /** Now; resolves when it is shown. */
    async showNow() {
      await running;
      await run();
    },
  };
}
