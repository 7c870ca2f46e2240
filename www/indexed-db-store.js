/** Keeps delayed messages in an IndexedDB database of its own. */
const HOLD = 60_000;

export function indexedDbStore(databaseName, { now = Date.now } = {}) {
  const instance = crypto.randomUUID();
  let endpoint;
  let opening;

  function open() {
    opening ??= new Promise((resolve, reject) => {
      const request = indexedDB.open(databaseName, 1);
      request.onupgradeneeded = () => {
        // The key is the order of storing. Of equal times the index gives the lower key first.
        const messages = request.result.createObjectStore("messages", { keyPath: "order", autoIncrement: true });
        messages.createIndex("due", ["endpoint", "time"]);
        messages.createIndex("id", ["endpoint", "messageId"], { unique: true });
      };
      request.onsuccess = () => {
        const database = request.result;
        const forget = () => { opening = undefined; };
        database.onclose = forget; // the next call opens it again
        database.onversionchange = () => { database.close(); forget(); }; // nobody who deletes the database waits for this tab
        resolve(database);
      };
      request.onerror = () => { opening = undefined; reject(request.error); };
    });
    return opening;
  }

  /** One transaction. Resolves after `complete`, with what `work` has handed to `give` last. */
  async function transact(mode, signal, work) {
    signal.throwIfAborted();
    const database = await open();
    signal.throwIfAborted();
    const transaction = database.transaction("messages", mode, { durability: "strict" });
    // It may be over by then.
    const abort = () => { try { transaction.abort(); } catch {} };
    signal.addEventListener("abort", abort);
    try {
      return await new Promise((resolve, reject) => {
        let answer;
        transaction.oncomplete = () => resolve(answer);
        transaction.onabort = () => reject(signal.aborted ? signal.reason : transaction.error);
        work(transaction.objectStore("messages"), (value) => { answer = value; });
      });
    } finally {
      signal.removeEventListener("abort", abort);
    }
  }

  /** Changes the message with this id, or deletes it if `change` gives nothing. Whether it was there. */
  const withId = (messageId, signal, change) => transact("readwrite", signal, (messages, give) => {
    give(false);
    messages.index("id").openCursor([endpoint, messageId]).onsuccess = ({ target: { result: cursor } }) => {
      if (!cursor) return;
      give(true);
      const row = change(cursor.value);
      if (row) cursor.update(row);
      else cursor.delete();
    };
  });

  const messageOf = ({ messageId, destination, time, headers, properties, body, numberOfRetries }) =>
    ({ messageId, destination, time: new Date(time), headers, properties, body, numberOfRetries });
  /** The messages with a time up to `last`, by time, then by order. */
  const upTo = (last) => IDBKeyRange.bound([endpoint], [endpoint, last]);

  return {
    async setupInfrastructure({ signal }) {
      await open();
      signal.throwIfAborted();
    },

    async initialize(endpointName, transactionMode, signal) {
      if (transactionMode === "transaction-scope") throw new Error("Two databases have no transaction in common.");
      endpoint = endpointName;
      await open();
      signal.throwIfAborted();
    },

    store: (message, signal) => transact("readwrite", signal, (messages, give) => {
      give(true);
      messages.add({ ...message, endpoint, time: message.time.getTime(), heldBy: null, heldUntil: 0 }).onerror = (event) => {
        if (event.target.error.name !== "ConstraintError") return; // aborts the transaction
        event.preventDefault();
        event.stopPropagation();
        give(false);
      };
    }),

    remove: ({ messageId }, signal) => withId(messageId, signal, () => null),

    incrementFailureCount: ({ messageId }, nextAttempt, signal) => withId(messageId, signal, (row) =>
      ({ ...row, numberOfRetries: row.numberOfRetries + 1, time: nextAttempt.getTime(), heldBy: null, heldUntil: 0 })),

    async release({ messageId }, signal) {
      await withId(messageId, signal, (row) => (row.heldBy === instance ? { ...row, heldBy: null, heldUntil: 0 } : row));
    },

    next: (signal) => transact("readonly", signal, (messages, give) => {
      give(null);
      messages.index("due").openKeyCursor(upTo(Infinity)).onsuccess = ({ target: { result: cursor } }) => {
        if (cursor) give(new Date(cursor.key[1]));
      };
    }),

    fetchNextDueTimeout: (at, signal) => transact("readwrite", signal, (messages, give) => {
      give(null);
      const clock = now();
      messages.index("due").openCursor(upTo(at.getTime())).onsuccess = ({ target: { result: cursor } }) => {
        if (!cursor) return;
        const row = cursor.value;
        // A hold that lies further ahead than holds are long is of before the clock was set back.
        if (row.heldUntil > clock && row.heldUntil <= clock + HOLD) {
          cursor.continue();
        } else {
          cursor.update({ ...row, heldBy: instance, heldUntil: clock + HOLD });
          give(messageOf(row));
        }
      };
    }),

    select: ({ destination, before, limit = Infinity }, signal) => transact("readonly", signal, (messages, give) => {
      const found = [];
      give(found);
      messages.index("due").openCursor(upTo(Infinity)).onsuccess = ({ target: { result: cursor } }) => {
        if (!cursor || found.length >= limit || (before && cursor.value.time >= before.getTime())) return;
        if (destination === undefined || cursor.value.destination === destination) found.push(messageOf(cursor.value));
        cursor.continue();
      };
    }),

    count: (signal) => transact("readonly", signal, (messages, give) => {
      messages.index("due").count(upTo(Infinity)).onsuccess = ({ target }) => give(target.result);
    }),
  };
}
