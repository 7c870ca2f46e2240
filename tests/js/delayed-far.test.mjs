/** Delayed messages that are due in a moment and in thousands of years, what handlers delay, and what comes with a message to its end. */
import { inPage } from "./fixtures/harness.mjs";

inPage("p04, p26: from no delay at all to the year 9999, each comes at its instant and not before, by a test clock", async (h) => {
  const { testClock } = await import("pocket-broker/testing");
  const start = Date.parse("2027-01-01");
  const clock = testClock(start);
  const broker = await h.openShop({}, { clock });
  const day = 86_400_000;
  const last = Date.parse("9999-12-31T23:59:59.999Z");
  const delays = [0, 1, 3_600_000, 25 * day, 30 * day, 2 ** 32 + 5_000, 3_652.5 * day, last - start];
  const came = [];
  broker.activate("kitchen", ([message]) => { came.push([message.body, clock.now() - start]); });
  for (const delay of delays.toReversed()) {
    if (delay === last - start) await broker.enqueue("kitchen", delay, { deliverAt: new Date(last) });
    else await broker.enqueue("kitchen", delay, { delay });
  }
  for (const [index, delay] of delays.entries()) {
    if (clock.now() < start + delay - 1) await clock.advance(start + delay - 1 - clock.now());
    if (delay > 0) h.equal(came.length, index, `${delay} ms: not before`);
    await clock.advance(start + delay - clock.now());
    h.equal(came, delays.slice(0, index + 1).map((sent) => [sent, sent]), `${delay} ms: at its instant`);
  }
  h.equal([new Date(clock.now()), await broker.delayed.count()], [new Date(last), 0]);
});

inPage("p04: no timer is ever asked for more than setTimeout can count, and no sleep for more than a minute", async (h) => {
  const asked = [];
  h.patch(globalThis, "setTimeout", (original) => (work, ms, ...more) => { asked.push(ms); return original(work, ms, ...more); });
  const day = 86_400_000;
  for (const delay of [25 * day, 30 * day, 2 ** 32 + 5_000, 3_652.5 * day, Date.parse("9999-12-31") - Date.now()]) {
    asked.length = 0;
    const broker = await h.openShop();
    await broker.enqueue("kitchen", "far", { delay });
    await h.until(() => asked.includes(60_000), `a sleep for ${delay} ms`);
    await broker.poll();
    h.equal([await broker.count("kitchen"), await broker.delayed.count()], [0, 1]);
    h.equal(asked.filter((ms) => ms > 60_000), []);
    await broker.close();
  }
});

inPage("p30, p31, p32: what a handler delays counts from its commit, as from outside, and is not there if it fails", async (h, pb) => {
  const { testClock } = await import("pocket-broker/testing");
  const clock = testClock(0);
  const broker = await h.openShop({}, { clock });
  broker.activate("kitchen", async ([message], tx) => {
    await tx.enqueue("counter", message.body, { delay: 1_000 });
    // It takes a while.
    await clock.sleep(500);
    if (message.body === "fails") throw new pb.UnrecoverableError("no");
  });
  await broker.enqueue("kitchen", "works");
  await broker.enqueue("kitchen", "fails");
  await broker.enqueue("counter", "from outside", { delay: 1_000 });
  await clock.advance(999);
  h.equal([await broker.count("kitchen"), await broker.count("error")], [1, 0], "the second one is still at it");
  await clock.advance(1);
  h.equal([await broker.count("counter"), await broker.count("error")], [1, 1]);
  h.equal((await broker.delayed.select().toArray()).map(({ body, time }) => [body, Number(time)]), [["works", 1_500]]);
  await clock.advance(60_000);
  h.equal((await broker.select("counter").toArray()).map(({ body }) => body), ["from outside", "works"]);
});

inPage("p33, p37: bodies and headers come as they were sent, empty ones, too, and nothing is added", async (h) => {
  const { testClock } = await import("pocket-broker/testing");
  const clock = testClock(0);
  const broker = await h.openShop({}, { clock });
  const conversation = await h.dialog(broker);
  const large = new Uint8Array(100_000).map((_, index) => index);
  const bodies = [undefined, null, "", 0, new Uint8Array(0), large, { at: new Date(5), list: [1n, undefined] }];
  const headers = { "x-trace": "t1", "": "empty", "🥖": "bread" };
  for (const body of bodies) {
    await conversation.send("Order", body, { delay: 5, headers });
    await broker.enqueue("counter", body, { delay: 5, headers });
  }
  await clock.advance(5);
  for (const queue of ["kitchen", "counter"]) {
    const rows = await broker.receive(queue);
    h.equal(rows.map(({ body }) => body), bodies);
    h.equal(rows.map((row) => row.headers), bodies.map(() => headers));
  }
});

inPage("p48, p53: the error queue says what a delayed message failed by, beside what it had, and sends it on without that", async (h) => {
  const { testClock } = await import("pocket-broker/testing");
  const clock = testClock(5_000);
  const broker = await h.openShop({}, { clock });
  await broker.define({ queues: { jobs: {} } });
  await broker.enqueue("jobs", "job", { delay: 10, headers: { own: "1" } });
  await broker.dropQueue("jobs");
  await clock.advance(10);
  const { headers } = await broker.failed().first();
  const { "ExceptionInfo.Message": message, "ExceptionInfo.StackTrace": stack, ...rest } = headers;
  h.equal(rest, { own: "1", "ExceptionInfo.ExceptionType": "BrokerError", FailedQ: "jobs", TimeOfFailure: new Date(5_010).toISOString(), ProcessingEndpoint: broker.name, Retries: "0" });
  h.ok(message.includes("jobs") && typeof stack === "string", message);
  await broker.define({ queues: { jobs: {} } });
  h.equal(await broker.returnToSource(), 1);
  const [job] = await broker.receive("jobs");
  h.equal([job.body, job.headers, clock.now()], ["job", { own: "1" }, 5_010]);
});
