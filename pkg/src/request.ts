// `request`: a dialog for one question and its answer.
import { amount, abortSignal, plain } from "./check.js";
import type { Core } from "./core.js";
import { BrokerError, isLoss, reading } from "./errors.js";
import { SystemMessage } from "./messages.js";
import { transact, type UnitOfWork } from "./transaction.js";
import type { Transaction } from "./types/broker.js";
import type { Message } from "./types/messages.js";
import type { BeginDialog, Conversation, SendOptions } from "./types/verbs.js";

const TIMEOUT = 30_000;

/** Begins a dialog, sends one message, waits for the first answer and ENDs. */
export async function request(core: Core, open: Set<UnitOfWork>, dialog: unknown, messageType: string, body: unknown, options: SendOptions | undefined): Promise<Message> {
  const { timeout, signal, begin } = reading(() => {
    const { timeout: ms = TIMEOUT, signal: abort, ...rest } = plain(dialog, "dialog");
    return {
      timeout: amount(ms, "dialog.timeout", 0),
      signal: abort === undefined ? undefined : abortSignal(abort, "dialog.signal"),
      begin: rest as unknown as BeginDialog,
    };
  });
  const stoppable = signal === undefined ? {} : { signal };
  // A page that was put away goes on when it is back; who was robbed asks again.
  const once = async <T>(work: (tx: Transaction) => Promise<T>): Promise<T> => {
    for (;;) {
      try {
        return await transact(core, open, work, stoppable);
      } catch (error) {
        if (!isLoss(error)) throw error;
      }
    }
  };
  const conversation: Conversation = await once(async (tx) => {
    const begun = await tx.beginDialog(begin);
    await begun.send(messageType, body, options);
    return begun;
  });
  let answer: Message | undefined;
  try {
    answer = await once(async (tx) => {
      const own = tx.conversation(conversation);
      const [first] = await own.receive({ top: 1, timeout, ...stoppable });
      if (first !== undefined) await own.end();
      return first;
    });
  } catch (error) {
    await conversation.end().catch(() => {});
    throw error;
  }
  if (answer === undefined) {
    await conversation.end();
    throw new BrokerError("Timeout", `The service ${JSON.stringify(conversation.farService)} has not answered within ${timeout} ms. The dialog was ended; ask again, or give a longer \`timeout\`.`,
      { retryable: true, details: { service: conversation.farService, timeout } });
  }
  const { messageTypeName } = answer;
  if (messageTypeName === SystemMessage.Error || messageTypeName === SystemMessage.EndDialog) {
    const { code, description } = (answer.body ?? {}) as { code?: number; description?: string };
    const why = messageTypeName === SystemMessage.Error ? `answered with the error ${code}: ${description}` : "ended the dialog without an answer";
    throw new BrokerError("RemoteError", `The service ${JSON.stringify(conversation.farService)} ${why}.`, { details: { service: conversation.farService, code, description } });
  }
  return answer;
}
