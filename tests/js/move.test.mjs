/** MOVE CONVERSATION: groups change, and what is unread goes along (D9, D16, D29, section 2.5). */
import { inPage } from "./fixtures/harness.mjs";

inPage("b51: unread messages are received under the new group", async (h) => {
  const broker = await h.openShop();
  const [one, two] = [await h.order(broker, 2), await h.order(broker, 1)];
  const [first, second] = [await h.farSide(broker, one), await h.farSide(broker, two)];
  const group = (await second.info()).conversationGroupId;
  h.equal(await first.moveTo(second), undefined);
  h.equal((await first.info()).conversationGroupId, group);
  const got = await broker.receive("kitchen", { group });
  h.equal(got.map((message) => [message.conversationHandle === first.handle, message.conversationGroupId === group]), [[true, true], [true, true], [false, true]]);
  h.equal((await one.info()).conversationGroupId, one.groupId, "groups are local");
});

inPage("d9: a handle, a group, an object, a received message; an unknown group is made", async (h) => {
  const broker = await h.openShop();
  const [one, two, three] = [await h.dialog(broker), await h.dialog(broker), await h.dialog(broker)];
  const groupOf = async (each) => (await broker.conversation(each).info()).conversationGroupId;
  await broker.moveConversation(one, two.handle);
  h.equal(await groupOf(one), two.groupId);
  const made = crypto.randomUUID();
  await broker.moveConversation(one.handle, made.toUpperCase());
  h.equal(await groupOf(one), made);
  await three.moveTo({ conversationHandle: one.handle });
  h.equal(await groupOf(three), made);
  await three.moveTo(three);
  h.equal(await groupOf(three), made, "it is in that group");
  await two.end();
  const lost = await h.rejects(one.moveTo(two), { code: "ConversationNotFound", number: 8426 }, "an object stands for a conversation");
  h.equal(lost.details.handle, two.handle);
  await h.rejects(broker.moveConversation(two, made), { code: "ConversationNotFound" });
  for (const wrong of ["", "kitchen", 5, null, undefined, {}]) await h.rejects(one.moveTo(wrong), { code: "InvalidArgument", details: { argument: "to" } }, String(wrong));
  h.equal(await groupOf(one), made);
});

inPage("b50, d16: groups of one queue and service, states SO, CO, DI and ER, both groups held", async (h) => {
  const broker = await h.openShop({ kitchen: {}, services: { Other: { queue: "counter" } } }, { lockTimeout: 50 });
  const one = await h.order(broker, 1);
  const other = await broker.beginDialog({ from: "Other", to: "Kitchen", contract: "Ordering" });
  await h.rejects(one.moveTo(await h.farSide(broker, one)), { code: "GroupInvalid", number: 8439 });
  await h.rejects(one.moveTo(other), { code: "GroupInvalid", number: 9610 });
  const two = await h.order(broker, 1);
  await broker.transaction(async (tx) => {
    await tx.moveConversation(one, two);
    for (const each of [one, two]) await h.rejects(each.end(), { code: "GroupLocked", number: 1222 });
  });
  h.equal((await one.info()).conversationGroupId, two.groupId);
  await broker.alterQueue("kitchen", { status: "off" });
  await one.end();
  await h.rejects(one.moveTo(crypto.randomUUID()), { code: "InvalidState", number: 8438, details: { state: "DO" } });
});

inPage("d29: inside a transaction the move is seen, and a rollback undoes it", async (h) => {
  const broker = await h.openShop();
  const [one, two] = [await h.order(broker, 1), await h.order(broker, 1)];
  const [first, second] = [await h.farSide(broker, one), await h.farSide(broker, two)];
  const before = (await first.info()).conversationGroupId;
  const saga = crypto.randomUUID();
  const work = async (tx) => {
    const [message] = await tx.receive("kitchen", { conversation: first });
    await tx.moveConversation(message, saga);
    await tx.moveConversation(second, saga);
    await tx.setGroupState(saga, { orders: 2 });
    h.equal([await tx.getGroupState(first), (await tx.receive("kitchen", { group: saga })).length], [{ orders: 2 }, 1]);
  };
  const reason = new RangeError("no");
  h.ok(await broker.transaction(async (tx) => { await work(tx); throw reason; }).catch((caught) => caught) === reason);
  h.equal([(await first.info()).conversationGroupId, await broker.count("kitchen")], [before, 2]);
  await broker.transaction(work);
  h.equal([await broker.getGroupState(saga), await broker.count("kitchen"), (await broker.conversations({ group: saga }).toArray()).length], [{ orders: 2 }, 0, 2]);
  await h.rejects(broker.getGroupState(before), { code: "GroupNotFound" });
});
