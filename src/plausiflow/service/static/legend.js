// The legend of the map.

import { draw, make } from "./dom.js";

export function legend() {
  const frame = { viewBox: "0 0 34 16", width: 34, height: 16, "aria-hidden": "true" };
  const swatch = (...inside) => draw("svg", frame, ...inside);
  const line = (name) => swatch(draw("path", { class: name, d: "M1 8H33" }));
  const area = (name) => swatch(draw("rect", { class: name, x: 1, y: 1, width: 32, height: 14 }));
  const signs = [
    [swatch(draw("circle", { class: "own", cx: 17, cy: 8, r: 6 })), "the row"],
    [swatch(draw("circle", { class: "answer", cx: 17, cy: 8, r: 7.5 }),
      draw("text", { class: "number", x: 17, y: 12, "text-anchor": "middle" }, "1")), "an answer"],
    [area("shade"), "plausible"],
    [line("plausible"), "plausibility threshold"],
    [line("contour"), "2, 5, 10 or 20 nats from the threshold"],
    [line("boundary"), "decision boundary"],
    [area("refused"), "target not met"],
  ];
  return make("ul", { class: "legend" }, signs.map(([sign, text]) => make("li", null, sign, text)));
}
