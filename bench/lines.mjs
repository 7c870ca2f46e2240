/** Lines against bare IndexedDB, and against the package with less to carry. Each opens databases of its own, works in rounds, checks that the work was done, and deletes them. */
import { deleteBroker, openBroker } from "pocket-broker";
import { Bare } from "./bare.mjs";
import { check, interleave } from "./measure.mjs";

/** About 200 bytes as structured clone writes them. */
export const body = (n) => ({ n, dish: "a bowl of soup with bread", price: 12.5, when: 1_700_000_000_000 + n, note: "no onions, extra pepper, and the bread on a plate of its own, please".padEnd(90, ".") });
const bodies = (count, from = 0) => Array.from({ length: count }, (_, index) => body(from + index));
export const messages = (count, from = 0) => bodies(count, from).map((each) => ({ messageType: "DEFAULT", body: each }));

const QUEUES = ["plain", "kept", "small", "large"];
export const definitions = {
  queues: Object.fromEntries(QUEUES.map((name) => [`${name}-queue`, { retention: name === "kept" }])),
  services: { Sender: { queue: "sender-queue" }, ...Object.fromEntries(QUEUES.map((name) => [name, { queue: `${name}-queue`, contracts: ["DEFAULT"] }])) },
};
definitions.queues["sender-queue"] = {};

async function withBoth(work) {
  const name = `bench-${crypto.randomUUID()}`;
  const bare = await Bare.open(`${name}-bare`);
  const broker = await openBroker(name, { definitions, durability: "strict" });
  try {
    return await work(bare, broker);
  } finally {
    bare.close();
    indexedDB.deleteDatabase(`${name}-bare`);
    await broker.close();
    await deleteBroker(name);
  }
}

export const dialog = (broker, to) => broker.beginDialog({ from: "Sender", to });

/** Ends both sides, so that the next round begins with an empty queue. */
async function finish(broker, conversation) {
  const far = (await broker.conversations({ conversationId: conversation.conversationId }).toArray()).find((row) => !row.isInitiator);
  await conversation.end();
  if (far) await broker.endConversation(far.conversationHandle);
}

async function takeAll(broker, queue, top) {
  let taken = 0;
  for (let batch = await broker.receive(queue, { top }); batch.length > 0; batch = await broker.receive(queue, { top })) {
    check(batch[0].body.n, taken, "the next message");
    taken += batch.length;
  }
  return taken;
}

