// The axes of the map: names, ticks, and descriptions of positions.

import { formatFigure, levelText, percent, valueText } from "./format.js";

const PARTS = 3, SMALL = 0.15;

/** One axis: its description from the service and its feature; a projection has no features. */
export class Axis {
  constructor(description, features) {
    this.description = description;
    this.feature = features.find((feature) => feature.name === description.name) ?? null;
  }

  get isBands() {
    return this.description.scale === "bands";
  }

  /** Return the title, with at most `most` characters; that of a projection names the features that change most. */
  title(most = Infinity) {
    if (this.feature) return this.description.name;
    const parts = this.description.parts.filter((part) => Math.abs(part.share) > SMALL)
      .map((part) => `${part.feature} ${part.share > 0 ? "▲" : "▼"}`);
    const titles = [PARTS, 2, 1].map((count) => `${this.description.name} (${parts.slice(0, count).join(", ")})`);
    return titles.find((title) => title.length <= most) ?? this.description.name;
  }

  /** Return the positions and texts of at most `most` ticks. */
  ticks(most) {
    if (!this.feature) return [];
    if (this.isBands) {
      const levels = this.description.values, every = Math.ceil(levels.length / Math.max(1, most));
      return levels.map((level, i) => [(i + 0.5) / levels.length, levelText(level)]).filter((_, i) => i % every === 0);
    }
    const { from, to } = this.description;
    const values = this.description.scale === "log" ? decades(from, to, most) : even(from, to, most);
    return values.map((value) => [this.share(value), short(this.feature, value)]);
  }

  share(value) {
    const { from, to, scale } = this.description, bent = scale === "log" ? signedLog : (number) => number;
    return (bent(value) - bent(from)) / (bent(to) - bent(from));
  }

  /** Return the index of the cell at a position. */
  cell(share, count) {
    return Math.min(count - 1, Math.max(0, Math.floor(share * count)));
  }

  /** Return the description of a position. */
  words(share) {
    if (!this.feature) {
      const way = (this.description.from + share * (this.description.to - this.description.from));
      return `${formatFigure(way)} ${this.description.name}`;
    }
    const { values } = this.description;
    return `${this.description.name} ${valueText(this.feature, values[this.cell(share, values.length)])}`;
  }
}

const signedLog = (value) => Math.sign(value) * Math.log1p(Math.abs(value));

function even(from, to, most) {
  const rough = (to - from) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((k) => k * power).find((size) => size >= rough);
  const first = Math.ceil(from / step - 1e-9), last = Math.floor(to / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

function decades(from, to, most) {
  const all = [0];
  for (let power = 0; power < 16; power += 1) all.push(10 ** power, -(10 ** power));
  const own = all.filter((value) => value >= from && value <= to).sort((a, b) => a - b);
  const every = Math.ceil(own.length / Math.max(1, most));
  return own.filter((_, i) => i % every === 0);
}

function short(feature, value) {
  const size = Math.abs(value), large = feature.largest >= 10000;
  if (large && size >= 1e6) return `${Number((value / 1e6).toPrecision(4))}M`;
  if (large && size >= 1000) return `${Number((value / 1000).toPrecision(4))}k`;
  return valueText(feature, value);
}

/** Return the output of the model and the score at a position on a map. */
export function describePoint(map, at, target) {
  const lines = map.score, line = Math.min(lines.length - 1, Math.max(0, Math.floor(at[1] * lines.length)));
  const column = Math.min(lines[0].length - 1, Math.max(0, Math.floor(at[0] * lines[0].length)));
  const score = lines[line][column];
  if (score === null) return "outside the range of training rows";
  const model = map.probability ? `${target} ${percent(map.probability[line][column])}`
    : `predicted ${formatFigure(map.prediction[line][column])}`;
  return `${model}, ${Math.abs(score).toFixed(1)} nats ${score < 0 ? "below the threshold" : "above the threshold"}`;
}
