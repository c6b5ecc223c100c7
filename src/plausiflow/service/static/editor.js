// The row: an input and a lock for each feature, a direction and bounds; a page of features at a time.

import { breakable, byId, icon, make } from "./dom.js";
import { MISSING, hasLevels, isNumber, levelText, same, valueText } from "./format.js";

const PAGE = 12;

export class Editor {
  /** `onChange(what)` is called with "row", "question" or "lock". */
  constructor(container, features, onChange) {
    this.onChange = onChange;
    this.start = {};
    this.words = [];
    this.first = 0;
    this.fields = features.map((feature, i) => new Field(feature, i, (what) => this.changed(what)));
    container.replaceChildren(...this.fields.map((field) => field.element));
    byId("column-search").hidden = byId("pager").hidden = features.length <= PAGE;
    byId("columns").value = "";
    byId("columns").oninput = () => this.search(byId("columns").value);
    byId("page-back").onclick = () => this.turn(this.first - PAGE);
    byId("page-on").onclick = () => this.turn(this.first + PAGE);
    this.turn(0);
  }

  /** Show the features whose names have all words. */
  search(text) {
    this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.turn(0);
  }

  /** Show the page of the features that were searched, from the one at a place on. */
  turn(first) {
    const fitting = this.fields.filter(({ feature }) => this.words.every((word) => feature.name.toLowerCase().includes(word)));
    this.first = Math.max(0, Math.min(first, fitting.length - 1));
    const last = Math.min(this.first + PAGE, fitting.length), shown = new Set(fitting.slice(this.first, last));
    for (const field of this.fields) field.element.hidden = !shown.has(field);
    byId("page-back").disabled = this.first === 0;
    byId("page-on").disabled = last >= fitting.length;
    byId("page-state").textContent = fitting.length > 1 ? `${this.first + 1} to ${last} of ${fitting.length} columns`
      : ["No column matches.", "1 column"][fitting.length];
  }

  /** Turn to the first field that has a problem. */
  reveal() {
    const wrong = this.fields.find((field) => field.problem !== "");
    if (!wrong || !wrong.element.hidden) return;
    byId("columns").value = "";
    this.words = [];
    this.turn(PAGE * Math.floor(this.fields.indexOf(wrong) / PAGE));
  }

  field(name) {
    return this.fields.find((field) => field.feature.name === name);
  }

  /** Set a limit, and ask at once. */
  hold(limit) {
    this.field(limit.name).hold(limit);
    this.changed("lock");
  }

  /** Remove limits, and ask at once. */
  release(limits) {
    for (const limit of limits) this.field(limit.name).release(limit);
    this.changed("lock");
  }

  /** Set these limits and no others, without asking; returns those that do not fit a feature. */
  setLimits(limits) {
    for (const field of this.fields) for (const limit of field.limits) field.release(limit);
    const [fitting, others] = [limits.filter((limit) => this.field(limit.name)?.accepts(limit)), limits.filter((limit) => !this.field(limit.name)?.accepts(limit))];
    for (const limit of fitting) this.field(limit.name).hold(limit);
    return others;
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

  /** The values that differ from those of the row that was shown. */
  get edits() {
    return Object.fromEntries(this.fields.filter((field) => field.isEdited).map((field) => [field.feature.name, field.value]));
  }

  /** What people hold; features that a rule keeps do not count. */
  get limits() {
    return this.fields.flatMap((field) => field.limits);
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
    if ((isNumber(feature) || feature.kind === "ordered") && !feature.immutable) tools.append(this.makeRange());
    this.lock = make("button", {
      type: "button", class: "tool", disabled: feature.immutable, onclick: () => this.toggleLock(),
    });
    tools.append(this.lock);
    return tools;
  }

  /** Make the bounds of a number and the direction, and return the button that shows them. */
  makeRange() {
    const { feature, id } = this, { name } = feature, parts = [];
    const bound = (side, hint) => make("input", {
      id: `${id}-${side}`, type: "number", inputmode: "decimal", step: feature.step || "any",
      placeholder: valueText(feature, hint), oninput: () => this.bounded(),
    });
    if (isNumber(feature)) {
      [this.low, this.high] = [bound("from", feature.smallest), bound("to", feature.largest)];
      parts.push(make("label", { for: `${id}-from` }, "from"), this.low, make("label", { for: `${id}-to` }, "to"), this.high);
    }
    const ways = [["", "up or down"], ["up", "only up"], ["down", "only down"]];
    this.way = make("select", { id: `${id}-way`, onchange: () => this.onChange("lock") }, ways.map(([value, text]) => make("option", { value }, text)));
    parts.push(make("label", { for: `${id}-way` }, "goes"), this.way);
    this.bounds = make("div", { class: "bounds", id: `${id}-bounds`, hidden: true }, parts);
    const open = make("button", {
      type: "button", class: "tool", "aria-expanded": "false", "aria-controls": `${id}-bounds`,
      "aria-label": `Range of ${name} in an answer`, title: "Range and direction in an answer",
      onclick: () => {
        this.bounds.hidden = !this.bounds.hidden;
        open.setAttribute("aria-expanded", String(!this.bounds.hidden));
        if (!this.bounds.hidden) (this.low ?? this.way).focus();
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
    if (!this.low) return null;
    const [low, high] = [this.low, this.high].map((input) => (input.value === "" ? null : Number(input.value)));
    return low === null && high === null ? null : [low, high];
  }

  get limits() {
    const { name, immutable } = this.feature;
    if (immutable) return [];
    return [this.locked ? { kind: "lock", name } : null, this.way?.value ? { kind: this.way.value, name } : null,
      this.range ? { kind: "range", name, bounds: this.range } : null].filter(Boolean);
  }

  /** Whether a limit fits this feature. */
  accepts({ kind }) {
    if (this.feature.immutable) return false;
    return kind === "lock" || Boolean(kind === "range" ? this.low : this.way);
  }

  hold({ kind, bounds }) {
    if (kind === "lock") this.setLock(true);
    else if (kind === "range") [this.low.value, this.high.value] = bounds.map((bound) => (bound === null ? "" : String(bound)));
    else this.way.value = kind;
    this.showBounds();
  }

  release({ kind }) {
    if (kind === "lock") this.setLock(false);
    else if (kind === "range") [this.low.value, this.high.value] = ["", ""];
    else this.way.value = "";
    this.showBounds();
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
    this.showBounds();
    this.onChange("question");
  }

  showBounds() {
    this.opener?.classList.toggle("on", this.range !== null || this.way.value !== "");
  }

  moveSlider() {
    if (this.slider) this.slider.value = this.value === null ? this.feature.smallest : String(this.value);
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
