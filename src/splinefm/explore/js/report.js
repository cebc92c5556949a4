/** The page of `splinefm explain`: facts about a model on a table, drawn once. */

import { announce, el, named, set, shown } from "./base/dom.js";
import { complete } from "./base/columns.js";
import { Rows } from "./base/rows.js";
import { chooseTheme, printLight, switchTheme } from "./base/theme.js";
import { decodePayload } from "./engine/payload.js";
import { curvesSection, importanceSection, surfacesSection } from "./report/effects.js";
import { fieldsSection, overviewSection } from "./report/model.js";
import { calibrationSection, rowsSection } from "./report/rows.js";
import { short, whole } from "./report/text.js";

const SECTIONS = {
  overview: ["Overview", overviewSection],
  fields: ["Fields", fieldsSection],
  importance: ["Importance", importanceSection],
  curves: ["Curves", curvesSection],
  surfaces: ["Surfaces", surfacesSection],
  calibration: ["Calibration", calibrationSection],
  rows: ["Example rows", rowsSection],
};
const byId = (id) => document.getElementById(id);

function start() {
  const { payload: facts, buffers } = decodePayload(byId("payload-data").textContent);
  facts.columns = facts.columns.map((column) => complete(column, column.shapes));
  facts.values = new Rows(facts.columns, { ...facts.rows, target: null, weight: null }, buffers);
  const { about, data } = facts;
  byId("title").replaceChildren("Model report", ...(data.target === null ? [] : [": ", named(data.target, 60)]));
  const sampled = data.sample_rows < data.rows ? `; a random sample of ${whole(data.sample_rows)} is explained` : "";
  const rows = `This report uses ${whole(data.rows)} rows of ${short(data.file)}${sampled}.`;
  byId("about").textContent = shown(`${about.model} predicts the ${about.predicts}. ${rows}`);
  byId("footer").textContent = "Made by splinefm. This file is self-contained and loads nothing from the network.";
  byId("actions").append(
    el(
      "button",
      { type: "button", "aria-label": "Light or dark", title: "Light or dark", on: { click: switchTheme } },
      "◐",
    ),
  );
  document.body.classList.add("report");
  const sections = Object.entries(SECTIONS).map(([id, [title, make]]) =>
    el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), make(facts)),
  );
  byId("main").replaceChildren(...sections);
  byId("side").append(contents(sections));
  document.documentElement.dataset.ready = "true";
}

/** Links to the sections; the one that is being read stands out. */
function contents(sections) {
  const links = new Map(
    sections.map((section) => [
      section.id,
      el("a", { href: `#${section.id}` }, section.firstElementChild.textContent),
    ]),
  );
  const mark = (id) => links.forEach((link, of) => set(link, { "aria-current": of === id ? "true" : null }));
  const observer = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => mark(entry.target.id)),
    { rootMargin: "-10% 0px -80% 0px" },
  );
  sections.forEach((section) => observer.observe(section));
  mark(sections[0].id);
  const items = [...links.values()].map((link) => el("li", {}, link));
  return el("nav", { "aria-label": "Contents" }, el("ol", {}, items));
}

chooseTheme();
printLight();
try {
  start();
} catch (error) {
  byId("failure").textContent = shown(error.message);
  byId("failure").hidden = false;
  announce("The page could not be drawn");
  throw error;
}
