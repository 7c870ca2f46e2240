/** Pages that crash over their messages, one every second: each message is handled to its commit exactly once, in the order of its conversation. */
import assert from "node:assert/strict";
import { browserName, withPages } from "./fixtures/harness.mjs";

const CONVERSATIONS = 50;
const MESSAGES = 40;
const READERS = 3;
const CRASHES = 8;

const open = async (h, _, name) => { h.state.broker = await h.open({ definitions: h.shop() }, name); };
/** Handles as long as it lives: the answer commits with the message. */
const serve = async (h, pb, name) => {
  const broker = await pb.openBroker(name);
  broker.activate("kitchen", async ([message], tx) => {
    await new Promise((resolve) => { setTimeout(resolve); });
    await tx.send(message, "Confirm", { for: message.body.n });
  }, { maxReaders: 4 });
};

if (browserName === "chromium") {
  withPages("with a page crashing every second, nothing is lost, nothing is done twice, and order is kept", 1, async ([home]) => {
    const name = `crash-${crypto.randomUUID()}`;
    await home.step(open, name);
    await home.step(async (h, _, [conversations, messages]) => {
      for (let each = 0; each < conversations; each += 1) await h.order(h.state.broker, messages);
    }, [CONVERSATIONS, MESSAGES]);
    const openReader = async () => {
      const page = await home.page.browser().newPage();
      await page.goto(home.page.url());
      await page.waitForFunction("Boolean(globalThis.harness)");
      await page.evaluate(`harness.run(${serve}, ${JSON.stringify(name)}, true)`);
      return page;
    };
    const ready = () => home.step((h) => h.state.broker.count("kitchen", { status: 1 }));
    const readers = [];
    for (let each = 0; each < READERS; each += 1) readers.push(await openReader());
    let crashes = 0;
    for (; crashes < CRASHES && await ready() > 0; crashes += 1) {
      await home.step((h) => h.within(60_000, new Promise((resolve) => { setTimeout(resolve, 1_000); })));
      const doomed = readers.shift();
      const session = await doomed.createCDPSession();
      session.send("Page.crash").catch(() => {});
      readers.push(await openReader());
      await doomed.close().catch(() => {});
    }
    console.log(`# ${crashes} crashes, ${await ready()} messages left after the last`);
    assert.ok(crashes > 0);
    await home.step(async (h) => { while (await h.state.broker.count("kitchen", { status: 1 }) > 0) await h.next(h.state.broker, "changed", 60_000); });
    const answers = await home.step(async (h) => (await h.state.broker.select("counter").toArray()).map(({ conversationHandle, messageSequenceNumber, body }) => [conversationHandle, messageSequenceNumber, body.for]));
    const orders = new Map();
    for (const answer of answers) orders.set(answer[0], [...orders.get(answer[0]) ?? [], answer]);
    assert.equal(orders.size, CONVERSATIONS);
    for (const own of orders.values()) {
      assert.deepEqual(own.sort(([, one], [, other]) => one - other).map(([, , n]) => n), Array.from({ length: MESSAGES }, (_, n) => n), "each once, in order");
    }
    assert.deepEqual(await home.step(async (h) => (await h.state.broker.queues()).filter(({ isReceiveEnabled }) => !isReceiveEnabled).map((queue) => queue.name)), [], "no queue is off");
    for (const page of readers) await page.close().catch(() => {});
  }, { timeout: 240_000 });
}
