// WebKitGTK, driven by the W3C WebDriver protocol: puppeteer knows no WebKit. A browser and its pages have those methods of puppeteer's
// that `openPage` and the harness use, and no others. WebDriver has no events, so the errors of a page come from the page itself:
// fixtures/errors.js records them, and a page without it is refused.
import { spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { rmSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import { ROOT } from "./paths.mjs";

const START_LIMIT = 60_000;
const SCRIPT_LIMIT = 240_000; // Less than what `fetch` waits for an answer.

/** What runs, each the leader of a process group of its own: the driver's holds the browser's processes. */
const groups = new Set();
/** Profiles, which go with them. */
const folders = new Set();
// A browser that was just killed may still be writing.
const REMOVE = { recursive: true, force: true, maxRetries: 10, retryDelay: 100 };

function endGroup(leader) {
  groups.delete(leader);
  try {
    process.kill(-leader, "SIGKILL");
  } catch {
    // Already gone.
  }
}

process.once("exit", () => {
  [...groups].forEach(endGroup);
  for (const folder of folders) rmSync(folder, REMOVE);
});
const onSignal = () => process.exit(1);

function start(command, args, options) {
  if (groups.size === 0) for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, onSignal);
  const child = spawn(command, args, { detached: true, ...options });
  if (child.pid !== undefined) groups.add(child.pid);
  const failure = new Promise((_, failed) => {
    child.once("error", (error) => failed(new Error(`${command} did not start: ${error.message}`)));
    child.once("exit", (code, signal) => failed(new Error(`${command} ended with ${code ?? signal}`)));
  });
  failure.catch(() => {}); // Whoever waits for the child hears of it.
  return { child, failure };
}

/** An X server, which picks a free display by itself. */
async function startDisplay() {
  const { child, failure } = start("Xvfb", ["-displayfd", "3", "-screen", "0", "1280x1024x24", "-nolisten", "tcp"], { stdio: ["ignore", "ignore", "ignore", "pipe"] });
  const [number] = await Promise.race([once(createInterface({ input: child.stdio[3] }), "line"), failure]);
  return { child, name: `:${number.trim()}` };
}

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

/** One command of the protocol. */
async function command(base, method, path, body) {
  const response = await fetch(`${base}${path}`, method === "POST" ? { method, body: JSON.stringify(body ?? {}) } : { method });
  const { value } = await response.json();
  if (!response.ok) throw new Error(`${method} ${path}: ${value.error}: ${value.message}`);
  return value;
}

async function startDriver(env) {
  const port = await freePort();
  const base = `http://127.0.0.1:${port}`;
  const { child, failure } = start("WebKitWebDriver", [`--port=${port}`], { env, stdio: "ignore" });
  const end = performance.now() + START_LIMIT;
  const listening = async () => {
    for (;;) {
      const status = await command(base, "GET", "/status").catch(() => undefined);
      if (status?.ready) return;
      if (performance.now() > end) throw new Error("WebKitWebDriver does not answer");
      await pause(20);
    }
  };
  await Promise.race([listening(), failure]);
  return { child, base };
}

/**
 * Starts WebKitGTK with an X server, a driver and a profile of its own.
 * @returns {Promise<WebKitBrowser>}
 */
export async function launchWebKit() {
  const folder = await mkdtemp(join(tmpdir(), "pocket-broker-webkit-"));
  folders.add(folder);
  const children = [];
  const close = async () => {
    const ends = children.filter(({ exitCode, signalCode }) => exitCode === null && signalCode === null).map((child) => once(child, "exit"));
    for (const { pid } of children) endGroup(pid);
    await Promise.all(ends);
    if (groups.size === 0) for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.off(signal, onSignal);
    await rm(folder, REMOVE);
    folders.delete(folder);
  };
  try {
    const display = await startDisplay();
    children.push(display.child);
    const driver = await startDriver({
      ...process.env,
      DISPLAY: display.name,
      TMPDIR: folder,
      XDG_CACHE_HOME: folder,
      XDG_CONFIG_HOME: folder,
      XDG_DATA_HOME: folder,
      // Its sandbox needs user namespaces, which root in a container does not have. Only our own pages are opened.
      WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS: "1",
    });
    children.push(driver.child);
    const { "webkitgtk:browserOptions": options } = JSON.parse(await readFile(join(ROOT, "webdriver.json"), "utf8"));
    const session = command(driver.base, "POST", "/session", {
      capabilities: { alwaysMatch: { "webkitgtk:browserOptions": options, timeouts: { script: SCRIPT_LIMIT, pageLoad: START_LIMIT } } },
    });
    const late = pause(START_LIMIT, undefined, { ref: false }).then(() => Promise.reject(new Error("no session within a minute")));
    const { sessionId } = await Promise.race([session, late]);
    return new WebKitBrowser(`${driver.base}/session/${sessionId}`, close);
  } catch (error) {
    await close();
    throw error;
  }
}

class WebKitBrowser {
  #base;
  #close;
  #first;
  #queue = Promise.resolve();

  constructor(base, close) {
    this.#base = base;
    this.#close = close;
  }

  /** A tab of its own. The one that the browser began with stays: a session ends with its last, and new ones come from one that is open. */
  async newPage() {
    this.#first ??= await this.#alone(() => command(this.#base, "GET", "/window"));
    const { handle } = await this.#in(this.#first, (send) => send("POST", "/window/new", { type: "tab" }));
    return new WebKitPage((work) => this.#in(handle, work));
  }

  async close() {
    await command(this.#base, "DELETE", "").catch(() => {}); // What hangs or has crashed is killed.
    await this.#close();
  }

  /** Commands for one tab, which no other's come between: a session speaks to one tab at a time. */
  #in(handle, work) {
    return this.#alone(async () => {
      await command(this.#base, "POST", "/window", { handle });
      return work((method, path, body) => command(this.#base, method, path, body));
    });
  }

  #alone(work) {
    const result = this.#queue.then(work);
    this.#queue = result.catch(() => {});
    return result;
  }
}

/** Runs in the page: arguments are the source and WebDriver's callback. Errors that follow the value at once are waited for. */
const EVALUATE = `
  const [source, done] = arguments;
  Promise.resolve().then(() => (0, eval)(source)).then((value) => ({ value }), (error) => ({ failure: String(error?.stack || error) }))
    .then((outcome) => setTimeout(() => done(JSON.stringify({ ...outcome, errors: globalThis.pageErrors?.splice(0) }))));`;

class WebKitPage extends EventEmitter {
  #in;
  #closed = false;

  constructor(run) {
    super();
    this.#in = run;
  }

  async goto(url) {
    await this.#in((send) => send("POST", "/url", { url }));
    await this.#collect();
  }

  async reload() {
    await this.#collect();
    await this.#in((send) => send("POST", "/refresh"));
    await this.#collect();
  }

  async goBack() {
    await this.#collect();
    await this.#in((send) => send("POST", "/back"));
    await this.#collect();
  }

  /** The value of an expression, awaited, as JSON has it. Emits "pageerror" for what went wrong in the page since the last time. */
  async evaluate(source) {
    if (typeof source !== "string") throw new TypeError("in WebKit only text can be evaluated");
    const answer = await this.#in((send) => send("POST", "/execute/async", { script: EVALUATE, args: [source] }));
    const { value, failure, errors } = JSON.parse(answer);
    if (errors === undefined) throw new Error("the page does not record its errors: it needs fixtures/errors.js");
    for (const error of errors) this.emit("pageerror", error);
    if (failure !== undefined) throw new Error(failure);
    return value;
  }

  async waitForFunction(source, { timeout = 30_000 } = {}) {
    await this.evaluate(`(async () => {
      for (const end = performance.now() + ${timeout}; !(${source}); await new Promise((next) => setTimeout(next, 10))) {
        if (performance.now() > end) throw new Error(${JSON.stringify(`${source} is not true within ${timeout} ms`)});
      }
    })()`);
  }

  isClosed() {
    return this.#closed;
  }

  async close() {
    try {
      await this.#collect();
    } finally {
      this.#closed = true;
      await this.#in((send) => send("DELETE", "/window"));
    }
  }

  #collect() {
    return this.evaluate("undefined");
  }
}
