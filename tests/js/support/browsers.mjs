// Chromium and Firefox by puppeteer, and WebKitGTK (webkit.mjs), driven from Node. The browsers are the system's own: `make` installs
// them, npm never does.
import puppeteer from "puppeteer-core";
import { launchWebKit } from "./webkit.mjs";

const STARTS = 3;
const START_LIMIT = 60_000;

const BROWSERS = {
  chromium: {
    browser: "chrome",
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: [
      "--no-sandbox", // Root in a container has no user namespaces. Only our own pages are opened.
      "--disable-gpu",
      "--disable-dev-shm-usage",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  },
  firefox: { browser: "firefox", executablePath: process.env.FIREFOX ?? "/usr/bin/firefox-esr", args: [] },
};

/** The browsers that `launch` knows. */
export const NAMES = [...Object.keys(BROWSERS), "webkit"];

/**
 * Starts a headless browser with a profile of its own, which goes when the browser closes.
 * @param {"chromium" | "firefox" | "webkit"} name webkit's browser has the few methods of puppeteer's that webkit.mjs gives it
 * @param {import("puppeteer-core").LaunchOptions} [options] over ours; `args` are added to ours. With `userDataDir` the profile stays.
 *   Not for webkit.
 * @returns {Promise<import("puppeteer-core").Browser>}
 */
export async function launch(name, { args = [], ...options } = {}) {
  if (!NAMES.includes(name)) throw new Error(`unknown browser ${name}: one of ${NAMES.join(", ")}`);
  const known = BROWSERS[name];
  if (known === undefined && args.length + Object.keys(options).length > 0) throw new Error(`${name} takes no options`);
  for (let attempt = 1; ; attempt += 1) {
    try {
      if (known === undefined) return await launchWebKit();
      return await puppeteer.launch({
        headless: true,
        timeout: START_LIMIT,
        protocolTimeout: 300_000,
        ...known,
        ...options,
        args: [...known.args, ...args],
      });
    } catch (error) {
      // On a busy machine a browser now and then hangs while it starts.
      if (attempt === STARTS) throw new Error(`${name} did not start: ${error.message}`, { cause: error });
    }
  }
}

/** Sets the size of a page. Firefox up to 140 does not know the orientation that puppeteer sets beside it, and says so before it has the size. */
export async function resize(page, width, height) {
  await page.setViewport({ width, height }).catch((error) => {
    if (!error.message.includes("setScreenOrientationOverride")) throw error;
  });
  for (const end = Date.now() + 10_000; (await page.evaluate(() => innerWidth)) !== width;) {
    if (Date.now() > end) throw new Error(`the page did not become ${width} pixels wide`);
  }
}

/**
 * Opens an address in a tab of its own and collects everything that goes wrong in it: uncaught errors, unhandled rejections,
 * console.error, failed requests. Rejects if the page can't be loaded or has errors by then.
 * @param {import("puppeteer-core").Browser | import("puppeteer-core").BrowserContext} browser
 * @param {string} url
 * @param {object} [options]
 * @param {(string | RegExp)[]} [options.allow] errors that the test means to cause
 * @param {(page: import("puppeteer-core").Page) => Promise<unknown>} [options.before] runs before the address is opened
 * @param {number} [options.timeout] for loading, in milliseconds
 * @returns {Promise<import("puppeteer-core").Page & {errors: string[], check: () => void}>} the page. `errors` grows as they come
 *   (`allow` is heeded), `check` throws if there are any, and so does `close` once the tab is closed.
 */
export async function openPage(browser, url, { allow = [], before, timeout = 60_000 } = {}) {
  const page = await browser.newPage();
  const errors = [];
  const report = (text) => {
    if (!allow.some((pattern) => (typeof pattern === "string" ? text.includes(pattern) : pattern.test(text)))) errors.push(text);
  };
  page.on("console", (message) => {
    if (message.type() !== "error" && message.type() !== "assert") return;
    const { url: source, lineNumber } = message.location();
    report(`console: ${message.text()}${source ? ` (${source}:${lineNumber ?? 0})` : ""}`);
  });
  page.on("pageerror", (error) => report(`uncaught: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`));
  page.on("error", (error) => report(`crashed: ${error.message}`));
  page.on("requestfailed", (request) => {
    const reason = request.failure()?.errorText ?? "";
    // A page that is left takes its requests with it.
    if (!/ERR_ABORTED|NS_BINDING_ABORTED/.test(reason)) report(`request: ${request.url()}: ${reason}`);
  });
  page.on("response", (response) => {
    if (response.status() >= 400) report(`response: ${response.url()}: ${response.status()}`);
  });
  const check = () => {
    if (errors.length > 0) throw new Error(`${errors.length} error(s) on ${url}:\n${errors.join("\n")}`);
  };
  try {
    await before?.(page);
    await page.goto(url, { waitUntil: "load", timeout });
    check();
  } catch (error) {
    await page.close().catch(() => {});
    throw error;
  }
  const close = page.close.bind(page);
  return Object.assign(page, {
    errors,
    check,
    close: async (options) => {
      if (!page.isClosed()) await close(options);
      check();
    },
  });
}
