import * as generated from "../wasm/pocket_broker.js";
import { describe, tagOf } from "./check.js";
import { BrokerError, invalid } from "./errors.js";
import type { Glue } from "./raw.js";
import type { WasmSource } from "./types/broker.js";

const glue = generated as unknown as Glue;
let loading: Promise<Glue> | undefined;
let whereItIs = (): URL => new URL("../wasm/pocket_broker_bg.wasm", import.meta.url);

/** Says where the wasm is, for a build that has no `import.meta`. */
export function wasmIsAt(address: () => URL): void {
  whereItIs = address;
}

/** Loads the wasm ahead of time. Idempotent; may be called again after a failure. Errors: LoadFailed, InvalidArgument. */
export async function init(wasm?: WasmSource): Promise<void> {
  await load(wasm);
}

/** The wasm side, loaded once however many ask; a failure is forgotten, so that the next call tries again. */
export function load(source: WasmSource | undefined): Promise<Glue> {
  if (source !== undefined && !isSource(source)) {
    return Promise.reject(invalid("wasm", `must be a URL, a Response or a promise of one, the bytes, or a WebAssembly.Module, not ${describe(source)}`));
  }
  return loading ??= start(source).catch((error: unknown) => {
    loading = undefined;
    throw error;
  });
}

function isSource(source: unknown): source is WasmSource {
  if (typeof source === "string") return source !== "";
  if (typeof source !== "object" || source === null) return false;
  return ArrayBuffer.isView(source) || ["URL", "Response", "Promise", "ArrayBuffer", "SharedArrayBuffer", "WebAssembly.Module"].includes(tagOf(source)) || typeof (source as { then?: unknown }).then === "function";
}

async function start(source: WasmSource | undefined): Promise<Glue> {
  let from = "what was given as `wasm`";
  try {
    let given: unknown = source ?? whereItIs();
    if (typeof given === "string" || tagOf(given as object) === "URL") {
      from = String(given);
      given = fetch(given as URL | string);
    }
    given = await given;
    const module = tagOf(Object(given)) === "Response" ? await fromResponse(given as Response, from) : given;
    if (ArrayBuffer.isView(module) || tagOf(Object(module)).endsWith("ArrayBuffer")) checkBytes(module as BufferSource, from);
    await glue.default({ module_or_path: module });
    return glue;
  } catch (cause) {
    throw cause instanceof BrokerError ? cause : failed(from, `${String(cause)}`, cause);
  }
}

/** The response itself when the browser can compile it as it streams in, else its bytes. */
async function fromResponse(response: Response, asked: string): Promise<Response | ArrayBuffer> {
  const from = response.url === "" ? asked : response.url;
  const type = response.headers.get("content-type") ?? "";
  const mime = type.split(";", 1)[0]?.trim().toLowerCase() ?? "";
  const page = mime === "text/html" ? `an HTML page (${mime})` : undefined;
  if (!response.ok) throw failed(from, `got ${response.status} ${response.statusText}${page === undefined ? "" : ` and ${page}`}`.trim());
  if (page !== undefined) throw failed(from, `got ${page} instead of application/wasm: the server answers with a page where the .wasm file should be`);
  if (mime === "application/wasm" && typeof WebAssembly.instantiateStreaming === "function") return response;
  const bytes = await response.arrayBuffer();
  checkBytes(bytes, mime === "" ? from : `${from} (${mime})`);
  return bytes;
}

/** WebAssembly begins with "\0asm". */
function checkBytes(source: BufferSource, from: string): void {
  const bytes = ArrayBuffer.isView(source) ? new Uint8Array(source.buffer, source.byteOffset, source.byteLength) : new Uint8Array(source);
  if (bytes[0] === 0 && bytes[1] === 0x61 && bytes[2] === 0x73 && bytes[3] === 0x6d) return;
  const text = new TextDecoder().decode(bytes.subarray(0, 200)).trimStart();
  const what = text.startsWith("<") ? "an HTML page" : bytes.length === 0 ? "nothing" : `bytes that are not WebAssembly (${JSON.stringify(text.slice(0, 20))})`;
  throw failed(from, `got ${what}`);
}

function failed(from: string, problem: string, cause?: unknown): BrokerError {
  return new BrokerError("LoadFailed",
    `The WebAssembly of pocket-broker could not be loaded from ${from}: ${problem}. Serve wasm/pocket_broker_bg.wasm of the package there, or say where it is: openBroker(name, { wasm }) or init(wasm).`,
    { retryable: true, cause, details: { from } });
}
