// @ts-check
// Makes IndexedDB refuse some things in this tab: to read what is due, for the circuit breaker; to keep what is delivered, for the retries. Nothing is lost by it.

/** The store that delayed messages lie in. It is read for writing only by who looks for what is due. */
const DELAYED = "delayed";
/** The store that the messages of queues lie in, and the service whose messages it goes on taking: that of the error queue, which every database has first. */
const MESSAGES = "messages";
const ERROR_SERVICE = 1;

const refuses = { fetching: false, delivering: false };

/** @param {boolean} fails */
export function failFetching(fails) {
  refuses.fetching = fails;
}

/** @param {boolean} fails */
export function failDelivering(fails) {
  refuses.delivering = fails;
}

for (const name of /** @type {const} */ (["getAll", "getAllKeys"])) {
  const original = IDBObjectStore.prototype[name];
  /** @this {IDBObjectStore} @param {Parameters<typeof original>} given */
  IDBObjectStore.prototype[name] = function refusing(...given) {
    if (refuses.fetching && this.name === DELAYED && this.transaction.mode === "readwrite") throw new DOMException("This tab pretends that its disk can’t be read.", "UnknownError");
    return original.apply(this, given);
  };
}

const put = IDBObjectStore.prototype.put;
/** @this {IDBObjectStore} @param {Parameters<typeof put>} given */
IDBObjectStore.prototype.put = function refusing(...given) {
  if (refuses.delivering && this.name === MESSAGES && given[0]?.s !== ERROR_SERVICE) throw new DOMException("This tab pretends that its disk is full.", "QuotaExceededError");
  return put.apply(this, given);
};
