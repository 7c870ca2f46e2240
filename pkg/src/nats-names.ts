// What things are called at the server: subjects, queues (durable consumers), ids of messages.
import { encodeBytes } from "./base64.js";

/** A queue of messages at the server, which any number of contexts may read together. */
export interface Queue {
  readonly durable: string;
  readonly filter: string;
  /** Messages that begin a conversation with whichever broker takes them, or those for one broker. */
  readonly kind: "any" | "to";
}

/** What may stand between the dots of a subject as it is. Ids of brokers and conversations are UUIDs. */
const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

export const isId = (value: unknown): value is string => typeof value === "string" && ID.test(value);

/** Consumers have a folder of that name at the server; a longer one is cut, and told apart by what it says in full. */
const LONGEST_DURABLE = 200;

/** A name as one token: base64url, without padding. */
export function token(name: string): string {
  return encodeBytes(new TextEncoder().encode(name)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** FNV-1a, 64 bits: every broker that serves the service must come to the same name. */
function digest(text: string): string {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(text)) hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  return hash.toString(16).padStart(16, "0");
}

export class Names {
  readonly stream: string;
  readonly claims: string;
  readonly #prefix: string;

  constructor(stream: string, prefix: string) {
    this.stream = stream;
    this.claims = `${stream}-claims`;
    this.#prefix = prefix;
  }

  get subjects(): string[] { return [`${this.#prefix}.any.*.*`, `${this.#prefix}.to.>`]; }
  get claimSubjects(): string[] { return [`${this.#prefix}.claim.*`]; }

  /** Of a message whose far broker is not known yet. */
  any(service: string, from: string): string { return `${this.#prefix}.any.${token(service)}.${from}`; }
  to(broker: string, from: string): string { return `${this.#prefix}.to.${broker}.${from}`; }
  /** Of a message that another broker of the service passes on: who may publish these is trusted with the last token, which is somebody else's. */
  passedOn(broker: string, serviceToken: string, from: string): string { return `${this.#prefix}.to.${broker}.${serviceToken}.${from}`; }
  claim(conversationId: string): string { return `${this.#prefix}.claim.${conversationId}`; }

  /** The tokens behind `<prefix>.any.` or `<prefix>.to.`. */
  tail(subject: string): string[] { return subject.slice(this.#prefix.length + 1).split(".").slice(1); }

  serviceQueue(service: string): Queue {
    const whole = `svc-${token(service)}`;
    const durable = whole.length <= LONGEST_DURABLE ? whole : `${whole.slice(0, LONGEST_DURABLE - 17)}-${digest(service)}`;
    return { durable, filter: `${this.#prefix}.any.${token(service)}.*`, kind: "any" };
  }

  brokerQueue(broker: string): Queue { return { durable: `to-${broker}`, filter: `${this.#prefix}.to.${broker}.>`, kind: "to" }; }
}
