/** Programs that must compile, and lines that must not. */
import { BrokerError, defineBroker, deleteBroker, init, isBrokerError, MessageStatus, openBroker, SystemMessage, type } from "pocket-broker";
import { httpTransport, replay, toStoredRequest } from "pocket-broker/http";
import { handleSync, registerBackgroundSync } from "pocket-broker/service-worker";
import type { StoredRequest } from "pocket-broker/http";
import { natsTransport } from "pocket-broker/nats";
import type { Broker, BrokerErrorCode, Conversation, Message, Transaction } from "pocket-broker";

interface Order { id: string; dish: string }

const shop = defineBroker({
  messageTypes: { Order: type<Order>(), Confirm: type<{ minutes: number }>("json"), Cancel: "empty", Note: "none" },
  contracts: { Ordering: { Order: "initiator", Cancel: "initiator", Confirm: "target", Note: "any" } },
  queues: { counter: { retention: true }, kitchen: { retention: { maxRows: 100 }, archive: true } },
  services: { Counter: { queue: "counter" }, Kitchen: { queue: "kitchen", contracts: ["Ordering"] } },
  priorities: { urgent: { contract: "Ordering", level: 9 } },
});

export async function program(signal: AbortSignal): Promise<number> {
  await init(new URL("https://example.org/pocket_broker_bg.wasm"));
  await using broker: Broker = await openBroker("shop", { definitions: shop, durability: "relaxed", lockTimeout: 100, signal });
  broker.addEventListener("close", (event) => { const reason: "closed" | "deleted" | "upgraded-elsewhere" | "storage-lost" = event.detail.reason; return reason; });
  broker.addEventListener("message-dropped", ({ detail }) => detail.message?.body);
  const dialog: Conversation = await broker.beginDialog({ from: "Counter", to: "Kitchen", contract: "Ordering" });
  const id: string = await dialog.send("Order", { id: "1", dish: "soup" });
  const ids: string[] = await broker.send([dialog, dialog.handle], "Note");
  const [message] = await broker.receive<Order>("kitchen", { top: 1, conversation: dialog });
  if (message === undefined) return ids.length;
  const minutes: number = await broker.transaction(async (tx: Transaction) => {
    await tx.send(message, "Confirm", { minutes: message.body.dish.length });
    await tx.setGroupState(message, { id });
    return 5;
  });
  for await (const row of broker.select<Order>("kitchen", { status: [MessageStatus.RetainedReceived, MessageStatus.RetainedSent], reverse: true })) {
    const order: Message<Order> = row;
    if (order.messageTypeName === SystemMessage.EndDialog) await broker.endConversation(order, { archive: true });
  }
  const { discarded, archived } = await dialog.end({ error: { code: 1, description: "no soup" } });
  await deleteBroker("shop");
  return minutes + discarded + archived;
}

export function overNats(connection: Parameters<typeof natsTransport>[0]["connection"]): ReturnType<typeof natsTransport>[] {
  return [
    natsTransport({ connection, stream: "POCKET", subjectPrefix: "shop", onError: (error) => { const text: string = error.message; return text; } }),
    // @ts-expect-error: no stream.
    natsTransport({ connection }),
    // @ts-expect-error: no connection.
    natsTransport({ connection: {}, stream: "POCKET" }),
  ];
}

export function codeOf(error: unknown): BrokerErrorCode | null {
  if (isBrokerError(error, "GroupLocked", "Closed")) return error.code;
  return error instanceof BrokerError ? error.code : null;
}

export function refused(broker: Broker): unknown[] {
  return [
    // @ts-expect-error: not a code.
    isBrokerError(null, "NoSuchCode"),
    // @ts-expect-error: `from` and `to` are required.
    broker.beginDialog({ to: "Kitchen" }),
    // @ts-expect-error: no such option.
    broker.receive("kitchen", { topp: 1 }),
    // @ts-expect-error: no such direction.
    broker.define({ contracts: { C: { Order: "both" } } }),
    // @ts-expect-error: no such durability.
    openBroker("shop", { durability: "eventual" }),
    // @ts-expect-error: a description is required.
    broker.endConversation("handle", { error: { code: 1 } }),
    // @ts-expect-error: a row is not a conversation's handle in disguise.
    broker.send(5, "Order"),
    // @ts-expect-error: no such status.
    broker.count("kitchen", { status: 4 }),
  ];
}

export function inTheBackground(registration: ServiceWorkerRegistration, broker: Broker): void {
  const end: () => void = handleSync(async () => {
    const opened = await openBroker("shop");
    await opened.route({ service: "*", transport: httpTransport({ url: "/messages" }) });
    return opened;
  }, { tag: "shop", queues: { requests: replay(), mail: { DEFAULT: async (message, tx) => { await tx.send(message, "DEFAULT"); } } } });
  end();
  registerBackgroundSync(registration, broker, { tag: "shop", queues: ["requests"] })();
  // @ts-expect-error a function that opens it
  handleSync(broker);
  // @ts-expect-error names alone
  registerBackgroundSync(registration, broker, { queues: { requests: replay() } });
}

export async function outbox(broker: Broker, request: Request): Promise<void> {
  const stored: StoredRequest = await toStoredRequest(request);
  await broker.enqueue("requests", stored, { key: stored.url });
  await broker.drain("requests", replay({ headers: async () => ({ Authorization: "Bearer x" }), timeout: 5_000, fetch }), { maxReaders: 4 });
  httpTransport({ url: "/orders", request: ({ messageType, sequence }) => (messageType === "Order" ? { method: "PUT", headers: { "X-Number": String(sequence) } } : null) });
  httpTransport({ url: new URL("https://example.org/wire"), protocol: "envelope", reply: async (response) => ({ messageType: "Confirm", body: await response.json() }) });
  // @ts-expect-error an address is needed
  httpTransport({});
  // @ts-expect-error there is no such protocol
  httpTransport({ url: "/", protocol: "grpc" });
}
