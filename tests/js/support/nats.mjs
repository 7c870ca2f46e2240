// nats-server with JetStream and websocket on this machine alone, and its client as one module for pages. The server is the system's own: `make` installs it.
import { execFile, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { ROOT } from "./paths.mjs";

const DEBIANS = "/usr/sbin/nats-server";
const PROGRAM = process.env.NATS_SERVER ?? (existsSync(DEBIANS) ? DEBIANS : "nats-server");
const START_LIMIT = 30_000;

/** What browsers say of connections that break or can't be made. Chromium does not like how nats-server 2.9 closes a websocket, either. */
export const WEBSOCKET_ERRORS = [/WebSocket connection to/, /connection to (the server at )?ws:/, /^request: http:\/\/127\.0\.0\.1:\d+\/: NS_ERROR_(CONNECTION_REFUSED|NET_RESET|NET_INTERRUPT)$/];

/**
 * Starts a server of its own in a temporary folder, on a free port that it keeps when it is started again.
 * @param {string} [config] added to its configuration: users and their permissions, for example
 * @returns {Promise<{url: string, kill: () => Promise<void>, start: () => Promise<void>, close: () => Promise<void>}>} `url` is the websocket's; `kill` ends it as a power
 *   failure would, `start` starts it again over the same storage
 */
export async function startNats(config = "") {
  const folder = await mkdtemp(join(tmpdir(), "pocket-broker-nats-"));
  const file = join(folder, "nats.conf");
  let port = -1;
  let server;
  const kill = async () => {
    if (server === undefined || server.exitCode !== null || server.signalCode !== null) return;
    const gone = new Promise((done) => server.once("exit", done));
    server.kill("SIGKILL");
    await gone;
  };
  const start = async () => {
    await writeFile(file, `listen: "127.0.0.1:-1"\njetstream { store_dir: ${JSON.stringify(folder)} }\nwebsocket { listen: "127.0.0.1:${port}", no_tls: true }\n${config}\n`);
    server = spawn(PROGRAM, ["-c", file], { stdio: ["ignore", "ignore", "pipe"] });
    port = await listening(server);
  };
  try {
    await start();
  } catch (error) {
    await kill();
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
  return {
    get url() { return `ws://127.0.0.1:${port}`; },
    kill,
    start,
    close: async () => {
      await kill();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** The port of its websocket, when it says that it is ready. */
function listening(server) {
  return new Promise((done, failed) => {
    const said = [];
    let port;
    const fail = (why) => failed(new Error(`${PROGRAM} ${why}:\n${said.join("\n")}`));
    const timer = setTimeout(() => fail(`did not start within ${START_LIMIT} ms`), START_LIMIT);
    server.once("error", (error) => fail(`did not start (${error.message}); \`.ci/tools nats\` installs it`));
    server.once("exit", (code) => fail(`ended with ${code}`));
    // Its log is read to the end: it would wait for a reader.
    createInterface({ input: server.stderr }).on("line", (line) => {
      if (said.length < 100) said.push(line);
      port ??= /Listening for websocket clients on ws:\/\/127\.0\.0\.1:(\d+)/.exec(line)?.[1];
      if (!line.includes("Server is ready")) return;
      clearTimeout(timer);
      if (port === undefined) fail("named no port");
      else done(Number(port));
    });
  });
}

/** The text of a module with what tests need of the client; pages find it where "@nats-io/jetstream" is imported, so that there is one copy. */
export async function natsClient() {
  const entry = 'export { wsconnect, headers } from "@nats-io/nats-core"; export { jetstream, jetstreamManager } from "@nats-io/jetstream";';
  const bundling = promisify(execFile)(join(ROOT, "pkg/node_modules/.bin/esbuild"), ["--bundle", "--format=esm", "--target=es2022", "--log-level=error"], { cwd: join(ROOT, "pkg"), maxBuffer: 16 << 20 });
  bundling.child.stdin.end(entry);
  return (await bundling).stdout;
}