export const LINES = [
  {
    id: "send",
    title: "one awaited send at a time",
    against: "one put in a transaction",
    target: 0.5,
    run: ({ rounds, quick }, tell) => withBoth(async (bare, broker) => {
      const operations = quick ? 40 : 100;
      const conversation = await dialog(broker, "plain");
      let done = 0;
      const result = await interleave({
        rounds, operations,
        bare: { work: async () => { for (let n = 0; n < operations; n += 1) await bare.put(body(n)); } },
        ours: { work: async () => { for (let n = 0; n < operations; n += 1) await conversation.send("DEFAULT", body(n)); }, after: async () => { done += operations; } },
      }, tell);
      check(await broker.count("plain-queue", { status: 1 }), done, "messages sent");
      check(await bare.count(), done, "rows put");
      return result;
    }),
  },
  {
    id: "un-awaited",
    title: "1 000 un-awaited sends",
    against: "1 000 transactions of one put, un-awaited",
    target: 30,
    run: ({ rounds }, tell) => withBoth(async (bare, broker) => {
      const operations = 1_000;
      const values = bodies(operations);
      let conversation;
      const result = await interleave({
        rounds, operations,
        bare: { before: () => bare.clear(), work: () => Promise.all(values.map((value) => bare.put(value))), after: async () => check(await bare.count(), operations, "rows put") },
        ours: {
          before: async () => { conversation = await dialog(broker, "plain"); },
          work: () => Promise.all(values.map((value) => conversation.send("DEFAULT", value))),
          after: async () => {
            check(await broker.count("plain-queue", { status: 1 }), operations, "messages sent");
            await finish(broker, conversation);
          },
        },
      }, tell);
      return result;
    }),
  },
  {
    id: "send-many",
    title: "sendMany of 1 000",
    against: "1 000 puts in one transaction",
    target: 8,
    run: ({ rounds }, tell) => withBoth(async (bare, broker) => {
      const [each, times] = [1_000, 5]; // Several a round: some clocks tick in milliseconds.
      const operations = each * times;
      const [values, list] = [bodies(each), messages(each)];
      const repeat = async (work) => { for (let n = 0; n < times; n += 1) await work(); };
      let conversation;
      return interleave({
        rounds, operations,
        bare: { before: () => bare.clear(), work: () => repeat(() => bare.putAll(values)), after: async () => check(await bare.count(), operations, "rows put") },
        ours: {
          before: async () => { conversation = await dialog(broker, "plain"); },
          work: () => repeat(() => conversation.sendMany(list)),
          after: async () => {
            check(await broker.count("plain-queue", { status: 1 }), operations, "messages sent");
            await finish(broker, conversation);
          },
        },
      }, tell);
    }),
  },
  {
    id: "receive",
    title: "receive top 100 until empty",
    against: "getAll(100) + delete range until empty",
    target: 0.8,
    run: ({ rounds, quick }, tell) => withBoth(async (bare, broker) => {
      const total = quick ? 1_000 : 3_000;
      let conversation;
      const taken = { bare: 0, ours: 0 };
      return interleave({
        rounds, operations: total / 100,
        bare: {
          before: async () => { await bare.clear(); await bare.putAll(bodies(total)); },
          work: async () => {
            taken.bare = 0;
            for (let rows = await bare.take(100); rows.length > 0; rows = await bare.take(100)) taken.bare += rows.length;
          },
          after: async () => { check(taken.bare, total, "rows taken"); check(await bare.count(), 0, "rows left"); },
        },
        ours: {
          before: async () => { conversation = await dialog(broker, "plain"); await conversation.sendMany(messages(total)); },
          work: async () => { taken.ours = await takeAll(broker, "plain-queue", 100); },
          after: async () => {
            check(taken.ours, total, "messages received");
            check(await broker.count("plain-queue"), 0, "messages left");
            await finish(broker, conversation);
          },
        },
      }, tell);
    }),
  },
  {
    id: "retention",
    title: "receive top 100 with retention on",
    against: "the same with retention off",
    target: 0.9,
    run: ({ rounds, quick }, tell) => withBoth(async (_, broker) => {
      const total = quick ? 1_000 : 3_000;
      const side = (name, left) => {
        let conversation;
        let taken = 0;
        return {
          before: async () => { conversation = await dialog(broker, name); await conversation.sendMany(messages(total)); },
          work: async () => { taken = await takeAll(broker, `${name}-queue`, 100); },
          after: async () => {
            check(taken, total, `messages received from ${name}`);
            check(await broker.count(`${name}-queue`, { status: 0 }), left, `retained rows of ${name}`);
            await finish(broker, conversation);
          },
        };
      };
      return interleave({ rounds, operations: total / 100, bare: side("plain", 0), ours: side("kept", total) }, tell);
    }),
  },
  {
    id: "depth",
    title: "one receive from a queue holding 100 000 messages",
    against: "from a queue holding 100",
    target: 0.8,
    run: ({ rounds }, tell) => withBoth(async (_, broker) => {
      const operations = 40;
      const side = async (name, count, each) => {
        const dialogs = [];
        for (let made = 0; made < count; made += 1) {
          dialogs.push(await dialog(broker, name));
          await dialogs[made].sendMany(messages(each));
        }
        const queue = `${name}-queue`;
        check(await broker.count(queue, { status: 1 }), count * each, `messages in ${name}`);
        let taken = 0;
        return {
          work: async () => {
            taken = 0;
            for (let n = 0; n < operations; n += 1) taken += (await broker.receive(queue, { top: 1 })).length;
          },
          after: async (round) => {
            check(taken, operations, `messages received from ${name}`);
            await dialogs[round % count].sendMany(messages(operations));
            check(await broker.count(queue, { status: 1 }), count * each, `messages in ${name} after the refill`);
          },
        };
      };
      const small = await side("small", 1, 100);
      const large = await side("large", 100, 1_000);
      return interleave({ rounds, operations, bare: small, ours: large }, tell);
    }),
  },
];
