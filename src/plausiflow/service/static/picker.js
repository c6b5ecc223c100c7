// Example rows in a list that can be searched.

import * as api from "./api.js";
import { make, byId } from "./dom.js";
import { isNumber, levelText, percent, valueText } from "./format.js";

const BATCH = 100;

export class Picker {
  /** `onPick(row)` is called when somebody chooses a row. */
  constructor(model, rows, onPick) {
    this.model = model;
    this.rows = rows;
    this.predictions = rows.map(() => "");
    byId("picker").hidden = rows.length === 0;
    byId("search").oninput = () => this.list();
    byId("rows").onchange = () => onPick(rows[Number(byId("rows").value)]);
    this.list();
  }

  /** Predict all rows; resolves to the first for which `isOpen(prediction)` holds, as soon as it is known. */
  firstOpen(isOpen) {
    return new Promise((done) => {
      this.predictAll((predictions, first) => {
        const at = predictions.findIndex(isOpen);
        if (at >= 0) done(first + at);
      }).then(() => done(-1));
    });
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
    return [`${i + 1}`, this.predictions[i], cells.join(", ")].filter(Boolean).join(" · ");
  }

  searched(i, text) {
    return `${text} ${Object.values(this.rows[i]).map(levelText).join(" ")}`.toLowerCase();
  }

  /** Add the predictions for all rows to the list; it works without them, too. */
  async predictAll(onBatch) {
    for (let first = 0; first < this.rows.length; first += BATCH) {
      const instances = this.rows.slice(first, first + BATCH);
      const response = await api.predict(this.model.name, { instances }).catch(() => null);
      if (!response) return;
      response.predictions.forEach((one, k) => { this.predictions[first + k] = describePrediction(one); });
      this.list();
      onBatch(response.predictions, first);
    }
  }
}

function describePrediction({ problem, probabilities, outcome, value }) {
  if (problem) return "cannot be read";
  if (!probabilities) return typeof value === "number" ? String(Number(value.toPrecision(4))) : "";
  return `${levelText(outcome)} ${percent(Math.max(...Object.values(probabilities)))}`;
}
