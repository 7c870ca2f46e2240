// @ts-check
// The page's store of its own: the worked one of docs/custom-delayed-message-store.md, over a second database, which can be made to fail.
import { indexedDbStore } from "./indexed-db-store.js";

/** @typedef {import("./broker.js").DelayedMessageStore} DelayedMessageStore */

/** Where it keeps messages. */
export const ELSEWHERE = "pocket-broker-later-elsewhere";
/** Whether it is used: the same in all tabs, since a broker without it neither polls it nor shows what it has. */
export const CHOICE = "pocket-broker-later.store";

export const usesStore = () => localStorage.getItem(CHOICE) === "own";

/** @param {boolean} isOwn */
export function chooseStore(isOwn) {
  if (isOwn) localStorage.setItem(CHOICE, "own");
  else localStorage.removeItem(CHOICE);
}

let fails = false;

/** Its database can't be written to any more, in this tab. Looking at what it has goes on. @param {boolean} isOn */
export function failStore(isOn) {
  fails = isOn;
}

const WRITING = /** @type {const} */ (["store", "remove", "incrementFailureCount", "fetchNextDueTimeout", "release"]);

/** @param {() => number} now by the clock of the page @returns {DelayedMessageStore} */
export function ownStore(now) {
  const store = /** @type {any} */ (indexedDbStore(ELSEWHERE, { now }));
  for (const method of WRITING) {
    const original = store[method];
    store[method] = async (/** @type {unknown[]} */ ...given) => {
      if (fails) throw new DOMException("This tab pretends that the other database can’t be written to.", "UnknownError");
      return original(...given);
    };
  }
  return store;
}

/** Deletes the other database, for every tab. @returns {Promise<void>} */
export const forgetElsewhere = () => new Promise((resolve, reject) => {
  const request = indexedDB.deleteDatabase(ELSEWHERE);
  request.onsuccess = () => resolve();
  request.onerror = () => reject(request.error);
});
