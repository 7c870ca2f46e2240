/** The other side of every ratio: one object store, and nothing that plain IndexedDB would not ask for. */

const promised = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});
const completed = (transaction) => new Promise((resolve, reject) => {
  transaction.oncomplete = () => resolve();
  transaction.onabort = () => reject(transaction.error);
});

export class Bare {
  #db;
  #next = 0;

  static async open(name) {
    const request = indexedDB.open(name, 1);
    request.onupgradeneeded = () => request.result.createObjectStore("rows");
    const bare = new Bare();
    bare.#db = await promised(request);
    return bare;
  }

  #write() {
    return this.#db.transaction("rows", "readwrite", { durability: "strict" });
  }

  /** One put in a transaction of its own; resolves when it is complete. */
  put(value) {
    const transaction = this.#write();
    transaction.objectStore("rows").put(value, this.#next++);
    transaction.commit();
    return completed(transaction);
  }

  /** Many puts in one transaction. */
  putAll(values) {
    const transaction = this.#write();
    const store = transaction.objectStore("rows");
    for (const value of values) store.put(value, this.#next++);
    transaction.commit();
    return completed(transaction);
  }

  /** The first `count` rows, read and deleted in one transaction. Values carry their key as `n`. */
  take(count) {
    const transaction = this.#write();
    const store = transaction.objectStore("rows");
    let rows = [];
    store.getAll(null, count).onsuccess = ({ target }) => {
      rows = target.result;
      if (rows.length > 0) store.delete(IDBKeyRange.bound(rows[0].n, rows.at(-1).n));
      transaction.commit();
    };
    return completed(transaction).then(() => rows);
  }

  count() {
    return promised(this.#db.transaction("rows").objectStore("rows").count());
  }

  clear() {
    const transaction = this.#write();
    transaction.objectStore("rows").clear();
    this.#next = 0;
    return completed(transaction);
  }

  close() {
    this.#db.close();
  }
}
