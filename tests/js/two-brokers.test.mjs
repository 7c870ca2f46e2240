/** Conversations between two brokers, over transports that lose, repeat, delay and reorder. */
import { inPage } from "./fixtures/harness.mjs";

inPage("a conversation between two brokers: order, retention on both sides, replies, and a clean end", async (h, pb) => {
  const definitions = (queue, service) => ({
    messageTypes: { Order: "none", Confirm: "none" }, contracts: { Sale: { Order: "initiator", Confirm: "target" } },
    queues: { [queue]: { retention: true } }, services: { [service]: { queue, contracts: ["Sale"] } },
  });
  const shop = await h.open({ definitions: definitions("till", "Shop") });
  const bank = await h.open({ definitions: definitions("vault", "Bank") });
  const wire = h.pair();
  const routes = [await shop.route({ service: "Bank", transport: wire.left }), await bank.route({ service: "*", transport: wire.right })];
  const conversation = await shop.beginDialog({ from: "Shop", to: "Bank", contract: "Sale" });
  await conversation.sendMany([0, 1, 2].map((body) => ({ messageType: "Order", body: { n: body, at: new Date(body) } })));
  const orders = [];
  const bankSide = bank.activate("vault", {
    Order: async (message, tx) => { orders.push(message.body.n); await tx.send(message, "Confirm", { of: message.body.n }); },
  });
  const confirmed = [];
  const shopSide = shop.activate("till", {
    Confirm: async (message, tx) => { confirmed.push(message.body.of); if (confirmed.length === 3) await tx.endConversation(message); },
  });
  await h.until(() => confirmed.length === 3);
  h.equal([orders, confirmed], [[0, 1, 2], [0, 1, 2]]);
  // The EndDialog without a handler is answered with END: the initiator goes, the target is shown as CD for half an hour.
  await h.until(async () => (await bank.conversations().toArray())[0]?.state === "CD");
  await h.until(async () => (await shop.conversations().toArray()).length === 0);
  h.equal([await shop.count("till"), await bank.count("vault")], [0, 0], "retained rows go with the ends");
  const [end] = await bank.conversations().toArray();
  h.equal([end.conversationId, end.isInitiator, end.farBrokerInstance], [conversation.conversationId, false, shop.instanceId]);
  for (const broker of [shop, bank]) h.equal((await broker.stats()).transmissionQueued, 0);
  await Promise.all([bankSide.stop(), shopSide.stop(), ...routes.map((route) => route.remove())]);
});

inPage("exactly once and in order over a wire that loses, repeats, delays and reorders", async (h, pb) => {
  const definitions = (queue, service) => ({ queues: { [queue]: {} }, services: { [service]: { queue, contracts: ["DEFAULT"] } } });
  const shop = await h.open({ definitions: definitions("till", "Shop") });
  const bank = await h.open({ definitions: definitions("vault", "Bank") });
  const wire = h.pair({ bad: 0.3 });
  await shop.route({ service: "Bank", transport: wire.left, batch: 7 });
  await bank.route({ service: "Shop", transport: wire.right, batch: 5 });
  const conversations = await Promise.all([1, 2, 3, 4].map(() => shop.beginDialog({ from: "Shop", to: "Bank" })));
  const got = new Map();
  const back = new Map();
  const keep = (map, message) => { map.set(message.conversationId, [...map.get(message.conversationId) ?? [], message.body]); };
  bank.activate("vault", { DEFAULT: async (message, tx) => { keep(got, message); await tx.send(message, "DEFAULT", message.body); } }, { maxReaders: 4 });
  shop.activate("till", { DEFAULT: (message) => { keep(back, message); } }, { maxReaders: 4 });
  const numbers = Array.from({ length: 40 }, (_, index) => index);
  for (const number of numbers) await shop.send(conversations, "DEFAULT", number);
  await h.until(() => conversations.every(({ conversationId }) => back.get(conversationId)?.length === numbers.length), 60_000);
  for (const { conversationId } of conversations) h.equal([got.get(conversationId), back.get(conversationId)], [numbers, numbers]);
  h.ok(wire.lost > 0 && wire.repeated > 0 && wire.reordered > 0, JSON.stringify(wire));
});
