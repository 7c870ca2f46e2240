// @ts-check
// Reads everything that the page shows and shows it; again after each commit that any tab made.
import { byId, hueOf, setText } from "./dom.js";
import { keepLooking } from "./live.js";
import { COUNTER, KITCHEN } from "./names.js";
import { showChoices, showConversations } from "./view-conversations.js";
import { showRows } from "./view-rows.js";
import { counted } from "./words.js";

/** @typedef {import("./broker.js").Broker} Broker */
/** @typedef {import("./broker.js").QueueInfo} QueueInfo */

const ROWS = 200;
const COUNTER_ACTIONS = [{ name: "end", label: "End" }, { name: "undo", label: "Undo", says: "Undo the orders and end" }];
const KITCHEN_ACTIONS = [{ name: "ready", label: "Ready", says: "Ready to serve: tell the counter" }, { name: "end", label: "End" }, { name: "reject", label: "Reject", says: "Reject: end with an error" }];

/** @param {Broker} broker */
async function read(broker) {
  const newest = { reverse: true, limit: ROWS };
  const [queues, counterRows, kitchenRows, counterTalks, kitchenTalks, archived, waiting] = await Promise.all([
    broker.queues(),
    broker.select(COUNTER.queue, newest).toArray(),
    broker.select(KITCHEN.queue, newest).toArray(),
    broker.conversations({ service: COUNTER.service }).toArray(),
    broker.conversations({ service: KITCHEN.service }).toArray(),
    broker.archive(newest).toArray(),
    broker.transmissionQueue().toArray(),
  ]);
  const latest = (/** @type {{ createdAt: Date }} */ a, /** @type {{ createdAt: Date }} */ b) => b.createdAt.getTime() - a.createdAt.getTime();
  return { queues, counterRows, kitchenRows, counterTalks: counterTalks.sort(latest), kitchenTalks: kitchenTalks.sort(latest), archived, waiting };
}

/** @param {Awaited<ReturnType<typeof read>>} found */
function show({ queues, counterRows, kitchenRows, counterTalks, kitchenTalks, archived, waiting }) {
  // The oldest first, so that their colours are the same after a reload.
  for (const talk of [...counterTalks].reverse()) hueOf(talk.conversationId);
  showRows("counter-rows", counterRows, { rest: byId("counter-rows-title") });
  showRows("kitchen-rows", kitchenRows, { rest: byId("kitchen-rows-title") });
  showConversations("counter-talks", counterTalks, counterRows, COUNTER_ACTIONS);
  showConversations("kitchen-talks", kitchenTalks, kitchenRows, KITCHEN_ACTIONS);
  showChoices(counterTalks);
  showRows("archive-rows", archived, {
    key: (row) => `${row.queue} ${row.conversationHandle} ${row.queuingOrder}`,
    time: (row) => row.archivedAt,
    rest: byId("archive-title"),
  });
  /** @type {HTMLButtonElement} */ (byId("purge")).hidden = archived.length === 0 && document.activeElement !== byId("purge");
  showQueue("counter", queues.find((queue) => queue.name === COUNTER.queue));
  showQueue("kitchen", queues.find((queue) => queue.name === KITCHEN.queue));
  const note = byId("waiting");
  note.hidden = waiting.length === 0;
  if (waiting.length > 0) {
    setText(note, `${counted(waiting.length, "message waits", "messages wait")} in the transmission queue. ${waiting[0]?.transmissionStatus ?? ""}`);
  }
}

/** @param {"counter" | "kitchen"} id @param {QueueInfo | undefined} queue */
function showQueue(id, queue) {
  const retention = /** @type {HTMLInputElement} */ (byId(`${id}-retention`));
  const isOff = queue !== undefined && !(queue.isReceiveEnabled && queue.isEnqueueEnabled);
  const off = byId(`${id}-off`);
  retention.checked = queue?.isRetentionEnabled ?? false;
  if (!isOff && off.contains(document.activeElement)) byId(`${id}-rows-title`).focus({ preventScroll: true });
  off.hidden = !isOff;
}

/**
 * Shows what the broker holds, from now on.
 * @param {Broker} broker
 * @param {(error: unknown) => void} failed
 */
export const liveView = (broker, failed) => keepLooking(broker, async () => show(await read(broker)), failed);
