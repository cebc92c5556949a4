/** How the report writes names, shares, predictions and targets. */

import { el, shown } from "../base/dom.js";
import { number } from "../base/format.js";

const LONGEST = 80;

/** A text, shortened in the middle if it is too long. */
export function short(text) {
  const letters = [...shown(text)];
  if (letters.length <= LONGEST) return letters.join("");
  return `${letters.slice(0, LONGEST / 2).join("")}…${letters.slice(1 - LONGEST / 2).join("")}`;
}

/** A number of things. */
export function whole(value) {
  return value.toLocaleString("en-US");
}

/** A share in percent. */
export function percent(share) {
  return `${number(100 * share, 3)}\u00a0%`;
}

/** A prediction or a mean target: shares in percent, a dash if it is not known. */
export function predicted(value, isShare) {
  return isShare && value !== null ? percent(value) : number(value);
}

/** A single target, by its label if it has one. */
export function measured(value, classes) {
  return classes?.[value] !== undefined ? short(classes[value]) : number(value);
}

export function capital(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

/** A cell that shows a text and is sorted by a number. */
export function cell(text, value) {
  return { text, value };
}

export function lead(text, className = "lead") {
  return el("p", { class: className }, text);
}

export function note(text) {
  return lead(text, "remark");
}

export function card(title, ...children) {
  return el("div", { class: "card" }, title === null ? null : el("h3", {}, title), ...children);
}

export function tiles(values) {
  return el(
    "div",
    { class: "tiles" },
    values.map(([text, name, title]) =>
      el("div", { class: "tile" }, el("b", {}, text), el("span", { title: title ?? null }, name)),
    ),
  );
}

/** Nodes in the order of the page. */
export function parts(...children) {
  const all = document.createDocumentFragment();
  all.append(...children.flat().filter((child) => child !== null));
  return all;
}

/** A plot with a caption. */
export function withCaption(plot, text) {
  if (text) plot.root.append(el("figcaption", {}, text));
  return plot.root;
}
