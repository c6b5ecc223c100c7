// Rows to start from: a list that can be searched.

import * as api from "./api.js";
import { make, place } from "./dom.js";
import { isNumber, levelText, percent, spaced, valueText } from "./words.js";

const AT_ONCE = 100;

export class Picker {
  constructor(model, rows, onPick) {
    this.model = model;
    this.rows = rows;
    this.said = rows.map(() => "");
    place("picker").hidden = rows.length === 0;
    place("search").oninput = () => this.list();
    place("rows").onchange = () => onPick(rows[Number(place("rows").value)]);
    this.list();
    this.predictAll();
  }

  choose(i) {
    place("rows").value = String(i);
  }

  list() {
    const words = place("search").value.toLowerCase().split(/\s+/).filter(Boolean), list = place("rows");
    const chosen = list.value;
    const fitting = this.rows.map((row, i) => [i, this.text(row, i)])
      .filter(([i, text]) => words.every((word) => this.searched(i, text).includes(word)));
    list.replaceChildren(...fitting.map(([i, text]) => make("option", { value: i }, text)));
    if (!fitting.length) list.append(make("option", { disabled: true }, "No row fits."));
    list.value = chosen;
  }

  text(row, i) {
    const { features } = this.model;
    const cells = features.filter((feature) => feature.name in row && feature.kind !== "constant")
      .map((feature) => {
        const named = isNumber(feature) || typeof row[feature.name] !== "string";
        return `${named ? `${spaced(feature.name)} ` : ""}${valueText(feature, row[feature.name])}`;
      });
    return [`${i + 1}`, this.said[i], cells.join(", ")].filter(Boolean).join(" · ");
  }

  searched(i, text) {
    return `${text} ${Object.values(this.rows[i]).map(levelText).join(" ")}`.toLowerCase();
  }

  /** What the model says of the rows, for the list; without it the list is still a list. */
  async predictAll() {
    for (let first = 0; first < this.rows.length; first += AT_ONCE) {
      const instances = this.rows.slice(first, first + AT_ONCE);
      const told = await api.predict(this.model.name, { instances }).catch(() => null);
      if (!told) return;
      told.predictions.forEach((said, k) => { this.said[first + k] = spoken(said); });
    }
    this.list();
  }
}

function spoken(said) {
  if (said.problem) return "cannot be read";
  if (!said.probabilities) return typeof said.value === "number" ? String(Number(said.value.toPrecision(4))) : "";
  return `${levelText(said.outcome)} ${percent(Math.max(...Object.values(said.probabilities)))}`;
}
