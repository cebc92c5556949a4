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
    const letters = atob(data);
    const bytes = new Uint8Array(letters.length);
    for (let i = 0; i < bytes.length; ++i) bytes[i] = letters.charCodeAt(i);
    decoded[name] = new ARRAYS[type](bytes.buffer);
  }
  return { payload, buffers: decoded };
}
