// The map: its axes, its requests, and the values at the pointer.

import * as api from "./api.js";
import { Axis, describePoint } from "./axes.js";
import { make, debounce } from "./dom.js";
import { legend } from "./legend.js";
import { Plot } from "./plot.js";
import { hasLevels, isNumber, wantedText } from "./format.js";

const CELLS = 40;
const PROJECTION = "projection", FEATURES = "features";
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

export class Chart {
  constructor(choices, figure, model) {
    this.model = model;
    this.map = null;
    this.cursor = null;
    this.request = null;
    this.view = { row: null, answers: [], target: null };
    this.makeChoices(choices);
    const holder = make("div", {
      class: "plot", tabindex: 0, onkeydown: (event) => this.key(event),
      onpointermove: (event) => this.map && this.read(this.plot.shares(event)), onpointerleave: () => this.read(null),
    });
    this.plot = new Plot(holder);
    this.caption = make("figcaption");
    this.readout = make("output", { class: "readout" });
    figure.replaceChildren(holder, make("div", { class: "beside" }, this.readout, legend(), this.caption));
    this.resized = new ResizeObserver(debounce(60, () => this.paint()));
    this.resized.observe(holder);
  }

  /** End requests and observers, before another model is shown. */
  close() {
    this.map = null;
    this.request?.abort();
    this.resized.disconnect();
  }

  makeChoices(choices) {
    const free = this.model.features.filter((feature) => isNumber(feature) || hasLevels(feature));
    const list = (id, name, options) => {
      const select = make("select", { id, onchange: () => { this.isChosen = true; this.update(); } },
        options.map(([value, text]) => make("option", { value }, text)));
      return [select, make("p", null, make("label", { for: id }, name), select)];
    };
    const names = free.map(({ name }) => [name, name]);
    const views = [[PROJECTION, "Plane through the answers"], [FEATURES, "Two features"]];
    const [kind, ofKind] = list("map-kind", "View", views);
    const [across, ofAcross] = list("map-across", "Across", names);
    const [up, ofUp] = list("map-up", "Up", names);
    const [base, ofBase] = list("map-base", "Other features as in", [["row", "the row"]]);
    Object.assign(this, { kind, across, up, base, onlyFeatures: [ofAcross, ofUp, ofBase], isChosen: false });
    const numbers = free.filter((feature) => isNumber(feature) && !feature.immutable);
    this.first = [...numbers, ...free.filter((feature) => !numbers.includes(feature))].map((feature) => feature.name);
    [across.value, up.value] = this.first;
    this.canProject = numbers.length > 1;
    kind.value = this.canProject ? PROJECTION : FEATURES;
    kind.options[0].disabled = !this.canProject;
    ofKind.className = "wide";
    choices.replaceChildren(ofKind, ...this.onlyFeatures);
  }

  /** Draw a row and its answers; `more` says that more answers will follow. */
  show(row, answers, target, more = false) {
    this.view = { row, answers, target };
    const bases = [["row", "the row"], ...answers.map((_, i) => [String(i), `answer ${i + 1}`])];
    const chosen = this.base.value;
    this.base.replaceChildren(...bases.map(([value, text]) => make("option", { value }, text)));
    this.base.value = bases.some(([value]) => value === chosen) ? chosen : "row";
    if (!this.isChosen && answers.length) this.choose(answers, more);
    return this.update();
  }

  /** Until people choose: two features where nothing else changes, else the plane through the answers. */
  choose(answers, more) {
    const changed = answers[0].changes.map((change) => change.feature);
    const few = answers.length === 1 && !more && changed.length <= 2;
    this.kind.value = this.canProject && !few ? PROJECTION : FEATURES;
    [this.across.value, this.up.value] = [...changed, ...this.first.filter((name) => !changed.includes(name))];
  }

  async update() {
    const byFeatures = this.kind.value === FEATURES;
    for (const element of this.onlyFeatures) element.hidden = !byFeatures;
    if (this.view.row === null || this.view.target === null) return;
    if (byFeatures && this.across.value === this.up.value) {
      this.fail("Choose two different features.");
      return;
    }
    this.request?.abort();
    this.request = new AbortController();
    const base = byFeatures ? this.base.value : "row";
    try {
      this.map = await api.map(this.model.name, this.body(byFeatures, base), this.request.signal);
    } catch (error) {
      if (!api.wasAborted(error)) this.fail(error.message);
      return;
    }
    this.places = base === "row" ? this.map.points : this.map.points.slice(1);
    this.axes = [this.map.horizontal, this.map.vertical].map((axis) => new Axis(axis, this.model.features));
    this.paint();
  }

  /** Return the body of the request; if other features are as in an answer, the row is the first point. */
  body(byFeatures, base) {
    const { row, answers, target } = this.view, rows = answers.map((answer) => answer.values);
    const [horizontal, vertical] = byFeatures ? [this.across.value, this.up.value] : [null, null];
    const [instance, points] = base === "row" ? [row, rows] : [rows[Number(base)], [row, ...rows]];
    return { instance, target, points, horizontal, vertical, size: CELLS };
  }

  fail(why) {
    this.map = null;
    this.plot.clear();
    this.readout.textContent = "";
    this.caption.replaceChildren(make("p", { class: "wrong" }, why.replaceAll("`", "")));
  }

  paint() {
    if (!this.map) return;
    this.plot.paint(this.map, this.axes, this.places, this.alt());
    this.describe();
    this.read(this.cursor);
  }

  alt() {
    const [across, up] = this.axes, [own, ...others] = this.places;
    const locate = (name, at) => (at.includes(null) ? `${name} is not on it: a value is missing.`
      : `${name} lies at ${across.words(at[0])}, ${up.words(at[1])}.`);
    const head = `Map of plausibility and of the decision for ${wantedText(this.view.target)}`;
    return [`${head}, ${across.title()} across, ${up.title()} up.`, locate("The row", own),
      ...others.map((at, i) => locate(`Answer ${i + 1}`, at))].join(" ");
  }

  describe() {
    const base = this.base.value === "row" ? "the row" : `answer ${Number(this.base.value) + 1}`;
    const text = this.map.kind === PROJECTION
      ? "A plane through the row in the space of numbers that can change, each over its range: across "
        + `${this.map.horizontal.name}, up ${this.map.vertical.name}. Categories are those of the nearest of the row `
        + "and its answers."
      : `All other features are as in ${base}: for an answer that changes other features, too, the map shows `
        + "values that differ from those on its card.";
    const strong = `Stronger colour is more plausible for ${wantedText(this.view.target)}.`;
    const hasHoles = this.map.score.some((line) => line.includes(null));
    const blank = hasHoles ? " Blank is outside the range of training rows." : "";
    this.caption.replaceChildren(make("p", null, `${strong} ${text}${blank}`));
  }

  key(event) {
    const by = STEPS[event.key];
    if (!by || !this.map) return;
    event.preventDefault();
    const from = this.cursor ?? this.places[0].map((share) => share ?? 0.5);
    this.read(from.map((share, axis) => Math.min(0.999, Math.max(0, share + by[axis] / CELLS))));
  }

  /** Show the values at a point, and mark it. */
  read(at) {
    this.cursor = at;
    if (!this.map) return;
    this.plot.mark(at);
    if (!at) {
      this.readout.textContent = "Point at the map, or use the arrow keys on it.";
      return;
    }
    const [across, up] = this.axes;
    const where = this.map.kind === PROJECTION ? "" : `${across.words(at[0])}, ${up.words(at[1])}: `;
    this.readout.textContent = `${where}${describePoint(this.map, at, wantedText(this.view.target))}`;
  }
}
