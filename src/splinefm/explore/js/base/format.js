/** How numbers, dates and predictions are written, and where ticks go. */

const DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY = 86_400_000;

/** A number with about `digits` significant digits. */
export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  let text;
  if (size >= 1e9 || (size > 0 && size < 1e-4)) text = value.toExponential(Math.max(0, digits - 2));
  else if (size >= 10 ** (digits - 1)) text = withDecimals(0).format(Math.round(value));
  else text = d3.format(`.${digits}~r`)(value);
  return text.replaceAll("-", "−");
}

/** A number with its sign. */
export function signed(value, digits = 3) {
  return value > 0 ? `+${number(value, digits)}` : number(value, digits);
}

/** A share of one. */
export function percent(value, digits = 1) {
  return Number.isFinite(value) ? `${(100 * value).toFixed(digits)} %` : "–";
}

/** A number of things. */
export function count(value) {
  return withDecimals(0).format(Math.round(value));
}

/** How the values of a column are written. */
export function formatOf(column) {
  if (column.part === "weekday") return (x) => DAYS[Math.min(6, Math.max(0, Math.round(x)))];
  if (column.part === "hour") return clock;
  if (column.part === "yearday") return (x) => monthDay(Date.UTC(2024, 0, Math.floor(x)));
  if (column.part === "trend") return (x) => new Date(1000 * x).toISOString().slice(0, 10);
  if (column.integers) {
    const isYear = column.low >= 1000 && column.high < 3000;
    return (x) => (isYear ? String(Math.round(x)) : Number.isInteger(x) ? x.toLocaleString("en-US") : number(x));
  }
  return (x) => number(x);
}

function clock(hours) {
  const minutes = Math.round(60 * hours);
  return `${String(Math.floor(minutes / 60)).padStart(2, "0")}:${String(minutes % 60).padStart(2, "0")}`;
}

function monthDay(time) {
  const date = new Date(time);
  return `${MONTHS[date.getUTCMonth()]} ${date.getUTCDate()}`;
}

/** Positions and texts of ticks between two values of a column. */
export function ticksOf(column, low, high, most) {
  if (!(high > low)) return [[low, formatOf(column)(low)]];
  if (column.part === "weekday") return thin(d3.range(Math.ceil(low), high + 1e-9), most).map((x) => [x, DAYS[x]]);
  if (column.part === "hour") {
    const step = [0.25, 0.5, 1, 2, 3, 6, 12].find((size) => (high - low) / size <= most) ?? 24;
    return d3.range(Math.ceil(low / step) * step, high + 1e-9, step).map((x) => [x, clock(x)]);
  }
  if (column.part === "yearday") {
    const firsts = d3
      .range(12)
      .map((month) => [1 + (Date.UTC(2024, month, 1) - Date.UTC(2024, 0, 1)) / DAY, MONTHS[month]]);
    return thin(
      firsts.filter(([x]) => x >= low && x <= high),
      most,
    );
  }
  if (column.part === "trend") {
    const scale = d3.scaleUtc().domain([1000 * low, 1000 * high]);
    return scale.ticks(most).map((time) => [time / 1000, scale.tickFormat(most)(time)]);
  }
  return numberTicks(low, high, most, column.integers, column.low >= 1000 && column.high < 3000 && column.integers);
}

const FORMATS = new Map();

/** A format with a minimum number of decimals; making one takes longer than formatting a hundred numbers. */
function withDecimals(decimals) {
  if (!FORMATS.has(decimals))
    FORMATS.set(
      decimals,
      new Intl.NumberFormat("en-US", {
        minimumFractionDigits: decimals,
        maximumFractionDigits: 6,
      }),
    );
  return FORMATS.get(decimals);
}

