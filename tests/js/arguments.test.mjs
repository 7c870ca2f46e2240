/** Arguments that fight back: getters that throw, proxies that are revoked, validators that say nothing, databases of somebody else. */
import { inPage } from "./fixtures/harness.mjs";

inPage("what a getter or a proxy throws is InvalidArgument, at every entrance, and nothing happens", async (h, pb) => {
  const broker = await h.open({ definitions: { queues: { a: {} } } });
  const boom = (name) => ({ get [name]() { throw new Error("boom"); } });
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  const calls = [
    () => broker.define(boom("queues")),
    () => broker.define({ queues: { b: boom("retention") } }),
    () => broker.define(proxy),
    () => broker.alterQueue("a", boom("retention")),
    () => broker.alterQueue(proxy, {}),
    () => broker.transaction(async () => {}, boom("signal")),
    () => broker.transaction(proxy),
    () => broker.purgeArchive(proxy),
    () => broker.beginDialog(boom("from")),
    () => broker.receive("a", boom("top")),
    () => pb.openBroker("never", boom("durability")),
    () => pb.openBroker(proxy),
    () => pb.deleteBroker(proxy),
  ];
  for (const call of calls) await h.rejects(call(), { code: "InvalidArgument" });
  // What is thrown may itself throw when it is looked at.
  for (const odd of [Object.create(null), Object.defineProperty(new Error("x"), "message", { get() { throw odd; } }), Object.assign(new Error("x"), { name: Symbol("s") })]) {
    const error = await h.rejects(broker.define({ get queues() { throw odd; } }), { code: "InvalidArgument" });
    h.match(error.message, /reading them threw something that can't be shown/);
  }
  h.equal((await broker.queues()).map((queue) => queue.name).join(), "a,error", "queues");
});

inPage("a validator that answers with nothing accepts nothing", async (h) => {
  for (const answer of [undefined, null, true, "fine"]) {
    const schema = { "~standard": { version: 1, vendor: "test", validate: () => answer } };
    const broker = await h.open({ definitions: {
      messageTypes: { M: schema },
      contracts: { C: { M: "initiator" } },
      queues: { a: {} },
      services: { A: { queue: "a", contracts: ["C"] } },
    } });
    const dialog = await broker.beginDialog({ from: "A", to: "A", contract: "C" });
    await h.rejects(dialog.send("M", 1), { code: "ValidationFailed" });
    h.equal(await broker.count("a"), 0, "rows");
  }
});

inPage("a database that is not a broker's is left alone, and said so", async (h, pb) => {
  const name = `foreign-${crypto.randomUUID()}`;
  const done = (request) => new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  const request = indexedDB.open(name, 1);
  request.onupgradeneeded = () => request.result.createObjectStore("cart");
  (await done(request)).close();
  const error = await h.rejects(pb.openBroker(name), { code: "StorageCorrupt" });
  h.ok(!error.retryable, "the same call will not work later");
  h.match(error.message, new RegExp(`"${name}".*not a broker's.*another name`));
  const again = await done(indexedDB.open(name));
  h.equal([...again.objectStoreNames].join(), "cart", "its object stores");
  again.close();
  await done(indexedDB.deleteDatabase(name));
});

// P35.
inPage("d30: the headers that a failure writes can't be given, by whichever verb", async (h) => {
  const broker = await h.openShop();
  const conversation = await h.dialog(broker);
  const names = ["FailedQ", "TimeOfFailure", "ProcessingEndpoint", "Retries", "ExceptionInfo.ExceptionType", "ExceptionInfo.Message", "ExceptionInfo.", "ExceptionInfo.of its own"];
  for (const name of names) {
    const headers = { fine: "yes", [name]: "1" };
    const argument = `headers[${JSON.stringify(name)}]`;
    const refused = (promise, at) => h.rejects(promise, { code: "InvalidArgument", details: { argument: at } }, name);
    await refused(conversation.send("Order", 1, { headers }), argument);
    await refused(broker.send([conversation], "Order", 1, { headers }), argument);
    await refused(conversation.sendMany([{ messageType: "Order" }, { messageType: "Order", headers }]), `messages[1].${argument}`);
    await refused(broker.enqueue("kitchen", 1, { headers }), argument);
    await refused(broker.enqueueMany("kitchen", [1, 2], { headers }), argument);
    await broker.transaction(async (tx) => {
      await refused(tx.send(conversation, "Order", 1, { headers }), argument);
      await refused(tx.enqueue("kitchen", 1, { headers }), argument);
    });
  }
  h.equal(await broker.count("kitchen"), 0);
  const headers = { failedq: "1", Exceptioninfo: "2", "x-Retries": "3" };
  await broker.enqueue("kitchen", 1, { headers });
  h.equal((await broker.receive("kitchen")).map((message) => message.headers), [headers], "others can");
});
