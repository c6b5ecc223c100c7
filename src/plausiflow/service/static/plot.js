// The plot of a map: density, decision boundary, the row, its answers, and arrows to them.

import { Field } from "./contours.js";
import { draw, make } from "./dom.js";

const FINE = 96;
const LEVELS = [-40, -20, -10, -5, -2, 2, 4, 6, 8];
const WIDE = 6.6;  // width of a character in a title, in pixels

export class Plot {
  constructor(holder) {
    this.holder = holder;
    this.canvas = make("canvas", { "aria-hidden": "true" });
    holder.append(this.canvas);
    this.box = null;
  }

  clear() {
    this.holder.querySelector("svg")?.remove();
    this.canvas.width = this.canvas.height = 0;
    this.box = null;
  }

  /** Draw a map with its axes; `places` are the positions of the row and the answers. */
  paint(map, axes, places, alt) {
    this.box = boxOf(Math.max(260, this.holder.clientWidth), map, axes);
    this.holder.querySelector("svg")?.remove();
    const score = spread(map.score, axes), lead = spread(map.lead, axes);
    this.shade(score);
    this.holder.append(this.lines(new Field(score), new Field(lead), axes, places, alt));
  }

  shade(score) {
    const { box, canvas } = this, most = Math.max(1, ...known(score));
    const [red, green, blue] = getComputedStyle(canvas).color.match(/[\d.]+/g).map(Number);
    const image = new ImageData(score[0].length, score.length);
    score.forEach((line, j) => line.forEach((value, i) => {
      const start = 4 * ((score.length - 1 - j) * line.length + i);
      image.data.set([red, green, blue, value === null ? 0 : 255 * ink(value, most)], start);
    }));
    const small = new OffscreenCanvas(image.width, image.height);
    small.getContext("2d").putImageData(image, 0, 0);
    const ratio = window.devicePixelRatio || 1;
    [canvas.width, canvas.height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
    const [left, top, width, height] = [box.left, box.top, box.width, box.height].map((value) => `${value}px`);
    Object.assign(canvas.style, { left, top, width, height });
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(small, 0, 0, canvas.width, canvas.height);
  }

  lines(score, lead, axes, places, alt) {
    const { box } = this, all = known(score.values);
    const levels = LEVELS.filter((level) => level > Math.min(...all) && level < Math.max(...all));
    const [width, height] = [box.left + box.width + box.right, box.top + box.height + box.bottom];
    const along = (name, lines) => draw("path", { class: name, d: lines.map((line) => this.path(line)).join("") });
    const refused = lead.below(0).map((area) => `${this.path(area)}Z`).join("");
    return draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": alt },
      draw("defs", null, hatch(), arrowHead()),
      draw("path", { class: "refused", d: refused }),
      levels.map((level) => along("contour", score.lines(level))),
      along("plausible", score.lines(0)),
      along("boundary", lead.lines(0)),
      draw("rect", { class: "frame", x: box.left, y: box.top, width: box.width, height: box.height }),
      this.axes(...axes), this.points(places), draw("g", { class: "cursor" }));
  }

  axes(across, up) {
    const { box } = this, bottom = box.top + box.height, middle = box.top + box.height / 2;
    const below = across.ticks(Math.floor(box.width / (across.isBands ? 76 : 64))).map(([share, text]) => {
      const [x] = this.pixel([share, 0]);
      return [draw("line", { class: "tick", x1: x, x2: x, y1: bottom, y2: bottom + 5 }),
        draw("text", { x, y: bottom + 18, "text-anchor": "middle" }, text)];
    });
    const beside = up.ticks(8).map(([share, text]) => {
      const [, y] = this.pixel([0, share]);
      return [draw("line", { class: "tick", x1: box.left - 5, x2: box.left, y1: y, y2: y }),
        draw("text", { x: box.left - 9, y: y + 4, "text-anchor": "end" }, text)];
    });
    const title = { class: "title", "text-anchor": "middle" };
    return draw("g", { class: "axes" }, below, beside,
      draw("text", { ...title, x: box.left + box.width / 2, y: bottom + 40 }, across.title(box.width / WIDE)),
      draw("text", { ...title, x: 14, y: middle, transform: `rotate(-90 14 ${middle})` }, up.title(box.height / WIDE)));
  }

