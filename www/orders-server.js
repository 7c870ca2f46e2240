// @ts-check
// Looks over the server's shoulder: what it has, and how it is to behave. None of this goes through the broker, nor through the network that can be cut.

/** @typedef {{ key: string, conversationId: string, table?: string, dish?: string, count?: number, offered: number, accepted: number, tab: string, answer: string }} OfferedOrder */
/** @typedef {{ network: boolean, behaviour: string, cut: number, count: number, offered: number, accepted: number, orders: OfferedOrder[] }} Board */

const EVERY = 1_000;

/** @param {RequestInit} [init] @returns {Promise<Board>} */
async function ask(init) {
  const response = await fetch("./orders/board", { cache: "no-store", ...init });
  if (!response.ok) throw new Error(`it answered ${response.status}`);
  return response.json();
}

/**
 * Shows the board from now on: each second while the page can be seen, and when something has happened.
 * @param {(board: Board) => void} show
 * @param {(error: unknown) => void} failed
 */
export function watchBoard(show, failed) {
  /** What was asked before the last change knows nothing of it. */
  let changes = 0;
  /** @type {Promise<void> | undefined} */
  let running;
  let again = false;

  async function look() {
    const before = changes;
    try {
      const board = await ask();
      if (before === changes) show(board);
    } catch (error) {
      failed(error);
    }
  }

  /** Never two requests at a time: a browser has few connections to one server. */
  function refresh() {
    if (running) {
      again = true;
      return running;
    }
    again = false;
    running = look().finally(() => {
      running = undefined;
      if (again) void refresh();
    });
    return running;
  }

  /** @param {Partial<Pick<Board, "network" | "behaviour">>} settings */
  async function change(settings) {
    changes += 1;
    const board = await ask({ method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify(settings) });
    changes += 1;
    show(board);
  }

  setInterval(() => { if (!document.hidden) void refresh(); }, EVERY);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) void refresh(); });
  return { refresh, change, forget: () => ask({ method: "DELETE" }) };
}
