/** Elements from data: names and values become text nodes and attributes, never markup. */

const SVG = "http://www.w3.org/2000/svg";
// Control characters, lone surrogates, and marks that change the direction of the text after them.
const IMPOSSIBLE = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffe\uffff]|\p{Surrogate}/gu;

/** Text that is safe to show anywhere. */
export function shown(text) {
  return String(text).replace(IMPOSSIBLE, "\ufffd");
}

/** Text of at most `most` characters. */
export function clipped(text, most) {
  const letters = [...shown(text)];
  return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : letters.join("");
}

let pen = null;
const [fitting, widths] = [new Map(), new Map()];

/** The width of a text at the size of names in plots. */
export function textWidth(text) {
  if (!widths.has(text)) {
    if (widths.size > 20_000) widths.clear();
    pen ??= document.createElement("canvas").getContext("2d");
    pen.font = `12.5px ${getComputedStyle(document.body).fontFamily}`;
    widths.set(text, pen.measureText(text).width);
  }
  return widths.get(text);
}

/** As much of a text as fits into a width, at the size of names in plots. */
export function fitted(text, width) {
  const key = `${Math.floor(width)} ${text}`;
  if (!fitting.has(key)) {
    if (fitting.size > 5000) fitting.clear();
    const letters = [...shown(text)].slice(0, Math.ceil(width / 2) + 1);
    let n = letters.length;
    while (
      n > 1 &&
      textWidth(letters.slice(0, n).join("") + "…") > width &&
      (n < letters.length || textWidth(shown(text)) > width)
    )
      n -= 1;
    fitting.set(key, n < letters.length ? `${letters.slice(0, n).join("")}…` : letters.join(""));
  }
  return fitting.get(key);
}

/** Set attributes; `on` holds listeners, `text` the text, `null` or `false` takes an attribute away. */
export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "on") for (const [event, listen] of Object.entries(value)) node.addEventListener(event, listen);
    else if (name === "text") node.textContent = shown(value);
    else if (name === "value") node.value = value;
    else if (value === null || value === undefined || value === false) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? "" : typeof value === "number" ? value : shown(value));
  }
  return node;
}

/** Set attributes of a part of a plot, if they are other ones: each one that is set is laid out and painted again. */
export function put(node, attributes) {
  for (const name of Object.keys(attributes)) {
    const value = String(attributes[name]);
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  }
}

/** An HTML element with attributes and children; strings become text. */
export function el(name, attributes, ...children) {
  const node = set(document.createElement(name), attributes);
  node.append(
    ...children
      .flat()
      .filter((child) => child !== null && child !== undefined)
      .map(asNode),
  );
  return node;
}

/** An SVG element. */
export function svg(name, attributes, ...children) {
  const node = set(document.createElementNS(SVG, name), attributes);
  node.append(...children.flat().map(asNode));
  return node;
}

function asNode(child) {
  return child instanceof Node ? child : document.createTextNode(shown(child));
}

/** A name of the user's data, isolated from the direction of the text around it. */
export function named(text, most = 80) {
  return el("bdi", { title: [...String(text)].length > most ? text : null }, clipped(text, most));
}

/** Keep `n` children made by `make`, adding and removing as few as possible. */
export function keep(parent, n, make) {
  while (parent.children.length > n) parent.lastElementChild.remove();
  while (parent.children.length < n) parent.append(make(parent.children.length));
  return parent.children;
}

/** A number for ids of elements. */
let lastNumber = 0;
export function fresh(prefix) {
  lastNumber += 1;
  return `${prefix}-${lastNumber}`;
}

/** Say something to users of screen readers. */
export function announce(text) {
  document.getElementById("announcements").textContent = shown(text);
}

const timers = new Set();

/** Call a function once things have been quiet for some milliseconds. */
export function quietly(wait, act) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timers.delete(timer);
    timer = setTimeout(() => {
      timers.delete(timer);
      act(...args);
    }, wait);
    timers.add(timer);
  };
}

/** Whether something waits for quiet. */
export function isQuiet() {
  return timers.size === 0;
}

/** A labeled select: options are [value, text] pairs. */
export function select(label, options, chosen, change, attributes = {}) {
  const node = el("select", { ...attributes, on: { change: () => change(node.value) } });
  node.append(...options.map(([value, text]) => el("option", { value }, clipped(text, 60))));
  node.value = chosen;
  return el("label", { class: "field" }, el("span", {}, label), node);
}

/** Buttons of which one is pressed: options are [value, text] pairs. */
export function choice(label, options, change) {
  const buttons = options.map(([value, text]) =>
    el("button", { type: "button", "data-value": value, on: { click: () => change(value) } }, text),
  );
  const group = el("div", { class: "choice", role: "group", "aria-label": label }, buttons);
  group.choose = (value) =>
    buttons.forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.value === value)));
  return group;
}
