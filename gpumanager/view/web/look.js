"use strict";
// What both pages are made with. Names come from strangers: text is set as text, never as HTML.
const look = (() => {
  const SVG = "http://www.w3.org/2000/svg";

  function fill(node, settings, children) {
    for (const [name, value] of Object.entries(settings)) {
      if (name === "text") node.textContent = value;
      else if (value !== null && value !== undefined) node.setAttribute(name, value);
    }
    node.append(...children.filter((one) => one !== null));
    return node;
  }

  const el = (tag, settings = {}, ...children) =>
    fill(document.createElement(tag), settings, children);
  const svg = (tag, settings = {}, ...children) =>
    fill(document.createElementNS(SVG, tag), settings, children);
  const get = (id) => document.getElementById(id);

  // Sets what differs: a page that is read aloud or selected from is not rewritten under one's hand.
  function say(node, text) {
    if (node.textContent !== text) node.textContent = text;
  }
  function mark(node, name, value) {
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  }

  function number(value, digits = 0) {
    return value === null || value === undefined
      ? "–" : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  }

  const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  function bytes(value) {
    if (value === null || value === undefined) return "–";
    let size = 0;
    let shown = value;
    while (shown >= 1024 && size < SIZES.length - 1) { shown /= 1024; size += 1; }
    const digits = size === 0 || shown >= 100 || Number.isInteger(shown) ? 0 : 1;
    return `${shown.toFixed(digits)} ${SIZES[size]}`;
  }

  const percent = (value) => (value === null || value === undefined ? "–" : `${number(value, value < 10 && value % 1 ? 1 : 0)} %`);
  const part = (value, whole) => (whole > 0 ? Math.max(0, Math.min(100, (100 * value) / whole)) : 0);
  const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");
  const date = (seconds) => new Date(seconds * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  const plural = (count, one, more = `${one}s`) => `${number(count)} ${count === 1 ? one : more}`;

  function width(node, value) {
    const wanted = `${value.toFixed(2)}%`;
    if (node.style.width !== wanted) node.style.width = wanted;
  }

  // A figure, small letters for its unit.
  function figure(node, text) {
    if (node.dataset.says === text) return;
    node.dataset.says = text;
    const cut = text.lastIndexOf(" ");
    const [value, unit] = cut > 0 ? [text.slice(0, cut), text.slice(cut)] : [text, ""];
    node.replaceChildren(value, el("span", { class: "unit", text: unit }));
  }

  const bar = (kind = "") => { const fill = el("i"); return { fill, node: el("div", { class: `bar ${kind}` }, fill) }; };

  // One GPU of a node as a tile. time, memory: percent; label: all of it in words.
  function makeCell() {
    const cell = { name: el("span"), text: el("span"), time: bar(), memory: bar("memory") };
    cell.node = el("li", { class: "cell" }, el("small", {}, cell.name, cell.text), cell.time.node, cell.memory.node);
    return cell;
  }

  function updateCell(cell, { name, text, time, memory, closed, label }) {
    mark(cell.node, "class", closed ? "cell closed" : "cell");
    mark(cell.node, "title", label);
    mark(cell.node, "aria-label", label);
    say(cell.name, name);
    say(cell.text, text);
    width(cell.time.fill, time);
    width(cell.memory.fill, memory);
  }

  // Children of a node by key: made once, in this order, and gone when they are not named any more.
  function keyed(parent, items, make, update) {
    const known = parent.byKey ?? (parent.byKey = new Map());
    const wanted = new Set(items.map((one) => one.key));
    for (const [key, part] of known) {
      if (!wanted.has(key)) { part.node.remove(); known.delete(key); }
    }
    items.forEach((item, place) => {
      let part = known.get(item.key);
      if (part === undefined) known.set(item.key, (part = make(item)));
      if (parent.children[place] !== part.node) parent.insertBefore(part.node, parent.children[place] ?? null);
      update(part, item, place);
    });
  }

  async function ask(path) {
    const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(20000) });
    if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
    return answer.json();
  }

  function state(kind, text) {
    const pill = get("state");
    mark(pill, "class", `pill ${kind}`);
    say(pill, text);
  }

  // Warns that the picture is old. due: milliseconds after which another should have come, 0 while none is
  // expected; heard: when the last came.
  function watchAge(heard, due) {
    setInterval(() => {
      const age = Date.now() - heard();
      if (due() && age > due()) state("warn", `picture is ${Math.floor(age / 1000)} s old`);
    }, 500);
  }

  return { el, svg, get, say, mark, number, bytes, percent, part, clock, date, plural, width, figure, bar, makeCell, updateCell, keyed, ask, state, watchAge };
})();
