/** Lines of delayed delivery: what is due is sent as fast as if sent then, and what is not due costs nothing. */
import { deleteBroker, openBroker } from "pocket-broker";
import { body, definitions, dialog, messages } from "./lines.mjs";
import { check, interleave, median } from "./measure.mjs";

/** So many wait in the large database. */
const MANY = 1_000_000;
const QUICK_MANY = 20_000;
const FEW = 10;
/** When they are due: never, here. */
const FAR = 4e12;

/** A broker by a clock that the line sets; nothing happens by itself. */
async function frozen(name) {
  const time = { now: 1_800_000_000_000 };
  const clock = { now: () => time.now, sleep: () => new Promise(() => {}) };
  return { time, broker: await openBroker(name, { definitions, durability: "strict", clock }) };
}

/** Two databases, in which as many messages wait. */
async function withTwo([few, many], work) {
  const names = [few, many].map(() => `bench-${crypto.randomUUID()}`);
  const both = [];
  try {
    for (const [index, count] of [few, many].entries()) {
      const one = await frozen(names[index]);
      both.push(one);
      for (let from = 0; from < count; from += 5_000) {
        const part = Array.from({ length: Math.min(5_000, count - from) }, (_, n) => body(from + n));
        await one.broker.enqueueMany("plain-queue", part, { deliverAt: FAR });
      }
      check(await one.broker.delayed.count(), count, "messages that wait");
    }
    return await work(both[0], both[1], names);
  } finally {
    for (const { broker } of both) await broker.close();
    for (const name of names) await deleteBroker(name);
  }
}

const amounts = ({ quick }) => [FEW, quick ? QUICK_MANY : MANY];

/** As many are due in each round. */
function due({ broker, time }, count, queue) {
  return {
    before: async () => {
      await broker.enqueueMany(queue, Array.from({ length: count }, (_, n) => body(n)), { delay: 1 });
      time.now += 1;
    },
    work: async () => { check(await broker.poll(), count, "messages that were due"); },
    after: async () => { check((await broker.receive(queue, { top: count })).length, count, `messages in ${queue}`); },
  };
}

export const LINES = [
  {
    id: "dispatch",
    title: "1 000 delayed messages that are due are sent",
    against: "sendMany of 1 000, now",
    target: 0.5,
    run: ({ rounds }, tell) => withTwo([0, 0], async (now, later) => {
      const operations = 1_000;
      const side = async ({ broker }) => dialog(broker, "small");
      const [sending, waiting] = [await side(now), await side(later)];
      const take = async (broker) => { check((await broker.receive("small-queue", { top: operations })).length, operations, "messages that came"); };
      return interleave({
        rounds, operations,
        bare: { work: () => sending.sendMany(messages(operations)), after: () => take(now.broker) },
        ours: {
          before: async () => {
            await waiting.sendMany(messages(operations), { delay: 1 });
            later.time.now += 1;
          },
          work: async () => { check(await later.broker.poll(), operations, "messages that were due"); },
          after: () => take(later.broker),
        },
      }, tell);
    }),
  },
  {
    id: "due-of-many",
    title: "10 are due of 1 000 000 that wait",
    against: "10 of 10",
    target: 0.5,
    run: (settings, tell) => withTwo(amounts(settings), (few, many) => interleave({
      rounds: settings.rounds, operations: 1, bare: due(few, 10, "small-queue"), ours: due(many, 10, "small-queue"),
    }, tell)),
  },
  {
    id: "next-of-many",
    title: "when is the next of 1 000 000 due?",
    against: "of 10",
    target: 0.5,
    run: (settings, tell) => withTwo(amounts(settings), (few, many) => {
      const operations = 50;
      const ask = ({ broker }) => ({ work: async () => { for (let n = 0; n < operations; n += 1) check(Number(await broker.delayed.next()), FAR, "the next"); } });
      return interleave({ rounds: settings.rounds, operations, bare: ask(few), ours: ask(many) }, tell);
    }),
  },
  {
    id: "open-with-many",
    title: "openBroker while 1 000 000 messages wait",
    against: "while 10 wait",
    target: 0.66,
    run: (settings, tell) => withTwo(amounts(settings), async (few, many, names) => {
      await few.broker.close();
      await many.broker.close();
      const each = (name) => ({ work: async () => { await (await frozen(name)).broker.close(); } });
      return interleave({ rounds: settings.rounds, operations: 1, bare: each(names[0]), ours: each(names[1]) }, tell);
    }),
  },
  {
    id: "lateness",
    title: "a delay of 100 ms, in a page that is idle and visible",
    against: "100 ms (the last two columns: how long it took, and what it should have)",
    target: null,
    run: async ({ rounds }, tell) => {
      const name = `bench-${crypto.randomUUID()}`;
      const broker = await openBroker(name, { definitions, durability: "strict" });
      try {
        const took = [];
        for (let round = 0; round < rounds; round += 1) {
          const arrived = new Promise((resolve) => broker.addEventListener("message-enqueued", resolve, { once: true }));
          await broker.enqueue("small-queue", body(round), { delay: 100 });
          const begun = performance.now();
          await arrived;
          took.push(performance.now() - begun);
          check((await broker.receive("small-queue")).length, 1, "messages that came");
          tell(round + 1, rounds);
        }
        const ratios = took.map((ms) => 100 / ms);
        return { ratio: median(ratios), lowest: Math.min(...ratios), highest: Math.max(...ratios), rounds: ratios.length, bareMs: 100, oursMs: median(took) };
      } finally {
        await broker.close();
        await deleteBroker(name);
      }
    },
  },
];
