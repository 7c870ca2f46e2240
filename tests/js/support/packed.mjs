// The package as npm would deliver it: packed, unpacked, to be served at /pkg/ in place of the folder that it was made from,
// so that a file that is missing from the package is missing from the tests as well.
import { execFile } from "node:child_process";
import { rmSync } from "node:fs";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { ROOT } from "./paths.mjs";

const run = promisify(execFile);

/**
 * Packs and unpacks into a new folder.
 * @returns {Promise<{folder: string, root: string, tarball: string}>} `root` holds package.json; remove `folder` when done
 */
export async function pack() {
  const folder = await mkdtemp(join(tmpdir(), "pocket-broker-packed-"));
  try {
    await run("npm", ["pack", "--pack-destination", folder, "--loglevel=error"], { cwd: join(ROOT, "pkg") });
    const tarball = (await readdir(folder)).find((name) => name.endsWith(".tgz"));
    if (tarball === undefined) throw new Error("npm pack made no package");
    await run("tar", ["-xzf", join(folder, tarball), "-C", folder]);
    return { folder, root: join(folder, "package"), tarball: join(folder, tarball) };
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

let packing;

/**
 * The folder of the packed package. `make test-js` packs once for all test files (PACKED names the place); a test file that is run
 * by itself packs for itself.
 * @returns {Promise<string>}
 */
export function packedPackage() {
  packing ??= (async () => {
    if (process.env.PACKED) return join(process.env.PACKED, "package");
    const { folder, root } = await pack();
    process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
    return root;
  })();
  return packing;
}
