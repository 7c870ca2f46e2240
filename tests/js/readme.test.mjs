/** The README's examples: each goes on from the one before, so they run as one module, as they stand. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { inPage, scripts } from "./fixtures/harness.mjs";
import { ROOT } from "./support/paths.mjs";

const examples = async (file) => [...(await readFile(join(ROOT, file), "utf8")).matchAll(/^```js\n(.*?)^```$/gms)].map(([, code]) => code);
const readme = await examples("README.md");
const [quickStart] = readme;
// What the outbox sends its request to.
scripts.set("/orders", "");

inPage("the README's examples do what they say", async (h, pb, code) => {
  const printed = [];
  h.patch(console, "log", () => (...values) => void printed.push(values));
  h.afterwards(() => pb.deleteBroker("shop"));
  const { broker, dialog, visit, kitchen, sender } = await import(URL.createObjectURL(new Blob([code, "export { broker, dialog, visit, kitchen, sender };"], { type: "text/javascript" })));
  h.equal(printed, [[{ minutes: 5 }], ["guest 7", "guest@example.com"], ["undo", 0, "Confirmed"], ["undo", 3, "Order"], [0, 2], [2, true], [true], [0, "There is no service \"Orders\" here and no route to it."], [1]]);
  await h.until(async () => (await broker.conversations({ conversationId: dialog.conversationId }).first()) === undefined, "the reader's END");
  h.ok((await visit.info()).dialogTimer > new Date(), "the timer is set");
  await kitchen.idle();
  h.equal(await broker.count("kitchen"), 0);
  await kitchen.stop();
  await sender.idle();
  h.equal([await broker.count("requests"), await broker.count("error")], [0, 0]);
}, { argument: readme.join("\n") });

test("the quick start is ten lines at most, and the same in the package", async () => {
  assert.ok(quickStart.trim().split("\n").length <= 10, quickStart);
  assert.equal((await examples("pkg/README.md"))[0], quickStart);
});
