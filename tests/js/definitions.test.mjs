/** Message types, contracts, queues, services, priorities: what may be defined, and what may be changed (D22, D23, D33). */
import { inPage } from "./fixtures/harness.mjs";

inPage("the defaults: queues on, no retention, poison handling on, and the error queue built in", async (h) => {
  const broker = await h.open({ definitions: { queues: { plain: {}, kept: { retention: true }, off: { status: "off" }, loose: { poisonMessageHandling: false } } } });
  const queues = Object.fromEntries((await broker.queues()).map((queue) => [queue.name, queue]));
  h.equal(Object.keys(queues).sort(), ["error", "kept", "loose", "off", "plain"]);
  const flags = ({ isReceiveEnabled, isEnqueueEnabled, isRetentionEnabled, isPoisonMessageHandlingEnabled, ready, retained, consecutiveRollbacks }) =>
    [isReceiveEnabled, isEnqueueEnabled, isRetentionEnabled, isPoisonMessageHandlingEnabled, ready, retained, consecutiveRollbacks];
  h.equal(flags(queues.plain), [true, true, false, true, 0, 0, 0]);
  h.equal(flags(queues.kept), [true, true, true, true, 0, 0, 0]);
  h.equal(flags(queues.off), [false, false, false, true, 0, 0, 0]);
  h.equal(flags(queues.loose), [true, true, false, false, 0, 0, 0]);
});

inPage("define is idempotent, chains, survives, and may be called many times at once", async (h) => {
  const broker = await h.open();
  h.ok((await broker.define(h.shop())) === broker, "define gives the broker");
  await Promise.all(Array.from({ length: 5 }, () => broker.define(h.shop())));
  const again = await h.reopen(broker);
  await h.order(again);
  h.equal(await h.rows(again, "kitchen"), ["1 Order 0"]);
});

inPage("a define that fails defines nothing at all", async (h) => {
  const broker = await h.open();
  await h.rejects(broker.define({ messageTypes: { Fine: "none" }, queues: { fine: {} }, services: { Bad: { queue: "nowhere" } } }), { code: "QueueNotFound" });
  h.equal((await broker.queues()).map((queue) => queue.name), ["error"]);
  await h.rejects(broker.define({ contracts: { C: { Fine: "any" } } }), { code: "MessageTypeNotFound", number: 8428 });
});

// d22.
inPage("any well-formed name of 1 to 128 code points works from end to end, __proto__ and emoji included", async (h) => {
  const names = ["__proto__", "constructor", "toString", "hasOwnProperty", "😀".repeat(128), "x".repeat(128), " ", "a\u0000b", "Å", "A\u030a", "a", "A", "\uffff", "😀", "DEFAULT "];
  const definitions = JSON.parse("{}");
  for (const [section, value] of [["messageTypes", () => "none"], ["contracts", (name) => ({ [name]: "any" })], ["queues", () => ({ retention: true })]]) {
    definitions[section] = Object.fromEntries(names.map((name) => [name, value(name)]));
  }
  definitions.services = Object.fromEntries(names.map((name) => [name, { queue: name, contracts: [name] }]));
  h.ok(Object.hasOwn(definitions.queues, "__proto__"), "an own key");
  let broker = await h.open({ definitions });
  for (const name of names) await (await broker.beginDialog({ from: name, to: name, contract: name })).send(name, name);
  broker = await h.reopen(broker, { definitions });
  h.equal((await broker.queues()).map((queue) => queue.name).sort(), [...names, "error"].sort());
  for (const name of names) {
    const [message, ...rest] = await broker.receive(name);
    h.equal([message.messageTypeName, message.serviceContractName, message.serviceName, message.body, rest.length], [name, name, name, name, 0]);
    h.equal((await broker.conversations({ service: name }).toArray()).length, 2);
  }
});

inPage("__proto__ defined by defineProperty or parsed from JSON is a name; as a literal it is refused", async (h) => {
  const broker = await h.open();
  const queues = {};
  Object.defineProperty(queues, "__proto__", { value: {}, enumerable: true });
  await broker.define({ queues });
  await broker.define(JSON.parse('{ "queues": { "__proto__": { "retention": true } } }'));
  h.equal((await broker.queues()).find((queue) => queue.name === "__proto__")?.isRetentionEnabled, true);
  for (const definitions of [{ queues: { __proto__: {} } }, { queues: { __proto__: { retention: true } } }, { messageTypes: { __proto__: { a: 1 } } }, { contracts: { C: { __proto__: {} } } },
    Object.create({ queues: { inherited: {} } }), { queues: { q: Object.create({ retention: true }) } }, { queues: new Map([["m", {}]]) }]) {
    await h.rejects(broker.define(definitions), { code: "InvalidArgument" }, JSON.stringify(definitions));
  }
  h.equal((await broker.queues()).map((queue) => queue.name).sort(), ["__proto__", "error"]);
});

