// The worker of the page: holds the model and answers `{id, method, args}` with `{id, result}` or `{id, error}`.

import { Model } from "./engine/model.js";
import { decodePayload } from "./engine/payload.js";
import { studies } from "./studies.js";

let model = null;

self.onmessage = ({ data: { id, method, args } }) => {
  try {
    self.postMessage({ id, result: answer(method, args) });
  } catch (error) {
    self.postMessage({ id, error: error.message });
  }
};

/** Calls a method of the model; `load` takes the JSON text of a payload, or what it stands for. */
function answer(method, args) {
  if (method === "load") {
    const { payload, buffers } = typeof args[0] === "string" ? decodePayload(args[0]) : args[0];
    model = Model.from(payload, buffers);
    return { columns: model.columns.length };
  }
  if (!model) throw new Error("the model is not loaded yet");
  if (Object.hasOwn(studies, method)) return studies[method](model, ...args);
  if (typeof model[method] !== "function" || method === "constructor") throw new Error(`no method ${method}`);
  return model[method](...args);
}
