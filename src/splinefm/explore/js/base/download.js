/** Downloads: a plot as SVG or PNG, its data as CSV. */

const COPIED = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-opacity",
  "fill-opacity",
  "opacity",
  "font-family",
  "font-size",
  "font-weight",
  "font-variant-numeric",
  "text-anchor",
  "dominant-baseline",
  "stroke-linejoin",
];

/** Offer a file to the user. */
export function offer(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name.replace(/[^\p{L}\p{N}_.-]+/gu, "-").slice(0, 80);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A table as CSV: the header, then rows. */
export function csvText(columns, rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows].map((row) => [...row].map(cell).join(",")).join("\r\n") + "\r\n";
}

/** A plot as a document of its own, with the styles that it has on the page. */
export function svgText(plot, title) {
  const copy = plot.cloneNode(true);
  const from = [plot, ...plot.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((node, i) => {
    const style = getComputedStyle(from[i]);
    for (const name of COPIED) {
      const value = style.getPropertyValue(name);
      if (value) node.setAttribute(name, value);
    }
    if (style.display === "none") node.setAttribute("display", "none");
    for (const name of ["class", "tabindex", "role", "aria-label", "style"]) node.removeAttribute(name);
  });
  const { width, height } = plot.viewBox.baseVal;
  const head = 26;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height + head);
  copy.setAttribute("viewBox", `0 ${-head} ${width} ${height + head}`);
  const page = getComputedStyle(document.documentElement);
  const box = document.createElementNS(copy.namespaceURI, "rect");
  for (const [name, value] of Object.entries({
    y: -head,
    width,
    height: height + head,
    fill: page.getPropertyValue("--card"),
  }))
    box.setAttribute(name, value);
  const text = document.createElementNS(copy.namespaceURI, "text");
  for (const [name, value] of Object.entries({
    x: 8,
    y: -8,
    fill: page.getPropertyValue("--ink"),
    "font-family": "sans-serif",
    "font-size": 13,
  }))
    text.setAttribute(name, value);
  text.textContent = title;
  copy.prepend(box, text);
  return new XMLSerializer().serializeToString(copy);
}

/** A plot as an image of twice its size on the page. */
export function pngBlob(plot, title) {
  return new Promise((resolve, reject) => {
    const address = URL.createObjectURL(new Blob([svgText(plot, title)], { type: "image/svg+xml" }));
    const image = new Image();
    image.addEventListener("error", () => reject(new Error("the plot cannot be drawn")));
    image.addEventListener("load", () => {
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [2 * image.width, 2 * image.height];
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      URL.revokeObjectURL(address);
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the plot cannot be drawn"))), "image/png");
    });
    image.src = address;
  });
}
