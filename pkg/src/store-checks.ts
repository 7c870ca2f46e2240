// The contract of a delayed message store, check by check.
import { difference } from "./same.js";
import { bare, expect, say, type Instance, type Trial } from "./store-trial.js";
import type { DelayedMessage, DelayedMessageStore } from "./types/delayed.js";

/** One check: what it is called in an error, and for stores with which optional method. */
export interface Check {
  readonly name: string;
  readonly needs?: "setupInfrastructure" | "release" | "select" | "count";
  run(trial: Trial): Promise<void>;
}

const YEAR_9999 = Date.UTC(9999, 11, 31, 23, 59, 59, 999);
const MINUTE = 60_000;
/** What a fetch gave, in a sentence. */
const found = (message: DelayedMessage | null, messages: Readonly<Record<string, DelayedMessage>>): string =>
  (message === null ? "null" : Object.entries(messages).find(([, one]) => one.messageId === message.messageId)?.[0] ?? `a message with the id ${say(message.messageId)}, which nobody stored`);

/** Fetches, and expects this very message, or nothing. */
async function gives(instance: Instance, at: number, wanted: string | null, messages: Readonly<Record<string, DelayedMessage>>, when: string): Promise<void> {
  const message = await instance.fetch(at);
  const is = message?.messageId === (wanted === null ? undefined : messages[wanted]?.messageId);
  expect(is, `fetchNextDueTimeout to give ${wanted ?? "null"} ${when}`, `${instance.name} gave ${found(message, messages)}`);
}

async function isNext(instance: Instance, wanted: number | null, when: string): Promise<void> {
  const time = await instance.next();
  const shown = (at: number | null): string => (at === null ? "null" : say(new Date(at)));
  expect(time === wanted, `next to give ${shown(wanted)} ${when}`, `${instance.name} gave ${shown(time)}`);
}

/** JSON.parse makes keys of their own even of this name. */
const odd = (value: string): Record<string, string> => JSON.parse(`{"__proto__":"${value}","constructor":"${value}","":"","a.b c":"1","Ünï-çødé 🎉":"żółć\\u2028"}`) as Record<string, string>;

const cyclic: { self?: unknown } = {};
cyclic.self = cyclic;
/** What JSON keeps, and what it does not. */
const JSON_BODIES: Readonly<Record<string, unknown>> = {
  undefined, null: null, "an empty string": "", "a string with all kinds of characters": "żółć \0\n\"\\ 🎉 \u2028 <script>", "a number": -1.5, zero: 0, true: true, "an object": { dish: "soup", table: 4 },
  "a nested object": { a: [{ b: { c: [[], {}, [null]] } }] }, "an object with odd keys": { ...odd("x"), list: [odd("y")] }, "a string of 1 MiB": "0123456789abcdef".repeat(65_536),
};
const OTHER_BODIES: Readonly<Record<string, unknown>> = {
  "a Date": new Date(1_234_567), "a Map": new Map<unknown, unknown>([["k", 1], [2, new Map()]]), "a Set": new Set(["x"]), "a bigint": 12345678901234567890n, "a Uint8Array": new Uint8Array([0, 1, 255]),
  "NaN and -0": [NaN, -0, Infinity], "undefined inside": { a: undefined, b: [undefined] }, "an object within itself": cyclic,
};

const ADVICE = "A body is any value of structuredClone: `encodeBody` of pocket-broker makes fields of it that JSON keeps, and `decodeBody` the body again";

