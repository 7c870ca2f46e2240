/** Several pages, reloads and lost storage: one database, many eyes. */
import assert from "node:assert/strict";
import { address, browserName, inPage, withPages } from "./fixtures/harness.mjs";

const openHere = async (h, _, name) => {
  h.state.broker = await h.open({ definitions: h.shop() }, name);
  return h.state.broker.instanceId;
};
const database = () => `pages-${crypto.randomUUID()}`;

withPages("two pages hold one conversation, and neither trusts what it remembers", 2, async ([left, right]) => {
  const name = database();
  const ids = await Promise.all([left.step(openHere, name), right.step(openHere, name)]);
  assert.equal(ids[0], ids[1], "one instance");
  const handle = await left.step(async (h) => {
    h.state.conversation = await h.order(h.state.broker, 1);
    return h.state.conversation.handle;
  });
  for (let round = 0; round < 5; round += 1) {
    const got = await right.step(async (h) => {
      const messages = await h.state.broker.receive("kitchen");
      h.state.message = messages[0];
      await h.state.broker.send(messages[0], "Confirm", { for: messages[0].body.n });
      return messages.map((message) => [message.body.n, message.messageSequenceNumber]);
    });
    assert.deepEqual(got, [[round, round]], "the right page sees the left page's send");
    const back = await left.step(async (h, _, { n }) => {
      const messages = await h.state.broker.receive("counter", { conversation: h.state.conversation });
      await h.state.conversation.send("Order", { n });
      return messages.map((message) => [message.body.for, message.messageSequenceNumber]);
    }, { n: round + 1 });
    assert.deepEqual(back, [[round, round]], "and the other way round");
  }
  await left.step(async (h) => { await h.state.conversation.end(); });
  const refused = await right.step(async (h) => {
    const error = await h.rejects(h.state.broker.send(h.state.message, "Confirm"), { code: "InvalidState", number: 8429, details: { state: "DI" } });
    return error.details.state;
  });
  assert.equal(refused, "DI");
  assert.equal(await left.step(async (h, _, handle) => h.state.broker.conversation(handle).info(), handle), null);
  await right.step((h) => h.state.broker.endConversation(h.state.message));
  assert.deepEqual(await left.step((h) => h.state.broker.conversations().toArray()), []);
});

withPages("what one page drops or moves is gone or moved in the other", 2, async ([left, right]) => {
  const name = database();
  await Promise.all([left.step(openHere, name), right.step(openHere, name)]);
  await left.step(async (h) => {
    await h.state.broker.define({ queues: { spare: {} } });
    h.state.conversation = await h.order(h.state.broker, 1);
  });
  assert.equal(await right.step((h) => h.state.broker.count("spare")), 0);
  await left.step((h) => h.state.broker.alterService("Kitchen", { queue: "spare" }));
  assert.deepEqual(await right.step(async (h) => h.bodies(await h.state.broker.receive("spare"))), [{ n: 0 }]);
  await left.step(async (h) => { await h.state.broker.dropService("Kitchen"); await h.state.broker.dropQueue("spare"); });
  const codes = await right.step(async (h) => [
    (await h.rejects(h.state.broker.receive("spare"), { code: "QueueNotFound" })).code,
    (await h.rejects(h.state.broker.beginDialog({ from: "Kitchen", to: "Counter" }), { code: "ServiceNotFound" })).code,
    (await h.state.broker.receive("counter")).map(({ body }) => body.code).join(),
  ]);
  assert.deepEqual(codes, ["QueueNotFound", "ServiceNotFound", "-8470"]);
});

withPages("pages that send at the same time interleave without loss, repetition or gaps", 3, async (pages) => {
  const name = database();
  for (const page of pages) await page.step(openHere, name);
  const handle = await pages[0].step(async (h) => (await h.order(h.state.broker, 0)).handle);
  await Promise.all(pages.map((page, who) => page.step(async (h, _, { handle, who }) => {
    for (let n = 0; n < 40; n += 1) await h.state.broker.send(handle, "Order", { who, n });
  }, { handle, who })));
  const rows = await pages[1].step(async (h) => (await h.state.broker.select("kitchen").toArray()).map((row) => [row.messageSequenceNumber, row.body.who, row.body.n]));
  assert.deepEqual(rows.map((row) => row[0]), Array.from({ length: 120 }, (_, n) => n), "sequence numbers");
  for (const who of [0, 1, 2]) assert.deepEqual(rows.filter((row) => row[1] === who).map((row) => row[2]), Array.from({ length: 40 }, (_, n) => n), `page ${who} in order`);
});

withPages("pages that receive at the same time never get one message twice", 3, async (pages) => {
  const name = database();
  for (const page of pages) await page.step(openHere, name);
  await pages[0].step(async (h) => { for (let each = 0; each < 6; each += 1) await h.order(h.state.broker, 20); });
  const got = await Promise.all(pages.map((page) => page.step(async (h) => {
    const ids = [];
    let empty = 0;
    while (empty < 3) {
      const messages = await h.state.broker.receive("kitchen", { top: 3 });
      ids.push(...messages.map((message) => message.messageId));
      empty = messages.length === 0 ? empty + 1 : 0;
    }
    return ids;
  })));
  const all = got.flat();
  assert.equal(all.length, 120, "all received");
  assert.equal(new Set(all).size, 120, "each once");
  assert.ok(got.filter((ids) => ids.length > 0).length > 1, "more than one page took part");
});

