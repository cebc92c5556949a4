// Texts that are drawn over each other, or cut off by an element or by the window.
() => {
  const found = [], boxes = [];
  const clips = (style) => style.overflowX !== "visible" || style.overflowY !== "visible";
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.textContent.trim() || parent.closest("script, style, noscript, option, dialog:not([open]), .visually-hidden, .skip")) continue;
    if (!parent.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const rect of range.getClientRects()) {
      if (rect.width < 1 || rect.height < 1) continue;
      let box = { left: rect.left, right: rect.right, top: rect.top, bottom: rect.bottom, text: node.textContent.trim().slice(0, 40), parent };
      let scrolled = false;
      for (let outer = parent; outer && outer !== document.documentElement; outer = outer.parentElement) {
        const style = getComputedStyle(outer), frame = outer.getBoundingClientRect();
        if (!clips(style) || outer === document.body || outer.tagName === "text" || outer.tagName === "g") continue;
        if (/auto|scroll/.test(style.overflowX + style.overflowY)) {
          scrolled = true;
          box = { ...box, left: Math.max(box.left, frame.left), right: Math.min(box.right, frame.right), top: Math.max(box.top, frame.top), bottom: Math.min(box.bottom, frame.bottom) };
        } else if (style.textOverflow !== "ellipsis" && (rect.left < frame.left - 2 || rect.right > frame.right + 2 || rect.bottom > frame.bottom + 3)) found.push(`cut off: ${box.text}`);
      }
      if (!scrolled && (rect.left < -1 || rect.right > innerWidth + 1)) found.push(`outside of the window: ${box.text}`);
      if (box.right - box.left > 1 && box.bottom - box.top > 1) boxes.push(box);
    }
  }
  const slack = 2.5;
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
    if (a.parent === b.parent || a.parent.contains(b.parent) || b.parent.contains(a.parent)) return;
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left), tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > slack && tall > slack + 1) found.push(`overlap: ${a.text} | ${b.text}`);
  }));
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page is wider than the window");
  return found;
}
