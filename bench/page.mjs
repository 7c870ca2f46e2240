/** The bench by hand: a table, a button. bench/run.mjs calls the same `bench` from outside. */
import { LINES, runBench } from "./bench.mjs";

const status = document.querySelector("#status");
const table = document.querySelector("#lines");
const form = document.querySelector("form");
const number = (value, digits) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

const cell = (row, text, kind = "number") => {
  const made = row.insertCell();
  made.className = kind;
  made.textContent = text;
  return made;
};
for (const { id, title, against, target } of LINES) {
  const row = table.insertRow();
  row.id = id;
  const pick = Object.assign(document.createElement("input"), { type: "checkbox", checked: true, name: id });
  pick.setAttribute("aria-label", title);
  row.insertCell().append(pick);
  const work = cell(row, title, "");
  work.append(Object.assign(document.createElement("small"), { textContent: `against ${against}` }));
  cell(row, target === null ? "" : `${target}×`);
  for (const _ of ["ratio", "ours", "bare"]) cell(row, "");
}

function tell({ id, state, round, of, result }) {
  const row = document.getElementById(id);
  status.textContent = result ? "" : `${row.cells[1].firstChild.textContent}: ${state}${of ? `, round ${round} of ${of}` : ""}`;
  if (!result) return;
  const [ratio, ours, bare] = [...row.cells].slice(3);
  ratio.textContent = `${number(result.ratio, 2)}×`;
  ratio.className = `number ${result.reached ? "reached" : "missed"}`;
  ratio.title = `${number(result.lowest, 2)} to ${number(result.highest, 2)} in ${result.rounds} rounds`;
  ours.textContent = number(result.oursMs, 3);
  bare.textContent = number(result.bareMs, 3);
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true;
  try {
    const lines = LINES.map((line) => line.id).filter((id) => table.querySelector(`input[name="${id}"]`).checked);
    const results = await runBench({ quick: form.elements.quick.checked, lines, tell });
    const missed = results.filter((result) => !result.reached).length;
    status.textContent = missed === 0 ? "Done: every line reaches its target." : `Done: ${missed} below the target.`;
  } catch (error) {
    status.textContent = `Stopped: ${error.message}`;
    throw error;
  } finally {
    button.disabled = false;
  }
});

globalThis.bench = { run: (options) => runBench({ ...options, tell }), lines: LINES.map(({ id }) => id) };
