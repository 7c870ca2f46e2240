// @ts-check
// What happened, newest first. Screen readers are told politely.
import { byId, el } from "./dom.js";
import { clock, reason } from "./words.js";

const KEPT = 100;

/**
 * @param {string} text
 * @param {{ kind?: "done" | "note" | "refused" | "back", steps?: readonly string[] }} [how]
 */
export function log(text, { kind = "done", steps = [] } = {}) {
  const list = byId("log");
  const now = new Date();
  const entry = el("li", { "data-kind": kind }, el("time", { datetime: now.toISOString() }, clock(now)), el("p", {}, text));
  if (steps.length > 0) entry.append(el("ol", { class: "steps" }, ...steps.map((step) => el("li", {}, step))));
  list.prepend(entry);
  list.scrollTop = 0;
  while (list.children.length > KEPT) list.lastElementChild?.remove();
}

/** @param {string} what was tried @param {unknown} error */
export function logRefusal(what, error) {
  log(`${what}: refused. ${reason(error)}`, { kind: "refused" });
}
