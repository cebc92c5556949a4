/** Sections about the model: sizes, metrics, training and search, and its fields. */

import { el, named } from "../base/dom.js";
import { number, numberTicks } from "../base/format.js";
import { makeTable, scrolling } from "../base/table.js";
import { PlainCard, domainOf } from "../charts/plain.js";
import { card, cell, lead, note, parts, percent, short, tiles, whole, withCaption } from "./text.js";

const MAX_SETTINGS = 20;

export function overviewSection(facts) {
  return parts(
    tiles([
      [whole(facts.data.rows), "rows of data"],
      [whole(facts.n_fields), "fields"],
      [whole(facts.model.rows), "rows the model was fitted to"],
      [whole(facts.model.parameters), "parameters"],
    ]),
    metrics(facts),
    facts.model.remarks.map((remark) => note(`Remark: ${remark.text}.`)),
    facts.history.length ? history(facts) : null,
    facts.model.search.length ? search(facts.model.search) : null,
  );
}

function metrics({ measured: found, data }) {
  if (!found.length) {
    const others = data.other_columns.slice(0, 8).map(short).join(", ");
    const hint = others ? ` Columns that are not fields: ${others}.` : "";
    return note(`No target was given. Add --target COLUMN to measure the model.${hint}`);
  }
  const weighted = data.weight === null ? "" : `, weighted by ${short(data.weight)}`;
  const meanings = found.filter((metric) => metric.meaning);
  return parts(
    el("h3", {}, `How well it predicts ${short(data.target)}${weighted}`),
    tiles(found.map((metric) => [number(metric.value), metric.name, metric.meaning])),
    el(
      "details",
      {},
      el("summary", {}, "What these mean"),
      meanings.map((metric) => el("p", { class: "note" }, `${metric.name}: ${metric.meaning}`)),
    ),
  );
}

/** Losses by epoch, with the best one marked. */
function history({ history: epochs, validation, about }) {
  const plot = new PlainCard("Training");
  const line = (name) => epochs.filter((one) => one[name] !== null).map((one) => [one.epoch, one[name]]);
  const [train, held] = [line("train_loss"), line("validation_loss")];
  const best = held.find(([epoch]) => epoch === validation.best_epoch);
  plot.show({
    x: { domain: [0.5, d3.max(epochs, (one) => one.epoch) + 0.5], title: "epoch", ticks: epochTicks },
    y: {
      domain: domainOf([...train, ...held].map((point) => point[1])),
      title: `${about.loss}: training (dashes)${held.length ? ", held-out rows" : ""}`,
    },
    lines: [
      { points: train, class: "thin" },
      { points: held, class: "line-0" },
    ],
    points: best ? [{ x: best[0], y: best[1], class: "line-1" }] : [],
    summary: `Training loss by epoch, from ${number(epochs[0].train_loss)} to ${number(epochs[epochs.length - 1].train_loss)}`,
    table: {
      columns: ["epoch", "training", "held-out rows"],
      rows: epochs.map((one) => [one.epoch, one.train_loss, one.validation_loss]),
    },
  });
  const heldOut = validation.metric
    ? `; epoch ${validation.best_epoch} was best on held-out rows, with ${validation.metric} ${number(validation.value, 5)}.`
    : ", without held-out rows.";
  return withCaption(plot, `Training: ${validation.epochs} epoch${validation.epochs > 1 ? "s" : ""}${heldOut}`);
}

function epochTicks(low, high, most) {
  return numberTicks(low, high, most, true);
}

/** The settings that the fit has tried, the best first. */
function search(entries) {
  const shown = entries.slice(0, MAX_SETTINGS);
  const some = entries.length > shown.length ? `The best ${shown.length} of ${whole(entries.length)} settings. ` : "";
  const rows = shown.map((entry) => [
    entry.is_chosen ? el("b", {}, entry.text, " (chosen)") : el("span", {}, entry.text),
    cell(`${number(entry.value, 5)} ± ${number(entry.value_error, 2)}`, entry.value),
    entry.folds,
    cell(entry.seconds.toFixed(1), entry.seconds),
  ]);
  const heads = ["Setting", `${entries[0].metric} on held-out rows`, "Parts", "Seconds"];
  return card(
    "What the fit tried",
    scrolling("What the fit tried", makeTable(heads, rows, { sortable: true })),
    lead(
      `${some}Each was judged by rows that it had not learned from: one or several parts of the table. ` +
        "The numbers after ± are standard errors.",
      "note",
    ),
  );
}

export function fieldsSection({ fields, n_fields }) {
  const rows = fields.map((one) => [
    named(one.name),
    one.kind,
    one.encoding,
    cell(percent(one.missing), one.missing),
    cell(percent(one.missing_in_training), one.missing_in_training),
    worthKnowing(one),
  ]);
  const heads = ["Field", "Kind", "Encoding", "Missing here", "Missing in training", "Worth knowing"];
  const more = n_fields - fields.length;
  return parts(
    lead(
      "How each column enters the model. A basis function is starved if it saw less than a tenth of the training " +
        "rows that an even spread would give it. Predictions there rely on few rows.",
    ),
    card(
      null,
      scrolling("Fields", makeTable(heads, rows, { sortable: true })),
      more > 0 ? lead(`${whole(more)} more fields are not listed; --json has them.`, "note") : null,
    ),
  );
}

function worthKnowing(one) {
  const found = Object.entries(one.special_values).map(([name, share]) => `${name} in ${percent(share)}`);
  if (one.starved) found.push(`${one.starved} of ${one.functions} functions starved`);
  if (one.rare_or_unseen) found.push(`${percent(one.rare_or_unseen)} rare or unseen`);
  if (one.without_category) found.push(`${percent(one.without_category)} without a known category`);
  return found.join("; ");
}
