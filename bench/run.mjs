/**
 * The bench from the command line, in real browsers. Builds nothing: `make build` first.
 *   node bench/run.mjs [--browser chromium|firefox]… [--quick] [--line ID]… [--json FILE]     exit 1 when a line is below its target
 *   node bench/run.mjs --serve [--port N]                                                     serves the page, to be used by hand
 */
import { access, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { launch, openPage } from "../tests/js/support/browsers.mjs";
import { serve } from "../tests/js/support/server.mjs";

const USAGE = "usage: node bench/run.mjs [--browser chromium|firefox]… [--quick] [--line ID]… [--json FILE] | --serve [--port N]";
const LIMIT = 1_800_000;

function options() {
  try {
    return parseArgs({
      options: {
        browser: { type: "string", multiple: true, default: ["chromium", "firefox"] }, quick: { type: "boolean", default: false }, line: { type: "string", multiple: true },
        json: { type: "string" }, serve: { type: "boolean", default: false }, port: { type: "string", default: "0" },
      },
    }).values;
  } catch (error) {
    console.error(`${error.message}\n${USAGE}`);
    process.exit(2);
  }
}

const number = (value, digits) => value.toFixed(digits);
function print(browser, version, results) {
  const rows = results.map(({ title, target, ratio, lowest, highest, oursMs, bareMs, first, reached }) => [
    title, target === null ? "" : `${target}x`, `${number(ratio, 2)}x`, `${number(lowest, 2)}-${number(highest, 2)}`, number(oursMs, 3), number(bareMs, 3), target === null ? "" : reached ? (first === null ? "ok" : `ok (first run ${number(first, 2)}x)`) : `BELOW (first run ${number(first, 2)}x)`,
  ]);
  const table = [["", "target", "ratio", "range", "ms/op", "bare ms/op", ""], ...rows];
  const widths = table[0].map((_, column) => Math.max(...table.map((row) => row[column].length)));
  console.log(`\n${browser} (${version})`);
  for (const row of table) console.log(row.map((text, column) => (column === 0 || column === 6 ? text.padEnd(widths[column]) : text.padStart(widths[column]))).join("  ").trimEnd());
}

async function bench(name, server, { quick, line }) {
  // Firefox under automation walks the stack at every promise, which it does for nobody else.
  const browser = await launch(name, { protocolTimeout: LIMIT, ...(name === "firefox" ? { extraPrefsFirefox: { "javascript.options.asyncstack": false } } : {}) });
  try {
    const version = await browser.version();
    const page = await openPage(browser, new URL("bench/", server.url).href);
    await page.waitForFunction("Boolean(globalThis.bench)");
    const known = await page.evaluate("bench.lines");
    const unknown = (line ?? []).filter((id) => !known.includes(id));
    if (unknown.length > 0) throw new Error(`no line is called ${unknown.join(", ")}: ${known.join(", ")}`);
    const results = await page.evaluate((settings) => globalThis.bench.run(settings), { quick, ...(line ? { lines: line } : {}) });
    if (results.length !== (line ?? known).length) throw new Error(`${results.length} lines came back, not ${(line ?? known).length}`);
    await page.close();
    return { browser: name, version, results };
  } finally {
    await browser.close();
  }
}

const settings = options();
try {
  await access(fileURLToPath(new URL("../pkg/dist/index.js", import.meta.url)));
} catch {
  console.error("pkg/dist/index.js is missing: run `make build` first");
  process.exit(2);
}
/** Takes whatever is sent to it. */
function accept({ url }, response) {
  if (url !== "/bench-accept") return false;
  response.writeHead(200, { "Content-Type": "application/json" }).end("{}");
  return true;
}

const server = await serve({ port: Number(settings.port), handle: accept });
if (settings.serve) {
  console.log(new URL("bench/", server.url).href);
} else {
  const all = [];
  try {
    for (const name of new Set(settings.browser)) {
      const done = await bench(name, server, settings);
      print(done.browser, done.version, done.results);
      all.push(done);
    }
  } catch (error) {
    console.error(error.stack);
    process.exitCode = 1;
  } finally {
    await server.close();
  }
  if (process.exitCode === 1) process.exit();
  if (settings.json) await writeFile(settings.json, `${JSON.stringify({ quick: settings.quick, browsers: all }, null, 2)}\n`);
  const below = all.flatMap(({ browser, results }) => results.filter((result) => !result.reached).map((result) => `${browser}: ${result.title}: ${number(result.ratio, 2)}x, target ${result.target}x`));
  console.log(below.length === 0 ? `\nall ${all.reduce((sum, each) => sum + each.results.length, 0)} lines reach their targets` : `\nbelow the target:\n${below.join("\n")}`);
  process.exitCode = below.length === 0 ? 0 : 1;
}
