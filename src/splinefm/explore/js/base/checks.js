/** What an address may say: a part of a state that does not fit the page is left out. */

const CHOICES = {
  scale: ["prediction", "score"],
  range: ["same", "own"],
  axis: ["auto", "values", "even"],
  compare: ["overlay", "difference"],
};

/**
 * The parts of a state that can be used.
 * @param {object} found what an address says  @param {object} start a fresh state
 * @param {{columns: object[], classes: number, rows: number, views: string[], pins: string[]}} page
 */
export function usable(found, start, page) {
  const names = new Set(page.columns.map((column) => column.name));
  const isColumn = (name) => typeof name === "string" && names.has(name);
  const isCount = (value, below) => Number.isInteger(value) && value >= 0 && value < below;
  const isRow = (value) => isObject(value);
  const rules = {
    view: (value) => page.views.includes(value),
    cls: (value) => isCount(value, page.classes),
    picked: (value) => value === null || isCount(value, page.rows),
    k: (value) => [10, 20, 50].includes(value),
    all: (value) => typeof value === "boolean",
    focus: (value) => value === "" || isColumn(value),
    transformed: (value) => value === "" || isColumn(value),
    show: (value) => isObject(value) && Object.keys(start.show).every((name) => typeof value[name] === "boolean"),
    surface: (value) =>
      isObject(value) && isColumn(value.a) && isColumn(value.b) && ["heat", "contour"].includes(value.kind),
    quality: (value) =>
      isObject(value) &&
      (value.by === "" || isColumn(value.by)) &&
      Array.isArray(value.filters) &&
      value.filters.every((one) => isObject(one) && isColumn(one.column)),
    row: isRow,
    pins: (value) =>
      Array.isArray(value) &&
      value.length <= page.pins.length &&
      value.every((pin) => isObject(pin) && page.pins.includes(pin.name) && isRow(pin.row)),
  };
  for (const [name, choices] of Object.entries(CHOICES)) rules[name] = (value) => choices.includes(value);
  const kept = Object.fromEntries(
    Object.entries(found).filter(([name, value]) => Object.hasOwn(rules, name) && rules[name](value)),
  );
  if (kept.row) kept.row = cleanRow(kept.row, start.row, page.columns);
  if (kept.pins)
    kept.pins = kept.pins.map((pin) => ({
      name: pin.name,
      row: cleanRow(pin.row, start.row, page.columns),
    }));
  return kept;
}

/** A value for every column: the given ones that fit, and the values of a fresh page for the others. */
function cleanRow(row, start, columns) {
  const fits = {
    numerical: Number.isFinite,
    categorical: isText,
    multivalued: (value) => Array.isArray(value) && value.every(isText),
  };
  return Object.fromEntries(
    columns.map(({ name, kind }) => {
      const value = Object.hasOwn(row, name) ? row[name] : start[name];
      return [name, value === null || fits[kind](value) ? value : start[name]];
    }),
  );
}

function isText(value) {
  return typeof value === "string";
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
