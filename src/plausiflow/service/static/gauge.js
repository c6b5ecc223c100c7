// The score of an answer relative to the plausibility threshold.

import { draw } from "./dom.js";
import { nats } from "./format.js";

const WIDTH = 280, TRACK = 14, TOP = 18;

/** Draw a score on a scale from minus to plus `reach` nats. */
export function gauge(score, reach) {
  const x = (value) => 6 + (WIDTH - 12) * Math.min(1, Math.max(0, (value + reach) / (2 * reach)));
  const label = `Density: ${nats(score)}, on a scale of ${reach.toFixed(0)} nats either way`;
  const at = x(score), zero = x(0), middle = TOP + TRACK / 2;
  return draw("svg", { class: "gauge", viewBox: `0 0 ${WIDTH} 48`, role: "img", "aria-label": label },
    draw("rect", { class: "rare", x: 6, y: TOP, width: zero - 6, height: TRACK }),
    draw("rect", { class: "dense", x: zero, y: TOP, width: WIDTH - 6 - zero, height: TRACK }),
    draw("rect", { class: "fill", x: Math.min(zero, at), y: middle - 2.5, width: Math.abs(at - zero), height: 5 }),
    draw("line", { class: "threshold", x1: zero, x2: zero, y1: TOP - 4, y2: TOP + TRACK + 4 }),
    draw("circle", { class: "at", cx: at, cy: middle, r: 6.5 }),
    draw("text", { x: zero, y: 10, "text-anchor": "middle" }, "threshold"),
    draw("text", { x: 6, y: 46 }, "too rare"),
    draw("text", { x: WIDTH - 6, y: 46, "text-anchor": "end" }, "dense"));
}
