// Example rows in a list that can be searched.

import * as api from "./api.js";
import { make, byId } from "./dom.js";
import { isNumber, levelText, percent, valueText } from "./format.js";

const FIRST = 10, BATCH = 100, MOST_CELLS = 10;

export class Picker {
  /** `onPick(row, i)` is called when somebody chooses a row. */
  constructor(model, rows, onPick) {
    this.model = model;
    this.rows = rows;
    this.predictions = rows.map(() => "");
    byId("picker").hidden = rows.length === 0;
    byId("search").oninput = () => this.list();
    byId("rows").onchange = () => onPick(rows[Number(byId("rows").value)], Number(byId("rows").value));
    this.known = 0;
    this.list();
  }

  /** Predict rows until `isOpen(prediction)` holds; resolves to the place and prediction of this row, or of the first one. */
  async firstOpen(isOpen) {
    let first = { at: 0, prediction: null };
    while (this.known < this.rows.length) {
      const start = this.known, predictions = await this.predictSome(start ? BATCH : FIRST);
      if (!predictions) break;
      if (!start) first = { at: 0, prediction: predictions[0] };
      const at = predictions.findIndex(isOpen);
      if (at >= 0) return { at: start + at, prediction: predictions[at] };
    }
    return first;
  }

  /** Add the predictions for all rows to the list; it works without them, too. */
  async predictAll() {
    while (this.known < this.rows.length && (await this.predictSome(BATCH)));
  }

  async predictSome(count) {
    const first = this.known, instances = this.rows.slice(first, first + count);
    const response = await api.predict(this.model.name, { instances }).catch(() => null);
    if (!response) return null;
    response.predictions.forEach((one, k) => { this.predictions[first + k] = describePrediction(one); });
    this.known = first + instances.length;
    this.list();
    return response.predictions;
  }

  choose(i) {
    byId("rows").value = String(i);
  }

  list() {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean), list = byId("rows");
    const chosen = list.value;
    const fitting = this.rows.map((row, i) => [i, this.text(row, i)])
      .filter(([i, text]) => words.every((word) => this.searched(i, text).includes(word)));
    list.replaceChildren(...fitting.map(([i, text]) => make("option", { value: i }, text)));
    if (!fitting.length) list.append(make("option", { disabled: true }, "No row matches."));
    list.value = chosen;
  }

  text(row, i) {
    const { features } = this.model;
    const cells = features.filter((feature) => feature.name in row && feature.kind !== "constant")
      .map((feature) => {
        const named = isNumber(feature) || typeof row[feature.name] !== "string";
        return `${named ? `${feature.name} ` : ""}${valueText(feature, row[feature.name])}`;
      });
    if (cells.length > MOST_CELLS) cells.splice(MOST_CELLS, cells.length, "…");
    return [`${i + 1}`, this.predictions[i], cells.join(", ")].filter(Boolean).join(" · ");
  }

  searched(i, text) {
    return `${text} ${Object.values(this.rows[i]).map(levelText).join(" ")}`.toLowerCase();
  }
}

function describePrediction({ problem, probabilities, outcome, value }) {
  if (problem) return "cannot be read";
  if (!probabilities) return typeof value === "number" ? String(Number(value.toPrecision(4))) : "";
  return `${levelText(outcome)} ${percent(Math.max(...Object.values(probabilities)))}`;
}
