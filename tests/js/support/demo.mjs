// Serves the demo pages, and the server side of the one that sends orders. PORT picks the port (0: a free one). With ONCE=1 it opens the
// first page in headless Chromium, waits until the page's own conversation has gone through IndexedDB and come back, and exits: 0 if it
// did and nothing was wrong with the page.
import { launch, openPage } from "./browsers.mjs";
import { orderServer } from "./orders.mjs";
import { serve } from "./server.mjs";

const DEFAULT_PORT = 8080;
const LIMIT = 60_000;

const orders = orderServer();
process.once("exit", orders.close);
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(0));

async function listen() {
  const { handle } = orders;
  const wanted = process.env.PORT;
  if (wanted) {
    const port = Number(wanted);
    if (!/^\d+$/.test(wanted) || port > 65_535) throw new Error(`PORT=${wanted} is not a port`);
    return await serve({ port, handle }).catch((error) => {
      throw error.code === "EADDRINUSE" ? new Error(`port ${port} is taken: choose another, or PORT=0 for a free one`) : error;
    });
  }
  return await serve({ port: DEFAULT_PORT, handle }).catch((error) => {
    if (error.code !== "EADDRINUSE") throw error;
    console.log(`port ${DEFAULT_PORT} is taken, so a free one is used (PORT=… picks one)`);
    return serve({ handle });
  });
}

/** What the page says about its conversation, once it says something. */
async function watch(server) {
  const browser = await launch("chromium");
  try {
    const page = await openPage(browser, server.url);
    const outcome = await page
      .waitForFunction(() => document.documentElement.dataset.conversation, { timeout: LIMIT })
      .then((handle) => handle.jsonValue())
      .catch((error) => `no conversation within ${LIMIT / 1000} s (${error.message})`);
    const errors = [...page.errors];
    if (outcome !== "done") errors.unshift(outcome);
    return errors;
  } finally {
    await browser.close();
  }
}

let server;
try {
  server = await listen();
} catch (error) {
  console.error(`demo: ${error.message}`);
  process.exit(1);
}
console.log(server.url);
if (process.env.ONCE) {
  const errors = await watch(server).catch((error) => [error.message]);
  await server.close();
  console.log(errors.length === 0 ? "demo: the conversation ran" : `demo: failed: ${errors.join("\n")}`);
  process.exit(errors.length === 0 ? 0 : 1);
}