inPage("bad names are refused everywhere, and nothing is defined", async (h) => {
  const broker = await h.openShop();
  const before = (await broker.queues()).length;
  for (const bad of ["", "x".repeat(129), "😀".repeat(129), "\ud800", "a\udc00b"]) {
    for (const definitions of [{ queues: { [bad]: {} } }, { messageTypes: { [bad]: "none" } }, { contracts: { [bad]: { Order: "any" } } }, { services: { [bad]: { queue: "kitchen" } } }, { priorities: { [bad]: { level: 3 } } }]) {
      await h.rejects(broker.define(definitions), { code: "InvalidArgument" }, `${Object.keys(definitions)} ${bad.length}`);
    }
    await h.rejects(broker.receive(bad), { codes: ["InvalidArgument", "QueueNotFound"] });
    await h.rejects(h.dialog(broker, { to: bad }), { code: "InvalidArgument" });
  }
  h.equal((await broker.queues()).length, before);
});

inPage("unknown keys and values out of range are refused with the name of what is wrong", async (h) => {
  const broker = await h.openShop();
  const bad = {
    retentoin: { queues: { q: { retentoin: true } } }, queus: { queus: {} }, qeue: { services: { S: { queue: "kitchen", qeue: "x" } } }, levl: { priorities: { p: { level: 3, levl: 1 } } },
    maxRow: { queues: { q: { retention: { maxRow: 3 } } } }, paused: { queues: { q: { status: "paused" } } }, yes: { queues: { q: { retention: "yes" } } },
    both: { contracts: { C: { Order: "both" } } }, xml: { messageTypes: { M: "xml" } },
  };
  for (const [word, definitions] of Object.entries(bad)) {
    const error = await h.rejects(broker.define(definitions), { code: "InvalidArgument" }, word);
    h.match(`${error.message} ${JSON.stringify(error.details)}`, new RegExp(word), word);
  }
  for (const level of [0, 11, 1.5, -1, NaN, "5", undefined]) await h.rejects(broker.define({ priorities: { p: { level } } }), { code: "InvalidArgument" }, `level ${level}`);
  for (const definitions of [{ services: { S: {} } }, { queues: { q: null } }, { queues: [] }, { messageTypes: { M: 5 } }, { messageTypes: { M: {} } }, null, 5, "queues"]) {
    await h.rejects(broker.define(definitions), { code: "InvalidArgument" }, JSON.stringify(definitions));
  }
  h.equal((await broker.queues()).length, 3);
});

inPage("a contract needs a type that the initiator may send (8492), and types that exist", async (h) => {
  const broker = await h.openShop();
  for (const contract of [{}, { Confirm: "target" }, { Confirm: "target", Order: "target" }]) {
    const error = await h.rejects(broker.define({ contracts: { OneWay: contract } }), { code: "InvalidArgument", number: 8492 });
    h.match(error.message, /OneWay/);
  }
  const error = await h.rejects(broker.define({ contracts: { C: { Ordre: "initiator" } } }), { code: "MessageTypeNotFound", number: 8428 });
  h.match(error.message, /Ordre/);
  await h.rejects(broker.define({ services: { S: { queue: "nowhere" } } }), { code: "QueueNotFound" });
  await h.rejects(broker.define({ services: { S: { queue: "kitchen", contracts: ["Nothing"] } } }), { code: "ContractNotFound", number: 8425 });
  await h.rejects(h.dialog(broker, { contract: "OneWay" }), { code: "ContractNotFound" }, "was not stored");
  await broker.define({ contracts: { TwoWay: { Order: "any" } } });
});

inPage("system message types can neither be defined nor put into a contract", async (h, pb) => {
  const broker = await h.openShop();
  for (const type of Object.values(pb.SystemMessage)) {
    await h.rejects(broker.define({ messageTypes: { [type]: "none" } }), { codes: ["InvalidArgument", "AlreadyExists", "DefinitionConflict"] }, type);
    await h.rejects(broker.define({ contracts: { C: { [type]: "any" } } }), { codes: ["InvalidArgument", "MessageTypeNotFound"] }, type);
  }
});

