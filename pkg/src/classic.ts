/**
 * The whole package as a classic script, for service workers that are no modules: `importScripts("classic.js")` makes the global `PocketBroker`, which has what
 * `pocket-broker`, `pocket-broker/http` and `pocket-broker/service-worker` export. The .wasm file is looked for beside the worker's own script, unless `openBroker` is told where it is.
 *
 * @packageDocumentation
 */
import { wasmIsAt } from "./load.js";

export * from "./index.js";
export * from "./http.js";
export * from "./service-worker.js";

// A script that was imported can't see its own address, but that of the worker.
wasmIsAt(() => new URL("pocket_broker_bg.wasm", globalThis.location.href));
