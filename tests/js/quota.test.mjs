/** The browser's quota: a file of its own, for a browser that has stored nothing yet. */
import assert from "node:assert/strict";
import { address, inPage, withPages } from "./fixtures/harness.mjs";

withPages("quota: the shared transaction aborts, only the guilty call fails, and receiving frees space", 1, async ([page]) => {
  const session = await page.page.createCDPSession();
  const origin = new URL(address()).origin;
  // Chromium looks at the quota when storage is first used, and again only when half a minute has gone by.
  await session.send("Storage.overrideQuotaForOrigin", { origin, quotaSize: 6_000_000 });
  try {
    await page.step(async (h) => {
      h.state.broker = await h.openShop();
      h.state.counter = await h.order(h.state.broker, 1);
    });
    const codes = await page.step(async (h) => {
      const noise = crypto.getRandomValues.bind(crypto);
      const big = new Uint8Array(20_000_000);
      for (let at = 0; at < big.length; at += 65_536) noise(big.subarray(at, Math.min(at + 65_536, big.length)));
      const { counter } = h.state;
      const settled = await h.within(30_000, Promise.allSettled([counter.send("Order", "before"), counter.send("Order", big), counter.send("Order", "after")]), "the sends");
      return settled.map((each) => each.reason?.code ?? "ok");
    });
    assert.deepEqual(codes, ["ok", "QuotaExceeded", "ok"]);
    assert.deepEqual(await page.step(async (h) => h.bodies(await h.state.broker.receive("kitchen"))), [{ n: 0 }, "before", "after"]);
  } finally {
    await session.send("Storage.overrideQuotaForOrigin", { origin });
  }
}, { only: "chromium" });

inPage("a store that refuses one value for want of space: only that call fails", async (h) => {
  const broker = await h.openShop();
  const counter = await h.order(broker, 1);
  h.patch(IDBObjectStore.prototype, "put", (original) => function (value, ...rest) {
    if (value instanceof Uint8Array && value.length === 100_000) throw new DOMException("no space left", "QuotaExceededError");
    return original.call(this, value, ...rest);
  });
  const settled = await h.within(30_000, Promise.allSettled(["before", new Uint8Array(100_000), "between", new Uint8Array(100_000), "after"].map((body) => counter.send("Order", body))), "the sends");
  h.equal(settled.map((each) => each.reason?.code ?? "ok"), ["ok", "QuotaExceeded", "ok", "QuotaExceeded", "ok"]);
  h.ok(settled[1].reason.retryable);
  h.equal((await broker.receive("kitchen")).map((message) => [message.messageSequenceNumber, message.body]), [[0, { n: 0 }], [1, "before"], [2, "between"], [3, "after"]], "no gap in the sequence");
});
