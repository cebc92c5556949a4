// The engine of the explorer page in Node.js: a line of JSON with a payload and rows -> a line with scores.
// The first argument is the folder of the modules.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const folder = pathToFileURL(`${process.argv[2]}/`);
const { Model } = await import(new URL("engine/model.js", folder));
const { decodePayload } = await import(new URL("engine/payload.js", folder));
const { parseExact } = await import(new URL("engine/encode/json.js", folder));

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    const { text, rows } = parseExact(line);
    const { payload, buffers } = decodePayload(text);
    const model = Model.from(payload, buffers);
    answer = { scores: Array.from(model.scores(rows)), alone: rows.map((row) => Array.from(model.score(row))) };
  } catch (error) {
    answer = { error: String(error.stack) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
