// Runs tests/js/*.test.mjs against the packed package, once per browser: node tests/js/support/run.mjs chromium firefox
// Each test file finds the browser's name in BROWSER. FILES=name picks test files by a part of their name; in WebKit, of those below.
import { spawn } from "node:child_process";
import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { NAMES } from "./browsers.mjs";
import { pack } from "./packed.mjs";
import { ROOT } from "./paths.mjs";

/**
 * The files that run in WebKit: what they test needs a page and nothing else, or one page after the other. The others need several pages at a time, a viewport or
 * the devtools protocol, which puppeteer has and WebDriver has not.
 */
const IN_WEBKIT = [
  "activation", "arguments", "background-sync", "blobs", "bodies", "commit", "conversation", "corrupt", "custom-store", "definitions", "delayed", "delayed-far", "delayed-stores", "deliver", "encode", "enqueue", "failures", "http", "http-envelope", "http-route", "lifecycle", "move", "nats", "nats-server", "opening", "poison",
  "receive", "replay", "retention", "retries", "robbing", "send", "services", "stats", "stopping", "testing", "timers", "transaction", "transmission", "two-brokers", "views", "waiting",
].map((name) => `${name}.test.mjs`);

/** Hidden pages are slow and frozen ones stand still there alone, as far as drivers can make them. */
const IN_CHROMIUM_ALONE = ["throttling.test.mjs"];

/**
 * Files about groups and who holds them: they run again, in every browser, in pages without Web Locks, as on plain http. (The others hold no
 * group, or have Web Locks for their subject.)
 */
const WITHOUT_LOCKS = [
  "activation", "conversation", "custom-store", "enqueue", "events", "failures", "move", "pages", "poison", "receive", "retries", "services", "stats", "stopping", "timers", "transaction", "waiting",
].map((name) => `${name}.test.mjs`);

const browsers = process.argv.slice(2);
if (browsers.length === 0 || browsers.some((name) => !NAMES.includes(name))) {
  console.error(`usage: node tests/js/support/run.mjs ${NAMES.join("|")}…`);
  process.exit(2);
}
const folder = join(ROOT, "tests/js");
const all = (await readdir(folder)).filter((name) => name.endsWith(".test.mjs")).sort();
const lost = [...IN_WEBKIT, ...IN_CHROMIUM_ALONE, ...WITHOUT_LOCKS].filter((name) => !all.includes(name));
if (lost.length > 0) {
  console.error(`${lost.join(", ")}: not in tests/js, but named in run.mjs`);
  process.exit(1);
}
const chosen = all.filter((name) => name.includes(process.env.FILES ?? ""));
const runsIn = (browser, name) => (browser === "webkit" ? IN_WEBKIT.includes(name) : browser === "chromium" || !IN_CHROMIUM_ALONE.includes(name));
const filesFor = (browser) => chosen.filter((name) => runsIn(browser, name));
if (browsers.every((browser) => filesFor(browser).length === 0)) {
  console.error(`there is no such test file in tests/js for ${browsers.join(" and ")}`);
  process.exit(1);
}

/** One file at a time: two browsers at once on a small machine make every time limit a matter of luck. */
async function suite(browser, files, packed, locks = "") {
  console.log(`--- js ${browser}${locks && " without locks"}`);
  const left = chosen.filter((name) => !files.includes(name));
  if (left.length > 0 && !locks) console.log(`not in ${browser}: ${left.join(", ")}`);
  const node = spawn(
    process.execPath,
    ["--test", "--test-concurrency=1", "--test-timeout=300000", "--test-reporter=spec", "--test-reporter-destination=stdout", ...files.map((name) => join(folder, name))],
    // Colours would hide the counts from the reading below.
    { cwd: ROOT, env: { ...process.env, FORCE_COLOR: "0", BROWSER: browser, PACKED: packed, LOCKS: locks }, stdio: ["ignore", "pipe", "inherit"] },
  );
  const end = new Promise((done, failed) => {
    node.once("error", failed);
    node.once("close", (code) => done(code));
  });
  const counts = { pass: 0, fail: 0, cancelled: 0 };
  for await (const line of createInterface({ input: node.stdout })) {
    console.log(line);
    const count = /^ℹ (pass|fail|cancelled) (\d+)$/.exec(line);
    if (count) counts[count[1]] = Number(count[2]);
  }
  const code = await end;
  const failed = counts.fail + counts.cancelled;
  return { passed: counts.pass, failed: failed === 0 && (code !== 0 || counts.pass === 0) ? 1 : failed };
}

let packed;
try {
  packed = await pack();
} catch (error) {
  console.error(error.stderr || error.message);
  process.exit(1);
}
const results = [];
try {
  for (const browser of browsers) {
    const files = filesFor(browser);
    if (files.length > 0) results.push({ browser, ...(await suite(browser, files, packed.folder)) });
    else console.log(`--- js ${browser}: none of ${chosen.join(", ")} runs there`);
  }
  for (const browser of browsers) {
    const files = filesFor(browser).filter((name) => WITHOUT_LOCKS.includes(name));
    if (files.length > 0) results.push({ browser: `${browser}_without_locks`, ...(await suite(browser, files, packed.folder, "none")) });
  }
} finally {
  await rm(packed.folder, { recursive: true, force: true });
}
for (const { browser, passed, failed } of results) console.log(`js ${browser}: ${passed} passed, ${failed} failed`);
process.exit(results.every(({ failed }) => failed === 0) ? 0 : 1);
