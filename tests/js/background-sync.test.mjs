/** `handleSync` and `registerBackgroundSync` on their own: with `sync` events of the test's, and a registration that only counts. service-worker.test.mjs has real ones. */
import { inPage as inPageOf } from "./fixtures/harness.mjs";

/** A body of a test gets `t`: the entry, and the helpers for events and registrations. */
const given = (body) => `async (h, pb) => {
  const t = await import("pocket-broker/service-worker");
  const tools = {
    /** Sends an event, as the browser does it. Gives "sent", or why it failed; undefined: nobody has answered it. */
    sync(tag = "pocket-broker", lastChance = false) {
      const event = Object.assign(new Event("sync"), { tag, lastChance, waitUntil(work) { event.work = work; } });
      dispatchEvent(event);
      return event.work?.then(() => "sent", (error) => error.message);
    },
    handle(...call) { const end = t.handleSync(...call); h.afterwards(end); return end; },
    /** A registration that counts. */
    registration(answer = async () => {}) {
      const tags = [];
      return { tags, sync: { register(tag) { tags.push(tag); return answer(tags.length); } } };
    },
    register(...call) { const end = t.registerBackgroundSync(...call); h.afterwards(end); return end; },
    far: (broker) => broker.beginDialog({ from: "Counter", to: "Bank", contract: "Ordering" }),
    /** A transport that keeps what it is given, and answers what the test says. */
    wire() {
      const wire = { calls: [], answer: () => ({ status: "acknowledged" }), transport: { async send(envelopes) { wire.calls.push(envelopes.map(({ body }) => body)); return Promise.all(envelopes.map((envelope) => wire.answer(envelope))); } } };
      return wire;
    },
  };
  await (${body})(h, pb, { ...t, ...tools });
}`;
const inPage = (title, body) => inPageOf(title, given(body));

inPage("arguments are checked at the call, with errors of the main entry, and nothing is opened", async (h, pb, t) => {
  const refused = (call, argument, text = /.{20}/) => h.rejects((async () => call())(), { code: "InvalidArgument", details: { argument } }).then((error) => h.match(error.message, text));
  const broker = await h.openShop();
  const open = () => { throw new Error("opened"); };
  await refused(() => t.handleSync(), "open");
  await refused(() => t.handleSync(broker), "open", /a function/);
  await refused(() => t.handleSync(open, { tags: "x" }), "tags", /Options: tag, queues/);
  await refused(() => t.handleSync(open, { tag: 5 }), "tag");
  await refused(() => t.handleSync(open, { queues: ["mail"] }), "queues");
  await refused(() => t.handleSync(open, { queues: { mail: "handler" } }), 'queues["mail"]', /a handler/);
  await refused(() => t.registerBackgroundSync(undefined, broker), "registration");
  await refused(() => t.registerBackgroundSync(t.registration(), undefined), "broker");
  await refused(() => t.registerBackgroundSync(t.registration(), broker, { queues: { mail: () => {} } }), "queues", /an array/);
  await refused(() => t.registerBackgroundSync(t.registration(), broker, { queues: [5] }), "queues[0]");
  h.equal(t.sync(), undefined, "nobody listens");
});

inPage("an event opens the broker, transmits, drains queues, and is over when all has gone", async (h, pb, t) => {
  const page = await h.openShop({}, {});
  await page.define({ queues: { mail: {} } });
  const conversation = await t.far(page);
  await conversation.sendMany([1, 2, 3].map((body) => ({ messageType: "Order", body })));
  await page.enqueueMany("mail", ["a", "b"]);
  const wire = t.wire();
  const mails = [];
  let opened = 0;
  const end = t.handle(async () => {
    opened += 1;
    const broker = await pb.openBroker(page.name);
    await broker.route({ service: "Bank", transport: wire.transport });
    return broker;
  }, { queues: { mail: ([{ body }]) => { mails.push(body); } } });
  h.equal(t.sync("another tag"), undefined, "it is somebody else's");
  h.equal(opened, 0);
  h.equal(await t.sync(), "sent");
  h.equal([wire.calls, mails], [[[1], [2, 3]], ["a", "b"]]);
  await conversation.send("Order", 4);
  h.equal(await t.sync(), "sent");
  h.equal([opened, wire.calls.flat()], [1, [1, 2, 3, 4]], "it stays open from one event to the next");
  end();
  end();
  h.equal(t.sync(), undefined, "it listens no more");
  await conversation.send("Order", 5);
  h.equal((await page.transmit()).remaining, 1, "its route is gone with its broker");
});

