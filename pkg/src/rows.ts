import type { Page, Token } from "./raw.js";
import type { Rows } from "./types/messages.js";

/** Reads from where `token` says (null: the beginning) a page, or all at once; `one`: no more than the first row is wanted. */
export type ReadPage<R> = (token: Token, all: boolean, one: boolean) => Promise<Page<R>>;

/** A view's rows. Every walk begins anew. */
export class RowPages<R> implements Rows<R> {
  readonly #read: ReadPage<R>;

  constructor(read: ReadPage<R>) {
    this.#read = read;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<R, void, undefined> {
    let token: Token = null;
    do {
      const page: Page<R> = await this.#read(token, false, false);
      yield* page.rows;
      token = page.next ?? null;
    } while (token !== null);
  }

  async toArray(): Promise<R[]> {
    return (await this.#read(null, true, false)).rows;
  }

  async first(): Promise<R | undefined> {
    let token: Token = null;
    do {
      const page: Page<R> = await this.#read(token, false, true);
      if (page.rows.length > 0) return page.rows[0];
      // A filter has let nothing through yet.
      token = page.next ?? null;
    } while (token !== null);
    return undefined;
  }
}
