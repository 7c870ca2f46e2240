// Tests that drive a page of www as a person would: real clicks, and waiting for what is on the page.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, openPage, resize } from "./browsers.mjs";
import { packedPackage } from "./packed.mjs";
import { serve } from "./server.mjs";

const TIMEOUT = 90_000;
/** How long what is waited for may take. */
const WAIT = 20_000;
/** The pages keep to this: nothing inline, nothing from elsewhere. */
const POLICY = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; base-uri 'none'; form-action 'self'";

/**
 * For the tests of one page of www.
 * @param {object} page
 * @param {string} page.path below www
 * @param {string} page.outcome the name in the document's dataset under which it says "done" once it can be used
 * @param {Parameters<typeof serve>[0]["handle"]} [page.handle] its server side, as `serve` takes it
 * @param {(string | RegExp)[]} [page.allow] errors that the tests mean to cause
 */
export function pageTests({ path, outcome, handle, allow = [] }) {
  let browser;
  let server;

  before(async () => {
    server = await serve({ mounts: { "/pkg/": await packedPackage() }, headers: { "Content-Security-Policy": POLICY }, handle });
    browser = await launch(process.env.BROWSER || "chromium");
  }, { timeout: 180_000 });

  after(async () => {
    await browser?.close();
    await server?.close();
  });

  async function opened(page) {
    await until(page, (name) => document.documentElement.dataset[name], outcome);
    assert.equal(await page.evaluate((name) => document.documentElement.dataset[name], outcome), "done");
  }

  /** A test with storage of its own. It fails, too, when a page logged an error, threw, or missed a file. */
  function onPage(name, body) {
    test(name, { timeout: TIMEOUT }, async () => {
      const context = await browser.createBrowserContext();
      const pages = [];
      const open = async () => {
        const page = await openPage(context, `${server.url}${path}`, { allow, before: (page) => resize(page, 1280, 900) });
        pages.push(page);
        await opened(page);
        return page;
      };
      try {
        await body(await open(), open);
        for (const page of pages) page.check();
      } finally {
        await context.close();
      }
    });
  }

  return { onPage, opened };
}

/** Waits by calling a function again and again. Puppeteer's own waiting makes one of text, which the page's CSP forbids in Firefox up to 140. */
export async function until(page, holds, ...given) {
  for (const end = Date.now() + WAIT; !(await page.evaluate(holds, ...given));) {
    if (Date.now() > end) throw new Error(`it never came true: ${holds} ${given}`);
  }
}

/** Waits until what is read is what is expected. */
export async function shows(read, expected, what) {
  const wanted = JSON.stringify(expected);
  const end = Date.now() + WAIT;
  for (;;) {
    const found = await read();
    if (JSON.stringify(found) === wanted) return;
    if (Date.now() > end) assert.deepEqual(found, expected, what);
  }
}

export const isVisible = (selector) => document.querySelector(selector)?.checkVisibility() === true;
export const isHidden = (selector) => document.querySelector(selector)?.checkVisibility() !== true;

/** Waits until the newest entry of the log contains this. */
export const logged = (page, text) => until(page, (text) => document.querySelector("#log > li")?.textContent.includes(text), text)
  .catch(async () => assert.fail(`the log never said ${JSON.stringify(text)} but:\n${await page.$eval("#log", (log) => log.innerText)}`));

/** A real click in the middle of the element, clear of the log that sticks to the bottom. */
export async function press(page, selector) {
  await page.bringToFront(); // a tab behind another gets no frames
  await until(page, isVisible, selector);
  await page.$eval(selector, (element) => element.scrollIntoView({ block: "center", behavior: "instant" }));
  await page.click(selector);
}

/** What is wider than its box, in words: nothing should be. */
export const sticksOut = (page) => page.$$eval("html, .scroll, #log", (boxes) => boxes
  .filter((box) => box.scrollWidth > box.clientWidth)
  .map((box) => `${box.id || box.className || box.localName}: ${box.scrollWidth} in ${box.clientWidth}`));
