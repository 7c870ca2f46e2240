// Runs the conformance suites (tests/*.rs) in one browser, headless, each in the kind of context that its file names:
//   node .ci/browser.mjs chromium|firefox|webkit [CONTEXT…]        FILTER=text runs the tests whose names hold the text
// wasm-bindgen-test-runner starts the driver, the driver the browser (webdriver.json). Around it this script adds: an X server for
// WebKit and one compiler less for its service worker, a limit on the start and a second try of a start that failed (never of a test), the end
// of every process that a run left behind, and the rule that a run without a single test has failed.
import { execFileSync, spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { access, constants, mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const CONTEXTS = ["window", "dedicated_worker", "shared_worker", "service_worker"];
const DRIVERS = {
  chromium: ["CHROMEDRIVER", "chromedriver"],
  firefox: ["GECKODRIVER", "geckodriver"],
  // The runner knows no WebKitGTK, but its driver takes the same arguments and speaks the same protocol as Safari's.
  webkit: ["SAFARIDRIVER", "WebKitWebDriver"],
};
const TARGET = "wasm32-unknown-unknown";
const START_LIMIT = 120_000; // From the runner's start to the first line from the page: seconds on an idle machine.
const TEST_LIMIT = 1_500; // Seconds for one context's suite, which takes a quarter of it on two slow cores.
const SIDE_BY_SIDE = 4; // Contexts at a time: a suite mostly waits for the browser's storage, so four take little longer than two, which leave two cores idle for two thirds.
/**
 * WebKitGTK 2.50's service worker runs without the optimizing compiler of WebAssembly (all of its other contexts, and the package's tests, run
 * with it). With it a suite there failed now and then, each time by another value that no Rust computes: a division by something that is at
 * least 1 was one by zero, a group that was held looked free in a test without any timing. Later versions of WebKit mend races in how code of
 * that compiler replaces older code (bugs 307669 and 290296). To be tried again without this when there is a newer WebKitGTK.
 */
const WEBKIT_SERVICE_WORKER = { JSC_useOMGJIT: "0" };
let starts = 3; // How often a suite is started at most. A browser that fails them all gets one for each suite after that.

const root = resolve(fileURLToPath(import.meta.url), "../..");
const [browser, ...wanted] = process.argv.slice(2);
const contexts = wanted.length > 0 ? wanted : CONTEXTS;
if (!(browser in DRIVERS) || contexts.some((context) => !CONTEXTS.includes(context))) {
  console.error(`usage: node .ci/browser.mjs ${Object.keys(DRIVERS).join("|")} [${CONTEXTS.join("|")}]…`);
  process.exit(2);
}

/** What this process started and must end, whatever happens. Each was started as the leader of a session of its own. */
const sessions = new Set();
/** Temporary folders, likewise. */
const folders = new Set();
/** A signal came: what ends now was ended, and nothing else is begun. */
let stopping = false;

/** The processes of a session that still run. */
async function members(leader) {
  const found = [];
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const stat = await readFile(`/proc/${name}/stat`, "utf8").catch(() => "");
    // The fields after the name, which is in brackets and may hold anything: state, parent, group, session.
    const [state, , , session] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    if (Number(session) === leader && state !== "Z") found.push(Number(name));
  }
  return found;
}

/**
 * Ends every process of a session. A driver that is killed leaves its browser running, and Chromium's processes leave their parent's
 * group, but not the session. (Firefox's crash helper does, and ends by itself.)
 */
async function endSession(leader) {
  sessions.delete(leader);
  const kill = (pid) => {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // Already gone.
    }
  };
  // Without /proc, the group has to do. With it, again until none is left: one may have started another meanwhile.
  if (!existsSync("/proc/self/stat")) kill(-leader);
  else for (let left = await members(leader), round = 0; left.length > 0 && round < 20; left = await members(leader), round += 1) left.forEach(kill);
}

/** A browser that was just killed may still be writing. */
async function removeFolder(folder) {
  await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  folders.delete(folder);
}

