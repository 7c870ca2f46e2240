// A static file server for the demo, the browser tests and the bench: this machine only, nothing cached, no dependency.
import { createReadStream } from "node:fs";
import { realpath, stat } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, sep } from "node:path";
import { ROOT } from "./paths.mjs";

const TYPES = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".ico": "image/x-icon",
  ".js": "text/javascript; charset=utf-8",
  ".json": "application/json; charset=utf-8",
  ".map": "application/json; charset=utf-8",
  ".md": "text/markdown; charset=utf-8",
  ".mjs": "text/javascript; charset=utf-8",
  ".png": "image/png",
  ".svg": "image/svg+xml; charset=utf-8",
  ".txt": "text/plain; charset=utf-8",
  // Without it WebAssembly.instantiateStreaming refuses the answer.
  ".wasm": "application/wasm",
  ".webmanifest": "application/manifest+json; charset=utf-8",
};

/** Where each address begins on disk. The longest prefix wins. */
export const MOUNTS = { "/": join(ROOT, "www"), "/pkg/": join(ROOT, "pkg"), "/bench/": join(ROOT, "bench") };

/** The file that a path of the address names, or what to answer instead. */
async function find(pathname, mounts) {
  let path;
  try {
    path = decodeURIComponent(pathname);
  } catch {
    return { status: 400 };
  }
  if (path.includes("\0") || path.includes("\\")) return { status: 400 };
  if (Object.hasOwn(mounts, `${path}/`)) return { status: 308 };
  const prefix = Object.keys(mounts)
    .filter((mount) => path.startsWith(mount))
    .sort((one, other) => other.length - one.length)[0];
  if (prefix === undefined) return { status: 404 };
  const parts = path.slice(prefix.length).split("/");
  // Nothing hidden, no way up, and not the tools that lie beside the package.
  if (parts.some((part) => part.startsWith(".") || part === "node_modules")) return { status: 404 };
  try {
    const top = await realpath(mounts[prefix]);
    let file = await realpath(join(top, ...parts));
    if ((await stat(file)).isDirectory()) {
      if (!path.endsWith("/")) return { status: 308 };
      file = await realpath(join(file, "index.html"));
    } else if (path.endsWith("/")) {
      return { status: 404 };
    }
    // A link may point anywhere.
    if (!file.startsWith(top + sep)) return { status: 404 };
    const type = TYPES[extname(file)];
    const { size } = await stat(file);
    return type ? { status: 200, file, type, size } : { status: 404 };
  } catch {
    return { status: 404 };
  }
}

async function answer(request, response, mounts, headers) {
  response.setHeader("Cache-Control", "no-store");
  response.setHeader("X-Content-Type-Options", "nosniff");
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  if (request.method !== "GET" && request.method !== "HEAD") {
    response.writeHead(405, { Allow: "GET, HEAD" }).end();
    return;
  }
  // Not `new URL(request.url)`: it would resolve the dots of a path that goes up before they can be refused.
  const [pathname, query] = (request.url ?? "/").split(/\?(.*)/s);
  const found = await find(pathname, mounts);
  if (found.status === 308) {
    // One slash at the start: two would name another host.
    const location = `/${pathname.replace(/^\/+/, "")}/${query ? `?${query}` : ""}`;
    response.writeHead(308, { Location: location }).end();
  } else if (found.status !== 200) {
    // A browser asks for it by itself, and its absence is no error of the page.
    const status = pathname === "/favicon.ico" ? 204 : found.status;
    response.writeHead(status, { "Content-Type": "text/plain; charset=utf-8" }).end(status === 204 ? undefined : `${status}\n`);
  } else {
    response.writeHead(200, { "Content-Type": found.type, "Content-Length": found.size });
    if (request.method === "HEAD") response.end();
    else createReadStream(found.file).on("error", () => response.destroy()).pipe(response);
  }
}

/**
 * Serves on 127.0.0.1, which browsers treat as secure: Web Locks and service workers need that.
 * @param {object} [options]
 * @param {number} [options.port] 0 (the default) picks a free one; a taken one rejects with code EADDRINUSE
 * @param {Record<string, string>} [options.mounts] address prefix (with a slash at both ends) to folder, added to MOUNTS or replacing one
 * @param {Record<string, string>} [options.headers] sent with every answer
 * @param {(request: import("node:http").IncomingMessage, response: import("node:http").ServerResponse) => boolean} [options.handle]
 *   sees each request first, and returns true if it answers it
 * @returns {Promise<{url: string, port: number, close: () => Promise<void>}>} `url` ends in a slash
 */
export async function serve({ port = 0, mounts = {}, headers = {}, handle = () => false } = {}) {
  const all = { ...MOUNTS, ...mounts };
  const server = createServer((request, response) => {
    if (!handle(request, response)) answer(request, response, all, headers).catch(() => response.destroy());
  });
  await new Promise((done, failed) => {
    server.once("error", failed);
    server.listen(port, "127.0.0.1", done);
  });
  const taken = server.address().port;
  return {
    url: `http://127.0.0.1:${taken}/`,
    port: taken,
    close: () =>
      new Promise((done) => {
        server.close(() => done());
        server.closeAllConnections();
      }),
  };
}
