/**
 * Message types, contracts, queues, services and priorities: CREATE MESSAGE TYPE, CREATE CONTRACT, CREATE QUEUE, CREATE SERVICE
 * and CREATE BROKER PRIORITY in one object. Names are any well-formed strings of 1 to 128 code points, compared by their code
 * units. Read by own keys; unknown keys are `InvalidArgument`.
 */
export interface Definitions {
  /** Name → what a body must be. Built in: "DEFAULT" ("none"). */
  messageTypes?: Record<string, Validation>;
  /** Name → message type → who sends it. At least one entry is the initiator's. Built in: "DEFAULT" (message type DEFAULT, by any). May grow, never change. */
  contracts?: Record<string, Record<string, SentBy>>;
  /** Name → options. Built in: "error". Each queue has an implicit service of its own name with the DEFAULT contract. */
  queues?: Record<string, QueueOptions>;
  /** Name → its queue, and the contracts that it accepts as a target. As an initiator a service may use any contract. */
  services?: Record<string, {
    /** Where messages to the service go: one of these definitions, or one that is there already. */
    queue: string;
    /** Default: none: it refuses every dialog that others begin with it. */
    contracts?: readonly string[];
  }>;
  /** Name → rule. The level is given to an endpoint when it is made; later rules don't touch it. */
  priorities?: Record<string, PriorityRule>;
}

/** SENT BY. */
export type SentBy = "initiator" | "target" | "any";

/**
 * What a body must be: "none" anything, "empty" no body (`undefined`), "json" what survives JSON unchanged, an object whatever
 * that Standard Schema v1 validator (zod, valibot, arktype…) accepts. A validator only checks, at the call: its output is
 * ignored. It is code and isn't stored: give it in each window or worker that sends; the brokers of one database share it there
 * while one of them is open. One that answers with a promise is refused.
 */
export type Validation = "none" | "empty" | "json" | StandardSchemaV1;

/** Options of CREATE QUEUE and ALTER QUEUE. What is absent keeps its value, or gets the default when the queue is made. */
export interface QueueOptions {
  /** Default "on". "off": nothing is enqueued, nothing received. `define` sets it only when it makes the queue. */
  status?: "on" | "off";
  /**
   * Message retention. Default false. true: received messages (status 0) and copies of sent ones (status 3) stay until this side ENDs
   * their conversation. Bounds are of the whole queue and drop the oldest retained rows beyond them; what is unread stays. `true` alone has none.
   */
  retention?: boolean | {
    /** At most this many retained rows. */
    maxRows?: number;
    /** None that was enqueued or sent more than this many milliseconds ago. */
    maxAge?: number;
  };
  /** Default true: five consecutive rollbacks switch the queue off. */
  poisonMessageHandling?: boolean;
  /** Default false. true: every END archives, as if called with `archive: true`. */
  archive?: boolean;
  /** ACTIVATION (STATUS). Default "on". Durable, for all tabs. */
  activation?: "on" | "off";
  /** What `enqueue` takes here. Default "none". */
  body?: Validation;
}

/** What ALTER SERVICE changes. */
export interface ServiceChange {
  /** The queue that the service goes to. */
  queue?: string;
  /** Contracts that it accepts as a target from now on. */
  addContracts?: readonly string[];
  /** Contracts that new conversations can't have with it any more. */
  dropContracts?: readonly string[];
}

/** An absent name matches any; the most exact rule wins. */
export interface PriorityRule {
  /** The conversation's contract. */
  contract?: string;
  /** The endpoint's own service. */
  localService?: string;
  /** The service at the other end. */
  remoteService?: string;
  /** 1 to 10, higher first; without a rule 5. */
  level: number;
}

/** A validator as https://standardschema.dev describes it: zod, valibot, arktype and others give them. */
export interface StandardSchemaV1<Input = any> {
  /** Everything of it. */
  readonly "~standard": {
    /** Of the specification. */
    readonly version: 1;
    /** The library that made it. */
    readonly vendor: string;
    /** Gives { value }, or { issues } with what is wrong. One that gives a promise is refused here. */
    readonly validate: (value: unknown) => any;
    /** For TypeScript only; absent at run time. */
    readonly types?: {
      /** What it takes: the body's type. */
      readonly input: Input;
      /** What it gives; ignored here. */
      readonly output: any;
    } | undefined;
  };
}