async function cleanUp() {
  await Promise.all([...sessions].map(endSession));
  await Promise.all([...folders].map(removeFolder));
}

function start(command, args, options) {
  const child = spawn(command, args, { cwd: root, detached: true, ...options });
  if (child.pid !== undefined) sessions.add(child.pid);
  return child;
}

const ended = (child) =>
  new Promise((done) => {
    child.once("error", (error) => done({ code: -1, error }));
    child.once("exit", (code) => done({ code: code ?? -1 }));
  });

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.once(signal, async () => {
    stopping = true;
    await cleanUp();
    process.exit(1);
  });
}

/** Compiles all suites at once and tells where cargo put them. */
async function compile() {
  const args = ["test", "--no-run", "--target", TARGET, "--message-format=json-render-diagnostics"];
  const cargo = start("cargo", [...args, ...contexts.flatMap((context) => ["--test", context])], {
    stdio: ["ignore", "pipe", "inherit"],
    // The runner takes gigabytes to read debug information that nobody looks at; names stay.
    env: { ...process.env, CARGO_PROFILE_DEV_DEBUG: "0", CARGO_PROFILE_TEST_DEBUG: "0" },
  });
  const end = ended(cargo);
  const files = new Map();
  for await (const line of createInterface({ input: cargo.stdout })) {
    const message = JSON.parse(line);
    if (message.reason === "compiler-artifact" && message.executable) files.set(message.target.name, message.executable);
  }
  const { code, error } = await end;
  sessions.delete(cargo.pid);
  if (code !== 0) throw new Error(error ? `cargo did not start: ${error.message}` : "the suites do not compile");
  return files;
}

/** Starts an X server, which picks a free display by itself, and resolves once it takes connections. */
async function startDisplay() {
  const server = start("Xvfb", ["-displayfd", "3", "-screen", "0", "1280x1024x24", "-nolisten", "tcp"], {
    stdio: ["ignore", "ignore", "ignore", "pipe"],
  });
  const number = await new Promise((done, failed) => {
    server.once("error", failed);
    server.once("exit", (code) => failed(new Error(`Xvfb ended with ${code} before it was ready`)));
    createInterface({ input: server.stdio[3] }).once("line", done);
  });
  return { pid: server.pid, name: `:${number.trim()}` };
}

