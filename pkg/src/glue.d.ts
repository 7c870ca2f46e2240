// The generated module is looked at through the interface `Glue` of raw.ts only, so that this package type-checks before it is built.
declare module "*/wasm/pocket_broker.js";
