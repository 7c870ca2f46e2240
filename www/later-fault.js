// @ts-check
// Makes IndexedDB refuse, in this tab, to read what is due: for the circuit breaker. Nothing is written or lost by it.

/** The store that delayed messages lie in. It is read for writing only by who looks for what is due. */
const STORE = "delayed";

let isOn = false;

/** @param {boolean} fails */
export function failFetching(fails) {
  isOn = fails;
}

for (const name of /** @type {const} */ (["getAll", "getAllKeys"])) {
  const original = IDBObjectStore.prototype[name];
  /** @this {IDBObjectStore} @param {Parameters<typeof original>} given */
  IDBObjectStore.prototype[name] = function refusing(...given) {
    if (isOn && this.name === STORE && this.transaction.mode === "readwrite") throw new DOMException("This tab pretends that its disk can’t be read.", "UnknownError");
    return original.apply(this, given);
  };
}
