/** Lines of transmission: messages leave about as fast as a loop over fetch could send them, and sending while nobody is there costs what sending costs. */
import { deleteBroker, openBroker } from "pocket-broker";
import { httpTransport } from "pocket-broker/http";
import { body, definitions, dialog, messages } from "./lines.mjs";
import { check, interleave } from "./measure.mjs";

/** What the bench's server answers with 200, whatever it is. */
const ACCEPT = new URL("/bench-accept", globalThis.location?.href ?? "http://localhost/").href;
const CONVERSATIONS = 4;

async function withBroker(work) {
  const name = `bench-${crypto.randomUUID()}`;
  const broker = await openBroker(name, { definitions, durability: "strict" });
  try {
    return await work(broker);
  } finally {
    await broker.close();
    await deleteBroker(name);
  }
}

/** Resolves when so many messages more have been acknowledged. */
function transmitted(broker, count) {
  return new Promise((resolve) => {
    let left = count;
    const hear = () => {
      left -= 1;
      if (left > 0) return;
      broker.removeEventListener("message-transmitted", hear);
      resolve();
    };
    broker.addEventListener("message-transmitted", hear);
  });
}

export const LINES = [
  {
    id: "http",
    title: "messages over HTTP, 4 conversations",
    against: "4 loops of fetch, nothing stored",
    target: 0.8,
    run: ({ rounds, quick }, tell) => withBroker(async (broker) => {
      const each = quick ? 25 : 50;
      const operations = CONVERSATIONS * each;
      const conversations = await Promise.all(Array.from({ length: CONVERSATIONS }, () => dialog(broker, "Far")));
      let sequence = 0;
      const loop = async (conversation) => {
        for (let n = 0; n < each; n += 1) {
          const headers = { "content-type": "application/json", "Idempotency-Key": `${conversation}/i/${sequence += 1}`, "X-Message-Type": "DEFAULT", "X-Conversation-Id": conversation };
          const answer = await fetch(ACCEPT, { method: "POST", headers, body: JSON.stringify(body(n)) });
          check(answer.status, 200, "the status of an answer");
        }
      };
      let route;
      return interleave({
        rounds, operations,
        bare: { work: () => Promise.all(conversations.map(({ conversationId }) => loop(conversationId))) },
        ours: {
          before: async () => { for (const conversation of conversations) await conversation.sendMany(messages(each)); },
          work: async () => {
            const all = transmitted(broker, operations);
            route = await broker.route({ service: "Far", transport: httpTransport({ url: ACCEPT }) });
            await all;
          },
          after: async () => {
            await route.remove();
            check((await broker.stats()).transmissionQueued, 0, "what is left");
          },
        },
      }, tell);
    }),
  },
  {
    id: "offline",
    title: "one awaited send to a far service that can't be reached",
    against: "one awaited send within the broker",
    target: 0.8,
    run: ({ rounds, quick }, tell) => withBroker(async (broker) => {
      const operations = quick ? 40 : 100;
      const [near, far] = [await dialog(broker, "plain"), await dialog(broker, "Nowhere")];
      const sends = (conversation) => async () => { for (let n = 0; n < operations; n += 1) await conversation.send("DEFAULT", body(n)); };
      let sent = 0;
      return interleave({
        rounds, operations,
        bare: { work: sends(near), after: async () => { check((await broker.receive("plain-queue", { top: operations })).length, operations, "messages that came"); } },
        ours: { work: sends(far), after: async () => { check((await broker.stats()).transmissionQueued, sent += operations, "messages that wait"); } },
      }, tell);
    }),
  },
];
