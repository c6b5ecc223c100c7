// A strip for a change: how usual each value is among rows with the wanted outcome, and where the row is now and then.

import { draw, make } from "./dom.js";
import { hasLevels, isNumber, levelText, rounded, same, valueText } from "./format.js";

const HEIGHT = 36, FLOOR = 28, TOP = 3, MOST_LEVELS = 12, START = 3, WIDTH = 94;

const at = (share) => `${(START + WIDTH * share).toFixed(2)}%`;

/** Return the strip of a feature; `histogram` is that of the population, or undefined while it is not known. */
export function strip(feature, before, after, histogram) {
  const place = placing(feature, histogram), [now, then] = [place?.(before), place?.(after)];
  if (!place || now === null || then === null) return make("span", { class: "strip" });
  return make("span", { class: "strip" },
    draw("svg", { "aria-hidden": "true", height: HEIGHT, width: "100%" }, bars(histogram),
      draw("line", { class: "track", x1: at(0), x2: at(1), y1: FLOOR, y2: FLOOR }),
      draw("line", { class: "moved", x1: at(now), x2: at(then), y1: FLOOR, y2: FLOOR }),
      draw("circle", { class: "now", cx: at(now), cy: FLOOR, r: 4.5 }),
      draw("circle", { class: "then", cx: at(then), cy: FLOOR, r: 5.5 })),
    make("span", { class: "hidden" }, usual(feature, after, histogram)));
}

/** Return a function from a value to its place along the strip, from 0 to 1, or null for a value without a place. */
function placing(feature, histogram) {
  if (hasLevels(feature)) {
    const levels = histogram?.levels ?? feature.levels;
    if (levels.length > MOST_LEVELS) return null;
    return (value) => {
      const place = levels.findIndex((level) => same(level, value));
      return place < 0 ? null : (place + 0.5) / levels.length;
    };
  }
  const edges = histogram?.edges ?? [feature.smallest, feature.largest], last = edges.length - 1;
  if (!isNumber(feature) || !(edges[last] > edges[0])) return null;
  const apart = (value) => feature.special.includes(value) && (value < edges[0] || value > edges[last]);
  return (value) => (typeof value !== "number" || apart(value) ? null : along(edges, value));
}

/** Return the place of a number among the edges of bins that are drawn equally wide. */
function along(edges, value) {
  const last = edges.length - 1, bin = binOf(edges, value);
  const inside = (value - edges[bin]) / (edges[bin + 1] - edges[bin]);
  return (bin + Math.min(1, Math.max(0, inside))) / last;
}

function binOf(edges, value) {
  const above = edges.findIndex((edge, i) => i > 0 && value < edge);
  return above < 0 ? edges.length - 2 : above - 1;
}

/** Draw the histogram; a bin of too few rows is empty. */
function bars(histogram) {
  if (!histogram) return [];
  const { shares } = histogram, most = Math.max(0.01, ...shares.map((share) => share ?? 0)), n = shares.length;
  return shares.map((share, i) => {
    const height = ((share ?? 0) / most) * (FLOOR - TOP);
    return draw("rect", { class: "usual", x: at(i / n), width: `${(WIDTH / n - 0.6).toFixed(2)}%`, y: (FLOOR - height).toFixed(1), height: height.toFixed(1) });
  });
}

/** Return in words how usual a value is. */
function usual(feature, value, histogram) {
  if (!histogram) return "";
  const { edges, levels, shares } = histogram;
  if (levels) {
    const share = shares[levels.findIndex((level) => same(level, value))];
    return share === null || share === undefined ? "; rare among them" : `; ${rounded(share)} of them have ${levelText(value)}`;
  }
  const bin = binOf(edges, value), share = shares[bin];
  if (share === null) return "; rare among them";
  return `; ${rounded(share)} of them are between ${valueText(feature, edges[bin])} and ${valueText(feature, edges[bin + 1])}`;
}

/** Return what the signs on the strips mean; `whom` names the rows of the histograms. */
export function stripLegend(whom) {
  const sign = (name, shape) => draw("svg", { viewBox: "0 0 14 14", width: 14, height: 14, "aria-hidden": "true" }, draw(shape, { class: name, ...SHAPES[shape] }));
  return make("p", { class: "small strip-legend strip" }, make("span", null, sign("now", "circle"), " now"),
    make("span", null, sign("then", "circle"), " then"), whom ? make("span", null, sign("usual", "rect"), ` ${whom}`) : null);
}

const SHAPES = { circle: { cx: 7, cy: 7, r: 5 }, rect: { x: 2, y: 3, width: 10, height: 9 } };