  points(places) {
    const [own, ...others] = places.map((at) => (at.includes(null) ? null : this.pixel(at)));
    const group = draw("g", { class: "points" }), taken = own ? [own] : [];
    for (const spot of others) {
      if (spot && own) group.append(draw("line", { class: "way", x1: own[0], y1: own[1], ...end(own, spot) }));
    }
    if (own) group.append(draw("circle", { class: "own", cx: own[0], cy: own[1], r: 6 }));
    others.forEach((spot, i) => {
      if (!spot) return;
      let [x, y] = spot;
      while (taken.some(([a, b]) => Math.hypot(a - x, b - y) < 15)) x += 16;
      taken.push([x, y]);
      group.append(draw("circle", { class: "answer", cx: x, cy: y, r: 9 }),
        draw("text", { class: "number", x, y: y + 4, "text-anchor": "middle" }, String(i + 1)));
    });
    return group;
  }

  /** Return the pixel at a position on the axes. */
  pixel([u, v]) {
    const { box } = this;
    return [box.left + u * box.width, box.top + (1 - v) * box.height];
  }

  /** Return the position of a pointer on the axes; null outside. */
  shares(event) {
    const { box } = this, frame = this.holder.getBoundingClientRect();
    const at = [(event.clientX - frame.left - box.left) / box.width,
      1 - (event.clientY - frame.top - box.top) / box.height];
    return at.every((share) => share >= 0 && share <= 1) ? at : null;
  }

  path(points) {
    const written = points.map((at) => this.pixel(at).map((value) => value.toFixed(1)).join(" "));
    return `M${written.join("L")}`;
  }

  /** Mark a position; null removes the mark. */
  mark(at) {
    const cursor = this.holder.querySelector(".cursor"), { box } = this;
    cursor?.replaceChildren();
    if (!at) return;
    const [x, y] = this.pixel(at);
    cursor?.append(draw("line", { x1: x, x2: x, y1: box.top, y2: box.top + box.height }),
      draw("line", { x1: box.left, x2: box.left + box.width, y1: y, y2: y }));
  }
}

/** Return the box of the plot for a width; a projection is a square, so that distances are true. */
function boxOf(width, map, [, up]) {
  const longest = Math.max(2, ...up.ticks(8).map(([, text]) => text.length));
  const box = { left: Math.min(120, 34 + 6.4 * longest), top: 10, bottom: 48, right: 12 };
  const free = width - box.left - box.right, isSquare = map.kind === "projection";
  const height = isSquare ? Math.min(free, 520) : Math.min(free * 0.72, 440);
  return { ...box, width: isSquare ? height : free, height };
}

/** Return a grid whose bands are repeated over many cells, so that their borders stay sharp. */
function spread(grid, [across, up]) {
  const times = (axis, count) => (axis.isBands ? Math.ceil(FINE / count) : 1);
  const [wide, high] = [times(across, grid[0].length), times(up, grid.length)];
  return grid.flatMap((line) => Array(high).fill(line.flatMap((value) => Array(wide).fill(value))));
}

const known = (grid) => grid.flat().filter((value) => value !== null);

/** Return the opacity of a score: weak below the threshold, stronger above. */
function ink(score, most) {
  return score < 0 ? 0.3 * Math.max(0, 1 + score / 10) ** 1.5 : 0.4 + 0.35 * (score / most);
}

function hatch() {
  const pattern = { id: "hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" };
  return draw("pattern", pattern, draw("line", { class: "hatching", x1: 0, x2: 0, y1: 0, y2: 7 }));
}

function arrowHead() {
  const marker = { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" };
  return draw("marker", marker, draw("path", { class: "head", d: "M0 0 8 4 0 8z" }));
}

/** Return the end of an arrow, at the edge of the answer's circle. */
function end([x, y], [to, down]) {
  const length = Math.hypot(to - x, down - y), rest = length > 11 ? (length - 10) / length : 0;
  return { x2: x + rest * (to - x), y2: y + rest * (down - y), "marker-end": rest ? "url(#head)" : null };
}
