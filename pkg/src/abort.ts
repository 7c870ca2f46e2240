// Waiting that can be given up.

/** The promise, or the reason of an abort that comes first; `undo` is for what arrives after that. */
export async function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined, undo: (late: T) => void = () => {}): Promise<T> {
  if (signal === undefined) return promise;
  let abort = (): void => {};
  const aborted = new Promise<never>((_, reject) => {
    abort = () => {
      reject(signal.reason);
      promise.then(undo, () => {});
    };
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
  });
  try {
    return await Promise.race([aborted, promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
