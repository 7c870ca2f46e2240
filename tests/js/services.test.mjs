/** ALTER SERVICE, DROP SERVICE, DROP QUEUE: what goes along, what goes, what is refused (b7, b8, b108, b109, D12, D33). */
import { inPage } from "./fixtures/harness.mjs";

inPage("b109: a service takes its rows, read and unread, to the new queue", async (h) => {
  let broker = await h.openShop({ kitchen: { retention: true }, queues: { oven: {} } });
  const counter = await h.order(broker, 3);
  await broker.receive("kitchen", { top: 1 });
  const ready = h.next(broker, "message-enqueued");
  h.equal(await broker.alterService("Kitchen", { queue: "oven" }), undefined);
  h.equal((await ready).queue, "oven");
  broker = await h.reopen(broker);
  h.equal([await h.rows(broker, "kitchen"), await h.rows(broker, "oven")], [[], ["0 Order 0", "1 Order 1", "1 Order 2"]]);
  const kitchen = await h.farSide(broker, counter);
  await h.rejects(broker.receive("kitchen", { conversation: kitchen }), { code: "ConversationNotFound" });
  h.equal(h.bodies(await kitchen.receive()), [{ n: 1 }, { n: 2 }]);
  await broker.send(counter.handle, "Order", { n: 3 });
  h.equal(h.bodies(await broker.receive("oven")), [{ n: 3 }]);
  await h.rejects(broker.define(h.shop()), { code: "DefinitionConflict" });
});

inPage("contracts come and go for new conversations only", async (h) => {
  const broker = await h.openShop({ contracts: { Second: { Note: "any" } } });
  const old = await h.order(broker, 1);
  for (let time = 0; time < 2; time += 1) await broker.alterService("Kitchen", { addContracts: ["Second"], dropContracts: ["Ordering"] });
  const refused = await h.order(broker, 1);
  h.equal((await refused.receive()).map(({ body }) => body.code), [-8409]);
  const second = await h.dialog(broker, { contract: "Second" });
  await second.send("Note");
  await old.send("Order");
  h.equal([await h.stateOf(broker, second), await h.stateOf(broker, old), await broker.count("kitchen")], ["CO", "CO", 3]);
});

inPage("alterService: what is not there, or not an option, is refused", async (h) => {
  const broker = await h.openShop();
  const alter = (service, change, expected) => h.rejects(broker.alterService(service, change), expected, JSON.stringify(change));
  await alter("Nobody", {}, { code: "ServiceNotFound", number: 8423 });
  await alter("Kitchen", { queue: "nowhere" }, { code: "QueueNotFound" });
  await alter("Kitchen", { addContracts: ["Nothing"] }, { code: "ContractNotFound", number: 8425 });
  await alter("Kitchen", { dropContracts: ["Nothing"] }, { code: "ContractNotFound", number: 8425 });
  await alter("kitchen", { queue: "counter" }, { code: "InvalidArgument" });
  await alter("Kitchen", { contracts: ["Ordering"] }, { code: "InvalidArgument", details: { option: "contracts" } });
  await alter("Kitchen", { addContracts: "Ordering" }, { code: "InvalidArgument", details: { argument: "change.addContracts" } });
  await alter("Kitchen", undefined, { code: "InvalidArgument" });
  await alter(5, {}, { code: "InvalidArgument" });
});

inPage("b108: a dropped service's rows go, and its far sides get an Error", async (h, pb) => {
  const broker = await h.openShop({ kitchen: { retention: true } });
  const counter = await h.order(broker, 2);
  const [message] = await broker.receive("kitchen", { top: 1 });
  await broker.send(message, "Confirm", "r1");
  h.equal(await broker.dropService("Kitchen"), undefined);
  h.equal([await h.rows(broker, "kitchen"), await h.stateOf(broker, counter), await broker.conversation(message).info()], [[], "ER", null]);
  const [error, confirm] = await counter.receive();
  h.equal([error.messageTypeName, error.body.code, confirm.body], [pb.SystemMessage.Error, -8470, "r1"]);
  h.match(error.body.description, /Kitchen/);
  await h.rejects(broker.dropService("Kitchen"), { code: "ServiceNotFound", number: 8423 });
  await h.rejects(broker.beginDialog({ from: "Kitchen", to: "Counter" }), { code: "ServiceNotFound" });
  await h.rejects(broker.dropService("kitchen"), { code: "InvalidArgument" });
  await counter.end();
  h.equal(await (await h.reopen(broker)).conversations().toArray(), []);
});

inPage("b7, b8: what is in use can't be dropped", async (h) => {
  const broker = await h.openShop({ priorities: { first: { localService: "Counter", level: 7 } } });
  await h.rejects(broker.dropService("Counter"), { code: "InUse", details: { priority: "first" } });
  await h.rejects(broker.dropQueue("kitchen"), { code: "InUse", details: { service: "Kitchen" } });
  await h.rejects(broker.dropQueue("error"), { code: "InvalidArgument" });
  await h.rejects(broker.dropQueue("nowhere"), { code: "QueueNotFound" });
  await h.rejects(broker.dropQueue(null), { code: "InvalidArgument" });
  const conversation = await broker.beginDialog({ from: "kitchen", to: "Counter" });
  await broker.dropService("Kitchen");
  await h.rejects(broker.dropQueue("kitchen"), { code: "InUse", details: { conversations: 1 } });
  await conversation.end();
  h.equal(await broker.dropQueue("kitchen"), undefined);
  await h.rejects(broker.receive("kitchen"), { code: "QueueNotFound" });
  h.equal((await (await h.reopen(broker)).queues()).map(({ name }) => name), ["counter", "error"]);
});
