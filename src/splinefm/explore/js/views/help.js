/** The keys that the page knows. */

import { el } from "../base/dom.js";

export function makeHelp() {
  return el(
    "dialog",
    { "aria-labelledby": "help-title" },
    el("h2", { id: "help-title" }, "Keys"),
    el(
      "table",
      {},
      el(
        "tbody",
        {},
        [
          ["1 – 7", "open a view"],
          ["← →", "move a slider or the handle of a curve; Page Up and Page Down in larger steps"],
          ["P", "pin the current segment"],
          ["Ctrl+Z, Ctrl+Shift+Z", "undo, redo"],
          ["T", "light or dark"],
          ["?", "this list"],
        ].map(([keys, text]) => el("tr", {}, el("td", {}, el("kbd", {}, keys)), el("td", {}, text))),
      ),
    ),
    el("form", { method: "dialog", class: "buttons" }, el("button", {}, "Close")),
  );
}
