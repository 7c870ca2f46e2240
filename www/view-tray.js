// @ts-check
// The tray: a received message whose transaction is still open, until the cook chooses.
import { byId, setText } from "./dom.js";
import { isSystem } from "./shop.js";
import { shortId, summary, typeName } from "./words.js";

/** @typedef {import("./shop.js").Choice} Choice */

/** @type {((choice: Choice) => void) | undefined} */
let chosen;

/** Call once. */
export function wireTray() {
  byId("tray-choices").addEventListener("click", (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest("button");
    if (button) chosen?.(/** @type {Choice} */ (button.dataset.choice));
  });
}

/**
 * @param {import("./broker.js").Message} message
 * @returns {Promise<Choice>}
 */
export function chooseOnTray(message) {
  const tray = byId("tray");
  const kind = isSystem(message) ? "system" : "order";
  for (const button of byId("tray-choices").querySelectorAll("button")) button.hidden = !button.dataset.for?.split(" ").includes(kind);
  const what = message.body === undefined ? typeName(message.messageTypeName) : `${typeName(message.messageTypeName)}: ${summary(message)}`;
  setText(byId("tray-what"), `${what} (conversation ${shortId(message.conversationId)})`);
  tray.hidden = false;
  byId("kitchen-receive").setAttribute("aria-disabled", "true");
  tray.focus({ preventScroll: true });
  tray.scrollIntoView({ block: "nearest" });
  return new Promise((resolve) => { chosen = resolve; });
}

/** Takes the tray away and gives the focus back. */
export function clearTray() {
  const tray = byId("tray");
  const receive = byId("kitchen-receive");
  chosen = undefined;
  receive.removeAttribute("aria-disabled");
  if (tray.contains(document.activeElement)) receive.focus({ preventScroll: true });
  tray.hidden = true;
}