/** Ticks of plain numbers, all written with the same number of decimals. */
export function numberTicks(low, high, most, integers = false, isYear = false) {
  const positions = d3
    .ticks(low, high, most)
    .filter((x) => !integers || Number.isInteger(x))
    .map((x) => (Math.abs(x) < 1e-9 * (high - low) ? 0 : x));
  const size = Math.max(Math.abs(low), Math.abs(high));
  const step = positions.length > 1 ? positions[1] - positions[0] : size || 1;
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const style = isYear
    ? (x) => String(x)
    : size >= 1e5
      ? (x) => (x === 0 ? "0" : d3.format(".3~s")(x).replace("G", "B"))
      : decimals > 4
        ? (x) => (x === 0 ? "0" : d3.format(".2~e")(x))
        : (x) => withDecimals(Math.min(decimals, 6)).format(x);
  return positions.map((x) => [x, style(x).replaceAll("-", "−")]);
}

function thin(items, most) {
  const step = Math.max(1, Math.ceil(items.length / Math.max(1, most)));
  return items.filter((_, i) => i % step === 0);
}

/** A value of any column as text. */
export function valueText(column, value) {
  if (value === null || value === undefined) return "missing";
  if (Array.isArray(value)) return value.length ? value.join(", ") : "none";
  return column.kind === "numerical" ? formatOf(column)(Number(value)) : String(value);
}

/** The value of a column at u in [0, 1], and u of a value: the transform where it is known, else a straight line. */
export function axisOf(column) {
  const known = column.transform?.x?.length > 1;
  const [x, u] = known
    ? strictly(column.transform.x, column.transform.u)
    : [
        [column.low, column.high],
        [0, 1],
      ];
  const clamp = (value) => Math.min(1, Math.max(0, value));
  const forward = d3.scaleLinear().domain(x).range(u).clamp(true);
  const back = d3.scaleLinear().domain(u).range(x).clamp(true);
  return { toU: (value) => clamp(forward(value)), toX: (value) => back(clamp(value)) };
}

/** Values whose u is evenly spaced between two values, strictly increasing. */
export function evenValues(axis, [low, high], n) {
  const [first, last] = [axis.toU(low), axis.toU(high)];
  const found = [low];
  for (let i = 1; i < n - 1; i += 1) {
    const x = axis.toX(first + ((last - first) * i) / (n - 1));
    if (x > found[found.length - 1] && x < high) found.push(x);
  }
  return high > low ? [...found, high] : [low, low + 1];
}

/** A scale that gives each part of u the same width; where T is flat, as beyond its range, values share what is left. */
export function evenScale(axis, domain, [from, to]) {
  const x = evenValues(axis, domain, 129);
  const [first, last] = [axis.toU(x[0]), axis.toU(x[x.length - 1])];
  const share = (value, i) => (last > first ? (axis.toU(value) - first) / (last - first) : i / (x.length - 1));
  return d3
    .scaleLinear()
    .domain(x)
    .range(x.map((value, i) => from + share(value, i) * (to - from)))
    .clamp(true);
}

/** Ticks of an even axis: round values near even places. */
export function evenTicks(column, axis, domain, most) {
  const format = formatOf(column);
  const [first, last] = [axis.toU(domain[0]), axis.toU(domain[1])];
  const found = new Map();
  for (let i = 0; i <= most; i += 1) {
    const exact = axis.toX(first + ((last - first) * i) / most);
    const value = column.integers ? Math.round(Number(exact.toPrecision(2))) : Number(exact.toPrecision(2));
    const inside = Math.min(domain[1], Math.max(domain[0], value));
    found.set(format(inside), inside);
  }
  return [...found].map(([text, value]) => [value, text]).sort((a, b) => a[0] - b[0]);
}

function strictly(x, u) {
  const kept = [];
  for (let i = 0; i < x.length; i += 1) {
    const last = kept[kept.length - 1];
    if (Number.isFinite(x[i]) && (last === undefined || (x[i] > x[last] && u[i] > u[last]))) kept.push(i);
  }
  return kept.length > 1
    ? [kept.map((i) => x[i]), kept.map((i) => u[i])]
    : [
        [x[0], x[0] + 1],
        [0, 1],
      ];
}
