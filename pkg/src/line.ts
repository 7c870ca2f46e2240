/**
 * Keeps calls in the order in which they were made. Most are issued at once; one whose body is not ready yet (blobs to be read)
 * is issued later, and the calls behind it then wait for it to be issued, not for its outcome.
 */
export class Line {
  #last: Promise<unknown> | undefined;
  readonly #waiting = new Set<Promise<unknown>>();

  /** Issues `task` on `target` in its turn. `ready`: what it must wait for itself. */
  run<R, T>(target: R | Promise<R>, task: (raw: R) => Promise<T>, ready?: Promise<unknown>): Promise<T> {
    if (ready === undefined && this.#last === undefined && !(target instanceof Promise)) return task(target);
    const issued = Promise.all([target, ready, this.#last]).then(([raw]) => raw);
    // First in line for `issued`, so that the task runs before the next one's turn comes.
    const done = issued.then(task);
    const turn = issued.then(nothing, nothing).then(() => {
      this.#waiting.delete(issued);
      if (this.#last === turn) this.#last = undefined;
    });
    this.#last = turn;
    this.#waiting.add(issued);
    return done;
  }

  /** Resolves once all that waits now is issued; rejects when something can't be. */
  async idle(): Promise<void> {
    if (this.#waiting.size > 0) await Promise.all(this.#waiting);
  }
}

/** What a task waits for, when it is more than one thing; undefined when it is nothing. */
export function together(ready: readonly (Promise<unknown> | undefined)[]): Promise<unknown> | undefined {
  const waits = ready.filter((promise) => promise !== undefined);
  return waits.length === 0 ? undefined : Promise.all(waits);
}

function nothing(): void {}