inPage("definitions may grow, never change: DefinitionConflict names the difference (D33)", async (h) => {
  const broker = await h.openShop();
  await broker.define({ messageTypes: { Extra: "none" }, contracts: { Ordering: { Order: "initiator", Cancel: "initiator", Confirm: "target", Note: "any", Extra: "target" }, Second: { Extra: "any" } },
    services: { Kitchen: { queue: "kitchen", contracts: ["Ordering", "Second"] } } });
  const conflicts = {
    Cancel: { contracts: { Ordering: { Order: "initiator", Confirm: "target", Note: "any", Extra: "target" } } },
    Confirm: { contracts: { Ordering: { Order: "initiator", Cancel: "initiator", Confirm: "any", Note: "any", Extra: "target" } } },
    Second: { services: { Kitchen: { queue: "kitchen", contracts: ["Ordering"] } } },
    Kitchen: { services: { Kitchen: { queue: "counter", contracts: ["Ordering", "Second"] } } },
    counter: { services: { counter: { queue: "kitchen" } } },
  };
  for (const [word, definitions] of Object.entries(conflicts)) {
    const error = await h.rejects(broker.define(definitions), { code: "DefinitionConflict" }, word);
    h.match(`${error.message} ${JSON.stringify(error.details)}`, new RegExp(word), word);
  }
  await h.rejects(broker.define({ messageTypes: { Order: "empty" } }), { code: "DefinitionConflict" });
  const order = await h.order(broker);
  const kitchen = await h.farSide(broker, order);
  await kitchen.send("Extra", "grown");
  h.equal(h.bodies(await order.receive()), ["grown"], "an open conversation sees what the contract gained");
});

inPage("of a queue's options only those given are set, and status only when it is created", async (h) => {
  const broker = await h.open({ definitions: { queues: { q: { retention: true, poisonMessageHandling: false, status: "off" } } } });
  const queue = async () => (await broker.queues()).find((each) => each.name === "q");
  await broker.define({ queues: { q: {} } });
  h.equal([(await queue()).isRetentionEnabled, (await queue()).isPoisonMessageHandlingEnabled, (await queue()).isReceiveEnabled], [true, false, false]);
  await broker.define({ queues: { q: { status: "on", poisonMessageHandling: true } } });
  h.equal([(await queue()).isRetentionEnabled, (await queue()).isPoisonMessageHandlingEnabled, (await queue()).isReceiveEnabled], [true, true, false]);
  await broker.define({ queues: { q: { retention: false } } });
  h.equal((await queue()).isRetentionEnabled, false);
});

inPage("what this release does not have yet is NotSupported, and named", async (h, pb) => {
  const broker = await h.openShop();
  await h.order(broker, 1);
  const calls = {
    codec: () => pb.openBroker(h.name(), { codec: {} }),
  };
  for (const [option, call] of Object.entries(calls)) h.match((await h.rejects(call(), { code: "NotSupported" }, option)).message, new RegExp(option), option);
  h.equal([(await broker.queues()).map((queue) => [queue.name, queue.isRetentionEnabled]), await h.rows(broker, "kitchen")], [[["counter", false], ["error", false], ["kitchen", false]], ["1 Order 0"]]);
});

inPage("service names are compared by their code units: \"kitchen\" is not \"Kitchen\"", async (h) => {
  const broker = await h.openShop();
  await h.rejects(broker.beginDialog({ from: "counteR", to: "Kitchen", contract: "Ordering" }), { code: "ServiceNotFound", number: 8423 });
  await h.order(broker, 1, { to: "kItchen" });
  h.equal(await broker.count("kitchen"), 0);
});

