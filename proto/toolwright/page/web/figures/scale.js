// Where a value lies on a drawing, and which round numbers stand at its edges. Pure.

export const SIZE = { width: 430, height: 230, left: 62, right: 20, top: 12, bottom: 30, across: 5, up: 4 };
export const WIDE = { ...SIZE, width: 860, height: 330, across: 8, up: 5 };

const LARGEST = 1e307; // differences of such numbers are numbers

// Least and largest of the values, apart from each other. low, high: where they are given.
export function range(values, low = null, high = null) {
  let least = low ?? Infinity;
  let most = high ?? -Infinity;
  for (const value of values) {
    if (low === null && value < least) least = value;
    if (high === null && value > most) most = value;
  }
  least = Number.isFinite(least) ? Math.max(least, -LARGEST) : 0;
  most = Number.isFinite(most) ? Math.min(most, LARGEST) : least;
  if (most > least) return [least, most];
  const room = Math.abs(least) / 2 || 0.5;
  if (low !== null) return [least, least + 2 * room];
  return high !== null ? [most - 2 * room, most] : [least - room, least + room];
}

// Round numbers between two, about so many.
export function ticks(low, high, about, { whole = false } = {}) {
  const size = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(size));
  if (!(power > 0 && Number.isFinite(power))) return [low];
  let step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= size * 0.999) * power;
  if (whole) step = Math.max(1, Math.round(step));
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: Math.min(last - first, 50) + 1 }, (_, at) => (first + at) * step);
}

// Place of the value that is nearest in a rising list; -1 in an empty one.
export function nearest(list, value) {
  let low = 0;
  let high = list.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (list[middle] < value) low = middle;
    else high = middle;
  }
  return high < 0 || value - list[low] <= list[high] - value ? Math.min(low, high) : high;
}

const share = (value, low, high) => (Math.min(Math.max(value, low), high) - low) / (high - low);

export function scales([x_low, x_high], [y_low, y_high], size) {
  const right = size.width - size.right;
  const bottom = size.height - size.bottom;
  return {
    x: (value) => size.left + (right - size.left) * share(value, x_low, x_high),
    y: (value) => bottom - (bottom - size.top) * share(value, y_low, y_high),
    back: (at) => x_low + Math.min(Math.max((at - size.left) / (right - size.left), 0), 1) * (x_high - x_low),
  };
}
