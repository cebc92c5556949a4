// Reads what `Payload.to_json` wrote.

const ARRAYS = { Float32Array, Float64Array, Int32Array };

/**
 * @param {string} text
 * @returns {{payload: object, buffers: Object<string, Float32Array|Float64Array|Int32Array>}}
 */
export function decodePayload(text) {
  const { payload, buffers } = JSON.parse(text);
  const decoded = {};
  for (const [name, { type, data }] of Object.entries(buffers)) {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    decoded[name] = new ARRAYS[type](bytes.buffer);
  }
  return { payload, buffers: decoded };
}
