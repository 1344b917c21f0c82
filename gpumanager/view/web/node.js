"use strict";
// Draws one document of the agent: all GPUs, those in use with their containers, and recent events.
(() => {
  const { ask, el, get, say, mark, number, bytes, percent, part, clock, date, plural, width, figure, makeCell, updateCell, keyed } = look;
  const COLOURS = 8;
  const SIGNS = { warning: "▲", came: "●", gone: "○", other: "·" };
  const colours = new Map();
  let picked = null;
  let shown = null;

  const nameOf = (one) => `${one.namespace}/${one.pod}/${one.container}`;
  const heldOf = (device) => (device.whole ? device.memory_measured_bytes : device.memory_used_bytes);

  // A colour for each container, for as long as it is there: one that no neighbour has, if possible.
  function paint(containers) {
    const present = new Set(containers.map(nameOf));
    for (const name of colours.keys()) if (!present.has(name)) colours.delete(name);
    for (const one of containers) {
      if (colours.has(nameOf(one))) continue;
      const uses = new Array(COLOURS).fill(0);
      const gpus = new Set(one.gpus.map((device) => device.uuid));
      for (const other of containers) {
        const known = colours.get(nameOf(other));
        if (known === undefined) continue;
        uses[known] += 1 + (other.gpus.some((device) => gpus.has(device.uuid)) ? 1000 : 0);
      }
      colours.set(nameOf(one), uses.indexOf(Math.min(...uses)));
    }
  }

  // Who has which GPU: uuid → rows.
  function holders(found) {
    const all = new Map(found.gpus.map((gpu) => [gpu.uuid, []]));
    for (const one of past.running(found)) {
      for (const device of one.gpus) {
        all.get(device.uuid)?.push({ one, device, key: past.keyOf(device.uuid, one), name: nameOf(one) });
      }
    }
    return all;
  }

  const ORDERS = {
    admitted: null,
    share: (a, b) => (past.shareOf(b.device) ?? 0) - (past.shareOf(a.device) ?? 0),
    memory: (a, b) => (heldOf(b.device) ?? 0) - (heldOf(a.device) ?? 0),
    refused: (a, b) => (b.device.memory_refusals ?? 0) - (a.device.memory_refusals ?? 0),
    name: (a, b) => a.name.localeCompare(b.name),
  };

  function chosen(gpu, rows) {
    const wanted = get("search").value.trim().toLowerCase();
    const order = ORDERS[get("order").value];
    const matches = (text) => text.toLowerCase().includes(wanted);
    const all = !wanted || matches(`gpu ${gpu.index}`) || matches(gpu.model) || matches(gpu.uuid);
    const left = all ? [...rows] : rows.filter((row) => matches(`${row.name} ${row.one.claim ?? ""}`));
    return order ? left.sort(order) : left;
  }

  function tiles(found) {
    const sum = (of) => found.gpus.reduce((total, gpu) => total + (of(gpu) ?? 0), 0);
    const count = found.gpus.length;
    const ill = found.gpus.filter((gpu) => !gpu.healthy).length;
    figure(get("gpus-count"), number(count));
    say(get("gpus-more"), ill ? `${ill} out of use` : "all healthy");
    const granted = part(sum((gpu) => gpu.cores_granted_percent), 100 * count);
    figure(get("time-granted"), percent(Math.round(granted)));
    const told = found.gpus.filter((gpu) => gpu.utilization_percent !== null);
    const busy = told.reduce((total, gpu) => total + gpu.utilization_percent, 0) / (told.length || 1);
    say(get("time-used"), told.length ? `${percent(Math.round(busy))} busy now` : "NVML does not respond");
    figure(get("memory-granted"), bytes(sum((gpu) => gpu.memory_granted_bytes)));
    say(get("memory-used"), `of ${bytes(sum((gpu) => gpu.memory_bytes))}`);
    figure(get("containers-count"), number(past.running(found).length));
    const gpus = found.gpus.filter((gpu) => gpu.containers).length;
    say(get("containers-more"), `on ${plural(gpus, "GPU")}`);
    const refused = past.running(found).flatMap((one) => one.gpus).reduce((n, device) => n + (device.memory_refusals ?? 0), 0);
    figure(get("refused"), number(refused));
  }

  function makeGpu() {
    const card = {
      title: el("h2"), model: el("span", { class: "model" }), facts: el("div", { class: "facts" }),
      ill: el("span", { class: "badge bad" }), rows: el("ul", { class: "rows" }), chart: charts.stack(),
      time: el("div", { class: "bar" }), timeText: el("small"),
      memory: el("div", { class: "bar" }), memoryText: el("small"),
    };
    card.whole = el("div", { class: "whole" }, card.chart.node,
      el("div", { class: "axis muted" }, el("span", { text: "5 min ago" }), el("span", { text: "time of the GPU, 0 to 100 %" }), el("span", { text: "now" })),
      el("div", { class: "meter" }, el("small", { text: "time" }), card.time, card.timeText),
      el("div", { class: "meter" }, el("small", { text: "memory" }), card.memory, card.memoryText));
    card.node = el("article", { class: "gpu panel" },
      el("header", {}, card.title, card.model, card.ill, card.facts),
      el("div", { class: "inside" }, card.whole, card.rows));
    return card;
  }

  function facts(gpu) {
    const all = [[percent(gpu.utilization_percent), "busy"]];
    if (gpu.temperature_celsius !== null) all.push([`${gpu.temperature_celsius} °C`, ""]);
    if (gpu.power_watts !== null) all.push([`${number(gpu.power_watts)} W`, ""]);
    return all;
  }

  function trouble(gpu) {
    const xids = Object.keys(gpu.xid_errors);
    return [gpu.healthy ? "" : "out of use", xids.length ? `Xid ${xids.join(", ")}` : ""].filter(Boolean).join(", ");
  }

  // Segments of a bar, one for each container.
  function segments(bar, items, total) {
    let from = 0;
    keyed(bar, items, () => ({ node: el("i") }), ({ node }, item) => {
      mark(node, "class", `cut s${item.colour}${item.soft ? " soft" : ""}`);
      node.style.left = `${part(from, total).toFixed(2)}%`;
      width(node, part(item.value, total));
      from += item.value;
    });
  }

  function updateGpu(card, { gpu, every, rows }) {
    say(card.title, `GPU ${gpu.index}`);
    say(card.model, gpu.model);
    card.node.classList.toggle("given", every.length === 1 && every[0].device.whole);
    mark(card.node, "id", `gpu-${gpu.index}`);
    mark(card.node, "aria-label", `GPU ${gpu.index}, ${gpu.model}`);
    keyed(card.facts, facts(gpu).map(([value, unit], key) => ({ key, value, unit })),
      () => ({ node: el("span") }), ({ node }, { value, unit }) => figure(node, `${value} ${unit}`.trim()));
    say(card.ill, trouble(gpu));
    card.ill.hidden = !trouble(gpu);
    const colour = (row) => colours.get(row.name);
    segments(card.time, every.map((row) => ({ key: row.key, value: row.device.share_granted_percent, colour: colour(row) })), 100);
    say(card.timeText, `${gpu.cores_granted_percent} of 100 % granted`);
    segments(card.memory, every.map((row) => ({ key: row.key, value: heldOf(row.device) ?? 0, colour: colour(row) })), gpu.memory_bytes);
    say(card.memoryText, `${bytes(gpu.memory_used_bytes)} of ${bytes(gpu.memory_bytes)} used`);
    drawTime(card, gpu, every);
    keyed(card.rows, rows, makeRow, updateRow);
  }

  function drawTime(card, gpu, every) {
    const present = new Map(every.map((row) => [row.key, row]));
    const layers = past.on(gpu.uuid).map(([key, one]) => ({
      key, values: one.percent, picked: picked === key,
      colour: present.has(key) ? `s${colours.get(present.get(key).name)}` : "gone",
    }));
    const order = new Map(every.map((row, place) => [row.key, place]));
    layers.sort((a, b) => (order.get(a.key) ?? Infinity) - (order.get(b.key) ?? Infinity));
    card.chart.node.classList.toggle("picked", layers.some((one) => one.picked));
    const sums = charts.drawStack(card.chart, past.times(), layers);
    const now = sums[sums.length - 1] ?? 0;
    mark(card.chart.node, "aria-label", `Time of GPU ${gpu.index} that its containers took in the last five minutes: ${percent(Math.round(now))} now`);
  }

  function makeRow({ key }) {
    const row = {
      pod: el("b"), who: el("small"), chart: charts.spark(), share: el("b"), of: el("small"),
      memory: el("b"), limit: el("small"), notes: el("div", { class: "notes" }),
      used: el("i"), peak: el("i", { class: "tick" }),
    };
    row.node = el("li", { class: "row" },
      el("div", { class: "name" }, row.pod, row.who), row.chart.node,
      el("div", { class: "share" }, el("span", { class: "sr", text: "Share: " }), row.share, row.of),
      el("div", { class: "memory" }, el("span", { class: "sr", text: "Memory: " }), row.memory, row.limit,
        el("div", { class: "bar" }, row.used, row.peak)),
      row.notes);
    row.node.addEventListener("pointerenter", () => pick(key));
    row.node.addEventListener("pointerleave", () => pick(null));
    return row;
  }

  // Namespace, container if it is not called main, and the claim; of a shared claim all who use it.
  function whose(one) {
    const users = one.users.length > 1 ? one.users.map((user) => `${user.pod}:${user.container}`).join(" ") : one.container;
    return [one.namespace, users === "main" ? "" : users, one.claim && `claim ${one.claim}`].filter(Boolean).join(" · ");
  }

  function updateRow(row, { one, device, key, name }) {
    mark(row.node, "class", `row own${colours.get(name)}`);
    say(row.pod, one.pod);
    mark(row.pod, "title", name);
    say(row.who, whose(one));
    const share = past.shareOf(device);
    const [granted, ceiling] = [device.share_granted_percent, device.share_ceiling_percent];
    figure(row.share, share === null ? "–" : `${number(share, 1)} %`);
    say(row.of, ceiling > granted ? `of ${granted} to ${ceiling} %` : `of ${granted} %`);
    const held = heldOf(device);
    figure(row.memory, bytes(held));
    say(row.limit, ` of ${bytes(device.memory_limit_bytes)}`);
    width(row.used, part(held ?? 0, device.memory_limit_bytes));
    const peak = device.memory_peak_bytes;
    row.peak.hidden = !peak || peak === held;
    row.peak.style.left = `calc(${part(peak ?? 0, device.memory_limit_bytes).toFixed(2)}% - 2px)`;
    notes(row, one, device, past.throttled(key));
    const values = past.of(key)?.percent ?? [];
    charts.drawSpark(row.chart, values.length ? past.times() : [], values, granted, ceiling);
    mark(row.chart.node, "aria-label", `Share of ${one.pod} in the last five minutes, granted ${granted} percent`);
  }

  function notes(row, one, device, throttled) {
    const all = [];
    if (device.whole) all.push({ key: "whole", text: one.gpus.length > 1 ? `whole GPU, one of ${one.gpus.length}` : "whole GPU" });
    if (device.memory_refusals) all.push({ key: "refused", kind: "warn", text: `${plural(device.memory_refusals, "allocation")} refused` });
    if (throttled !== null && throttled.percent >= 1) {
      const time = throttled.seconds > 55 ? "minute" : `${number(throttled.seconds)} s`;
      all.push({ key: "throttled", text: `throttled ${percent(Math.round(throttled.percent))} of the last ${time}` });
    }
    if (!device.processes && !device.launches && !device.whole) all.push({ key: "none", text: "no process on the GPU yet" });
    keyed(row.notes, all, () => ({ node: el("span") }), ({ node }, { text, kind }) => {
      mark(node, "class", `badge ${kind ?? ""}`);
      say(node, text);
    });
  }

  function pick(key) {
    picked = key;
    if (shown !== null) draw(shown);
  }

  function cellOf(gpu) {
    const used = `${bytes(gpu.memory_used_bytes)} of ${bytes(gpu.memory_bytes)} used`;
    const warm = gpu.temperature_celsius === null ? "" : `, ${gpu.temperature_celsius} °C`;
    const label = `GPU ${gpu.index}, ${gpu.model}: ${percent(gpu.utilization_percent)} busy, ${gpu.cores_granted_percent} % of its time granted, ${used}${warm}${trouble(gpu) && `; ${trouble(gpu)}`}`;
    const text = trouble(gpu) || (gpu.containers || gpu.utilization_percent ? `${percent(gpu.utilization_percent)} busy` : "free");
    return { key: gpu.uuid, name: String(gpu.index), text, time: gpu.utilization_percent ?? 0, memory: part(gpu.memory_used_bytes, gpu.memory_bytes), closed: !gpu.healthy, label };
  }

  function sign(one) {
    if (one.warning) return SIGNS.warning;
    return one.kind === "container-came" ? SIGNS.came : one.kind === "container-gone" ? SIGNS.gone : SIGNS.other;
  }

  function drawEvents(events) {
    const wanted = get("search").value.trim().toLowerCase();
    const found = events.filter((one) => `${one.subject} ${one.message}`.toLowerCase().includes(wanted));
    const items = found.map((one, place) => ({ key: `${one.time} ${one.kind} ${one.subject} ${place}`, one }));
    keyed(get("events"), items.length ? items : [{ key: `none ${wanted !== ""}`, one: null }], ({ one }) => {
      if (one === null) return { node: el("li", { class: "empty", text: wanted ? "No event matches." : "Nothing since the agent started." }) };
      const times = one.count > 1 ? ` (${one.count} times)` : "";
      const said = el("p", {}, el("b", { text: one.subject }), " ", el("span", { text: one.message + times }));
      return { node: el("li", { class: one.warning ? "warning" : "" },
        el("time", { datetime: new Date(one.time * 1000).toISOString(), text: `${date(one.time)}, ${clock(one.time)}` }),
        el("span", { class: "sign", "aria-hidden": "true", text: sign(one) }), said) };
    }, () => {});
  }

  function draw(found) {
    shown = found;
    document.title = `${found.node} · GPUs`;
    say(get("node"), found.node);
    const models = [...new Set(found.gpus.map((gpu) => `${gpu.model}, ${bytes(gpu.memory_bytes)}`))];
    say(get("about"), [`gpu-manager ${found.version}`, ...models].join(" · "));
    say(get("ready"), `not ready: ${found.not_ready}`);
    get("ready").hidden = !found.not_ready;
    get("driver").hidden = found.driver_answers;
    paint(past.running(found));
    tiles(found);
    keyed(get("strip"), found.gpus.map(cellOf), makeCell, updateCell);
    const all = holders(found);
    const busy = found.gpus.filter((gpu) => all.get(gpu.uuid).length).map((gpu) => {
      const every = all.get(gpu.uuid);
      return { key: gpu.uuid, gpu, every, rows: chosen(gpu, every) };
    }).filter(({ rows }) => rows.length);
    keyed(get("busy"), busy, makeGpu, updateGpu);
    get("nothing").hidden = busy.length > 0;
    say(get("nothing"), get("search").value ? "Nothing here matches." : "No container has a GPU of this node.");
    drawEvents(found.events);
  }

  const again = () => shown !== null && draw(shown);
  get("search").addEventListener("input", again);
  get("order").addEventListener("change", again);
  poll.start({
    server: "agent",
    path: () => "api/node",
    before: async () => past.begin(await ask("api/history")),
    take: (found) => { past.add(found); return Math.max(1000, 1000 * found.period_seconds); },
    draw,
  });
})();
