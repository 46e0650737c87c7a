// Returns complaints about what a page shows: names, labels, headings, ids, contrast (WCAG AA).
(() => {
  const found = [];
  const isShown = (e) => e.checkVisibility() && e.getClientRects().length > 0;
  const about = (e) => e.outerHTML.slice(0, 120);
  const nameOf = (e) => (e.getAttribute("aria-label") || e.title || e.textContent || "").trim();
  for (const e of document.querySelectorAll("button, a[href]"))
    if (isShown(e) && !nameOf(e)) found.push(`no name: ${about(e)}`);
  for (const e of document.querySelectorAll("input, select, textarea"))
    if (isShown(e) && !e.labels.length && !e.getAttribute("aria-label")) found.push(`no label: ${about(e)}`);
  for (const e of document.querySelectorAll("img, svg[role=img]"))
    if (isShown(e) && !(e.getAttribute("alt") || e.getAttribute("aria-label"))) found.push(`no text: ${about(e)}`);
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) found.push(`twice: #${id}`);
  for (const e of document.querySelectorAll("[aria-labelledby]"))
    if (!document.getElementById(e.getAttribute("aria-labelledby"))) found.push(`named after nothing: ${about(e)}`);
  let level = 0;
  for (const e of document.querySelectorAll("h1, h2, h3")) {
    if (!isShown(e)) continue;
    if (Number(e.tagName[1]) > level + 1) found.push(`heading skips: ${about(e)}`);
    level = Number(e.tagName[1]);
  }
  const colour = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = (top, under) => top.slice(0, 3).map((c, i) => c * top[3] + under[i] * (1 - top[3])).concat(1);
  const behind = (e) => {
    const layers = [];
    for (let at = e; at; at = at.parentElement) layers.push(colour(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255, 1]);
  };
  const light = (c) => {
    const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const e = node.parentElement;
    if (!node.data.trim() || !isShown(e) || e.closest(".unseen, .skip, noscript, :disabled")) continue;
    const style = getComputedStyle(e);
    const ground = behind(e);
    const [a, b] = [light(over(colour(style.color), ground)), light(ground)].sort((x, y) => y - x);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) found.push(`contrast ${ratio.toFixed(2)}: ${node.data.trim().slice(0, 40)} in ${about(e)}`);
  }
  return found;
})()