// b23, b28.
inPage("validation: none, empty and json check the body at the call", async (h) => {
  const broker = await h.open({ definitions: h.shop({ messageTypes: { Nothing: "empty", Plain: "json" }, contracts: { Checked: { Nothing: "any", Plain: "any", Order: "any" } },
    services: { Kitchen: { queue: "kitchen", contracts: ["Ordering", "Checked"] } } }) });
  const conversation = await h.dialog(broker, { contract: "Checked" });
  const cyclic = {};
  cyclic.self = cyclic;
  for (const body of [null, 0, "", {}, []]) await h.rejects(conversation.send("Nothing", body), { code: "ValidationFailed", number: 8430 }, `empty ${JSON.stringify(body)}`);
  for (const body of [undefined, new Date(), new Map(), NaN, Infinity, 1n, cyclic, { a: undefined }, [undefined], { deep: [{ when: new Date() }] }, new Uint8Array(2), /x/]) {
    const error = await h.rejects(conversation.send("Plain", body), { code: "ValidationFailed", number: 8430 });
    h.match(error.message, /Plain/);
  }
  h.equal(await broker.count("kitchen"), 0, "nothing was stored");
  const good = [null, 0, "", "text", true, [], {}, { a: [1, { b: null }], "": "empty key" }, JSON.parse('{ "__proto__": 1 }')];
  await conversation.send("Nothing");
  await conversation.send("Nothing", undefined);
  for (const body of good) await conversation.send("Plain", body);
  await conversation.send("Order");
  const got = await broker.receive("kitchen");
  h.equal(h.bodies(got), [undefined, undefined, ...good, undefined]);
  h.equal(got.map((message) => message.validation).join(""), `EE${"J".repeat(good.length)}N`);
});

// d10, d23.
inPage("a Standard Schema validator checks, says what is wrong, and never changes the body", async (h) => {
  let calls = 0;
  const schema = { "~standard": { version: 1, vendor: "test", validate(value) {
    calls += 1;
    return typeof value?.id === "string" ? { value: { id: "changed by the validator" } } : { issues: [{ message: "id must be text", path: ["id"] }] };
  } } };
  const definitions = h.shop({ messageTypes: { Checked: schema }, contracts: { Strict: { Checked: "any" } }, services: { Kitchen: { queue: "kitchen", contracts: ["Ordering", "Strict"] } } });
  const broker = await h.open({ definitions });
  const conversation = await h.dialog(broker, { contract: "Strict" });
  await conversation.send("Checked", { id: "one", extra: new Date(5) });
  const error = await h.rejects(conversation.send("Checked", { id: 7 }), { code: "ValidationFailed", number: 8430, details: { issues: (issues) => issues[0].message === "id must be text" && issues[0].path[0] === "id" } });
  h.match(error.message, /Checked/);
  h.equal(calls, 2);
  const rows = await broker.select("kitchen").toArray();
  h.equal(rows.map((row) => [row.validation, row.body]), [["S", { id: "one", extra: new Date(5) }]]);
  const elsewhere = await h.reopen(broker);
  await h.rejects(elsewhere.send(conversation.handle, "Checked", { id: "two" }), { code: "ValidationFailed", details: { missing: true } });
  h.equal(h.bodies(await elsewhere.receive("kitchen")), [{ id: "one", extra: new Date(5) }], "receiving needs no validator");
  await elsewhere.define(definitions);
  await elsewhere.send(conversation.handle, "Checked", { id: "two" });
  h.equal(h.bodies(await elsewhere.receive("kitchen")), [{ id: "two" }]);
});

inPage("a body is checked by what was defined before it, whether or not that is awaited; what is defined after it is unknown", async (h) => {
  const broker = await h.openShop();
  const conversation = await h.dialog(broker);
  const grow = (...types) => broker.define({ messageTypes: Object.fromEntries(types.map((type) => [type, "json"])), contracts: { Ordering: { ...h.shop().contracts.Ordering, ...Object.fromEntries(types.map((type) => [type, "any"])) } } });
  const before = [grow("Before"), conversation.send("Before", new Map()), conversation.send("Before", { n: 1 })];
  h.equal((await Promise.allSettled(before)).map(({ status, reason }) => reason?.code ?? status), ["fulfilled", "ValidationFailed", "fulfilled"]);
  const after = [conversation.send("After", new Map()), grow("Before", "After"), conversation.send("After", { n: 2 })];
  const [first, ...rest] = (await Promise.allSettled(after)).map(({ status, reason }) => reason?.code ?? status);
  h.ok(["MessageTypeNotFound", "ValidationFailed"].includes(first), first);
  h.equal(rest, ["fulfilled", "fulfilled"]);
  await h.rejects(conversation.send("Never", new Map()), { code: "MessageTypeNotFound" });
  await h.rejects(broker.send(crypto.randomUUID(), "Never"), { code: "ConversationNotFound" });
  h.equal(await h.rows(broker, "kitchen"), ["1 Before 0", "1 After 1"]);
});

