// The row: an input and a lock for each feature, and a range for numbers.

import { breakable, byId, icon, make } from "./dom.js";
import { MISSING, hasLevels, isNumber, levelText, same, valueText } from "./format.js";

const MOST_WITHOUT_SEARCH = 12;

export class Editor {
  /** `onChange(what)` is called with "row", "question" or "lock". */
  constructor(container, features, onChange) {
    this.onChange = onChange;
    this.start = {};
    this.fields = features.map((feature, i) => new Field(feature, i, (what) => this.changed(what)));
    container.replaceChildren(...this.fields.map((field) => field.element));
    byId("column-search").hidden = features.length <= MOST_WITHOUT_SEARCH;
    byId("columns").value = "";
    byId("columns").oninput = () => this.search(byId("columns").value);
  }

  /** Show the features whose names have all words. */
  search(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    for (const { element, feature } of this.fields) {
      element.hidden = !words.every((word) => feature.name.toLowerCase().includes(word));
    }
  }

  /** Lock a feature, or let it change again. */
  lock(name, locked) {
    this.fields.find((field) => field.feature.name === name).setLock(locked);
    this.changed("lock");
  }

  /** Remove the range of a feature. */
  free(name) {
    this.fields.find((field) => field.feature.name === name).free();
    this.changed("lock");
  }

  /** Show a row; later edits are marked. */
  show(row) {
    this.start = row;
    for (const field of this.fields) field.show(row[field.feature.name] ?? null);
    this.changed("row");
  }

  /** Enter values as if they were typed. */
  edit(row) {
    for (const field of this.fields) field.put(row[field.feature.name] ?? null);
    this.changed("row");
  }

  get row() {
    return Object.fromEntries(this.fields.map((field) => [field.feature.name, field.value]));
  }

  get locked() {
    return this.fields.filter((field) => field.locked && !field.feature.immutable).map((field) => field.feature.name);
  }

  get ranges() {
    const own = this.fields.filter((field) => field.range).map((field) => [field.feature.name, field.range]);
    return Object.fromEntries(own);
  }

  get isEdited() {
    return this.fields.some((field) => field.isEdited);
  }

  /** Whether the row can be sent; otherwise a field shows its problem. */
  get isReadable() {
    return this.fields.every((field) => field.problem === "");
  }

  /** Show a problem such as "`income` is 'x', which is not a number" at its field. */
  tell(problem) {
    const parts = (problem ?? "").split("; ");
    for (const field of this.fields) {
      field.tell(parts.filter((part) => part.startsWith(`\`${field.feature.name}\` `)).join("; "));
    }
  }

  changed(what) {
    for (const field of this.fields) field.tell("");
    this.onChange(what);
  }
}

class Field {
  constructor(feature, i, onChange) {
    this.feature = feature;
    this.id = `feature-${i}`;
    this.onChange = onChange;
    this.locked = feature.immutable;
    this.note = make("p", { class: "note", id: `${this.id}-note` });
    this.input = this.makeInput();
    const name = make("label", { for: this.id, class: "name" }, breakable(feature.name));
    const control = make("div", { class: "control" }, this.input, this.slider);
    this.element = make("div", { class: "feature" }, name, control, this.makeTools(), this.bounds, this.note);
    this.showLock();
  }

  makeInput() {
    const { feature } = this, own = { id: this.id, "aria-describedby": `${this.id}-note` };
    const changed = () => this.typed();
    if (hasLevels(feature)) return make("select", { ...own, onchange: changed }, ...this.options());
    if (!isNumber(feature)) return make("input", { ...own, type: "text", oninput: changed });
    const step = feature.step || "any";
    this.slider = make("input", {
      type: "range", class: "slider", tabindex: -1, "aria-hidden": "true", min: feature.smallest, max: feature.largest,
      step: feature.step || (feature.largest - feature.smallest) / 200, oninput: () => this.slid(),
    });
    return make("input", { ...own, type: "number", inputmode: "decimal", autocomplete: "off", step, oninput: changed });
  }

  options() {
    const levels = this.feature.missing ? [...this.feature.levels, null] : this.feature.levels;
    this.choices = levels.slice();
    return levels.map((level, i) => make("option", { value: i }, levelText(level)));
  }

  makeTools() {
    const { feature } = this, tools = make("div", { class: "tools" });
    if (isNumber(feature) && !feature.immutable) tools.append(this.makeRange());
    this.lock = make("button", {
      type: "button", class: "tool", disabled: feature.immutable, onclick: () => this.toggleLock(),
    });
    tools.append(this.lock);
    return tools;
  }

