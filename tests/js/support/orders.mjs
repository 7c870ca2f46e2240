/**
 * The server side of the page orders.html. `/orders/in` takes orders as a plain HTTP endpoint does (message-server.mjs): each once by its Idempotency-Key, however often it
 * is offered. In front of it is a network that can be cut, and the endpoint can be told to be slow, busy or unwilling. `/orders/board` shows what arrived and how
 * often, and takes these settings; the network that is cut does not lead there.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { Refused, takeMessages } from "../fixtures/message-server.mjs";

/** What the endpoint does with an order: takes it; takes it, and the answer is lost; takes its time; 429; 422. */
const BEHAVIOURS = ["takes", "loses", "slow", "busy", "refuses"];
const MOST_BYTES = 65_536;
/** Seconds, for Retry-After. */
const COME_BACK = 5;
/** How many orders the board shows. */
const SHOWN = 100;

/** An order as it should be, or undefined. */
function readOrder(body) {
  const { table, dish, count } = Object(body);
  const isFine = [table, dish].every((text) => typeof text === "string" && text !== "" && text.length <= 120) && Number.isInteger(count) && count >= 1 && count <= 99;
  return isFine ? { table, dish, count } : undefined;
}

async function bytesOf(request, most) {
  const parts = [];
  let size = 0;
  for await (const part of request) {
    size += part.length;
    if (size > most) throw new Refused(413, `More than ${most} bytes.`);
    parts.push(part);
  }
  return Buffer.concat(parts);
}

function parsed(bytes) {
  try {
    return JSON.parse(bytes.toString());
  } catch {
    return undefined;
  }
}

/**
 * @param {object} [options]
 * @param {number} [options.slow] milliseconds that a slow endpoint takes for an order
 * @returns {{ handle: (request: import("node:http").IncomingMessage, response: import("node:http").ServerResponse) => boolean, close: () => void }} `handle` is for `serve`;
 *   `close` removes what was remembered
 */
export function orderServer({ slow = 5_000 } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "pocket-broker-orders-"));
  let books = 0;
  let book;

  /** Everything that is remembered. A new one begins when the page starts over. */
  const newBook = () => {
    books += 1;
    return { file: join(folder, `${books}.jsonl`), network: true, behaviour: "takes", cut: 0, receipts: 0, rows: new Map(), take: undefined };
  };
  book = newBook();

  async function handleOrder(mine, { key, messageType, body }) {
    const order = readOrder(body);
    if (messageType !== "Order" || !order) throw new Refused(400, "An Order is { table, dish, count }.");
    const { behaviour } = mine;
    if (behaviour === "slow") await new Promise((done) => { setTimeout(done, slow); });
    if (behaviour === "refuses") throw new Refused(422, `The kitchen is closed: no ${order.dish} today.`);
    const row = mine.rows.get(key);
    row.accepted += 1;
    mine.receipts += 1;
    return { messageType: "Receipt", body: { receipt: mine.receipts, ...order } };
  }

  /** What the board says of an order, made when it is offered for the first time. */
  function rowFor({ rows }, headers, bytes) {
    const key = headers["idempotency-key"] ?? "";
    const row = rows.get(key) ?? { key, conversationId: headers["x-conversation-id"] ?? "", ...readOrder(parsed(bytes)), offered: 0, accepted: 0, tab: "", answer: "" };
    rows.set(key, row);
    row.offered += 1;
    row.tab = (headers["x-tab"] ?? "").slice(0, 8);
    row.answer = "at work";
    return row;
  }

  async function takeOrder(request, response) {
    const mine = book;
    if (!mine.network) {
      mine.cut += 1;
      request.socket.destroy();
      return;
    }
    const bytes = await bytesOf(request, MOST_BYTES);
    const row = rowFor(mine, request.headers, bytes);
    const { behaviour } = mine;
    const { end } = response;
    // It is done by now, whatever becomes of the answer.
    response.end = (...given) => {
      if (behaviour === "loses" || !mine.network || request.socket.destroyed) {
        row.answer = "lost";
        request.socket.destroy();
        return response;
      }
      row.answer = String(response.statusCode);
      return end.apply(response, given);
    };
    if (behaviour === "busy") {
      response.writeHead(429, { "Content-Type": "text/plain", "Retry-After": String(COME_BACK) }).end("Too many orders at once.\n");
      return;
    }
    mine.take ??= takeMessages({ file: mine.file, origin: `http://${request.headers.host}`, handle: (message) => handleOrder(mine, message) });
    const again = Object.assign(Readable.from([bytes]), { method: request.method, headers: request.headers });
    await mine.take(again, response);
  }

  /** Newest first. */
  function board() {
    const { network, behaviour, cut, rows } = book;
    const all = [...rows.values()];
    const sum = (name) => all.reduce((total, row) => total + row[name], 0);
    return { network, behaviour, cut, count: all.length, offered: sum("offered"), accepted: sum("accepted"), orders: all.slice(-SHOWN).reverse() };
  }

  async function showBoard(request, response) {
    if (request.method === "PUT") {
      const { network = book.network, behaviour = book.behaviour } = Object(parsed(await bytesOf(request, MOST_BYTES)));
      if (typeof network !== "boolean" || !BEHAVIOURS.includes(behaviour)) throw new Refused(400, `The board takes { network: true or false, behaviour: one of ${BEHAVIOURS.join(", ")} }.`);
      Object.assign(book, { network, behaviour });
    } else if (request.method === "DELETE") {
      book = newBook();
    }
    response.writeHead(200, { "Content-Type": "application/json", "Cache-Control": "no-store" }).end(JSON.stringify(board()));
  }

  const PLACES = { "/orders/in": { methods: ["POST"], answer: takeOrder }, "/orders/board": { methods: ["GET", "PUT", "DELETE"], answer: showBoard } };

  function handle(request, response) {
    const path = (request.url ?? "").split("?")[0];
    if (!Object.hasOwn(PLACES, path)) return false;
    const { methods, answer } = PLACES[path];
    const refuse = (status, text, headers = {}) => response.writeHead(status, { "Content-Type": "text/plain; charset=utf-8", ...headers }).end(`${text}\n`);
    const { origin, host } = request.headers;
    // Over a kept connection that breaks a browser sends a request again by itself: it would be counted twice.
    response.setHeader("Connection", "close");
    request.on("error", () => {});
    response.on("error", () => {});
    // Any page of the web may send something to this machine.
    if (origin !== undefined && origin !== `http://${host}`) refuse(403, "This is for the demo's own pages.");
    else if (!methods.includes(request.method)) refuse(405, "That is not done here.", { Allow: methods.join(", ") });
    else {
      answer(request, response).catch((error) => {
        if (response.headersSent || !(error instanceof Refused)) request.socket.destroy();
        else refuse(error.status, error.message);
      });
    }
    return true;
  }

  return { handle, close: () => rmSync(folder, { recursive: true, force: true }) };
}
