// @ts-check
// The little that the views need: elements from text, and lists that are updated in place.

/**
 * The element with this id, which the page is known to have.
 * @template {HTMLElement} [E=HTMLElement]
 * @param {string} id
 * @returns {E}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`no element #${id}`);
  return /** @type {E} */ (element);
}

/**
 * An element with attributes and children. Strings become text, never HTML.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, string>} [attributes]
 * @param {(Node | string)[]} children
 */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Writes text only when it differs, so that nothing is announced or selected anew. @param {Element | null} element @param {string} text */
export function setText(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

/**
 * Makes the children of `parent` match `items`: one element per key, kept while its key stays, so that focus, selection and
 * scroll position stay too. Where the focused element has to go, `rest` gets the focus.
 * @template I
 * @template {HTMLElement} E
 * @param {HTMLElement} parent
 * @param {readonly I[]} items
 * @param {{ key: (item: I) => string, create: (item: I) => E, update: (element: E, item: I) => void, rest?: HTMLElement }} how
 */
export function keyed(parent, items, { key, create, update, rest }) {
  const old = new Map(Array.from(parent.children, (child) => [/** @type {HTMLElement} */ (child).dataset.key, /** @type {E} */ (child)]));
  const elements = items.map((item) => {
    const name = key(item);
    const element = old.get(name) ?? create(item);
    old.delete(name);
    element.dataset.key = name;
    update(element, item);
    return element;
  });
  for (const gone of old.values()) {
    if (gone.contains(document.activeElement)) rest?.focus({ preventScroll: true });
    gone.remove();
  }
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  let next = parent.firstElementChild;
  for (const element of elements) {
    if (element === next) next = next.nextElementSibling;
    else parent.insertBefore(element, next);
  }
  // An element that moves loses the focus.
  if (focused && focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}

/**
 * Makes the rows of a table match `items`, as `keyed` does. An empty table is hidden, and what says so beside it is shown.
 * @template I
 * @param {string} id of the table
 * @param {readonly I[]} items
 * @param {{ key: (item: I) => string, create: (item: I) => HTMLElement, update: (element: HTMLElement, item: I) => void, rest?: HTMLElement }} how
 */
export function fillTable(id, items, how) {
  const table = byId(id);
  keyed(/** @type {HTMLElement} */ (table.querySelector("tbody")), items, how);
  table.hidden = items.length === 0;
  const empty = /** @type {HTMLElement | null} */ (table.parentElement?.querySelector(".empty"));
  if (empty) empty.hidden = items.length > 0;
}

/** A table's cell. @param {string} name of its class @param {(Node | string)[]} children */
export const cell = (name, ...children) => el("td", { role: "cell", class: name }, ...children);

/** @type {Map<string, number>} */
const hues = new Map();

/** A colour for each conversation, as far as can be from those that were seen just before. @param {string} conversationId */
export function hueOf(conversationId) {
  const hue = hues.get(conversationId) ?? (hues.size * 137 + 200) % 360;
  hues.set(conversationId, hue);
  return hue;
}

/** A dot in the conversation's colour, and the short id beside it. @param {string} conversationId @param {string} text */
export function conversationMark(conversationId, text) {
  const dot = el("span", { class: "dot", "aria-hidden": "true" });
  dot.style.setProperty("--hue", String(hueOf(conversationId)));
  return el("span", { class: "mark", title: `Conversation ${conversationId}` }, dot, el("code", {}, text));
}