inPage("brokers of one database share their validators while one of them is open; brokers in memory have their own", async (h) => {
  const even = { "~standard": { version: 1, vendor: "test", validate: (value) => (value % 2 === 0 ? { value } : { issues: [{ message: "odd" }] }) } };
  const definitions = { messageTypes: { Even: even }, contracts: { C: { Even: "any" } }, queues: { q: {} }, services: { S: { queue: "q", contracts: ["C"] } } };
  const begin = (broker) => broker.beginDialog({ from: "S", to: "S", contract: "C" });
  const first = await h.open();
  const second = await h.open({}, first.name);
  await first.define(definitions);
  const third = await h.open({}, first.name);
  for (const broker of [second, third]) {
    const conversation = await begin(broker);
    await conversation.send("Even", 2);
    await h.rejects(conversation.send("Even", 3), { code: "ValidationFailed", details: { issues: (issues) => issues[0].message === "odd" } });
  }
  await first.close();
  await (await begin(third)).send("Even", 4);
  h.equal(await third.count("q"), 3);
  const name = h.name();
  const given = await h.open({ storage: "memory", definitions }, name);
  await (await begin(given)).send("Even", 2);
  const other = await h.open({ storage: "memory", definitions: { ...definitions, messageTypes: { Even: "json" } } }, name);
  await (await begin(other)).send("Even", 3);
});

// d10.
inPage("a validator that answers later is refused, at the call, for one and for many", async (h) => {
  const later = { "~standard": { version: 1, vendor: "test", validate: async (value) => ({ value }) } };
  const broker = await h.open({ definitions: { messageTypes: { Later: later }, contracts: { C: { Later: "any" } }, queues: { q: {} }, services: { S: { queue: "q", contracts: ["C"] } } } });
  const conversation = await broker.beginDialog({ from: "S", to: "S", contract: "C" });
  await h.rejects(conversation.send("Later", 1), { code: "ValidationFailed", details: { async: true } });
  await h.rejects(conversation.sendMany([{ messageType: "Later", body: 1 }]), { code: "ValidationFailed", details: { async: true } });
  h.equal([await broker.count("q"), await h.stateOf(broker, conversation)], [0, "SO"]);
});

inPage("a validator that throws fails its own send, and the next call works", async (h) => {
  const broken = { "~standard": { version: 1, vendor: "test", validate(value) { if (value === 1) throw new RangeError("the validator broke"); return { value }; } } };
  const broker = await h.open({ definitions: { messageTypes: { B: broken }, contracts: { C: { B: "any" } }, queues: { q: {} }, services: { S: { queue: "q", contracts: ["C"] } } } });
  const conversation = await broker.beginDialog({ from: "S", to: "S", contract: "C" });
  const settled = await Promise.allSettled([conversation.send("B", 0), conversation.send("B", 1), conversation.send("B", 2)]);
  h.equal(settled.map((each) => each.status), ["fulfilled", "rejected", "fulfilled"]);
  h.equal(h.bodies(await broker.receive("q")), [0, 2]);
});

// b03.
inPage("type and defineBroker cost nothing at run time", async (h, pb) => {
  const definitions = pb.defineBroker({ messageTypes: { Free: pb.type(), Plain: pb.type("json") }, contracts: { C: { Free: "any", Plain: "any" } }, queues: { q: {} }, services: { S: { queue: "q", contracts: ["C"] } } });
  h.equal([definitions.messageTypes.Free["~standard"].version, typeof definitions.messageTypes.Free["~standard"].validate], [1, "function"]);
  const broker = await h.open({ definitions });
  const conversation = await broker.beginDialog({ from: "S", to: "S", contract: "C" });
  await conversation.send("Free", new Map([[1, 2]]));
  await h.rejects(conversation.send("Plain", new Map()), { code: "ValidationFailed" });
  await conversation.send("Plain", { a: 1 });
  h.equal((await broker.receive("q")).map((message) => [message.validation, message.body]), [["N", new Map([[1, 2]])], ["J", { a: 1 }]]);
  const elsewhere = await h.reopen(broker);
  await elsewhere.send(conversation.handle, "Plain", { b: 1 });
  h.equal(await elsewhere.count("q"), 1, "no validator is missing: it is just a validation");
});
