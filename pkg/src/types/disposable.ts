// `await using broker = await openBroker(…)` type-checks with the compiler's esnext.disposable library, and this package without it.
declare global {
  interface SymbolConstructor {
    readonly asyncDispose: unique symbol;
  }
  interface AsyncDisposable {
    [Symbol.asyncDispose](): PromiseLike<void>;
  }
}
export {};
