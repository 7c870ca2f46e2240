// What a page downloads to use the package, gzip -9: the wasm, and the JS that the main entry imports (the facade with the glue in it).
// The budget is where it has to get to. What it weighs today is above that: it may not grow beyond the ceiling unseen. Whoever raises the
// ceiling says in the commit what the bytes are for.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const BUDGET = 70 * 1024;
const CEILING = 510 * 1024;

const pkg = resolve(fileURLToPath(import.meta.url), "../../pkg");
const wasm = join(pkg, "wasm");

/** The file that `.` of the exports names for a browser's import. */
function entry() {
  let target = JSON.parse(readFileSync(join(pkg, "package.json"), "utf8")).exports?.["."];
  while (target !== null && typeof target === "object") target = target.browser ?? target.import ?? target.default;
  if (typeof target !== "string") throw new Error("pkg/package.json exports no \".\"");
  return join(pkg, target);
}

/** A file and everything that it imports, without the files that only a call would fetch. */
function reach(file, found = new Set()) {
  if (found.has(file)) return found;
  found.add(file);
  const imports = /(?:^|[\s;}])(?:import|export)\s*(?:[\w$*{}\s,]+?\bfrom\s*)?["'](\.{1,2}\/[^"']+)["']/g;
  for (const [, specifier] of readFileSync(file, "utf8").matchAll(imports)) {
    const other = resolve(dirname(file), specifier);
    // A comment may show an import of a file that is the reader's.
    if (existsSync(other)) reach(other, found);
  }
  return found;
}

const rows = [...reach(entry()), join(wasm, "pocket_broker_bg.wasm")].map((file) => {
  const bytes = readFileSync(file);
  const kind = file.endsWith(".wasm") ? "wasm" : "facade and glue";
  return { kind, name: relative(pkg, file), raw: bytes.length, gzip: execFileSync("gzip", ["-9c"], { input: bytes }).length };
});
const line = (name, raw, gzip) => console.log(`${name.padEnd(36)}${String(raw).padStart(10)}${String(gzip).padStart(10)}`);
const sum = (some, key) => some.reduce((total, row) => total + row[key], 0);
line("bytes", "raw", "gzip -9");
for (const kind of ["wasm", "facade and glue"]) {
  const some = rows.filter((row) => row.kind === kind);
  if (some.length > 1) for (const { name, raw, gzip } of some) line(`  ${name}`, raw, gzip);
  line(kind, sum(some, "raw"), sum(some, "gzip"));
}
const total = sum(rows, "gzip");
line("total", sum(rows, "raw"), total);
const kib = (bytes) => `${(bytes / 1024).toFixed(1)} KiB`;
console.log(`size: ${kib(total)} of ${kib(BUDGET)}`);
if (total > BUDGET) console.log(`size: ${kib(total - BUDGET)} over the budget`);
if (total > CEILING) {
  console.error(`size: more than the ceiling of ${kib(CEILING)}: take out what was added, or what is not earned`);
  process.exit(1);
}