  makeRange() {
    const { feature, id } = this, name = feature.name;
    const bound = (side, hint) => make("input", {
      id: `${id}-${side}`, type: "number", inputmode: "decimal", step: feature.step || "any",
      placeholder: valueText(feature, hint), oninput: () => this.bounded(),
    });
    [this.low, this.high] = [bound("from", feature.smallest), bound("to", feature.largest)];
    this.bounds = make("div", { class: "bounds", id: `${id}-bounds`, hidden: true },
      make("label", { for: `${id}-from` }, "from"), this.low, make("label", { for: `${id}-to` }, "to"), this.high);
    const open = make("button", {
      type: "button", class: "tool", "aria-expanded": "false", "aria-controls": `${id}-bounds`,
      "aria-label": `Range of ${name} in an answer`, title: "Range in an answer",
      onclick: () => {
        this.bounds.hidden = !this.bounds.hidden;
        open.setAttribute("aria-expanded", String(!this.bounds.hidden));
        if (!this.bounds.hidden) this.low.focus();
      },
    }, icon("range"));
    this.opener = open;
    return open;
  }

  show(value) {
    this.before = value;
    this.put(value);
  }

  put(value) {
    if (hasLevels(this.feature)) {
      let at = this.choices.findIndex((level) => same(level, value));
      if (at < 0 && value !== null) at = this.choices.findIndex((level) => String(level) === String(value));
      if (at < 0) {
        at = this.choices.push(value) - 1;
        this.input.append(make("option", { value: at }, `${levelText(value)} (unknown)`));
      }
      this.input.value = String(at);
    } else {
      this.input.value = value === null ? "" : String(value);
      this.moveSlider();
    }
    this.tell("");
  }

  get value() {
    if (hasLevels(this.feature)) return this.choices[Number(this.input.value)];
    if (this.input.value === "") return null;
    return isNumber(this.feature) ? Number(this.input.value) : this.input.value;
  }

  get range() {
    if (!this.bounds) return null;
    const [low, high] = [this.low, this.high].map((input) => (input.value === "" ? null : Number(input.value)));
    return low === null && high === null ? null : [low, high];
  }

  get isEdited() {
    return !same(this.value, this.before);
  }

  get problem() {
    if (isNumber(this.feature)) {
      if (this.input.validity.badInput) return "This is not a number.";
      if (this.value === null && !this.feature.missing) return "A number is needed here: no training row misses it.";
    }
    const [low, high] = this.range ?? [null, null];
    return low !== null && high !== null && low > high ? "The range starts above its end." : "";
  }

  typed() {
    this.moveSlider();
    this.onChange("row");
  }

  slid() {
    this.input.value = String(Number(Number(this.slider.value).toPrecision(12)));
    this.onChange("row");
  }

  bounded() {
    this.opener.classList.toggle("on", this.range !== null);
    this.onChange("question");
  }

  moveSlider() {
    if (this.slider) this.slider.value = this.value === null ? this.feature.smallest : String(this.value);
  }

  free() {
    [this.low.value, this.high.value] = ["", ""];
    this.opener.classList.remove("on");
  }

  toggleLock() {
    this.setLock(!this.locked);
    this.onChange("lock");
  }

  setLock(locked) {
    this.locked = locked;
    this.showLock();
  }

  showLock() {
    const { feature } = this, name = feature.name;
    const why = feature.immutable ? `${name} never changes: a rule of this model` : "";
    this.lock.replaceChildren(icon(this.locked ? "locked" : "open"));
    this.lock.classList.toggle("on", this.locked);
    this.lock.setAttribute("aria-pressed", String(this.locked));
    this.lock.setAttribute("aria-label", why || `Lock ${name}`);
    this.lock.title = why || (this.locked ? "Locked: answers keep this value" : "Lock: answers will keep this value");
  }

  /** Write the note below the input: a problem, else the previous value and what is unusual. */
  tell(problem) {
    const wrong = this.problem || problem, { feature } = this;
    this.input.setAttribute("aria-invalid", String(wrong !== ""));
    this.note.classList.toggle("wrong", wrong !== "");
    this.element.classList.toggle("edited", this.isEdited);
    this.note.textContent = wrong || [this.isEdited ? `was ${valueText(feature, this.before)}` : "", this.unusual]
      .filter(Boolean).join(", ");
  }

  get unusual() {
    const { feature, value } = this;
    if (feature.immutable) return "kept by a rule of this model";
    if (value === null) return MISSING;
    if (!isNumber(feature) || (value >= feature.smallest && value <= feature.largest)) return "";
    if (feature.special.includes(value)) return "";
    const special = feature.special.map((one) => ` or ${valueText(feature, one)}`).join("");
    return `training rows have ${valueText(feature, feature.smallest)} to ${valueText(feature, feature.largest)}${special}`;
  }
}
