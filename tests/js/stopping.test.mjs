/** How an activation ends while a handler runs: `stop`, its signal, `await using`. And what else closes the way to a queue: `activation: "off"`. */
import { inPage } from "./fixtures/harness.mjs";

/** An activation whose first handler has begun and waits for `open`. */
const working = async (h, options) => {
  const broker = await h.openShop();
  await h.order(broker, 2);
  const handled = [];
  let begin;
  let open;
  const begun = new Promise((resolve) => { begin = resolve; });
  const gate = new Promise((resolve) => { open = resolve; });
  const activation = broker.activate("kitchen", async ([message], tx) => {
    begin();
    await gate;
    handled.push([message.body.n, tx.signal.aborted]);
    await tx.send(message, "Confirm", message.body);
  }, options);
  await h.within(10_000, begun, "a handler");
  /** The handler that ran has committed, and nothing more was taken. */
  const isOver = async () => {
    h.equal([handled, activation.readers], [[[0, false]], 0]);
    h.equal([await h.rows(broker, "kitchen", { status: 1 }), h.bodies(await broker.receive("counter"))], [["1 Order 1"], [{ n: 0 }]]);
  };
  return { broker, activation, open, isOver };
};

/** A test in the page that the file's tests share, which has `working`. */
const test = (title, body) => inPage(title, `async (h, pb) => { h.working = (options) => (${working})(h, options); await (${body})(h, pb); }`);

/** Fails when the promise is settled already. */
const pending = `async (h, promise) => h.equal(await Promise.race([promise.then(() => "settled"), new Promise((resolve) => { setTimeout(resolve, 0, "pending"); })]), "pending")`;

test("d35: stop() resolves when the handlers that run have settled, and takes nothing more", `async (h) => {
  const { broker, activation, open, isOver } = await h.working({});
  const stopping = activation.stop();
  await broker.queues();
  await (${pending})(h, stopping);
  h.equal(activation.readers, 1);
  open();
  await stopping;
  await activation.done;
  await isOver();
  await activation.stop();
}`);

test("d35: the signal of an activation stops it as stop() does; done resolves", `async (h) => {
  const controller = new AbortController();
  const { broker, activation, open, isOver } = await h.working({ signal: controller.signal });
  controller.abort(new RangeError("enough"));
  await broker.queues();
  await (${pending})(h, activation.done);
  open();
  await activation.done;
  await isOver();
  const late = broker.activate("kitchen", () => { throw new Error("it was aborted before"); }, { signal: controller.signal });
  await late.done;
  await late.idle();
  h.equal(await broker.drain("kitchen", () => {}, { signal: controller.signal }), { handled: 0, failed: 0, remaining: 1 });
}`);

test("d35: an activation is disposed of as it is stopped", `async (h) => {
  const { activation, open, isOver } = await h.working({});
  const dispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");
  const disposed = activation[dispose]();
  await (${pending})(h, disposed);
  open();
  await disposed;
  await isOver();
}`);

inPage("b105: activation off is stored, and on may come from another broker", async (h) => {
  const first = await h.openShop();
  await first.alterQueue("kitchen", { activation: "off" });
  await h.order(first, 2);
  const broker = await h.reopen(first);
  const handled = [];
  const activation = broker.activate("kitchen", ([message]) => { handled.push(message.body.n); });
  await activation.idle();
  h.equal([handled, await broker.count("kitchen", { status: 1 })], [[], 2]);
  const other = await h.open({}, broker.name);
  await other.alterQueue("kitchen", { activation: "on" });
  await h.until(() => handled.length === 2, "both messages");
  h.equal(handled, [0, 1]);
  await activation.stop();
});