/** One run of one suite. `started` tells whether the page came up, which is what decides between a failed start and failed tests. */
async function run(context, file, environment) {
  if (stopping) throw new Error("stopped");
  // Drivers keep profiles in the temporary folder, and the runner kills them before they can clear up.
  const scratch = await mkdtemp(join(tmpdir(), "pocket-broker-"));
  folders.add(scratch);
  const filter = process.env.FILTER ? [process.env.FILTER] : [];
  const runner = start("wasm-bindgen-test-runner", [file, ...filter], {
    env: { ...environment, TMPDIR: scratch },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const end = ended(runner);
  const lines = [];
  let started = false;
  let result;
  let stuck = false;
  const limit = setTimeout(() => {
    stuck = true;
    void endSession(runner.pid);
  }, START_LIMIT);
  const read = async (stream) => {
    for await (const line of createInterface({ input: stream })) {
      lines.push(line);
      if (started) console.log(`${context} | ${line}`);
      else if (/running \d+ tests?$/.test(line)) {
        started = true;
        clearTimeout(limit);
        console.log(`${context} | ${line}`);
      }
      const counts = /^test result: (\w+)\. (\d+) passed; (\d+) failed; (\d+) ignored/.exec(line);
      if (counts) result = { passed: Number(counts[2]), failed: Number(counts[3]), ignored: Number(counts[4]) };
    }
  };
  const reading = Promise.all([read(runner.stdout), read(runner.stderr)]);
  const { code, error } = await end;
  clearTimeout(limit);
  // First what the run left behind, since that may hold the pipes open.
  if (runner.pid !== undefined) await endSession(runner.pid);
  await reading;
  await removeFolder(scratch);
  if (error) throw new Error(`wasm-bindgen-test-runner did not start: ${error.message}`);
  return { code, lines, started, stuck, result };
}

async function suite(context, file, environment) {
  for (let attempt = 1; ; attempt += 1) {
    console.log(`--- ${browser} ${context} begins`);
    const { code, lines, started, stuck, result } = await run(context, file, environment);
    if (result) {
      const good = code === 0 && result.failed === 0 && result.passed > 0;
      if (!good && result.failed === 0) console.log(`${browser} ${context}: ${result.passed > 0 ? `ended with code ${code}` : "ran no test"}`);
      return { passed: result.passed, failed: good ? 0 : Math.max(1, result.failed) };
    }
    if (!started) console.log(lines.join("\n"));
    // Tests that began and did not end, a suite with nothing in it, and a page that came up without running are failures of ours.
    const ours = started || code === 0 || lines.some((line) => line.startsWith("Failed to detect test as having been run"));
    if (ours || stopping || attempt >= starts) {
      if (!ours) starts = 1;
      console.log(`${browser} ${context}: ${started ? "did not finish" : code === 0 ? "ran no test" : "did not start"}`);
      return { passed: 0, failed: 1 };
    }
    console.log(`${browser} ${context}: ${stuck ? "the start hung" : "the start failed"}, trying again`);
  }
}

async function main() {
  const files = await compile();
  const [variable, driver] = DRIVERS[browser];
  const environment = {
    ...process.env,
    WASM_BINDGEN_TEST_TIMEOUT: String(TEST_LIMIT),
    WASM_BINDGEN_TEST_DRIVER_TIMEOUT: "30",
    RUST_BACKTRACE: "0", // Of the runner itself, which says "some tests failed" by an error.
  };
  // A driver named for another browser would win over ours.
  for (const [other] of Object.values(DRIVERS)) {
    delete environment[other];
    delete environment[`${other}_REMOTE`];
  }
  environment[variable] = await find(driver);
  let display;
  if (browser === "webkit") {
    display = await startDisplay();
    environment.DISPLAY = display.name;
    // Its sandbox needs user namespaces, which root in a container does not have. Only our own pages are opened.
    environment.WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS = "1";
  }
  const isClassic = contexts.includes("service_worker") && !hasModuleServiceWorkers();
  if (isClassic) console.log(`${browser} service_worker: as a classic worker: module service workers came with Firefox 147`);
  const results = new Map();
  const queue = [...contexts];
  const work = async () => {
    for (let context = queue.shift(); context !== undefined; context = queue.shift()) {
      const isCareful = browser === "webkit" && context === "service_worker";
      if (isCareful) console.log("webkit service_worker: without WebAssembly's optimizing compiler");
      const own = context !== "service_worker" ? {} : isCareful ? WEBKIT_SERVICE_WORKER : isClassic ? { WASM_BINDGEN_USE_NO_MODULE: "1" } : {};
      results.set(context, await suite(context, files.get(context), { ...environment, ...own }));
    }
  };
  await Promise.all(Array.from({ length: SIDE_BY_SIDE }, work));
  const summary = contexts.map((context) => ({ context, ...results.get(context) }));
  if (display) await endSession(display.pid);
  for (const { context, passed, failed } of summary) console.log(`${browser} ${context}: ${passed} passed, ${failed} failed`);
  return summary.every(({ failed }) => failed === 0);
}

function hasModuleServiceWorkers() {
  if (browser !== "firefox") return true;
  const path = JSON.parse(readFileSync(join(root, "webdriver.json"), "utf8"))["moz:firefoxOptions"].binary;
  const major = Number(/(\d+)\./.exec(execFileSync(path, ["--version"], { encoding: "utf8" }))?.[1]);
  return !(major < 147);
}

async function find(command) {
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    const path = join(folder, command);
    if (await access(path, constants.X_OK).then(() => true, () => false)) return path;
  }
  throw new Error(`${command} is not on PATH: make test-browser BROWSER=${browser} installs it`);
}

let good = false;
try {
  good = await main();
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
} finally {
  await cleanUp();
}
process.exit(good ? 0 : 1);