inPage("an event fails while anything is left that could go, and the next one tries it at once", async (h, pb, t) => {
  const page = await h.openShop();
  await page.define({ queues: { mail: {}, other: {} } });
  const conversation = await t.far(page);
  await conversation.send("Order", 1);
  await page.enqueueMany("mail", ["a", "b"], { ordered: false });
  const wire = t.wire();
  wire.answer = () => ({ status: "retry", after: 3_600_000, reason: "away" });
  const later = new Set(["b"]);
  t.handle(async () => {
    const broker = await pb.openBroker(page.name);
    await broker.route({ service: "*", transport: wire.transport });
    return broker;
  }, { queues: { mail: ([{ body }]) => { if (later.has(body)) throw new pb.RetryLater(3_600_000, "not now"); } } });
  h.match(await t.sync(), /could go: messages for other brokers, 1 in the queue "mail"\. The browser tries again/);
  // The first look of a new route may have come before.
  const before = wire.calls.length;
  h.equal([before === 1 || before === 2, await page.count("mail")], [true, 1]);
  wire.answer = () => ({ status: "acknowledged" });
  h.match(await t.sync("pocket-broker", true), /could go: 1 in the queue "mail"\. This was the browser's last attempt/);
  h.equal(wire.calls.length, before + 1, "nobody waits for an hour");
  later.clear();
  h.equal(await t.sync(), "sent");
  h.equal([await page.count("mail"), (await page.stats()).failed], [0, 0]);
});

inPage("what can't go does not fail it: what has no route here, what was accepted, what a queue holds that is off or paused", async (h, pb, t) => {
  const page = await h.openShop();
  await page.define({ queues: { off: {}, paused: { activation: "off" } } });
  await page.enqueue("off", 1);
  await page.alterQueue("off", { status: "off" });
  await page.enqueue("paused", 1);
  const nowhere = await page.beginDialog({ from: "Counter", to: "Nowhere", contract: "Ordering" });
  await nowhere.send("Order", 1);
  await (await t.far(page)).send("Order", 2);
  const wire = t.wire();
  wire.answer = () => ({ status: "accepted" });
  const handled = [];
  const handler = ([{ body }]) => { handled.push(body); };
  t.handle(async () => {
    const broker = await pb.openBroker(page.name);
    await broker.route({ service: "Bank", transport: wire.transport });
    return broker;
  }, { queues: { off: handler, paused: handler } });
  h.equal(await t.sync(), "sent");
  h.equal([handled, wire.calls, (await page.stats()).transmissionQueued, await page.count("paused")], [[], [[2]], 2, 1], "and all of it is still there");
  await page.alterQueue("paused", { activation: "on" });
  h.equal(await t.sync(), "sent");
  h.equal(handled, [1]);
});

inPage("what handlers send goes with the same event, and so does what answers bring", async (h, pb, t) => {
  const page = await pb.openBroker(h.name(), { definitions: h.shop() });
  h.afterwards(() => page.close());
  h.forget(page.name);
  const conversation = await t.far(page);
  await conversation.send("Order", 1);
  const wire = t.wire();
  wire.answer = ({ messageType, body }) => ({ status: "acknowledged", ...(messageType === "Order" && { reply: { messageType: "Confirm", body } }) });
  t.handle(async () => {
    const broker = await pb.openBroker(page.name);
    await broker.route({ service: "*", transport: wire.transport });
    return broker;
  }, { queues: { counter: { Confirm: async (message, tx) => { await tx.send(message, "Note", `thanks for ${message.body}`); } } } });
  h.equal(await t.sync(), "sent");
  h.equal([wire.calls, await page.count("counter")], [[[1], ["thanks for 1"]], 0]);
});

inPage("several events at once are one attempt, which looks once more for the later ones", async (h, pb, t) => {
  const page = await h.openShop();
  const conversation = await t.far(page);
  await conversation.send("Order", 1);
  const wire = t.wire();
  let answer;
  const asked = new Promise((resolve) => { wire.answer = () => new Promise((answered) => { answer = answered; resolve(); }); });
  let opened = 0;
  t.handle(async () => {
    opened += 1;
    const broker = await pb.openBroker(page.name);
    await broker.route({ service: "Bank", transport: wire.transport });
    return broker;
  });
  const first = t.sync();
  await asked;
  const others = [t.sync(), t.sync()];
  wire.answer = () => ({ status: "acknowledged" });
  answer({ status: "retry", after: 3_600_000, reason: "away" });
  h.equal(await Promise.all([first, ...others]), ["sent", "sent", "sent"]);
  h.equal([opened, wire.calls], [1, [[1], [1]]], "what failed for the first was tried again for the others");
});

inPage("a broker that can't be opened fails the event, and the next one opens again; so does one after it was closed", async (h, pb, t) => {
  const page = await h.openShop();
  const outcomes = [() => { throw new Error("thrown at once"); }, () => Promise.reject(new Error("no storage")), () => ({ stats() {} }), () => undefined];
  const given = [];
  t.handle(() => (outcomes.length > 0 ? outcomes.shift()() : pb.openBroker(page.name).then((broker) => { given.push(broker); return broker; })));
  h.equal(await t.sync(), "thrown at once");
  h.equal(await t.sync(), "no storage");
  h.match(await t.sync(), /`open` must resolve with an open broker, not with an object/);
  h.match(await t.sync(), /not with undefined/);
  h.equal([await t.sync(), await t.sync(), given.length], ["sent", "sent", 1]);
  await given[0].close();
  h.equal([await t.sync(), given.length], ["sent", 2]);
});

inPage("errors of the store and of the application fail the event, and every broker of the origin hears why", async (h, pb, t) => {
  const page = await h.openShop();
  await page.define({ queues: { mail: {} } });
  const told = h.collect(page, "critical-error");
  const failed = h.collect(page, "message-failed");
  const wire = t.wire();
  const end = t.handle(async () => {
    const broker = await pb.openBroker(page.name);
    await broker.route({ service: "Bank", transport: wire.transport });
    return broker;
  }, { queues: { nowhere: () => {}, mail: () => { throw new pb.UnrecoverableError("never"); } } });
  await (await t.far(page)).send("Order", 1);
  await page.enqueue("mail", 1);
  h.match(await t.sync(), /nowhere/);
  await h.until(() => told.length > 0);
  h.equal([told.length, told[0].source, told[0].error.code], [1, "recovery", "QueueNotFound"]);
  h.equal([wire.calls, failed.map(({ next }) => next), (await page.stats()).failed], [[[1]], ["error-queue"], 1], "the others were done all the same");
  const going = t.sync();
  end();
  h.ok((await going) !== "sent", "what is ended in the middle is not called done");
  h.equal(told.length, 1, "and that is nobody's error");
});

inPage("a registration is asked for by the first commit that leaves something, and not by each", async (h, pb, t) => {
  const broker = await h.openShop();
  await broker.define({ queues: { mail: {}, other: {} } });
  const registration = t.registration();
  t.register(registration, broker, { queues: ["mail"] });
  await broker.enqueue("other", 1);
  const conversation = await t.far(broker);
  h.equal(registration.tags, [], "nothing waits that the worker is for");
  await conversation.send("Order", 1);
  await h.until(() => registration.tags.length === 1);
  for (let count = 0; count < 50; count += 1) await conversation.send("Order", count);
  for (let count = 0; count < 50; count += 1) await broker.enqueue("mail", count);
  await h.until(() => registration.tags.length === 2, "those of the next second together");
  h.equal(registration.tags, ["pocket-broker", "pocket-broker"]);
  // Everything goes. What comes next is asked for again.
  await broker.drain("mail", () => {});
  await broker.endConversation(conversation, { cleanup: true });
  await h.until(async () => (await broker.stats()).transmissionQueued === 0);
  const before = registration.tags.length;
  await broker.enqueue("mail", "one more");
  await h.until(() => registration.tags.length > before);
});

inPage("what waits already is asked for at once, and what other tabs commit; after the way out, or a close, nothing is", async (h, pb, t) => {
  const broker = await h.openShop();
  await broker.enqueue("kitchen", 1);
  const tabs = await Promise.all([0, 1].map(() => pb.openBroker(broker.name)));
  const [one, two] = [t.registration(), t.registration()];
  const end = t.register(one, tabs[0], { tag: "ours", queues: ["kitchen"] });
  t.register(two, tabs[1]);
  await h.until(() => one.tags.length === 1);
  h.equal([one.tags, two.tags], [["ours"], []]);
  await (await t.far(broker)).send("Order", 1);
  await h.until(() => one.tags.length === 2 && two.tags.length === 1);
  end();
  await tabs[1].close();
  const third = t.registration();
  t.register(third, broker);
  await h.until(() => third.tags.length === 1);
  await (await t.far(broker)).send("Order", 2);
  await h.until(() => third.tags.length === 2, "a second later");
  h.equal([one.tags.length, two.tags.length], [2, 1]);
  await tabs[0].close();
});

inPage("where there is no SyncManager, it is not allowed, or no worker is active yet, nobody is troubled; another failure is told", async (h, pb, t) => {
  const broker = await h.openShop();
  const told = h.collect(broker, "critical-error");
  await (await t.far(broker)).send("Order", 1);
  t.register({}, broker)();
  const denied = t.registration(() => Promise.reject(new DOMException("Permission denied.", "NotAllowedError")));
  t.register(denied, broker);
  const installing = new EventTarget();
  const early = Object.assign(t.registration((count) => (count === 1 ? Promise.reject(new DOMException("no active Service Worker", "InvalidStateError")) : Promise.resolve())), { installing, waiting: null });
  t.register(early, broker);
  await h.until(() => denied.tags.length === 1 && early.tags.length === 1);
  installing.dispatchEvent(new Event("statechange"));
  await h.until(() => early.tags.length === 2, "asked for when the worker is active");
  h.equal(told, []);
  const broken = t.registration(() => Promise.reject(new DOMException("the disk is full", "UnknownError")));
  t.register(broken, broker);
  await h.until(() => told.length === 1);
  h.equal([told[0].source, told[0].error.name, told[0].error.message], ["transmission", "UnknownError", "the disk is full"]);
});

inPage("a page that is hidden asks at once for what it would have asked for in a moment", async (h, pb, t) => {
  const broker = await h.openShop();
  const committed = h.next(broker, "changed");
  await broker.enqueue("kitchen", 1);
  await committed;
  // The second is never over.
  h.patch(globalThis, "setTimeout", (original) => (work, ms, ...more) => (ms === 1_000 ? 0 : original(work, ms, ...more)));
  const registration = t.registration();
  t.register(registration, broker, { queues: ["kitchen"] });
  await h.until(() => registration.tags.length === 1);
  const hide = async () => {
    Object.defineProperty(document, "visibilityState", { configurable: true, value: "hidden" });
    document.dispatchEvent(new Event("visibilitychange"));
    delete document.visibilityState;
  };
  await hide();
  h.equal(registration.tags.length, 1, "nothing was committed meanwhile");
  const again = h.next(broker, "changed");
  await broker.enqueue("kitchen", 2);
  await again;
  h.equal(registration.tags.length, 1);
  await hide();
  h.equal(registration.tags.length, 2);
});
