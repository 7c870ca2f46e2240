// What arrives: claimed, delivered, acknowledged to its sender, and only then to the server.
import type { JsMsg } from "@nats-io/jetstream";
import { isId, token, type Names } from "./nats-names.js";
import { wordsFor, type Server } from "./nats-server.js";
import type { Acknowledgement, Delivery, MessageEnvelope, Transport } from "./types/transmission.js";

type Deliver = Parameters<NonNullable<Transport["listen"]>>[0];

/** Well within the time after which the server takes a reader for dead. */
const SIGN_OF_LIFE = 10_000;
/** How often the rest of a conversation waits for its first message before it is delivered without. */
const WAITS_FOR_FIRST = 6;
const LATER = 1_000;
const LATEST = 60_000;

/** A message that can be handed over. `envelope` may be anything. */
interface Letter { readonly message: JsMsg; readonly envelope: unknown; readonly from: string }

export class Desk {
  readonly #server: Server;
  readonly #names: Names;
  readonly #deliver: Deliver;
  readonly #broker: string;
  readonly #report: (error: Error) => void;

  constructor(server: Server, deliver: Deliver, broker: string, report: (error: Error) => void) {
    this.#server = server;
    this.#names = server.names;
    this.#deliver = deliver;
    this.#broker = broker;
    this.#report = report;
  }