withPages("transactions of two pages over one group: what commits, commits once", 2, async (pages) => {
  const name = database();
  for (const page of pages) await page.step(openHere, name);
  await pages[0].step(async (h) => { await h.order(h.state.broker, 5); });
  const work = async (h) => {
    const committed = [];
    await h.until(async () => {
      try {
        const messages = await h.state.broker.transaction(async (tx) => {
          const messages = await tx.receive("kitchen", { top: 1 });
          for (const message of messages) await tx.send(message, "Confirm", message.body);
          return messages;
        });
        committed.push(...messages.map((message) => message.body.n));
      } catch (error) { if (!error.retryable && error.code !== "TransactionClosed") throw error; }
      return (await h.state.broker.count("kitchen", { status: 1 })) === 0;
    }, "the empty queue");
    return committed;
  };
  const got = (await Promise.all(pages.map((page) => page.step(work)))).flat();
  assert.deepEqual(got.sort(), [0, 1, 2, 3, 4]);
  const answers = await pages[1].step(async (h) => (await h.state.broker.select("counter").toArray()).map((row) => row.body.n));
  assert.deepEqual([...answers].sort(), [0, 1, 2, 3, 4]);
});

withPages("what another page has just defined is checked here like anything else, and keeps its place", 2, async ([left, right]) => {
  const name = database();
  for (const page of [left, right]) await page.step(openHere, name);
  const handle = await right.step(async (h) => (await h.order(h.state.broker, 0)).handle);
  const grow = (h, _, type) => {
    const { Ordering } = h.shop().contracts;
    h.state.grown = { ...h.state.grown, [type]: "any" };
    return h.state.broker.define({ messageTypes: { [type]: "json" }, contracts: { Ordering: { ...Ordering, ...h.state.grown } } }).then(() => {});
  };

  await left.step(grow, "One");
  await right.step((h, _, handle) => h.rejects(h.state.broker.send(handle, "One", new Map([[1, 2]])), { code: "ValidationFailed", number: 8430, details: { path: "body" } }), handle);
  await left.step(grow, "Two");
  await right.step(async (h, _, handle) => {
    const messages = [{ messageType: "Two", body: { n: 0 } }, { messageType: "One", body: { deep: [new Date(0)] } }];
    const error = await h.rejects(h.state.broker.sendMany(handle, messages), { code: "ValidationFailed" });
    h.equal(error.details.path, "messages[1].body.deep[0]");
  }, handle);
  await left.step(grow, "Three");
  await right.step((h, _, handle) => h.state.broker.transaction((tx) => h.rejects(tx.send(handle, "Three", new Set()), { code: "ValidationFailed" }).then(() => {})), handle);
  assert.deepEqual(await left.step((h) => h.rows(h.state.broker, "kitchen")), [], "nothing of it was stored");

  for (const type of ["Four", "Five", "Six"]) await left.step(grow, type);
  const settled = await right.step(async (h, _, handle) => {
    const { broker } = h.state;
    const changing = { n: 0 };
    const inTransaction = broker.transaction(async (tx) => { await tx.send(handle, "Four", { n: "in a transaction" }); });
    await inTransaction;
    const sent = [broker.send(handle, "Five", changing), broker.send(handle, "Order", { n: 1 }), broker.send(handle, "Six", 5n), broker.sendMany(handle, [{ messageType: "Six", body: { n: 2 } }]), broker.send(handle, "Order", { n: 3 })];
    changing.n = "changed after the call";
    return (await Promise.allSettled(sent)).map(({ status, reason }) => reason?.code ?? status);
  }, handle);
  assert.deepEqual(settled, ["fulfilled", "fulfilled", "ValidationFailed", "fulfilled", "fulfilled"]);
  const rows = await left.step(async (h) => (await h.state.broker.select("kitchen").toArray()).map((row) => [row.messageTypeName, row.validation, row.body.n]));
  assert.deepEqual(rows, [["Four", "J", "in a transaction"], ["Five", "J", 0], ["Order", "N", 1], ["Six", "J", 2], ["Order", "N", 3]]);
});

withPages("a reload keeps the instance, the conversation and its rows", 1, async ([page]) => {
  const name = database();
  const id = await page.step(openHere, name);
  assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/);
  const handle = await page.step(async (h) => (await h.order(h.state.broker, 3)).handle);
  await page.reload();
  assert.equal(await page.step(openHere, name), id);
  const seen = await page.step(async (h, _, handle) => {
    await h.state.broker.send(handle, "Order", { n: 3 });
    const messages = await h.state.broker.receive("kitchen");
    await h.state.broker.send(messages[0], "Confirm");
    return [messages.map((message) => [message.body.n, message.messageSequenceNumber]), (await h.state.broker.conversation(handle).receive()).length];
  }, handle);
  assert.deepEqual(seen, [[[0, 0], [1, 1], [2, 2], [3, 3]], 1]);
});