export const CHECKS: readonly Check[] = [
  {
    name: "setupInfrastructure: what is there",
    needs: "setupInfrastructure",
    async run(trial) {
      await trial.one.keeps(trial.message());
      await trial.setUp();
      await isNext(trial.one, trial.base, "after a tab that was opened later has set up what is there: it stays");
    },
  },
  {
    name: "initialize: again",
    async run(trial) {
      const messages = { "the message": trial.message() };
      await trial.one.keeps(messages["the message"]);
      await trial.one.call("initialize", (signal) => trial.one.store.initialize(trial.endpointName, trial.mode, signal));
      for (const instance of [trial.one, trial.other]) await isNext(instance, trial.base, "after a broker was opened anew with an instance that had been initialized before");
      await gives(trial.one, trial.base, "the message", messages, "after initialize was called again, which holds nothing");
    },
  },
  {
    name: "store: the same id twice",
    async run(trial) {
      const { one, other, base } = trial;
      const first = trial.message({ time: base, body: "first" });
      const second = { ...first, time: new Date(base - MINUTE), destination: "elsewhere", body: "second", numberOfRetries: 4 };
      await one.keeps(first);
      for (const instance of [one, other]) {
        expect(!await instance.stores(second), "store to answer false for an id that the store holds", `${instance.name} answered otherwise, which says that it is kept now`);
      }
      const kept = await one.fetch(base);
      expect(kept !== null && kept.body === "first" && kept.destination === first.destination && Number(kept.time) === base && kept.numberOfRetries === 0,
        "the message that was stored first to stay as it is when its id is stored again", kept === null ? "afterwards there was none" : `its body is ${say(kept.body)}, its time ${say(kept.time)}, its destination ${say(kept.destination)}`);
      expect(await one.fetch(base) === null, "one message for one id", "there are two");
      await one.removes(first);
      await one.keeps(first);
    },
  },
  {
    name: "store: the same id by two instances at once",
    async run(trial) {
      const messages = Array.from({ length: 5 }, () => trial.message());
      for (const message of messages) {
        const answers = await Promise.all([trial.one.stores(message), trial.other.stores({ ...message })]);
        expect(answers[0] !== answers[1], "one of two calls of store for the same id, made at once, to answer false", answers[0] ? "both said that it is kept now" : "both answered false");
      }
      const all = await trial.one.fetchAll(trial.base, 10);
      expect(all.length === messages.length, `${messages.length} messages after ${messages.length} ids were stored by two instances each`, `${all.length} were fetched`);
    },
  },
  {
    name: "round trip: fields",
    async run(trial) {
      const { one, other, base } = trial;
      const given = trial.message({ destination: "Ünï/çødé 🎉?#%", headers: odd("header"), properties: { ...odd("property"), messageType: "DEFAULT" }, numberOfRetries: 3, body: { n: 1 } });
      await one.keeps(given);
      const kept = await other.fetch(base);
      expect(kept !== null, "a message that one instance stored to be fetched by the other", "the other one gave null: instances with the same endpoint name share what they hold");
      const wrong = (["messageId", "destination", "time", "headers", "properties", "body", "numberOfRetries"] as const)
        .map((field) => difference(kept[field], given[field], field)).filter((path) => path !== undefined);
      expect(wrong.length === 0, "all fields of a message to come back as they were given", `these did not: ${wrong.join(", ")}. ${wrong.includes("time") ? `\`time\` is ${say(kept.time)}, and was ${say(given.time)}. ` : ""}Keys are any text, "__proto__" included`);
    },
  },
  {
    name: "round trip: bodies",
    async run(trial) {
      const { one, base } = trial;
      const given = new Map<string, [string, unknown]>();
      const wrong: string[] = [];
      for (const [kind, body] of Object.entries({ ...JSON_BODIES, ...OTHER_BODIES })) {
        const message = trial.message({ body });
        const outcome = await one.outcome("store", (signal) => one.store.store(message, signal));
        if ("error" in outcome) wrong.push(`${kind} was refused by store: ${String(outcome.error)}`);
        else given.set(message.messageId, [kind, body]);
      }
      for (const { messageId, body } of await one.fetchAll(base, given.size)) {
        const [kind, was] = given.get(messageId) ?? ["a message that nobody stored", undefined];
        given.delete(messageId);
        if (difference(body, was, "body") !== undefined) wrong.push(`${kind} came back as ${say(body)}`);
      }
      for (const [kind] of given.values()) wrong.push(`${kind} was not fetched`);
      const isJson = wrong.every((text) => Object.keys(OTHER_BODIES).some((kind) => text.startsWith(kind)));
      expect(wrong.length === 0, "every body to come back as it was given", `${wrong.join("; ")}.${isJson ? ` ${ADVICE}` : ""}`);
    },
  },
  {
    name: "round trip: times",
    async run(trial) {
      const { one } = trial;
      for (const time of [0, Date.now(), YEAR_9999]) {
        const message = trial.message({ time });
        await one.keeps(message);
        await isNext(one, time, `when that is the time of the only message`);
        await gives(one, time, "the message", { "the message": message }, `when its time is ${say(new Date(time))} and \`at\` the same`);
        await one.removes(message);
      }
    },
  },
  {
    name: "next",
    async run(trial) {
      const { one, other, base } = trial;
      await isNext(one, null, "when there are no messages");
      const [late, early] = [trial.message({ time: base + MINUTE }), trial.message({ time: base })];
      await one.keeps(late);
      await isNext(other, base + MINUTE, "when another instance has stored the only message");
      await one.keeps(early);
      for (const instance of [one, other]) await isNext(instance, base, "when the earlier of two messages was stored last");
      await one.fetch(base);
      for (const instance of [one, other]) await isNext(instance, base, "when the earliest message is held: `next` is of all messages");
      await one.removes(early);
      await isNext(other, base + MINUTE, "when the earlier of two messages has been removed");
    },
  },
  {
    name: "fetchNextDueTimeout: what is due",
    async run(trial) {
      const { one } = trial;
      await gives(one, YEAR_9999, null, {}, "when there are no messages");
      // Neither instant is now: it is due by `at`, not by the store's own clock.
      for (const time of [trial.base, Date.now() - 2 * 86_400_000]) {
        const messages = { "the message": trial.message({ time }) };
        await one.keeps(messages["the message"]);
        await gives(one, time - 1, null, messages, "when `at` is one millisecond before its time");
        await gives(one, time, "the message", messages, "when `at` is its time");
        await one.removes(messages["the message"]);
      }
    },
  },
  {
    name: "fetchNextDueTimeout: order",
    async run(trial) {
      const { one, other, base } = trial;
      const times = [3, 1, 2, 1, 3, 1, 2, 1].map((step) => base + step * 1_000);
      const messages = times.map((time) => trial.message({ time }));
      for (const [index, message] of messages.entries()) await (index % 2 === 0 ? one : other).keeps(message);
      const wanted = [1, 3, 5, 7, 2, 6, 0, 4];
      const order = (await one.fetchAll(base + MINUTE, messages.length)).map(({ messageId }) => messages.findIndex((message) => message.messageId === messageId));
      expect(order.join() === wanted.join(), `messages by their times, and of equal times those first that were stored first: ${wanted.join(", ")}`, `they came as ${order.join(", ") || "none"}`);
    },
  },
  {
    name: "fetchNextDueTimeout: holds",
    async run(trial) {
      const { one, other, base } = trial;
      const messages = { "the first message": trial.message(), "the second message": trial.message({ time: base + 1 }), "the third message": trial.message({ time: base + 2 }) };
      await one.keeps(...Object.values(messages));
      await gives(one, base + 2, "the first message", messages, "at first");
      await gives(one, base + 2, "the second message", messages, "while it holds the first itself");
      await gives(other, base + 2, "the third message", messages, "while another instance holds the two before it");
      for (const instance of [one, other]) await gives(instance, base + 2, null, messages, "while all of them are held");
    },
  },
  {
    name: "fetchNextDueTimeout: two instances at once",
    async run(trial) {
      const { one, other, base } = trial;
      const messages = Array.from({ length: 20 }, (_, index) => trial.message({ time: base + index % 4 }));
      await Promise.all(messages.map((message, index) => (index % 2 === 0 ? one : other).keeps(message)));
      const counts = new Map<string, number>();
      const drain = async (instance: Instance): Promise<void> => {
        for (const message of await instance.fetchAll(base + 4, messages.length)) {
          counts.set(message.messageId, (counts.get(message.messageId) ?? 0) + 1);
        }
      };
      await Promise.all([drain(one), drain(other)]);
      const twice = [...counts.values()].filter((count) => count > 1).length;
      const never = messages.filter(({ messageId }) => !counts.has(messageId)).length;
      expect(twice === 0 && never === 0, "each of 20 messages to be fetched once, when two instances fetch at once", `${twice} were fetched more than once, and ${never} never`);
    },
  },
  {
    name: "release",
    needs: "release",
    async run(trial) {
      const { one, other, base } = trial;
      const messages = { "the message": trial.message() };
      await one.keeps(messages["the message"]);
      await one.fetch(base);
      const release = async (messageId: string): Promise<void> => one.call("release", async (signal) => one.store.release?.(bare(messageId), signal));
      await release(messages["the message"].messageId);
      await gives(other, base, "the message", messages, "after the instance that held it has released it, by its id alone");
      await one.removes(messages["the message"]);
      await release(messages["the message"].messageId);
      await isNext(one, null, "after what is gone was released");
    },
  },
  {
    name: "remove",
    async run(trial) {
      const { one, other, base } = trial;
      const messages = { "the first message": trial.message(), "the second message": trial.message() };
      const { "the first message": first, "the second message": second } = messages;
      await one.keeps(first, second);
      const removes = async (instance: Instance, message: DelayedMessage, wanted: boolean, when: string): Promise<void> =>
        expect(await instance.removes(message) === wanted, `remove to answer ${wanted} ${when}`, `${instance.name} answered ${!wanted}`);
      await one.fetch(base);
      await removes(one, first, true, "for a message that it holds");
      for (const instance of [one, other]) await removes(instance, first, false, "for a message that is gone");
      await gives(other, base, "the second message", messages, "after the one before it was removed");
      await removes(one, second, true, "for a message that another instance holds: it was cancelled");
      await isNext(one, null, "after all was removed");
      await removes(one, trial.message(), false, "for an id that was never stored");
    },
  },
  {
    name: "remove: by two instances at once",
    async run(trial) {
      for (let round = 0; round < 5; round += 1) {
        const message = trial.message();
        await trial.one.keeps(message);
        const answers = await Promise.all([trial.one.removes(message), trial.other.removes(message)]);
        expect(answers[0] !== answers[1], "one of two calls of remove for the same message, made at once, to answer true", `both answered ${answers[0]}`);
      }
    },
  },
  {
    name: "incrementFailureCount",
    async run(trial) {
      const { one, other, base } = trial;
      const messages = { "the message": trial.message({ numberOfRetries: 1, headers: { trace: "t" }, body: [1] }) };
      const { "the message": message } = messages;
      await one.keeps(message);
      let retries = 1;
      for (const [holder, next] of [[one, base + MINUTE], [other, base + 2 * MINUTE]] as const) {
        const at = retries === 1 ? base : base + MINUTE;
        await holder.fetch(at);
        expect(await holder.increments(message, next), "incrementFailureCount to answer true for a message that is there", `${holder.name} answered false`);
        retries += 1;
        await isNext(one, next, "after incrementFailureCount: `nextAttempt` becomes the time of the message");
        await gives(holder, next - 1, null, messages, "one millisecond before `nextAttempt`");
      }
      const kept = await one.fetch(base + 2 * MINUTE);
      expect(kept !== null, "a message to be fetched at `nextAttempt`, since incrementFailureCount ends its hold", "one instance gave null");
      expect(kept.numberOfRetries === 3, "incrementFailureCount to add one to `numberOfRetries` each time: 3, from 1", `the fetched message says ${say(kept.numberOfRetries)}`);
      expect(Number(kept.time) === base + 2 * MINUTE, "the fetched message's `time` to be `nextAttempt`", `it is ${say(kept.time)}`);
      const wrong = (["destination", "headers", "properties", "body"] as const).map((field) => difference(kept[field], message[field], field)).filter((path) => path !== undefined);
      expect(wrong.length === 0, "the other fields to stay as they are", `these did not: ${wrong.join(", ")}`);
      await one.removes(message);
      for (const gone of [message, trial.message()]) expect(!await one.increments(gone, base), "incrementFailureCount to answer false for a message that is gone", "it answered true");
      await isNext(one, null, "after incrementFailureCount for a message that is gone: it stores nothing");
    },
  },
  {
    name: "by the id alone",
    async run(trial) {
      const { one, other, base } = trial;
      const [first, second] = [trial.message({ numberOfRetries: 3 }), trial.message({ time: base + MINUTE })];
      await one.keeps(first, second);
      expect(await other.increments(bare(first.messageId), base + 1), "incrementFailureCount to find a message by its `messageId` alone", "it answered false when the other fields were empty");
      const kept = await one.fetch(base + 1);
      expect(kept?.messageId === first.messageId && kept.numberOfRetries === 4 && kept.destination === first.destination && kept.body === first.body,
        "incrementFailureCount to go by what the store holds: `numberOfRetries` 4, from 3, and all else as it was", kept === null ? "afterwards the message could not be fetched" : `it is a message with \`numberOfRetries\` ${say(kept.numberOfRetries)}, \`destination\` ${say(kept.destination)} and \`body\` ${say(kept.body)}`);
      for (const { messageId } of [first, second]) expect(await other.removes(bare(messageId)), "remove to find a message by its `messageId` alone", "it answered false when the other fields were empty");
      await isNext(one, null, "after all was removed");
    },
  },
  {
    name: "select",
    needs: "select",
    async run(trial) {
      const { one, other, base } = trial;
      const messages = [trial.message({ time: base + 2 }), trial.message({ time: base, destination: "parcels" }), trial.message({ time: base + 1, destination: "parcels" }), trial.message({ time: base })];
      const select = async (filter: Parameters<NonNullable<DelayedMessageStore["select"]>>[0], wanted: readonly number[], when: string): Promise<void> => {
        const answer: unknown = await other.call("select", async (signal) => other.store.select?.(filter, signal));
        expect(Array.isArray(answer), "select to answer an array of messages", `it answered ${say(answer)}`);
        const order = (answer as DelayedMessage[]).map((row) => messages.findIndex((message) => difference(row, message, "") === undefined || message.messageId === row.messageId));
        expect(order.join() === wanted.join(), `select to give the messages ${wanted.join(", ") || "(none)"} ${when}`, `it gave ${order.join(", ") || "none"}`);
        for (const [index, row] of (answer as DelayedMessage[]).entries()) {
          const path = difference(row, messages[wanted[index] ?? 0], "message");
          expect(path === undefined, "select to give messages as they were stored", `\`${path ?? ""}\` is another`);
        }
      };
      await select({}, [], "when there are none");
      await one.keeps(...messages);
      await one.fetch(base);
      await select({}, [1, 3, 2, 0], "without a filter: by time, then as they were stored, held or not");
      await select({ destination: "parcels" }, [1, 2], "for one destination");
      await select({ destination: "parcel" }, [], "for a destination that none has");
      await select({ before: new Date(base + 1) }, [1, 3], "with a time before that of the third");
      await select({ limit: 2 }, [1, 3], "with a limit of 2");
      await select({ destination: "letters", before: new Date(base + 2), limit: 1 }, [3], "with all three filters");
      await gives(other, base, "a message", { "a message": messages[3] as DelayedMessage }, "after select, which holds nothing");
    },
  },
  {
    name: "count",
    needs: "count",
    async run(trial) {
      const { one, other, base } = trial;
      const counts = async (wanted: number, when: string): Promise<void> => {
        const answer: unknown = await other.call("count", async (signal) => other.store.count?.(signal));
        expect(answer === wanted, `count to answer ${wanted} ${when}`, `it answered ${say(answer)}`);
      };
      await counts(0, "when there are no messages");
      const messages = [trial.message(), trial.message(), trial.message({ time: base + MINUTE })];
      await one.keeps(...messages);
      await one.fetch(base);
      await counts(3, "for three messages, held or not, due or not");
      await one.removes(messages[0] as DelayedMessage);
      await counts(2, "after one was removed");
    },
  },
  {
    name: "an aborted signal",
    async run(trial) {
      const { one, other, base } = trial;
      const [kept, late] = [trial.message(), trial.message({ time: base - 1 })];
      await one.keeps(kept);
      const signal = AbortSignal.abort(new DOMException("The broker was closed", "AbortError"));
      const { store } = one;
      const calls: Partial<Record<keyof DelayedMessageStore, () => Promise<unknown>>> = {
        store: () => Promise.resolve(store.store(late, signal)), remove: () => store.remove(kept, signal), incrementFailureCount: () => store.incrementFailureCount(kept, new Date(base + MINUTE), signal),
        next: () => store.next(signal), fetchNextDueTimeout: () => store.fetchNextDueTimeout(new Date(base), signal),
        ...(store.select !== undefined && { select: () => store.select?.({}, signal) ?? Promise.resolve() }), ...(store.count !== undefined && { count: () => store.count?.(signal) ?? Promise.resolve() }),
      };
      const deaf: string[] = [];
      for (const [method, call] of Object.entries(calls)) if (!("error" in await one.outcome(method as keyof DelayedMessageStore, call))) deaf.push(method);
      expect(deaf.length === 0, "each method to reject when its signal is aborted already", `these resolved: ${deaf.join(", ")}`);
      await isNext(other, base, "after calls whose signal was aborted already: they do nothing");
      await gives(other, base, "the message", { "the message": kept }, "after calls whose signal was aborted already: they hold nothing");
    },
  },
  {
    name: "endpoints",
    async run(trial) {
      const { one, other, base } = trial;
      const messages = { "the message": trial.message() };
      const { "the message": message } = messages;
      await one.keeps(message);
      const elsewhere = await trial.elsewhere();
      try {
        await isNext(elsewhere, null, "at an endpoint that has no messages: those of other endpoints are not its own");
        await gives(elsewhere, base, null, messages, "at an endpoint that has no messages");
        const answers = [await elsewhere.removes(message), await elsewhere.increments(message, base + MINUTE)];
        expect(!answers.includes(true), "remove and incrementFailureCount to answer false at an endpoint that does not have the message", "one answered true");
        expect(await elsewhere.stores({ ...message, body: "elsewhere" }), "store to take an id that another endpoint has", "it answered false");
      } finally {
        await elsewhere.outcome("remove", (signal) => elsewhere.store.remove(message, signal));
      }
      await isNext(one, base, "after the message with the same id at another endpoint was removed");
      await gives(other, base, "the message", messages, "after other endpoints were used");
    },
  },
];