  /** Never rejects: what can't be done now is handed back to the server. */
  async handle(messages: readonly JsMsg[], kind: "any" | "to"): Promise<void> {
    const alive = setInterval(() => messages.forEach((message) => quietly(() => message.working())), SIGN_OF_LIFE);
    try {
      const opened = await Promise.all(messages.map((message) => this.#open(message, kind).catch((error: unknown) => this.#later(message, error))));
      await Promise.all(groups(opened.filter((letter) => letter !== undefined)).map((letters) => this.#handOver(letters)));
    } finally {
      clearInterval(alive);
    }
  }

  /** undefined: it was dealt with. */
  async #open(message: JsMsg, kind: "any" | "to"): Promise<Letter | undefined> {
    const tail = this.#names.tail(message.subject);
    const from = tail.at(-1) ?? "";
    const envelope = parsed(message);
    const letter = { message, envelope, from };
    const wasPassedOn = kind === "to" && tail.length > 2;
    if (kind === "to" && !wasPassedOn) return letter;
    if (!isFirst(envelope)) {
      // The broker refuses it, so that it is counted and told. But under another's name come only messages that begin something.
      return wasPassedOn ? this.#refuse(message, "it was passed on, and is no message from an initiator to a service") : letter;
    }
    // Nobody gets in by one service's door to reach another.
    if (token(envelope.toService) !== tail.at(-2) || tail.length > 3) return this.#refuse(message, `it is addressed to the service ${JSON.stringify(envelope.toService)}`);
    if (wasPassedOn || envelope.fromBroker !== from) return letter;
    const winner = await this.#winner(message, envelope);
    if (winner === this.#broker) return letter;
    if (winner === undefined) return undefined;
    if (!isId(winner)) return this.#refuse(message, "its conversation was claimed for what is no broker");
    await this.#server.publish(this.#names.passedOn(winner, token(envelope.toService), from), message.string(), `${idOf(envelope)}.${winner}`);
    quietly(() => message.ack());
    return undefined;
  }

  /** The broker that has the conversation; undefined: not known yet. */
  async #winner(message: JsMsg, envelope: MessageEnvelope): Promise<string | undefined> {
    if (envelope.sequence > 0) {
      // Where its first message is will be known: the conversation is claimed for that.
      const winner = await this.#server.claimed(envelope.conversationId);
      if (winner !== undefined) return winner;
      if (message.info.deliveryCount < WAITS_FOR_FIRST) return void this.#later(message);
    }
    return this.#server.claim(envelope.conversationId, this.#broker);
  }

  async #handOver(letters: readonly Letter[]): Promise<void> {
    const [{ from }] = letters as [Letter];
    let deliveries: readonly Delivery[];
    try {
      deliveries = await this.#deliver(letters.map(({ envelope }) => envelope), { from });
    } catch (error) {
      for (const { message } of letters) this.#later(message);
      this.#report(asError(error, "What arrived could not be delivered, which is tried again"));
      return;
    }
    /** Acknowledgements are cumulative: of several to the same side the highest will do. */
    const answers = new Map<string, { acknowledgement: Acknowledgement; messages: JsMsg[] }>();
    const sent: Promise<void>[] = [];
    letters.forEach(({ message }, at) => {
      const delivery = deliveries[at];
      if (delivery === undefined || delivery.status === "later") this.#later(message, undefined, delivery?.after);
      else if (delivery.status === "refused") sent.push(this.#sendBack(message, from, delivery.reply));
      else if (delivery.acknowledgement === null) quietly(() => message.ack());
      else {
        const { acknowledgement } = delivery;
        const key = `${acknowledgement.conversationId} ${acknowledgement.fromInitiator} ${acknowledgement.toBroker}`;
        const answer = answers.get(key) ?? { acknowledgement, messages: [] };
        if (acknowledgement.sequence > answer.acknowledgement.sequence) answer.acknowledgement = acknowledgement;
        answer.messages.push(message);
        answers.set(key, answer);
      }
    });
    await Promise.all([...sent, ...[...answers.values()].map((answer) => this.#acknowledge(answer))]);
  }

  /** The message stays at the server until the acknowledgement is there: delivered once more it gives the same one. */
  async #acknowledge({ acknowledgement, messages }: { acknowledgement: Acknowledgement; messages: readonly JsMsg[] }): Promise<void> {
    try {
      await this.#server.publish(this.#names.to(acknowledgement.toBroker, this.#broker), JSON.stringify(acknowledgement));
    } catch (error) {
      for (const message of messages) this.#later(message);
      this.#report(asError(error, "An acknowledgement could not be sent, which is tried again"));
      return;
    }
    for (const message of messages) quietly(() => message.ack());
  }

  async #sendBack(message: JsMsg, from: string, reply: MessageEnvelope | undefined): Promise<void> {
    try {
      if (reply !== undefined) await this.#server.publish(this.#names.to(from, this.#broker), JSON.stringify(reply), idOf(reply));
    } catch (error) {
      this.#later(message, error);
      return;
    }
    quietly(() => message.term());
  }

  #refuse(message: JsMsg, reason: string): undefined {
    quietly(() => message.term());
    this.#report(new Error(`A message on the subject ${message.subject} was refused: ${reason}.`));
  }

  #later(message: JsMsg, error?: unknown, after?: number): undefined {
    const delay = after ?? Math.min(LATEST, LATER * 2 ** (message.info.deliveryCount - 1));
    quietly(() => message.nak(Math.max(1, Math.round(delay))));
    if (error !== undefined) this.#report(asError(error, "What arrived could not be dealt with, which is tried again"));
  }
}

/** One call per sender. What comes again may be what made the call before fail: it goes alone. */
function groups(letters: readonly Letter[]): Letter[][] {
  const together = new Map<string, Letter[]>();
  const all: Letter[][] = [];
  for (const letter of letters) {
    const group = letter.message.redelivered ? undefined : together.get(letter.from);
    if (group !== undefined) group.push(letter);
    else {
      const fresh = [letter];
      if (!letter.message.redelivered) together.set(letter.from, fresh);
      all.push(fresh);
    }
  }
  return all;
}

/** The envelope, or the text where it is none. */
function parsed(message: JsMsg): unknown {
  const text = message.string();
  try {
    const envelope: unknown = JSON.parse(text);
    if (typeof envelope !== "object" || envelope === null) return envelope;
    // The broker takes ids in capitals for the same ones, and so does who claims for it.
    for (const name of ["conversationId", "fromBroker", "toBroker"] as const) {
      const id = (envelope as Partial<Record<string, unknown>>)[name];
      if (typeof id === "string") (envelope as Record<string, unknown>)[name] = id.toLowerCase();
    }
    return envelope;
  } catch {
    return text; // The broker refuses it, and says why.
  }
}

/** Whether it is an initiator's message to a service, as far as it concerns where it goes. */
function isFirst(envelope: unknown): envelope is MessageEnvelope {
  if (typeof envelope !== "object" || envelope === null) return false;
  const { conversationId, sequence, fromInitiator, toService } = envelope as Partial<MessageEnvelope>;
  return isId(conversationId) && Number.isSafeInteger(sequence) && fromInitiator === true && typeof toService === "string";
}

/** The same for every attempt to send a message. */
export const idOf = ({ conversationId, fromInitiator, sequence }: MessageEnvelope): string => `${conversationId}.${fromInitiator ? "i" : "t"}.${sequence}`;

/** Tells the server what became of a message. Where the connection is gone, the server will hand the message out again by itself. */
function quietly(tell: () => void): void {
  try {
    tell();
  } catch {
    // As above.
  }
}

export function asError(error: unknown, what: string): Error {
  return new Error(`${what}: ${wordsFor(error)}`, { cause: error });
}