withPages("a send that resolved just before a reload is there after it", 1, async ([page]) => {
  const name = database();
  await page.step(openHere, name);
  for (let round = 0; round < 5; round += 1) {
    const loaded = page.page.waitForNavigation({ waitUntil: "load" });
    await page.step(async (h, _, round) => {
      const conversation = await h.order(h.state.broker, 0);
      await conversation.send("Order", { round });
      location.reload();
    }, round).catch((error) => { if (/AssertionError/.test(error.name)) throw error; });
    await loaded;
    await page.ready();
    await page.step(openHere, name);
    const rounds = await page.step(async (h) => (await h.state.broker.select("kitchen").toArray()).map((row) => row.body.round));
    assert.deepEqual(rounds, Array.from({ length: round + 1 }, (_, n) => n));
  }
});

withPages("b96: a timer survives a reload, and fires when it is due", 1, async ([page]) => {
  const name = database();
  await page.step(openHere, name);
  const handle = await page.step(async (h) => {
    const conversation = await h.order(h.state.broker, 1);
    await conversation.beginTimer(0, { name: "overdue" });
    await conversation.beginTimer(400, { name: "later", body: 5 });
    return conversation.handle;
  });
  await page.reload();
  await page.step(openHere, name);
  const names = await page.step(async (h, _, handle) => {
    const names = [];
    await h.until(async () => {
      names.push(...(await h.state.broker.receive("counter", { conversation: handle })).map(({ body }) => `${body.name} ${body.body ?? ""}`));
      return names.length >= 2;
    }, "both timers");
    return names;
  }, handle);
  assert.deepEqual(names, ["overdue ", "later 5"]);
});

withPages("two pages wait for one timer: exactly one DialogTimer, and both hear of it", 2, async ([left, right]) => {
  const name = database();
  for (const page of [left, right]) {
    await page.step(openHere, name);
    await page.step((h) => { h.state.enqueued = h.next(h.state.broker, "message-enqueued"); });
  }
  for (const [page, timeout] of [[left, 300], [right, 200]]) {
    await page.step(async (h, _, timeout) => {
      const dialog = await h.dialog(h.state.broker, { reuse: "both pages" });
      await dialog.beginTimer(timeout);
    }, timeout);
  }
  for (const page of [left, right]) assert.deepEqual(await page.step((h) => h.state.enqueued), { queue: "counter" });
  const moved = await Promise.all([left, right].map((page) => page.step((h) => h.state.broker.poll())));
  assert.deepEqual(moved, [0, 0]);
  assert.deepEqual(await left.step((h) => h.rows(h.state.broker, "counter")), ["1 DialogTimer 0"]);
  assert.equal((await right.step((h) => h.state.broker.conversations().toArray())).length, 1, "`reuse` gave both the same");
});

withPages("a page fires the timer that another one began and did not live to see", 2, async (pages) => {
  const [left, right] = pages;
  const name = database();
  await right.step(openHere, name);
  await right.step((h) => { h.state.enqueued = h.next(h.state.broker, "message-enqueued"); });
  await left.step(openHere, name);
  await left.step(async (h) => { await (await h.dialog(h.state.broker)).beginTimer(500); });
  await left.page.close();
  pages.shift();
  assert.deepEqual(await right.step((h) => h.state.enqueued), { queue: "counter" });
});

withPages("deleteBroker in one page closes the broker of another", 2, async ([left, right]) => {
  const name = database();
  await left.step(openHere, name);
  await right.step(openHere, name);
  await left.step((h) => { h.state.closed = h.next(h.state.broker, "close"); });
  await right.step((h, pb, name) => h.within(8_000, pb.deleteBroker(name), "deleteBroker"), name);
  assert.deepEqual(await left.step((h) => h.state.closed), { reason: "deleted" });
});

withPages("storage cleared by the browser under an open broker: nothing hangs, nothing pretends", 1, async ([page]) => {
  const name = database();
  await page.step(openHere, name);
  await page.step(async (h) => {
    h.state.conversation = await h.order(h.state.broker, 2);
    h.state.closed = h.next(h.state.broker, "close", 30_000);
  });
  const session = await page.page.createCDPSession();
  await session.send("Storage.clearDataForOrigin", { origin: new URL(address()).origin, storageTypes: "indexeddb" });
  await page.step((h) => h.rejects(h.within(10_000, h.state.conversation.send("Order"), "the send"), { code: "StorageLost" }));
  assert.deepEqual(await page.step((h) => h.state.closed), { reason: "storage-lost" });
  await page.step(async (h) => {
    await h.rejects(h.state.broker.queues(), { code: "Closed", details: { reason: "storage-lost" } });
    await h.state.broker.close();
  });
  await page.step(openHere, name);
  assert.deepEqual(await page.step((h) => h.state.broker.conversations().toArray()), []);
}, { only: "chromium" });

inPage(`this runs in ${browserName}`, async (h, _, expected) => {
  h.match(navigator.userAgent.toLowerCase(), expected === "firefox" ? /firefox/ : /chrome/);
}, { argument: browserName });
