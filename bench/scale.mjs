/** Lines that compare the package with itself: more tabs, more conversations, readers that start by themselves. */
import { deleteBroker, openBroker } from "pocket-broker";
import { body, definitions, dialog, messages } from "./lines.mjs";
import { check, interleave } from "./measure.mjs";
import { openTabs } from "./tabs.mjs";

async function withBroker(work) {
  const name = `bench-${crypto.randomUUID()}`;
  const broker = await openBroker(name, { definitions, durability: "strict" });
  try {
    return await work(broker, name);
  } finally {
    await broker.close();
    await deleteBroker(name);
  }
}

const begin = (broker, to, count) => Promise.all(Array.from({ length: count }, () => dialog(broker, to)));

export const LINES = [
  {
    id: "tabs",
    title: "4 tabs empty one queue together",
    against: "one tab does it",
    target: 0.8,
    run: ({ rounds, quick }, tell) => withBroker(async (broker, name) => {
      const [conversations, each, tabs] = [40, quick ? 25 : 50, 4];
      const total = conversations * each;
      const others = await openTabs(tabs, name);
      const side = async (service, taking) => {
        const [queue, dialogs] = [`${service}-queue`, await begin(broker, service, conversations)];
        let handled;
        return {
          before: () => Promise.all(dialogs.map((conversation) => conversation.sendMany(messages(each)))),
          work: async () => { handled = await others.drain(taking, queue); },
          after: async () => {
            check(handled.reduce((sum, own) => sum + own), total, `messages handled from ${queue}`);
            check(handled.filter((own) => own > 0).length, taking, "tabs that took part");
            check(await broker.count(queue), 0, `messages left in ${queue}`);
          },
        };
      };
      try {
        return await interleave({ rounds, operations: total, bare: await side("small", 1), ours: await side("large", tabs) }, tell);
      } finally {
        others.close();
      }
    }),
  },
  {
    id: "conversations",
    title: "one receive with 10 000 open conversations of five messages",
    against: "with 10 of them",
    target: 0.8,
    run: ({ rounds }, tell) => withBroker(async (broker) => {
      const operations = 40;
      const side = async (service, count, each) => {
        const [queue, dialogs] = [`${service}-queue`, await begin(broker, service, count)];
        for (let n = 0; n < each; n += 1) await Promise.all(dialogs.map((conversation) => conversation.send("DEFAULT", body(n))));
        check(await broker.count(queue, { status: 1 }), count * each, `messages in ${queue}`);
        check((await broker.stats()).openConversations.CO >= 2 * count, true, `that ${count} conversations are open`);
        let taken = [];
        return {
          work: async () => {
            taken = [];
            for (let n = 0; n < operations; n += 1) taken.push(...await broker.receive(queue, { top: 1 }));
          },
          after: async () => {
            check(taken.length, operations, `messages received from ${queue}`);
            const ids = new Map(dialogs.map((conversation) => [conversation.conversationId, conversation]));
            // Each gets back what was taken from it, and not several at once: what is sent together is stored together.
            for (const { conversationId } of taken) await ids.get(conversationId).send("DEFAULT", body(0));
            check(await broker.count(queue, { status: 1 }), count * each, `messages in ${queue} after the refill`);
          },
        };
      };
      return interleave({ rounds, operations, bare: await side("small", 10, 5), ours: await side("large", 10_000, 5) }, tell);
    }),
  },
  {
    id: "activate",
    title: "activate, top 100, with a function that does nothing",
    against: "transactions that receive top 100 until empty",
    target: 0.7,
    run: ({ rounds, quick }, tell) => withBroker(async (broker) => {
      const total = quick ? 1_000 : 3_000;
      const side = async (service, work) => {
        const [queue, conversation] = [`${service}-queue`, await dialog(broker, service)];
        let taken = [];
        return {
          before: () => conversation.sendMany(messages(total)),
          work: async () => {
            taken = [];
            await work(queue, (batch) => { taken.push(...batch.map((message) => message.body.n)); });
          },
          after: async () => {
            check(taken.findIndex((n, index) => n !== index), -1, "a message out of its order");
            check(taken.length, total, `messages handled from ${queue}`);
            check(await broker.count(queue), 0, `messages left in ${queue}`);
          },
        };
      };
      const loop = async (queue, take) => {
        for (let count = 1; count > 0;) {
          count = await broker.transaction(async (tx) => {
            const batch = await tx.receive(queue, { top: 100 });
            take(batch);
            return batch.length;
          });
        }
      };
      let activation;
      const activate = async (queue, take) => {
        activation = broker.activate(queue, take, { top: 100 });
        await activation.idle();
      };
      const [plain, activated] = [await side("small", loop), await side("large", activate)];
      return interleave({
        rounds, operations: total / 100, bare: plain,
        ours: { ...activated, after: async () => { await activation.stop(); await activated.after(); } },
      }, tell);
    }),
  },
  {
    id: "spread",
    title: "10 000 messages over 10 000 conversations: begin, send, receive",
    against: "the same messages over one conversation",
    target: null,
    run: async ({ quick }, tell) => {
      const total = 10_000;
      const side = (conversations) => {
        const each = total / conversations;
        let broker;
        let taken;
        return {
          // A database of its own each time: there is nobody to end ten thousand conversations.
          before: async () => { broker = await openBroker(`bench-${crypto.randomUUID()}`, { definitions, durability: "strict" }); },
          work: async () => {
            const dialogs = await begin(broker, "plain", conversations);
            await Promise.all(dialogs.map((conversation) => conversation.sendMany(messages(each))));
            taken = 0;
            for (let batch = [null]; batch.length > 0; taken += batch.length) batch = await broker.receive("plain-queue", { top: 100 });
          },
          after: async () => {
            check(taken, total, "messages received");
            check(await broker.count("plain-queue"), 0, "messages left");
            check((await broker.stats()).openConversations.CO, 2 * conversations, "conversations that are open, by their two ends");
            await broker.close();
            await deleteBroker(broker.name);
          },
        };
      };
      return interleave({ rounds: quick ? 1 : 3, warmUp: quick ? 0 : 1, operations: total, bare: side(1), ours: side(total) }, tell);
    },
  },
];
