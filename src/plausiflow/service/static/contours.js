// Contour lines and areas of a grid, by marching squares.

/**
 * A grid of values, `values[line][column]`, null for no value. A value belongs to the middle of its cell. Half a cell
 * at each border is extrapolated from the outermost values, so that lines reach the border.
 */
export class Field {
  constructor(values) {
    const lines = values.map((line) => addFrame(line, extrapolate));
    this.values = addFrame(lines, (line, next) => line.map((value, i) => extrapolate(value, next[i])));
    this.height = this.values.length;
    this.width = this.values[0].length;
  }

  /** Return the position of an index along a side of `n` cells, frame included, from 0 to 1. */
  static share(i, n) {
    return Math.min(1, Math.max(0, (i - 0.5) / (n - 2)));
  }

  at(column, line) {
    return [Field.share(column, this.width), Field.share(line, this.height)];
  }

  /** Yield squares of four neighbouring values in circular order; squares without a value are left out. */
  * squares() {
    for (let line = 0; line + 1 < this.height; line += 1) {
      for (let column = 0; column + 1 < this.width; column += 1) {
        const corners = [[column, line], [column + 1, line], [column + 1, line + 1], [column, line + 1]];
        const values = corners.map(([i, j]) => this.values[j][i]);
        if (values.every((value) => value !== null)) yield { corners, values };
      }
    }
  }

  /** Return the point between two corners of a square where the value equals a level. */
  crossing({ corners, values }, k, level) {
    const next = (k + 1) % 4, share = (level - values[k]) / (values[next] - values[k]);
    const [from, to] = [this.at(...corners[k]), this.at(...corners[next])];
    return [0, 1].map((axis) => from[axis] + share * (to[axis] - from[axis]));
  }

  /** Return polylines where the value equals a level. */
  lines(level) {
    const pieces = [];
    for (const square of this.squares()) {
      const { values } = square;
      const sides = [0, 1, 2, 3].filter((k) => values[k] >= level !== values[(k + 1) % 4] >= level);
      const points = sides.map((k) => this.crossing(square, k, level));
      for (let i = 0; i + 1 < points.length; i += 2) pieces.push([points[i], points[i + 1]]);
    }
    return joinPieces(pieces);
  }

  /** Return polygons that cover the area below a level. */
  below(level) {
    const areas = [];
    for (const square of this.squares()) {
      const { corners, values } = square, area = [];
      for (let k = 0; k < 4; k += 1) {
        if (values[k] < level) area.push(this.at(...corners[k]));
        if (values[k] >= level !== values[(k + 1) % 4] >= level) area.push(this.crossing(square, k, level));
      }
      if (area.length > 2) areas.push(area);
    }
    return areas;
  }
}

/** Return entries with one more at each end, extrapolated from the last two. */
function addFrame(entries, next) {
  const [n, one] = [entries.length, entries.length === 1];
  return [next(entries[0], entries[one ? 0 : 1]), ...entries, next(entries[n - 1], entries[one ? 0 : n - 2])];
}

/** Return the value half a step after `value`, away from `before`. */
function extrapolate(value, before) {
  return value === null || before === null ? value : value + 0.5 * (value - before);
}

/** Join pieces that share an end to lines. */
function joinPieces(pieces) {
  const key = ([x, y]) => `${x.toFixed(6)} ${y.toFixed(6)}`, ends = new Map();
  for (const piece of pieces) {
    for (const end of piece) ends.set(key(end), [...(ends.get(key(end)) ?? []), piece]);
  }
  const used = new Set(), lines = [];
  for (const piece of pieces) {
    if (used.has(piece)) continue;
    used.add(piece);
    const line = [...piece];
    grow(line, ends, used, key);
    line.reverse();
    grow(line, ends, used, key);
    lines.push(line);
  }
  return lines;
}

function grow(line, ends, used, key) {
  for (;;) {
    const end = line[line.length - 1];
    const piece = ends.get(key(end)).find((other) => !used.has(other));
    if (!piece) return;
    used.add(piece);
    line.push(key(piece[0]) === key(end) ? piece[1] : piece[0]);
  }
}
